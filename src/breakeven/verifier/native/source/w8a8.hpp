// Products of int8 weights with int8 activations (W8A8), for passes that only draft.
//
// A row's activations are rounded in shares of kShare inputs, each with a scale of its own: finer
// than the groups of the weights, since some activations are far larger than the rest. Products
// and sums of a share are whole numbers, exact in any order. The sums of a group's shares are
// scaled and added up, and their sum is scaled and added to the tile, all in one order. So a row's
// result does not depend on its company here either.
//
// The instruction multiplies unsigned by signed numbers, four of each into a lane. Weights are
// stored kOffset higher, and a group's sum begins with what that adds too much.
#pragma once

#include "whole.hpp"

namespace breakeven {

constexpr int64_t kShare = kPanel; // inputs whose activations share a scale: a line of a tile
constexpr int64_t kFour = 4;       // inputs that an instruction adds up in a lane
constexpr int kOffset = 128;       // of stored weights
constexpr float kLargest = 127;    // magnitude of a rounded activation
constexpr float kLeast = 1e-35f;   // largest magnitude of a share that is more than zeros
constexpr int kW8A8Rows = std::min(12, kRows); // most rows of a tile: two registers for each

// One row's activations of a group, scale * whole: zeros behind the last input.
struct Rounded {
  int8_t whole[kGroup];
  float scale[kGroup / kShare];
  float begin; // of the sum: -kOffset times the sum of the activations
};

// Rounds the next share of a group, x [kShare].
inline void round_share(Rounded &group, int64_t share, const float *x) {
  constexpr int L = kLanes;
  Floats<L> most{};
  for (int64_t k = 0; k < kShare; k += L) {
    const Floats<L> part = load<L>(x + k);
    most = larger<L>(most, larger<L>(part, -part));
  }
  const float magnitude = largest<L>(most);
  const bool zeros = !(magnitude > kLeast);
  const Floats<L> factor = splat<L>(zeros ? 0.0f : kLargest / magnitude);
  Ints<L> sum{};
  for (int64_t k = 0; k < kShare; k += L) {
    const Ints<L> whole = nearest<L>(load<L>(x + k) * factor);
    narrow<L>(group.whole + share * kShare + k, whole);
    sum += whole;
  }
  const float scale = zeros ? 0.0f : magnitude / kLargest;
  group.scale[share] = scale;
  group.begin = (share ? group.begin : 0.0f) - float(kOffset * total<L>(sum)) * scale;
}

// tile [R][16] (+)= x · w for a group: 16 scales, then [inputs / 4][16][4] bytes for whole shares.
template <int R>
void w8a8_multiply(float *tile, const Rounded *x, const float *group, int64_t inputs, bool fresh) {
  const int8_t *w = reinterpret_cast<const int8_t *>(group + kPanel);
  Floats<kPanel> all[R];
#pragma GCC unroll 32
  for (int r = 0; r < R; r++) all[r] = splat<kPanel>(x[r].begin);
  for (int64_t first = 0; first < inputs; first += kShare) {
    Ints<kPanel> sum[R]{};
#pragma GCC unroll 4
    for (int64_t k = first; k < first + kShare; k += kFour) {
      const Ints<kPanel> weights = load_ints(w + k * kPanel);
#pragma GCC unroll 32
      for (int r = 0; r < R; r++) sum[r] = products(sum[r], weights, x[r].whole + k);
    }
#pragma GCC unroll 32
    for (int r = 0; r < R; r++)
      all[r] = fused(__builtin_convertvector(sum[r], Floats<kPanel>),
                     splat<kPanel>(x[r].scale[first / kShare]), all[r]);
  }
  const Floats<kPanel> scales = load<kPanel>(group);
#pragma GCC unroll 32
  for (int r = 0; r < R; r++, tile += kPanel)
    store<kPanel>(tile, fused(all[r], scales, fresh ? Floats<kPanel>{} : load<kPanel>(tile)));
}

using W8A8Multiply = void (*)(float *, const Rounded *, const float *, int64_t, bool);

template <int... R>
inline W8A8Multiply w8a8_multiply_for(int rows, std::integer_sequence<int, R...>) {
  static constexpr W8A8Multiply table[] = {w8a8_multiply<R + 1>...};
  return table[rows - 1];
}
// w8a8_multiply() for 1 to kW8A8Rows rows.
inline W8A8Multiply w8a8_multiply_for(int rows) {
  return w8a8_multiply_for(rows, std::make_integer_sequence<int, kW8A8Rows>());
}

} // namespace breakeven
