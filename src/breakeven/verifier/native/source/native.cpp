// The C interface: one shared library, plain pointers, no other dependency.
#include <cstdlib>
#include <pthread.h>

#include "body.hpp"
#include "choice.hpp"

using namespace breakeven;

namespace {

// Everything that outlives a call. Passes take turns.
struct Engine {
  std::mutex turn;
  Crew crew;
  Workspace space;
  Steps steps;
  Choices choices;
};

Engine *engine = nullptr;

// A forked child has none of the parent's threads: it starts afresh and lets the old state be.
void start_afresh() { engine = new Engine; }

Engine &the_engine() {
  static const bool once = [] {
    start_afresh();
    pthread_atfork(nullptr, nullptr, start_afresh);
    return true;
  }();
  (void)once;
  return *engine;
}

} // namespace

#pragma GCC visibility push(default) // the rest is hidden: two builds can live side by side
extern "C" {

// "avx512", "avx2", "neon" or "generic": what this library was compiled for.
const char *breakeven_instructions() {
#if defined(__AVX512F__)
  return "avx512";
#elif defined(__AVX2__)
  return "avx2";
#elif defined(__aarch64__)
  return "neon";
#else
  return "generic";
#endif
}

// Whether it was compiled for a processor that multiplies 8-bit numbers by 8-bit numbers.
int32_t breakeven_multiplies_int8() {
#if defined(__AVX512F__) && defined(__AVX512VNNI__)
  return 1;
#else
  return 0;
#endif
}

// Sizes of the structs that library.py mirrors, to be compared by a test.
void breakeven_sizes(int64_t *sizes) {
  const int64_t all[] = {sizeof(Projections), sizeof(Layer), sizeof(Model), sizeof(Adapter),
                         sizeof(Pass)};
  std::copy(std::begin(all), std::end(all), sizes);
}

// Calls that ran on fewer threads than asked for, because other processes held the cores.
int64_t breakeven_crowded() { return the_engine().crew.crowded(); }

void breakeven_pack(const Projections *shape, const float *weight, float *panels) {
  pack(*shape, weight, panels);
}

void breakeven_pack_int8(const Projections *shape, const int8_t *wholes, const float *scales,
                         float *panels) {
  pack(*shape, wholes, scales, panels);
}

void breakeven_unpack(const Projections *shape, const float *panels, float *weight) {
  unpack(*shape, panels, weight);
}

// found [count][K]: rows `ids` of the weights of a single projection.
void breakeven_rows(const Projections *shape, const float *panels, int64_t count,
                    const int64_t *ids, float *found) {
  for (int64_t i = 0; i < count; i++)
    unpack(*shape, panels + ids[i] / kPanel * shape->panel_size(), int(ids[i] % kPanel),
           found + i * shape->inputs);
}

void breakeven_body(const Model *model, const Pass *pass) {
  Engine &engine = the_engine();
  std::lock_guard<std::mutex> hold(engine.turn);
  Body body(*model, *pass, int(pass->threads), engine.space, engine.steps);
  engine.crew.run(int(pass->threads), [&](const Member &me) { body.walk(me); });
}

// y [rows][outputs] = x [rows][K] · weights + bias, where y is not null; where choices is not
// null (a single projection), choices [rows] gets each row's largest output, the lowest of equals,
// and margins [rows], where not null, by how much that is above the second largest.
void breakeven_linear(int64_t threads, const Projections *shape, const float *panels,
                      const float *bias, int64_t rows, const float *x, float *y, int64_t *choices,
                      float *margins) {
  if (rows == 0) return;
  Engine &engine = the_engine();
  std::lock_guard<std::mutex> hold(engine.turn);
  const Linear linear{*shape, panels, bias};
  const Blocks blocks(rows, most_rows(shape->kind));
  const int64_t inputs = shape->inputs, outputs = shape->all();
  Tiles packed{};
  float *tiles = nullptr;
  engine.space.lay_out([&](auto take) {
    packed = Tiles::of(shape->kind, rows, inputs, take);
    tiles = take(threads * 2 * kSlab * kTile);
  });
  Choices &best = engine.choices;
  if (choices) best.prepare(threads, rows);
  engine.steps.prepare(2);
  Tickets *step = engine.steps.first();
  const auto walk = [&](const Member &me) {
    for (int64_t row; (row = step[0].claim()) < rows;) {
      const Tiles::Row line = packed.row(blocks, row);
      for (int64_t k = 0; k < inputs; k += kPanel)
        std::copy_n(x + row * inputs + k, std::min<int64_t>(kPanel, inputs - k), line.at(k));
      if (packed.rounded) packed.round(blocks, row, inputs, 0, packed.groups());
    }
    me.meet();
    const auto take = [&](int64_t panel, int64_t block, float *tile) {
      const Place at = place(*shape, panel);
      for (int r = 0; r < blocks.size(block); r++, tile += kPanel) {
        const int64_t row = blocks.start(block) + r;
        for (int j = 0; bias && j < at.width; j++) tile[j] += bias[at.output + j];
        if (y) std::copy_n(tile, at.width, y + row * outputs + at.output);
        if (choices) best.offer(me.id, row, at.output, tile, at.width);
      }
    };
    const auto where = [&](int64_t panel, int64_t block) -> Lines {
      if (!y) return {tiles, 0}; // nothing is written
      return {y + blocks.start(block) * outputs + place(*shape, panel).output, outputs};
    };
    product(me, step[1], linear, blocks, packed, nullptr, nullptr,
            tiles + me.id * 2 * kSlab * kTile, where,
            [&](int64_t panel, int64_t block, Lines, float *tile, float *second) {
              take(panel, block, tile);
              if (second) take(panel + 1, block, second);
            });
  };
  engine.crew.run(int(threads), walk);
  for (int64_t row = 0; choices && row < rows; row++) {
    choices[row] = best.of(row);
    if (margins) margins[row] = best.margin(row);
  }
}

} // extern "C"
#pragma GCC visibility pop
