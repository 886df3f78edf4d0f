// A crew of threads that walks through a pass together.
//
// One call wakes the crew once; between the steps of the pass its members meet at a barrier. Who
// waits spins for some tens of microseconds, about what an uneven share of a matrix costs, then
// sleeps: a member that lost its core to another process is not helped by burning the other core,
// and an idle core is what makes the system move it. Work inside a step is claimed piece by piece
// (Tickets), so that a member that comes late finds less left to do.
//
// Where processes compete for the cores, members lose theirs for milliseconds while the others
// wait: fewer members are then faster than many. The crew notices such waits, goes on with one
// member less, and tries again later (Pace). No result depends on how many members there are.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace breakeven {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

using Clock = std::chrono::steady_clock;
inline double seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

// A counter that can be waited on: spin first, then sleep.
class Signal {
public:
  uint64_t value() const { return value_.load(std::memory_order_acquire); }

  void set(uint64_t value) {
    value_.store(value); // sequentially consistent, as is the sleepers' count: one sees the other
    if (sleepers_.load() > 0) {
      std::lock_guard<std::mutex> hold(mutex_);
      wake_.notify_all();
    }
  }

  // Returns the first value other than `old`; `slept` gets the seconds of a wait that was too long
  // to spin, else stays.
  uint64_t await(uint64_t old, double *slept = nullptr) {
    for (int i = 0; i < 64; i++) {
      if (value() != old) return value();
      pause();
    }
    const auto start = Clock::now(), limit = start + std::chrono::microseconds(60);
    while (Clock::now() < limit)
      for (int i = 0; i < 64; i++) {
        if (value() != old) return value();
        pause();
      }
    std::unique_lock<std::mutex> hold(mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(hold, [&] { return value_.load() != old; });
    sleepers_.fetch_sub(1);
    if (slept) *slept = seconds(start);
    return value();
  }

private:
  alignas(64) std::atomic<uint64_t> value_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
};

// Pieces of one step, claimed in order by whoever is free.
class Tickets {
public:
  void reset() { next_.store(0, std::memory_order_relaxed); }
  int64_t claim() { return next_.fetch_add(1, std::memory_order_relaxed); }

private:
  alignas(64) std::atomic<int64_t> next_{0};
};

// The tickets of all steps of a pass.
class Steps {
public:
  void prepare(int64_t count) {
    if (count > count_) {
      steps_.reset(new Tickets[count]);
      count_ = count;
    }
    for (int64_t i = 0; i < count; i++) steps_[i].reset();
  }
  Tickets *first() const { return steps_.get(); }

private:
  std::unique_ptr<Tickets[]> steps_;
  int64_t count_ = 0;
};

// How many members of those asked for to use.
class Pace {
public:
  int members(int asked) {
    if (fewer_ > 0 && --rest_ <= 0) fewer_--, trying_ = true;
    const int used = asked - fewer_ > 1 ? asked - fewer_ : 1;
    crowded_ += used < asked;
    return used;
  }

  // `lost` is the share of a run that its members spent waiting for one that had no core.
  void note(int asked, int used, double lost) {
    if (used > 1 && lost > kTooMuch) {
      fewer_ = asked - used + 1;
      rest_ = patience_;
      patience_ = patience_ * 2 < kMostPatience ? patience_ * 2 : kMostPatience;
    } else if (trying_) {
      rest_ = patience_;
      if (fewer_ == 0) patience_ = kPatience;
    }
    trying_ = false;
  }

  int64_t crowded() const { return crowded_; } // runs with fewer members than asked for

private:
  static constexpr double kTooMuch = 0.15;
  static constexpr int kPatience = 4, kMostPatience = 256; // runs before more members are tried
  int fewer_ = 0, rest_ = 0, patience_ = kPatience;
  bool trying_ = false;
  int64_t crowded_ = 0;
};

class Crew;

// One member's view of the crew during a run.
struct Member {
  Crew *crew;
  int id, count;
  inline void meet() const; // barrier
};

class Crew {
public:
  static constexpr int kMost = 256;

  // Runs work(Member) on `count` threads, the caller's among them; returns when all are done.
  template <class Work> void run(int count, const Work &work) {
    const int asked = hire(count);
    count = pace_.members(asked);
    count_ = count;
    waited_.store(0);
    const auto start = Clock::now();
    job_ = [](const void *context, Member member) {
      (*static_cast<const Work *>(context))(member);
    };
    context_ = &work;
    const Member first{this, 0, count};
    if (count > 1) start_.set((++runs_) * (kMost + 1) + count);
    work(first);
    first.meet();
    pace_.note(asked, count, waited_.load() * 1e-9 / count / seconds(start));
  }

  int64_t crowded() const { return pace_.crowded(); }

  void meet() {
    if (count_ == 1) return;
    const uint64_t turn = turn_.value();
    if (arrived_.fetch_add(1) + 1 < count_) {
      double slept = 0;
      turn_.await(turn, &slept);
      if (slept > kHeldUp) waited_.fetch_add(int64_t(slept * 1e9));
    } else {
      arrived_.store(0);
      turn_.set(turn + 1);
    }
  }

private:
  // Makes sure of count - 1 helpers; returns how many members there can be.
  int hire(int count) {
    count = count < 1 ? 1 : count > kMost ? kMost : count;
    try {
      for (; hired_ < count - 1; hired_++)
        std::thread([this, id = hired_ + 1, seen = start_.value()] { serve(id, seen); }).detach();
    } catch (const std::system_error &) { // the system grants no more threads
    }
    return hired_ + 1 < count ? hired_ + 1 : count;
  }

  void serve(int id, uint64_t seen) {
    for (;;) {
      seen = start_.await(seen);
      const int count = int(seen % (kMost + 1)); // of this run, whatever started since
      if (id >= count) continue;
      job_(context_, Member{this, id, count});
      meet();
    }
  }

  static constexpr double kHeldUp = 4e-4; // seconds at a barrier: no share is so uneven

  Signal start_, turn_;
  Pace pace_;
  std::atomic<int64_t> waited_{0}; // nanoseconds
  std::atomic<int> arrived_{0};
  int count_ = 1, hired_ = 0;
  uint64_t runs_ = 0;
  void (*job_)(const void *, Member) = nullptr;
  const void *context_ = nullptr;
};

inline void Member::meet() const { crew->meet(); }

} // namespace breakeven
