// The arg-max of each row's outputs and its margin over the second best, found while they are
// computed, so that none is written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace breakeven {

class Choices {
public:
  void prepare(int64_t members, int64_t rows) {
    rows_ = rows;
    best_.assign(members * rows, Best{}); // keeps its memory from call to call
  }

  // Takes outputs [width] of a row, the first of which has the id `first`.
  void offer(int64_t member, int64_t row, int64_t first, const float *outputs, int width) {
    Best &best = best_[member * rows_ + row];
    for (int j = 0; j < width; j++) {
      if (!(outputs[j] > best.second)) continue;
      if (outputs[j] > best.value)
        best = {outputs[j], best.value, first + j};
      else
        best.second = outputs[j];
    }
  }

  // The id of a row's largest output, the lowest of equals (0 where no output is a number).
  // Every member saw its ids in ascending order.
  int64_t of(int64_t row) const { return found(row).id; }

  // By how much it is above the next best, 0 where that is its equal.
  float margin(int64_t row) const {
    const Best best = found(row);
    return best.value - best.second;
  }

private:
  struct Best {
    float value = -std::numeric_limits<float>::infinity();
    float second = -std::numeric_limits<float>::infinity();
    int64_t id = 0;
  };

  Best found(int64_t row) const {
    Best all;
    for (size_t at = row; at < best_.size(); at += rows_) {
      const Best &other = best_[at];
      const float second = std::max(std::max(all.second, other.second),
                                    std::min(all.value, other.value));
      if (other.value > all.value || (other.value == all.value && other.id < all.id)) all = other;
      all.second = second;
    }
    return all;
  }

  int64_t rows_ = 0;
  std::vector<Best> best_;
};

} // namespace breakeven
