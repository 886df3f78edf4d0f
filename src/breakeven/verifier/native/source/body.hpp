// The body of a decoder in one walk of the crew: all layers and the final norm.
#pragma once

#include <cmath>
#include <vector>

#include "attention.hpp"
#include "linear.hpp"

namespace breakeven {

enum Group { kQkv, kO, kGateUp, kDown, kGroups };
constexpr int kProjectionsBefore[] = {0, 3, 4, 6, 7}; // of each group, in Adapter::up

// The structs below are filled by library.py: keep both in step.
struct Layer {
  const float *norm_input, *norm_post, *norm_q, *norm_k; // [H], [H], [d] or null, [d] or null
  const float *panels[kGroups], *bias[kGroups];
};

struct Model {
  int64_t layers, hidden, intermediate, heads, kv_heads, head_dim;
  const Layer *layer;
  const float *norm;
  float epsilon;
  int64_t kind; // of the linears' weights
};

struct Adapter {
  int64_t rank;
  const uint8_t *gate;      // [W]
  const float *const *down; // [layers][4]: [projections * rank][K], null: layer without adapter
  const float *const *up;   // [layers][7]: [outputs][rank]
  float scale;
};

struct Pass {
  int64_t threads, batch, width, taps;
  float *x;                                  // [B][W][H]: embeddings, replaced by hidden states
  const int64_t *positions, *lengths, *past; // [B][W], [B], [B][W] or null
  const uint8_t *sees;                       // [W][W] or [B][W][W]
  int64_t sees_step;
  const float *cosines, *sines; // [positions][d]
  float *keys, *values;         // [L][B][Hkv][capacity][d] with the steps below
  int64_t layer_step, batch_step, head_step;
  const int64_t *tap_layers; // ascending
  float *const *tap_outputs; // each [B][W][H]
  const Adapter *adapter;    // or null
  const int64_t *order;      // the layers to run, ascending
  int64_t count;             // of them
};

inline Projections shape_of(const Model &model, int group) {
  const int64_t q = model.heads * model.head_dim, kv = model.kv_heads * model.head_dim;
  switch (group) {
  case kQkv: return {3, 0, model.kind, model.hidden, {q, kv, kv}};
  case kO: return {1, 0, model.kind, q, {model.hidden}};
  case kGateUp:
    return {2, 1, model.kind, model.hidden, {model.intermediate, model.intermediate}};
  default: return {1, 0, model.kind, model.intermediate, {model.hidden}};
  }
}

// Memory that grows to what the largest pass needed and stays.
class Workspace {
public:
  // Calls plan(take) twice: to add up what it takes, then to hand it out. take(n) is n floats.
  template <class Plan> void lay_out(const Plan &plan) {
    int64_t needed = 0;
    plan([&](int64_t floats) -> float * {
      needed += padded(floats);
      return nullptr;
    });
    if (needed + kLine > int64_t(memory_.size())) memory_.assign(needed + kLine, 0.0f);
    float *next = memory_.data();
    while (reinterpret_cast<uintptr_t>(next) % (4 * kLine)) next++;
    plan([&](int64_t floats) {
      float *mine = next;
      next += padded(floats);
      return mine;
    });
  }

private:
  static constexpr int64_t kLine = 16; // floats in a cache line
  // A line more: tiles may be read up to one line past their end.
  static int64_t padded(int64_t floats) { return (floats + kLine - 1) / kLine * kLine + kLine; }
  std::vector<float> memory_;
};

class Body {
public:
  Body(const Model &model, const Pass &pass, int threads, Workspace &space, Steps &steps)
      : model_(model), pass_(pass), adapter_(pass.adapter), rows_(pass.batch * pass.width),
        blocks_(rows_, most_rows(model.kind)), steps_(steps),
        heads_{model.heads, model.kv_heads, model.head_dim},
        sight_{pass.width, pass.lengths, pass.past, pass.sees, pass.sees_step} {
    const int64_t longest = *std::max_element(pass.lengths, pass.lengths + pass.batch);
    const int64_t q = model.heads * model.head_dim, dim = model.head_dim;
    const int64_t rank = adapter_ ? adapter_->rank : 0;
    packed_ = q + 2 * model.kv_heads * dim;
    space.lay_out([&](auto take) {
      normed_ = Tiles::of(model.kind, rows_, model.hidden, take);
      mixed_ = Tiles::of(model.kind, rows_, q, take);
      gated_ = Tiles::of(model.kind, rows_, model.intermediate, take);
      low_ = Tiles::of(kFp32, rows_, 3 * Tiles::padded(rank), take);
      qkv_ = take(rows_ * packed_);
      scratch_size_ = std::max({2 * kSlab * kTile, attention_scratch(longest + pass.width, dim),
                                (kDepth + kRows) * kPanel}) +
                      rank * kPanel;
      scratch_ = take(threads * scratch_size_);
    });
    steps.prepare(pass.count * kSteps + 1);
  }

