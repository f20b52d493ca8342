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
        most_beats(limited ? machine.burst_beats : machine.chunk_beats),
        most_bursts(limited ? 1 : machine.chunk_bursts),
        keep_(keep),
        beat_cycles_(machine.beat_cycles),
        credit_(static_cast<Time>(machine.saved_beats - 1) * machine.beat_cycles) {
    const double rest = limited ? 1 / beat_cycles_ - 1 : 0.0;
    rest_cycles_ = rest > 0 ? 1 / rest : 0.0;
  }

  // Serves `beats` for instruction `index` from `ready` on.
  Grant grant(Process client, Direction direction, Time ready, int64_t beats, int64_t index) {
    Time start = std::max(free_[direction], ready);
    if (start > ready) {
      contention[client] += std::min(start - ready, served_[direction] - served_at_last_[client]);
    }
    const Time count = static_cast<Time>(beats);
    Time end = start + count;
    if (limited) {
      const Time spent = std::max(spent_, start);
      Time allowed = spent + (count - 1) * beat_cycles_ - credit_ + 1;
      if (rest_cycles_ > 0) {  // what a direction at its full rate leaves to the other
        allowed = std::min(allowed, start + count * rest_cycles_);
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

  const bool limited;                     // the DRAM is slower than the port
  const int64_t most_beats, most_bursts;  // that are granted at once
  std::array<int64_t, kProcesses> beats_of{};
  // Cycles that the requests of each client waited because others were served.
  std::array<Time, kProcesses> contention{};
  std::vector<Grant> grants;

 private:
  const bool keep_;
  std::array<Time, 2> free_{};    // when each direction is
  std::array<Time, 2> served_{};  // cycles granted so far
  std::array<Time, kProcesses> served_at_last_{};
  // A limited bandwidth is a budget of both directions, which the idle DRAM saves up: `spent_` is
  // when it would be whole again. Bursts have it in the order in which they came (`dram.h`), so
  // their order decides: one at a time is granted.
  const double beat_cycles_, credit_;
  double rest_cycles_;
  Time spent_ = 0;
};

}  // namespace timing
