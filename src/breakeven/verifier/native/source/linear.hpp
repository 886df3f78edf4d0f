// Matrix products of blocks of rows with panels of weights, shared out among the crew.
//
// Weights are read from memory once per pass: every panel meets all blocks of rows while it is in
// the caches, stretch by stretch, which stay in the first-level cache. Meanwhile later fp32 weights
// are fetched into the second-level cache, each block of rows fetching its share.
#pragma once

#include "crew.hpp"
#include "panels.hpp"

namespace breakeven {

constexpr int64_t kAhead = 1536; // floats of weights to fetch ahead, with one block of rows
// Rows from which fetching ahead pays: with fewer, the processor's own prefetching keeps up and
// hints only disturb it. Both numbers are measured (Zen 4, one and two dies).
constexpr int64_t kBusy = kLanes == 16 ? 6 : 5;
constexpr int64_t kSlab = std::max(1, 96 / kRows); // blocks that meet a panel in one visit
constexpr int64_t kTile = kRows * kPanel;

inline int64_t most_rows(int64_t kind) { return kind == kW8A8 ? kW8A8Rows : kRows; } // of a block

struct Linear {
  Projections shape;
  const float *panels; // as panels.hpp lays them out
  const float *bias;   // [outputs] or null
};

// The adapter's part of a linear: each projection adds up · low, for rows with the gate on.
struct Delta {
  int rank;
  Tiles low;              // each projection's part padded to 16, 0 for the other rows
  const float *const *up; // per projection [outputs][rank]
};

// lines [width][stride] as a panel [depth][N], zero beyond their width.
template <int N>
inline void turn(const float *lines, int64_t stride, int width, int64_t depth, float *panel) {
  const int64_t whole = width == N ? depth / 4 * 4 : 0;
  for (int64_t k = 0; k < whole; k += 4)
    for (int j = 0; j < N; j += 4) transpose(lines + j * stride + k, stride, panel + k * N + j, N);
  for (int64_t k = whole; k < depth; k++)
    for (int j = 0; j < N; j++) panel[k * N + j] = j < width ? lines[j * stride + k] : 0.0f;
}

// One panel times the blocks first..last-1; tiles [blocks][kTile]. `end` is where the weights end
// that this member is to read.
template <Kind kind>
void visit(const Linear &linear, int64_t panel, const float *end, const Blocks &blocks,
                  int64_t first, int64_t last, const Tiles &x, const Delta *delta, float *turned,
                  float *tiles) {
  constexpr int64_t chain = kind == kFp32 ? kDepth : kGroup;
  const int64_t inputs = linear.shape.inputs, count = last - first;
  const float *weights = linear.panels + panel * linear.shape.panel_size();
  const Place at = place(linear.shape, panel);
  const float *up = delta ? delta->up[at.projection] + at.column * delta->rank : nullptr;
  for (int64_t i = 0; delta && i < at.width * delta->rank; i += 16) __builtin_prefetch(up + i);
  for (int64_t k = 0; k < inputs; k += chain) {
    const int64_t depth = std::min(chain, inputs - k);
    const float *from = weights + panel_size(kind, k);
    for (int64_t b = 0; b < count; b++) {
      const int rows = blocks.size(first + b);
      const float *factors = x.block(blocks, first + b) + k * rows;
      if (kind == kW8A8) {
        w8a8_multiply_for(rows)(tiles + b * kTile, x.group(blocks, first + b, k / kGroup), from,
                                depth, k == 0);
        continue;
      }
      if (kind == kInt8) {
        whole_multiply_for(rows)(tiles + b * kTile, factors, from, depth, k == 0);
        continue;
      }
      Ahead ahead{from + kAhead, nullptr, kPanel};
      if (count > 1) // each block fetches its share of the next stretch
        ahead = {from + (kDepth + depth * b / count) * kPanel, nullptr,
                 (kPanel + count - 1) / count};
      if (blocks.rows < kBusy || ahead.from + depth * ahead.step > end) ahead = {from, nullptr, 0};
      multiply_for<kPanel, kTiles>(rows)(tiles + b * kTile, factors, 0, from, kPanel, depth,
                                         k == 0, ahead);
    }
  }
  if (!delta) return;
  const int64_t part = at.projection * Tiles::padded(delta->rank);
  turn<kPanel>(up, delta->rank, at.width, delta->rank, turned);
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
  int64_t claims() const { return members + (units - members * stretch + piece - 1) / piece; }
  int64_t start(int64_t claim) const {
    if (claim <= members) return claim * stretch;
    return std::min(units, members * stretch + (claim - members) * piece);
  }

private:
  static constexpr int64_t kPieces = 4; // short stretches for each member
};

// Where the outputs of a panel go: row r of a block has them at first + r * step.
struct Lines {
  float *first;
  int64_t step;
};

// Computes the linear for all rows. done(panel, block, lines, tile, second) gets each finished tile
// [rows of the block][16] and the lines that where(panel, block) said; for interleaved projections
// `second` is the tile of the next panel, else null. The lines are fetched before the tile is
// computed: another member read them last, and it takes a while to get them back.
template <class Where, class Done>
void product(const Member &me, Tickets &tickets, const Linear &linear, const Blocks &blocks,
             const Tiles &x, const Delta *delta, float *turned, float *tiles, const Where &where,
             const Done &done) {
  const int64_t unit = linear.shape.interleaved ? 2 : 1, units = linear.shape.panels() / unit;
  const Shares shares(units, me.count);
  const auto meet = linear.shape.kind == kW8A8   ? visit<kW8A8>
                    : linear.shape.kind == kInt8 ? visit<kInt8>
                                                 : visit<kFp32>;
  for (int64_t claim; (claim = tickets.claim()) < shares.claims();) {
    const int64_t first = shares.start(claim) * unit, last = shares.start(claim + 1) * unit;
    const float *end = linear.panels + last * linear.shape.panel_size();
    for (int64_t block = 0; block < blocks.count; block += kSlab) {
      const int64_t stop = std::min(block + kSlab, blocks.count);
      for (int64_t panel = first; panel < last; panel += unit) {
        for (int64_t b = block; b < stop; b++) {
          const Lines lines = where(panel, b);
          for (int r = 0; r < blocks.size(b); r++)
            __builtin_prefetch(lines.first + r * lines.step, 1);
        }
        for (int64_t i = 0; i < unit; i++)
          meet(linear, panel + i, end, blocks, block, stop, x, delta, turned,
               tiles + i * kSlab * kTile);
        for (int64_t b = block; b < stop; b++) {
          float *tile = tiles + (b - block) * kTile;
          done(panel, b, where(panel, b), tile, unit == 2 ? tile + kSlab * kTile : nullptr);
        }
      }
    }
  }
}

} // namespace breakeven
