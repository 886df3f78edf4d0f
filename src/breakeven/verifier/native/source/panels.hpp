// Weights as panels, activations as blocks: the two layouts of the matrix products.
//
// A panel holds 16 outputs of a linear: [K][16], one cache line per input; of int8 weights, groups
// of [64][16] bytes, each behind its 16 scales; for W8A8 the bytes of a group are [16][16][4], four
// inputs of an output beside each other. A linear packs its
// projections one after another, each rounded up to whole panels, so that no panel belongs to two
// of them; gate and up are interleaved (g0 u0 g1 u1 ...), so that both halves of a SwiGLU unit
// come out of one piece of work.
//
// Activations lie as tiles, the shape in which products come out: rows are cut into blocks of up
// to kRows, and a block holds [K / 16][rows of the block][16]. What one row has of a tile is one
// cache line, so members who work on different rows or outputs never share lines.
#pragma once

#include <algorithm>
#include <cstdint>

#include "w8a8.hpp"

namespace breakeven {

// Sizes of stored weights are counted in floats of memory, whatever they hold.
constexpr int64_t kWhole = kPanel * sizeof(int8_t) / sizeof(float); // 16 int8

// Inputs of which int8 weights are stored together; behind the last one there are zeros.
inline int64_t together(int64_t kind) { return kind == kW8A8 ? kShare : kPanel / kWhole; }

// Where a group that begins with input `inputs` stands in its panel; a panel of so many takes that.
inline int64_t panel_size(int64_t kind, int64_t inputs) {
  if (kind == kFp32) return inputs * kPanel;
  const int64_t groups = (inputs + kGroup - 1) / kGroup, some = together(kind);
  return groups * kPanel + (inputs + some - 1) / some * some * kWhole; // whole cache lines
}

// Where the weight of a group's input k and output j stands among its bytes.
inline int64_t byte_of(int64_t kind, int64_t k, int j) {
  if (kind == kInt8) return k * kPanel + j;
  return (k / kFour * kPanel + j) * kFour + k % kFour;
}

struct Projections {
  int32_t count;       // 1 to 3
  int32_t interleaved; // 1: the panels of two projections of one size alternate
  int64_t kind;        // of the weights
  int64_t inputs;
  int64_t outputs[3];

  int64_t panel_size() const { return breakeven::panel_size(kind, inputs); }
  int64_t all() const { // outputs
    int64_t sum = 0;
    for (int p = 0; p < count; p++) sum += outputs[p];
    return sum;
  }
  static int64_t panels_of(int64_t outputs) { return (outputs + kPanel - 1) / kPanel; }
  int64_t panels() const {
    int64_t sum = 0;
    for (int p = 0; p < count; p++) sum += panels_of(outputs[p]);
    return sum;
  }
};

// Where one panel's outputs belong.
struct Place {
  int projection;
  int64_t column; // within the projection
  int64_t output; // within the linear
  int width;      // 1 to 16 outputs are real, the rest is zero padding
};

inline Place place(const Projections &linear, int64_t panel) {
  int projection = 0;
  int64_t before = 0;
  if (linear.interleaved) {
    projection = int(panel & 1);
    before = projection * linear.outputs[0];
    panel >>= 1;
  } else {
    while (panel >= Projections::panels_of(linear.outputs[projection])) {
      panel -= Projections::panels_of(linear.outputs[projection]);
      before += linear.outputs[projection++];
    }
  }
  const int64_t column = panel * kPanel;
  const int64_t left = linear.outputs[projection] - column;
  return {projection, column, before + column, int(std::min<int64_t>(left, kPanel))};
}

// weight [outputs][K] to panels of fp32.
inline void pack(const Projections &linear, const float *weight, float *panels) {
  const int64_t inputs = linear.inputs, count = linear.panels();
  for (int64_t panel = 0; panel < count; panel++) {
    const Place at = place(linear, panel);
    float *to = panels + panel * linear.panel_size();
    for (int64_t k = 0; k < inputs; k++)
      for (int j = 0; j < kPanel; j++)
        to[k * kPanel + j] = j < at.width ? weight[(at.output + j) * inputs + k] : 0.0f;
  }
}

// wholes [outputs][K] and scales [outputs][groups] to panels of int8.
inline void pack(const Projections &linear, const int8_t *wholes, const float *scales,
                 float *panels) {
  const int64_t inputs = linear.inputs, count = linear.panels();
  const int64_t groups = (inputs + kGroup - 1) / kGroup, kind = linear.kind;
  const int64_t some = together(kind);
  const int offset = kind == kW8A8 ? kOffset : 0;
  for (int64_t panel = 0; panel < count; panel++) {
    const Place at = place(linear, panel);
    float *to = panels + panel * linear.panel_size();
    for (int64_t g = 0; g < groups; g++) {
      const int64_t first = g * kGroup, depth = std::min(kGroup, inputs - first);
      int8_t *bytes = reinterpret_cast<int8_t *>(to + kPanel);
      for (int j = 0; j < kPanel; j++) {
        const bool real = j < at.width;
        to[j] = real ? scales[(at.output + j) * groups + g] : 0.0f;
        for (int64_t k = 0; k < (depth + some - 1) / some * some; k++) {
          const int whole = real && k < depth ? wholes[(at.output + j) * inputs + first + k] : 0;
          bytes[byte_of(kind, k, j)] = int8_t(whole + offset);
        }
      }
      to += kPanel + depth * kWhole;
    }
  }
}

// weights [K] of one output, the j-th of a panel.
inline void unpack(const Projections &linear, const float *panel, int j, float *weights) {
  for (int64_t k = 0; k < linear.inputs; k++) {
    if (linear.kind == kFp32) {
      weights[k] = panel[k * kPanel + j];
      continue;
    }
    const float *group = panel + panel_size(kInt8, k / kGroup * kGroup);
    const int8_t *bytes = reinterpret_cast<const int8_t *>(group + kPanel);
    const int offset = linear.kind == kW8A8 ? kOffset : 0;
    weights[k] = group[j] * float(int8_t(bytes[byte_of(linear.kind, k % kGroup, j)] - offset));
  }
}

// The weights of all outputs [outputs][K].
inline void unpack(const Projections &linear, const float *panels, float *weights) {
  for (int64_t panel = 0; panel < linear.panels(); panel++) {
    const Place at = place(linear, panel);
    for (int j = 0; j < at.width; j++)
      unpack(linear, panels + panel * linear.panel_size(), j,
             weights + (at.output + j) * linear.inputs);
  }
}

// Rows cut into blocks of nearly equal size, none larger than `most`.
struct Blocks {
  int64_t rows, count, base, larger;

