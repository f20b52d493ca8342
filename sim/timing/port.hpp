// The DRAM port that all units share: a read and a write direction, and a common bandwidth.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "events.hpp"
#include "machine.hpp"

namespace timing {

enum Direction { kRead, kWrite };

// A use of the port; the interval is half-open.
struct Grant {
  int64_t client, index;
  Time start, end;
};

// Serves requests in the order in which they are made; a beat per cycle and direction.
class Port {
 public:
  Port(const Machine& machine, bool keep)
      : limited(machine.beat_cycles > 0.5),  // else both directions have all they can use
        keep_(keep),
        beat_cycles_(machine.beat_cycles),
        most_left_(static_cast<Time>(machine.saved_beats - 1)),
        credit_(most_left_ * machine.beat_cycles),
        rest_(limited ? 1 / beat_cycles_ - 1 : 0.0),
        left_(rest_ < 0 ? 0.0 : most_left_) {}

  // Serves `beats` for instruction `index` from `ready` on.
  Grant grant(Process client, Direction direction, Time ready, int64_t beats, int64_t index) {
    Time start = std::max(free_[direction], ready);
    if (start > ready) {
      contention[client] += std::min(start - ready, served_[direction] - served_at_last_[client]);
    }
    const Time count = static_cast<Time>(beats);
    Time end = start + count;
    if (limited) {
      if (rest_ >= 0 && start > spent_) {
        left_ = std::min(left_ + (start - spent_) / beat_cycles_, most_left_);
      }
      const Time spent = std::max(spent_, start);
      Time allowed = spent + (count - 1) * beat_cycles_ - credit_ + 1;
      if (const Time cycles = beside(count); spent > start && start + cycles < allowed) {
        allowed = start + cycles;
        left_ += cycles * rest_ - count;
      }
      end = std::max(end, allowed);
      start = std::max(start, std::min(spent - credit_, end - count));
      spent_ = spent + count * beat_cycles_;
    }
    free_[direction] = end;
    beats_of[client] += beats;
    served_[direction] += end - start;
    served_at_last_[client] = served_[direction];
    const Grant grant{client, index, start, end};
    if (keep_) grants.push_back(grant);
    return grant;
  }

  const bool limited;  // the DRAM is slower than the port
  std::array<int64_t, kProcesses> beats_of{};
  // Cycles that the requests of each client waited because others were served.
  std::array<Time, kProcesses> contention{};
  std::vector<Grant> grants;

 private:
  // Cycles of so many beats while the other direction has its full rate.
  Time beside(Time beats) const {
    if (beats <= left_) return beats;
    return rest_ > 0 ? std::max(beats, (beats - left_) / rest_) : kNever;
  }

  const bool keep_;
  std::array<Time, 2> free_{};    // when each direction is
  std::array<Time, 2> served_{};  // cycles granted so far
  std::array<Time, kProcesses> served_at_last_{};
  // A limited bandwidth is a budget of both directions, which the idle DRAM saves up: `spent_` is
  // when it would be whole again. Bursts have it in the order in which they came (`dram.h`), so
  // their order decides: one at a time is granted.
  const double beat_cycles_, most_left_, credit_;
  Time spent_ = 0;
  // Where the bandwidth allows one direction its full rate, that one spends no more than it gets:
  // it leaves the other the rest of each cycle, and the beats that were saved before.
  const double rest_;  // beats a cycle; negative: not even one direction has its full rate
  double left_;
};

}  // namespace timing