  void walk(const Member &me) {
    float *scratch = scratch_ + me.id * scratch_size_;
    Tickets *step = steps_.first();
    int64_t before = -1;
    for (int64_t i = 0; i < pass_.count; i++, step += kSteps) {
      const int64_t l = pass_.order[i];
      const Layer &layer = model_.layer[l];
      normalise(me, step[0], layer.norm_input, before);
      linear(me, step + 1, l, kQkv, normed_, qkv_, scratch);
      turn_and_keep(me, step[3], l);
      mix(me, step[4], l, scratch);
      round(me, step[12], mixed_, model_.heads * model_.head_dim);
      linear(me, step + 5, l, kO, mixed_, pass_.x, scratch);
      normalise(me, step[7], layer.norm_post, -1);
      linear(me, step + 8, l, kGateUp, normed_, nullptr, scratch);
      round(me, step[13], gated_, model_.intermediate);
      linear(me, step + 10, l, kDown, gated_, pass_.x, scratch);
      before = l;
    }
    finish(me, *step);
  }

private:
  static constexpr int kSteps = 14; // tickets per layer
  // Rows claimed one after another, several at a time where there are many.
  template <class Work> void for_rows(const Member &me, Tickets &tickets, const Work &work) {
    const int64_t some = rows_ > 4 * me.count ? 4 : 1;
    for (int64_t start; (start = tickets.claim() * some) < rows_;)
      for (int64_t row = start; row < std::min(start + some, rows_); row++) work(row);
  }

  // 1 / root mean square of a vector.
  float scale_of(const float *x, int64_t size) const {
    Floats<kLanes> squares{};
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      const Floats<kLanes> part = load<kLanes>(x + i);
      squares = fused(part, part, squares);
    }
    float sum = total<kLanes>(squares);
    for (; i < size; i++) sum += x[i] * x[i];
    return 1.0f / std::sqrt(sum / float(size) + model_.epsilon);
  }

  void tap(int64_t layer, int64_t row) {
    for (int64_t t = 0; t < pass_.taps; t++)
      if (pass_.tap_layers[t] == layer)
        std::copy_n(pass_.x + row * model_.hidden, model_.hidden,
                    pass_.tap_outputs[t] + row * model_.hidden);
  }

  // Norm of every row into tiles; `before` is the layer whose output x is, if anyone may want it.
  void normalise(const Member &me, Tickets &tickets, const float *weight, int64_t before) {
    const int64_t hidden = model_.hidden;
    for_rows(me, tickets, [&](int64_t row) {
      if (before >= 0) tap(before, row);
      const Tiles::Row line = normed_.row(blocks_, row);
      for (int64_t k = 0; k < hidden; k += kPanel) __builtin_prefetch(line.at(k), 1);
      const float *x = pass_.x + row * hidden, scale = scale_of(x, hidden);
      for (int64_t k = 0; k < hidden; k += kPanel) {
        float *tile = line.at(k);
        for (int64_t j = 0; j < std::min<int64_t>(kPanel, hidden - k); j++)
          tile[j] = x[k + j] * scale * weight[k + j];
      }
      if (normed_.rounded) normed_.round(blocks_, row, hidden, 0, normed_.groups());
    });
    me.meet();
  }

  void finish(const Member &me, Tickets &tickets) {
    for_rows(me, tickets, [&](int64_t row) {
      tap(pass_.order[pass_.count - 1], row);
      float *x = pass_.x + row * model_.hidden;
      const float scale = scale_of(x, model_.hidden);
      for (int64_t k = 0; k < model_.hidden; k++) x[k] = x[k] * scale * model_.norm[k];
    });
  }

  // Activations as W8A8 multiplies them, if this is what the weights are for.
  void round(const Member &me, Tickets &tickets, const Tiles &x, int64_t inputs) {
    if (!x.rounded) return;
    constexpr int64_t kSome = 8; // groups at a time
    const int64_t pieces = (x.groups() + kSome - 1) / kSome;
    for (int64_t piece; (piece = tickets.claim()) < rows_ * pieces;) {
      const int64_t first = piece % pieces * kSome;
      x.round(blocks_, piece / pieces, inputs, first, std::min(first + kSome, x.groups()));
    }
    me.meet();
  }

