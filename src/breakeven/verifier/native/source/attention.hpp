// Grouped-query attention of the pass's rows over the cache.
//
// The query heads that share keys are laid beside each other as lanes: up to 16 (row, head) pairs
// are answered together, so keys and values are read once for all of them. Slots are taken in
// their order and hidden ones weigh exactly 0, so neither the width of the pass nor what lies
// behind the visible slots changes a bit of a row's result.
#pragma once

#include <cmath>
#include <limits>

#include "multiply.hpp"
#include "panels.hpp"

namespace breakeven {

// What the rows of a pass see: cached slots 0..past-1, then among themselves.
struct Visibility {
  int64_t width;
  const int64_t *lengths; // [B] cached rows; row w of request b stands in slot lengths[b] + w
  const int64_t *past;    // [B][W] or null: all cached rows
  const uint8_t *sees;    // [W][W], or one for each request
  int64_t sees_step;      // from request to request

  int64_t before(int64_t request, int64_t row) const {
    return past ? std::min(past[request * width + row], lengths[request]) : lengths[request];
  }
  const uint8_t *row(int64_t request, int64_t row) const {
    return sees + request * sees_step + row * width;
  }
};

struct Heads {
  int64_t query, shared, dim; // query heads, key/value heads, their size
  int64_t group() const { return query / shared; }
};

// Keys and values of one layer: row (request, head, slot) is at request * batch_step +
// head * head_step + slot * dim.
struct Store {
  float *keys, *values;
  int64_t batch_step, head_step;
};

// Lanes of one piece of work: pairs (row, head of the group), row-major.
struct Pairs {
  int64_t request, head; // key/value head
  int64_t first;         // the first pair
  int count;
};

// Floats of scratch that attend() needs for `slots` slots.
inline int64_t attention_scratch(int64_t slots, int64_t dim) {
  return (slots + dim + kRows + 1) * kPanel;
}

// Sets hidden slots of scores [slots][N] to -inf; returns how many slots some lane sees.
template <int N>
inline void hide(float *scores, int64_t slots, const Visibility &sight, const Pairs &pairs,
                 int64_t group) {
  const int64_t length = sight.lengths[pairs.request];
  for (int i = 0; i < pairs.count; i++) {
    const int64_t row = (pairs.first + i) / group;
    const uint8_t *sees = sight.row(pairs.request, row);
    for (int64_t s = sight.before(pairs.request, row); s < slots; s++)
      if (s < length || !sees[s - length])
        scores[s * N + i] = -std::numeric_limits<float>::infinity();
  }
}

// Slots up to the last one that any of the pairs sees.
inline int64_t extent(const Visibility &sight, const Pairs &pairs, int64_t group) {
  const int64_t length = sight.lengths[pairs.request];
  int64_t stop = 0;
  for (int i = 0; i < pairs.count; i++) {
    const int64_t row = (pairs.first + i) / group;
    const uint8_t *sees = sight.row(pairs.request, row);
    int64_t last = sight.width;
    while (last > 0 && !sees[last - 1]) last--;
    stop = std::max(stop, last ? length + last : sight.before(pairs.request, row));
  }
  return stop;
}

// Turns scores [slots][N] into e^(score - max), lane by lane; sums [N] gets their totals.
template <int N> inline void soften(float *scores, int64_t slots, float *sums) {
  constexpr int L = std::min(N, kLanes);
  for (int v = 0; v < N; v += L) {
    Floats<L> most = load<L>(scores + v), sum{};
    for (int64_t s = 1; s < slots; s++) most = larger<L>(load<L>(scores + s * N + v), most);
    for (int64_t s = 0; s < slots; s++) {
      const Floats<L> weight = exponential<L>(load<L>(scores + s * N + v) - most);
      store<L>(scores + s * N + v, weight);
      sum += weight;
    }
    store<L>(sums + v, sum);
  }
}

// Columns [column, column + C) of the weighted values of all pairs, written to `out`.
template <int N, int C, class Out>
inline void weigh(const float *weights, const float *sums, int64_t slots, const float *values,
                  int64_t dim, int64_t column, const Pairs &pairs, float *tile, const Out &out) {
  for (int i = 0; i < pairs.count; i += kRows) {
    const int rows = std::min(kRows, pairs.count - i);
    for (int64_t s = 0; s < slots; s += kDepth)
      multiply_for<C, kSteps>(rows)(tile, weights + s * N + i, N, values + s * dim + column, dim,
                                    std::min(kDepth, slots - s), s == 0, {});
    for (int r = 0; r < rows; r++) out(i + r, column, C, tile + r * C, 1.0f / sums[i + r]);
  }
}

// Attention of the pairs. queries(pair) is the address of its query [dim]; out(i, column, count,
// values, factor) receives parts of pair i's answer.
template <int N, class Queries, class Out>
void attend(const Heads &heads, const Store &store, const Visibility &sight, const Pairs &pairs,
            float *scratch, const Queries &queries, const Out &out) {
  const int64_t dim = heads.dim, slots = extent(sight, pairs, heads.group());
  const int64_t base = pairs.request * store.batch_step + pairs.head * store.head_step;
  float *turned = scratch, *scores = turned + dim * N, *tile = scores + slots * N;
  const float scale = 1.0f / std::sqrt(float(dim));
  for (int i = 0; i < N; i++) {
    const float *query = i < pairs.count ? queries(pairs.first + i) : nullptr;
    for (int64_t j = 0; j < dim; j++) turned[j * N + i] = query ? query[j] * scale : 0.0f;
  }
  multiply_lines<N>(scores, store.keys + base, dim, slots, turned, N, dim, store.values + base);
  hide<N>(scores, slots, sight, pairs, heads.group());
  float sums[N];
  soften<N>(scores, slots, sums);
  int64_t column = 0;
  for (; column + 16 <= dim; column += 16)
    weigh<N, 16>(scores, sums, slots, store.values + base, dim, column, pairs, tile, out);
  if (column < dim)
    weigh<N, 8>(scores, sums, slots, store.values + base, dim, column, pairs, tile, out);
}

} // namespace breakeven