  Blocks(int64_t rows, int64_t most)
      : rows(rows), count((rows + most - 1) / most), base(rows / count), larger(rows % count) {}
  int64_t start(int64_t block) const { return block * base + std::min(block, larger); }
  int size(int64_t block) const { return int(base + (block < larger)); }
  int64_t of(int64_t row) const { // the block a row is in
    const int64_t cut = larger * (base + 1);
    return row < cut ? row / (base + 1) : larger + (row - cut) / base;
  }
};

// Activations of rows cut into blocks.
struct Tiles {
  float *data;
  int64_t inputs;             // a multiple of 16
  Rounded *rounded = nullptr; // for W8A8 the same, a block holds [groups][rows of the block]

  // Room for rows that weights of a kind are to multiply; take(n) is n floats.
  template <class Take>
  static Tiles of(int64_t kind, int64_t rows, int64_t inputs, const Take &take) {
    Tiles made{nullptr, padded(inputs)};
    made.data = take(rows * made.inputs);
    if (kind == kW8A8)
      made.rounded = reinterpret_cast<Rounded *>(
          take(rows * made.groups() * int64_t(sizeof(Rounded) / sizeof(float))));
    return made;
  }

  static int64_t padded(int64_t inputs) { return (inputs + kPanel - 1) / kPanel * kPanel; }
  float *block(const Blocks &blocks, int64_t block) const {
    return data + blocks.start(block) * inputs;
  }
  // One row: its inputs 16 i .. 16 i + 15 are at first + i * step.
  struct Row {
    float *first;
    int64_t step;
    float *at(int64_t k) const { return first + k / kPanel * step + k % kPanel; }
  };
  Row row(const Blocks &blocks, int64_t row) const {
    const int64_t block = blocks.of(row), from = blocks.start(block);
    return {data + from * inputs + (row - from) * kPanel, blocks.size(block) * kPanel};
  }
  int64_t groups() const { return (inputs + kGroup - 1) / kGroup; }
  // A block's rows of one group.
  Rounded *group(const Blocks &blocks, int64_t block, int64_t group) const {
    return rounded + blocks.start(block) * groups() + group * blocks.size(block);
  }
  // Rounds what one row has of the groups first..last-1, `size` inputs in all.
  void round(const Blocks &blocks, int64_t row, int64_t size, int64_t first, int64_t last) const {
    const int64_t block = blocks.of(row), from = first * kGroup;
    const int64_t end = std::min(last * kGroup, size), step = blocks.size(block);
    const float *line = this->row(blocks, row).at(from);
    Rounded *to = group(blocks, block, first) + row - blocks.start(block);
    for (int64_t k = from; k < end; k += kShare, line += step * kPanel) {
      const int64_t share = k % kGroup / kShare;
      if (share == 0 && k > from) to += step;
      if (k + kShare <= end) {
        round_share(*to, share, line);
        continue;
      }
      float some[kShare] = {};
      std::copy(line, line + end - k, some);
      round_share(*to, share, some);
    }
  }
};

} // namespace breakeven