  // A linear with its adapter (steps[0]: the low-rank half, steps[1]: the rest): qkv into rows, o
  // and down on top of x, the SwiGLU of gate and up into tiles.
  void linear(const Member &me, Tickets *steps, int64_t l, int group, const Tiles &x, float *to,
              float *scratch) {
    const Layer &layer = model_.layer[l];
    const Linear linear{shape_of(model_, group), layer.panels[group], layer.bias[group]};
    const float *down = adapter_ ? adapter_->down[l * kGroups + group] : nullptr;
    Delta delta{};
    if (down) {
      delta = {int(adapter_->rank), low_, adapter_->up + l * 7 + kProjectionsBefore[group]};
      lower(steps[0], linear.shape, down, x, scratch);
      me.meet();
    }
    const int64_t outputs = linear.shape.all();
    float *turned = scratch, *tiles = scratch + (adapter_ ? adapter_->rank * kPanel : 0);
    product(
        me, steps[1], linear, blocks_, x, down ? &delta : nullptr, turned, tiles,
        [&](int64_t panel, int64_t block) -> Lines {
          const Place at = place(linear.shape, panel);
          if (!to) return {gated_.block(blocks_, block) + at.column * blocks_.size(block), kPanel};
          return {to + blocks_.start(block) * outputs + at.output, outputs};
        },
        [&](int64_t panel, int64_t block, Lines lines, float *tile, float *second) {
          const Place at = place(linear.shape, panel);
          const int rows = blocks_.size(block);
          bias(tile, rows, linear.bias, at.output, at.width);
          if (second) {
            bias(second, rows, linear.bias, model_.intermediate + at.output, at.width);
            swiglu(lines.first, tile, second, rows);
          } else {
            put(lines, tile, rows, at.width, group != kQkv);
          }
        });
    me.meet();
  }

  // The low-rank half: scale * down · x of every row where the gate is on, else 0.
  void lower(Tickets &tickets, const Projections &shape, const float *down, const Tiles &x,
             float *scratch) {
    constexpr int kSome = kPanel / 2; // outputs at a time: there are few, and all are to have some
    const int64_t rank = adapter_->rank, parts = (rank + kSome - 1) / kSome;
    const int64_t pieces = shape.count * parts;
    for (int64_t piece; (piece = tickets.claim()) < pieces * blocks_.count;) {
      const int64_t block = piece / pieces, projection = piece % pieces / parts;
      const int64_t first = piece % parts * kSome, some = std::min<int64_t>(kSome, rank - first);
      const float *from = down + (projection * rank + first) * shape.inputs;
      const int rows = blocks_.size(block);
      float *turned = scratch, *tile = turned + kDepth * kSome;
      for (int64_t k = 0; k < shape.inputs; k += kDepth) {
        const int64_t depth = std::min(kDepth, shape.inputs - k);
        turn<kSome>(from + k, shape.inputs, int(some), depth, turned);
        multiply_for<kSome, kTiles>(rows)(tile, x.block(blocks_, block) + k * rows, 0, turned,
                                          kSome, depth, k == 0, {turned, nullptr, 0});
      }
      const int64_t column = projection * Tiles::padded(rank) + first;
      for (int r = 0; r < rows; r++) {
        const int64_t row = blocks_.start(block) + r;
        const bool on = adapter_->gate[row % pass_.width];
        float *to = low_.row(blocks_, row).at(column);
        for (int j = 0; j < some; j++) to[j] = on ? adapter_->scale * tile[r * kSome + j] : 0.0f;
      }
    }
  }

  static void bias(float *tile, int rows, const float *bias, int64_t output, int width) {
    for (int r = 0; bias && r < rows; r++)
      for (int j = 0; j < width; j++) tile[r * kPanel + j] += bias[output + j];
  }

  // A finished tile to where it belongs, or on top of what is there.
  static void put(Lines lines, const float *tile, int rows, int width, bool add) {
    for (int r = 0; r < rows; r++, tile += kPanel, lines.first += lines.step)
      for (int j = 0; j < width; j++) lines.first[j] = add ? lines.first[j] + tile[j] : tile[j];
  }

