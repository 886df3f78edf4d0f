// The one inner loop: a tile of at most kRows x 16 results, held in registers.
//
// Every result is computed in one way, whatever the number of rows, the blocking and the thread:
// chains of multiply-adds over kDepth inputs each, in their order, are added up one after another
// (shorter chains round less). A row's result therefore does not depend on its company, and
// verifying W rows gives the very bits of W plain steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "vector.hpp"

namespace breakeven {

constexpr int kPanel = 16;                // outputs in a panel of weights, width of a tile
constexpr int64_t kDepth = 128;           // inputs in a chain, a multiple of kPanel
constexpr int kVectors = kPanel / kLanes; // registers for one row of a tile
constexpr int kRows = std::min(24, (kRegisters - 2 - kVectors) / kVectors); // most rows of a tile

// How the factors of R rows lie: element (r, k) is
enum Factors {
  kTiles, // x[(k / 16 * R + r) * 16 + k % 16]: tiles, as products come out and linears read them
  kSteps, // x[k * stride + r]: attention weights, slot by slot
  kLines, // x[r * stride + k]: keys in the cache
};

// What to fetch into the caches meanwhile: a stretch of each, `step` floats further each input.
struct Ahead {
  const float *from, *also;
  int64_t step;
};

// tile [R][N] (+)= x · w with N = NV * L lanes, w [depth][pitch], depth at most kDepth where the
// chain is not to be longer. `fresh` overwrites the tile, otherwise the new chains are added.
template <int L, int NV, int R, Factors F>
void multiply(float *tile, const float *x, int64_t stride, const float *w, int64_t pitch,
              int64_t depth, bool fresh, Ahead ahead) {
  constexpr int N = NV * L;
  Floats<L> sum[R][NV];
#pragma GCC unroll 32
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) sum[r][v] = Floats<L>{};
  for (int64_t k = 0; k < depth; k++) {
    const float *at = F == kSteps   ? x + k * stride
                      : F == kLines ? x + k
                                    : x + k + k / kPanel * ((R - 1) * kPanel);
    Floats<L> weights[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) weights[v] = load<L>(w + v * L);
    if (F == kTiles) __builtin_prefetch(ahead.from, 0, 2); // into the second-level cache
    if (F == kLines) __builtin_prefetch(ahead.from, 0, 3), __builtin_prefetch(ahead.also, 0, 2);
#pragma GCC unroll 32
    for (int r = 0; r < R; r++) {
      const float factor = F == kTiles ? at[r * kPanel] : F == kSteps ? at[r] : at[r * stride];
#pragma GCC unroll 4
      for (int v = 0; v < NV; v++) sum[r][v] = fused(weights[v], splat<L>(factor), sum[r][v]);
    }
    w += pitch;
    ahead.from += ahead.step;
    if (F == kLines) ahead.also += ahead.step;
  }
#pragma GCC unroll 32
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) {
      float *to = tile + r * N + v * L;
      store<L>(to, fresh ? sum[r][v] : load<L>(to) + sum[r][v]);
    }
}

using Multiply = void (*)(float *, const float *, int64_t, const float *, int64_t, int64_t, bool,
                          Ahead);

template <int N, Factors F, int... R>
inline Multiply multiply_for(int rows, std::integer_sequence<int, R...>) {
  constexpr int L = std::min(N, kLanes);
  static constexpr Multiply table[] = {multiply<L, N / L, R + 1, F>...};
  return table[rows - 1];
}
// multiply() for 1 to kRows rows and N columns.
template <int N, Factors F> inline Multiply multiply_for(int rows) {
  return multiply_for<N, F>(rows, std::make_integer_sequence<int, kRows>());
}

// tile [count][N] = lines · w for any number of lines, [count][stride]; eight accumulators keep
// the pipes full. Meanwhile lines further on and `also`, of the same shape, are fetched.
template <int N>
inline void multiply_lines(float *tile, const float *lines, int64_t stride, int64_t count,
                           const float *w, int64_t pitch, int64_t depth, const float *also) {
  constexpr int L = std::min(N, kLanes), NV = N / L, R = 8 / NV;
  const auto some = [&](auto rows, int64_t line) {
    const Ahead ahead{lines + (line + 3 * R) * stride, also + line * stride, R};
    multiply<L, NV, decltype(rows)::value, kLines>(tile + line * N, lines + line * stride, stride,
                                                   w, pitch, depth, true, ahead);
  };
  int64_t line = 0;
  for (; line + R <= count; line += R) some(std::integral_constant<int, R>(), line);
  if (line == count) return;
  if (count >= R) { // the last ones once more, with their neighbours
    some(std::integral_constant<int, R>(), count - R);
    return;
  }
  for (; line < count; line++) some(std::integral_constant<int, 1>(), line);
}

} // namespace breakeven
