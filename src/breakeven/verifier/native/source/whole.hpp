// Products with int8 weights: whole numbers, a scale for 16 outputs and a group of inputs.
//
// As in multiply.hpp every result is computed in one way. A chain is short here, one tile of
// inputs: its whole numbers are widened and multiplied, its sum is scaled and added to the tile.
// With one row a chain alone would wait for its own last sum, and reading a quarter of the bytes
// leaves no time for that; so few rows run several chains side by side and add them in their order.
// Nothing is fetched ahead: it brought nothing at any number of rows (Zen 4).
#pragma once

#include "multiply.hpp"

namespace breakeven {

enum Kind { kFp32, kInt8, kW8A8 }; // of weights: kW8A8 are int8 for int8 activations

constexpr int64_t kGroup = 64;       // inputs that share a scale: GROUP in int8.py
constexpr int kChain = kPanel;       // inputs in a chain
// Chains that run side by side: as many as the sums of a dozen registers allow.
constexpr int side_by_side(int rows) {
  return rows * kVectors * 4 <= 12 ? 4 : rows * kVectors * 2 <= 12 ? 2 : 1;
}

// tile [R][16] (+)= x · w for C chains of `depth` inputs each, x and w at the first.
template <int L, int NV, int R, int C>
inline void whole_chains(float *tile, const float *x, const int8_t *w, const float *scales,
                         int64_t depth) {
  Floats<L> sum[C][R][NV];
#pragma GCC unroll 4
  for (int c = 0; c < C; c++)
#pragma GCC unroll 32
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
      for (int v = 0; v < NV; v++) sum[c][r][v] = Floats<L>{};
  for (int64_t k = 0; k < depth; k++) {
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
      Floats<L> weights[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; v++) weights[v] = widened<L>(w + (c * kChain + k) * kPanel + v * L);
#pragma GCC unroll 32
      for (int r = 0; r < R; r++) {
        const Floats<L> factor = splat<L>(x[(c * R + r) * kPanel + k]);
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) sum[c][r][v] = fused(weights[v], factor, sum[c][r][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < C; c++)
#pragma GCC unroll 32
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
      for (int v = 0; v < NV; v++) {
        float *to = tile + r * kPanel + v * L;
        store<L>(to, fused(load<L>(scales + v * L), sum[c][r][v], load<L>(to)));
      }
}

// tile [R][16] (+)= x · w for a group of at most kGroup inputs: 16 scales, then [depth][16] bytes.
template <int R>
void whole_multiply(float *tile, const float *x, const float *group, int64_t depth, bool fresh) {
  constexpr int L = kPanel / kVectors, C = side_by_side(R);
  const int8_t *w = reinterpret_cast<const int8_t *>(group + kPanel);
  if (fresh) std::fill_n(tile, R * kPanel, 0.0f);
  int64_t k = 0;
  for (; k + C * kChain <= depth; k += C * kChain)
    whole_chains<L, kVectors, R, C>(tile, x + k * R, w + k * kPanel, group, kChain);
  for (; k < depth; k += kChain)
    whole_chains<L, kVectors, R, 1>(tile, x + k * R, w + k * kPanel, group,
                                    std::min<int64_t>(kChain, depth - k));
}

using WholeMultiply = void (*)(float *, const float *, const float *, int64_t, bool);

template <int... R>
inline WholeMultiply whole_multiply_for(int rows, std::integer_sequence<int, R...>) {
  static constexpr WholeMultiply table[] = {whole_multiply<R + 1>...};
  return table[rows - 1];
}
// whole_multiply() for 1 to kRows rows.
inline WholeMultiply whole_multiply_for(int rows) {
  return whole_multiply_for(rows, std::make_integer_sequence<int, kRows>());
}

} // namespace breakeven