  // silu(gate) * up, all three tiles.
  static void swiglu(float *to, const float *gate, const float *up, int rows) {
    for (int i = 0; i < rows * kPanel; i += kLanes) {
      const Floats<kLanes> g = load<kLanes>(gate + i);
      const Floats<kLanes> silu = g / (exponential<kLanes>(-g) + 1.0f);
      store<kLanes>(to + i, silu * load<kLanes>(up + i));
    }
  }

  // Query/key norms and rotary embedding; the row's keys and values go into the cache.
  void turn_and_keep(const Member &me, Tickets &tickets, int64_t l) {
    const int64_t dim = model_.head_dim, kv = model_.kv_heads;
    const Layer &layer = model_.layer[l];
    for_rows(me, tickets, [&](int64_t row) {
      const int64_t request = row / pass_.width, position = pass_.positions[row];
      const int64_t slot = pass_.lengths[request] + row % pass_.width;
      const float *cosines = pass_.cosines + position * dim, *sines = pass_.sines + position * dim;
      float *head = qkv_ + row * packed_;
      const int64_t place = l * pass_.layer_step + request * pass_.batch_step + slot * dim;
      for (int64_t h = 0; h < model_.heads; h++, head += dim)
        turn_head(head, layer.norm_q, cosines, sines, head);
      for (int64_t h = 0; h < kv; h++, head += dim)
        turn_head(head, layer.norm_k, cosines, sines, pass_.keys + place + h * pass_.head_step);
      for (int64_t h = 0; h < kv; h++, head += dim)
        std::copy_n(head, dim, pass_.values + place + h * pass_.head_step);
    });
    me.meet();
  }

  void turn_head(float *head, const float *norm, const float *cosines, const float *sines,
                 float *to) const {
    const int64_t half = model_.head_dim / 2;
    if (norm) {
      const float scale = scale_of(head, 2 * half);
      for (int64_t i = 0; i < 2 * half; i++) head[i] = head[i] * scale * norm[i];
    }
    for (int64_t i = 0; i < half; i++) {
      const float left = head[i], right = head[i + half];
      to[i] = left * cosines[i] - right * sines[i];
      to[i + half] = right * cosines[i + half] + left * sines[i + half];
    }
  }

  // Attention of all rows into tiles.
  void mix(const Member &me, Tickets &tickets, int64_t l, float *scratch) {
    const int64_t pairs = pass_.width * heads_.group();
    const int64_t lanes = pairs <= 8 ? 8 : 16, pieces = (pairs + lanes - 1) / lanes;
    const Store store{pass_.keys + l * pass_.layer_step, pass_.values + l * pass_.layer_step,
                      pass_.batch_step, pass_.head_step};
    for (int64_t t; (t = tickets.claim()) < pass_.batch * heads_.shared * pieces;) {
      const int64_t first = t % pieces * lanes;
      const Pairs mine{t / pieces / heads_.shared, t / pieces % heads_.shared, first,
                       int(std::min(lanes, pairs - first))};
      if (lanes == 8)
        answer<8>(store, mine, scratch);
      else
        answer<16>(store, mine, scratch);
    }
    me.meet();
  }

  template <int N> void answer(const Store &store, const Pairs &pairs, float *scratch) {
    const int64_t group = heads_.group(), dim = heads_.dim;
    const auto row = [&](int64_t pair) { return pairs.request * pass_.width + pair / group; };
    const auto head = [&](int64_t pair) { return pairs.head * group + pair % group; };
    attend<N>(
        heads_, store, sight_, pairs, scratch,
        [&](int64_t pair) { return qkv_ + row(pair) * packed_ + head(pair) * dim; },
        [&](int i, int64_t column, int count, const float *values, float factor) {
          const int64_t pair = pairs.first + i;
          const Tiles::Row line = mixed_.row(blocks_, row(pair));
          int64_t k = head(pair) * dim + column;
          for (const int64_t end = k + count; k < end;) { // a head may end within a tile
            float *to = line.at(k);
            const int64_t some = std::min(end - k, kPanel - k % kPanel);
            for (int64_t j = 0; j < some; j++) to[j] = *values++ * factor;
            k += some;
          }
        });
  }

  const Model &model_;
  const Pass &pass_;
  const Adapter *adapter_;
  const int64_t rows_;
  const Blocks blocks_;
  const Steps &steps_;
  const Heads heads_;
  const Visibility sight_;
  int64_t packed_ = 0, scratch_size_ = 0;
  Tiles normed_{}, mixed_{}, gated_{}, low_{};
  float *qkv_ = nullptr, *scratch_ = nullptr;
};

} // namespace breakeven
