// Matrix products of blocks of rows with panels of weights, shared out among the crew.
//
// Weights are read from memory once per pass: every panel meets all blocks of rows while it is in
// the caches, stretch by stretch of kDepth inputs, which stay in the first-level cache. Meanwhile
// later weights are fetched into the second-level cache, each block of rows fetching its share.
#pragma once

#include "crew.hpp"
#include "multiply.hpp"
#include "panels.hpp"

namespace breakeven {

constexpr int64_t kAhead = 3072;    // floats to fetch ahead: measured, flat from there on
constexpr int64_t kBusy = 6;        // rows from which it pays: with fewer, the processor's own
                                    // prefetching keeps up and the hints only disturb it
constexpr int64_t kSlab = std::max(1, 96 / kRows); // blocks that meet a panel in one visit
constexpr int64_t kTile = kRows * kPanel;

struct Linear {
  Projections shape;
  const float *panels; // [panels][K][16]
  const float *bias;   // [outputs] or null
};

// The adapter's part of a linear: each projection adds up · low, for rows with the gate on.
struct Delta {
  int rank;
  Tiles low;              // each projection's part padded to 16, 0 for the other rows
  const float *const *up; // per projection [outputs][rank]
};

// lines [width][stride] as a panel [depth][16].
inline void turn(const float *lines, int64_t stride, int width, int64_t depth, float *panel) {
  for (int64_t k = 0; k < depth; k++)
    for (int j = 0; j < kPanel; j++) panel[k * kPanel + j] = j < width ? lines[j * stride + k] : 0.0f;
}

// One panel times the blocks first..last-1; tiles [blocks][kTile]. `end` is where the weights end
// that this member is to read.
inline void visit(const Linear &linear, int64_t panel, const float *end, const Blocks &blocks,
                  int64_t first, int64_t last, const Tiles &x, const Delta *delta, float *turned,
                  float *tiles) {
  const int64_t inputs = linear.shape.inputs, count = last - first;
  const float *weights = linear.panels + panel * inputs * kPanel;
  for (int64_t k = 0; k < inputs; k += kDepth) {
    const int64_t depth = std::min(kDepth, inputs - k);
    const float *from = weights + k * kPanel;
    for (int64_t b = 0; b < count; b++) {
      const int rows = blocks.size(first + b);
      Ahead ahead{from + kAhead + depth * b / count * kPanel, nullptr, (kPanel + count - 1) / count};
      if (blocks.rows < kBusy || ahead.from + depth * ahead.step > end) ahead = {from, nullptr, 0};
      multiply_for<kPanel, kTiles>(rows)(tiles + b * kTile, x.block(blocks, first + b) + k * rows,
                                         0, from, kPanel, depth, k == 0, ahead);
    }
  }
  if (!delta) return;
  const Place at = place(linear.shape, panel);
  const int64_t part = at.projection * Tiles::padded(delta->rank);
  turn(delta->up[at.projection] + at.column * delta->rank, delta->rank, at.width, delta->rank, turned);
  for (int64_t b = 0; b < count; b++) {
    const int rows = blocks.size(first + b);
    multiply_for<kPanel, kTiles>(rows)(tiles + b * kTile,
                                       delta->low.block(blocks, first + b) + part * rows, 0, turned,
                                       kPanel, delta->rank, false, {turned, nullptr, 0});
  }
}

// Work shared out in order: one long stretch for each member, to read weights in one stream, then
// short ones, so that all end together although some were held up.
struct Shares {
  int64_t units, members, stretch, piece;

  Shares(int64_t units, int64_t members)
      : units(units), members(members), stretch(units * 15 / 16 / members),
        piece(std::max<int64_t>(1, (units - members * stretch) / (kPieces * members))) {}
  int64_t claims() const {
    return members + (units - members * stretch + piece - 1) / piece;
  }
  int64_t start(int64_t claim) const {
    if (claim <= members) return claim * stretch;
    return std::min(units, members * stretch + (claim - members) * piece);
  }

private:
  static constexpr int64_t kPieces = 4; // short stretches for each member
};

// Computes the linear for all rows. done(unit, block, tile, second) gets each finished tile
// [rows of the block][16] of panel `unit`; for interleaved projections `second` is the tile of
// panel unit + 1, else null.
template <class Done>
void product(const Member &me, Tickets &tickets, const Linear &linear, const Blocks &blocks,
             const Tiles &x, const Delta *delta, float *turned, float *tiles, const Done &done) {
  const int64_t unit = linear.shape.interleaved ? 2 : 1, units = linear.shape.panels() / unit;
  const Shares shares(units, me.count);
  for (int64_t claim; (claim = tickets.claim()) < shares.claims();) {
    const int64_t first = shares.start(claim) * unit, last = shares.start(claim + 1) * unit;
    const float *end = linear.panels + last * linear.shape.inputs * kPanel;
    for (int64_t block = 0; block < blocks.count; block += kSlab) {
      const int64_t stop = std::min(block + kSlab, blocks.count);
      for (int64_t panel = first; panel < last; panel += unit) {
        for (int64_t i = 0; i < unit; i++)
          visit(linear, panel + i, end, blocks, block, stop, x, delta, turned,
                tiles + i * kSlab * kTile);
        for (int64_t b = block; b < stop; b++) {
          float *tile = tiles + (b - block) * kTile;
          done(panel, b, tile, unit == 2 ? tile + kSlab * kTile : nullptr);
        }
      }
    }
  }
}

} // namespace breakeven
