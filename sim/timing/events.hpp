// The kernel of the simulation: processes that run in the order of time, and channels between them.
//
// A process computes the times of its own work. It runs ahead freely until it depends on another:
// its step returns a channel if an item that it must receive has not been sent yet, the time of its
// request if it uses the shared port and another process may be earlier (EventLoop::yields), or both:
// while a request waits, a process takes instructions and frees places of its queue, because others
// may ask for the port earlier for that. When called again, it continues where it stopped.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace timing {

using Time = double;  // in cycles; a limited bandwidth gives fractions
constexpr Time kNever = std::numeric_limits<Time>::infinity();

// In the port's order of preference; of two with the same time, the first is resumed.
enum Process { kFetch, kLoad, kCompute, kStore, kProcesses };

class EventLoop;

// Items that one process sends another: tokens, instructions, or free places in a queue.
class Channel {
 public:
  Channel(EventLoop& loop, Process reader, int number)
      : number(number), loop_(loop), reader_(reader) {}

  // Makes one item available from `time`; wakes the reader if it waits here.
  void send(Time time);

  bool empty() const { return taken_ == times_.size(); }
  Time take() { return times_[taken_++]; }

  const int number;  // identifies it in messages

 private:
  EventLoop& loop_;
  Process reader_;
  std::vector<Time> times_;  // when each item becomes available
  std::size_t taken_ = 0;
};

// Why a process stops: it waits for an item, has a request at some time, both, or has ended.
struct Wish {
  const Channel* channel = nullptr;
  Time time = kNever;
};

class EventLoop {
 public:
  static constexpr int kNothing = -1;

  // Whether a request at `turn` lets others come first; `asked` is when it asks again: at first for
  // the whole cycle, because turns within one depend on which requests it has.
  bool yields(Time turn, Time& asked) const {
    if (turn < horizon_) return false;
    if (now_ < asked) return true;  // an item has arrived before
    if (turn <= asked) return false;
    const Time cycle = std::floor(turn);
    asked = asked < cycle ? cycle : turn;
    return true;
  }

  void wake(Process reader, int channel, Time time) {
    if (waiting_[reader] != channel) return;
    waiting_[reader] = kNothing;
    requests_[reader] = std::min(requests_[reader], time);
    horizon_ = std::min(horizon_, time);
  }

  // Resumes the process with the earliest request until none has a request. Returns the channel
  // that each process still waits for.
  template <class Step>
  std::array<int, kProcesses> run(Step&& step) {
    for (;;) {
      const auto best = std::min_element(requests_.begin(), requests_.end());
      if (*best == kNever) return waiting_;
      now_ = *best;
      *best = kNever;
      horizon_ = *std::min_element(requests_.begin(), requests_.end());
      const std::size_t process = static_cast<std::size_t>(best - requests_.begin());
      waiting_[process] = kNothing;
      const Wish wish = step(static_cast<Process>(process));
      if (wish.channel) waiting_[process] = wish.channel->number;
      requests_[process] = wish.time;
    }
  }

 private:
  std::array<Time, kProcesses> requests_{};
  std::array<int, kProcesses> waiting_{kNothing, kNothing, kNothing, kNothing};
  Time now_ = 0;      // the request of the running process
  Time horizon_ = 0;  // the earliest request of the others, before which the running one need not stop
};

inline void Channel::send(Time time) {
  times_.push_back(time);
  loop_.wake(reader_, number, time);
}

// The last `capacity` values, oldest first; adding more drops the oldest.
template <class T>
class Last {
 public:
  explicit Last(std::size_t capacity) : values_(capacity) {}
  Last(std::size_t capacity, T value) : values_(capacity, value), size_(capacity) {}

  void push(T value) {
    values_[(first_ + size_) % values_.size()] = value;
    if (full()) {
      first_ = (first_ + 1) % values_.size();
    } else {
      ++size_;
    }
  }

  bool full() const { return size_ == values_.size(); }
  std::size_t size() const { return size_; }
  const T& operator[](std::size_t k) const { return values_[(first_ + k) % values_.size()]; }

 private:
  std::vector<T> values_;
  std::size_t first_ = 0, size_ = 0;
};

}  // namespace timing
