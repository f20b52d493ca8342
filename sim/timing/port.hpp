// The DRAM port that all units share: a read and a write direction, and a common bandwidth.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "events.hpp"
#include "machine.hpp"
#include "sdram.hpp"

namespace timing {

// A use of the port; the interval is half-open.
struct Grant {
  int64_t client, index;
  Time start, end;
};

// Serves requests in the order in which they are made: one beat per cycle and direction, or fewer if
// the bandwidth or the SDRAM behind it limits them.
class Port {
 public:
  Port(const Machine& machine, bool keep, bool of_weights = false)
      : of_weights(of_weights),
        cuts(machine.beat_words > 0),
        limited(cuts || machine.beat_cycles > 0.5),  // else both directions have their full rate
        acknowledgement(static_cast<Time>(cuts ? machine.write_latency : machine.dram_latency)),
        keep_(keep),
        sdram_(machine),
        beat_words_(machine.beat_words),
        return_latency_(static_cast<Time>(machine.return_latency)),
        beat_cycles_(machine.beat_cycles),
        most_left_(static_cast<Time>(machine.saved_beats - 1)),
        credit_(most_left_ * machine.beat_cycles),
        rest_(limited ? 1 / beat_cycles_ - 1 : 0.0),
        left_(rest_ < 0 ? 0.0 : most_left_) {}

  // When a request that is ready at a given time would be served now; orders the requests.
  Time turn(Process client, Direction direction, Time ready) const {
    if (!cuts) return ready;
    return sdram_.turn(client, direction, direction == kRead ? ready - return_latency_ : ready);
  }

  // Serves `beats` for instruction `index` from `ready` on; the SDRAM needs their address.
  Grant grant(Process client, Direction direction, Time ready, int64_t beats, int64_t index,
              int64_t address = 0) {
    if (cuts) return serve(client, direction, ready, beats, index, address);
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
    return granted(client, direction, beats, {client, index, start, end});
  }

  const bool of_weights;       // reads of the load unit only, so no client precedes it
  const bool cuts;             // single bursts matter, with their addresses
  const bool limited;          // the DRAM is slower than the port
  const Time acknowledgement;  // from the last beat of a store
  std::array<int64_t, kProcesses> beats_of{};
  // Cycles that the requests of each client waited because others were served.
  std::array<Time, kProcesses> contention{};
  std::vector<Grant> grants;

 private:
  Grant serve(Process client, Direction direction, Time ready, int64_t beats, int64_t index,
              int64_t address) {
    const Time back = direction == kRead ? return_latency_ : 0;
    const int64_t words = beats * beat_words_;
    const Time begin = sdram_.serve(client, direction, ready - back, address, words) + back;
    const Time start = begin + static_cast<Time>(beat_words_ - 1);
    if (begin > ready) {
      contention[client] +=
          std::min(begin - ready, served_[direction] - served_at_last_[client]);
    }
    return granted(client, direction, beats,
                   {client, index, start, begin + static_cast<Time>(words)});
  }

  Grant granted(Process client, Direction direction, int64_t beats, const Grant& grant) {
    beats_of[client] += beats;
    served_[direction] += grant.end - grant.start;
    served_at_last_[client] = served_[direction];
    if (keep_) grants.push_back(grant);
    if (of_weights && keep_) grants.back().client = kProcesses;
    return grant;
  }

  // Cycles for a number of beats while the other direction has its full rate.
  Time beside(Time beats) const {
    if (beats <= left_) return beats;
    return rest_ > 0 ? std::max(beats, (beats - left_) / rest_) : kNever;
  }

  const bool keep_;
  Sdram sdram_;
  const int64_t beat_words_;
  const Time return_latency_;
  std::array<Time, 2> free_{};    // when each direction is free
  std::array<Time, 2> served_{};  // cycles granted so far
  std::array<Time, kProcesses> served_at_last_{};
  // A limited bandwidth is a budget of both directions, which accumulates while the DRAM is idle:
  // `spent_` is when it would be full again. Bursts receive it in order of arrival (`dram.h`), so
  // the order matters, and one burst is granted at a time.
  const double beat_cycles_, most_left_, credit_;
  Time spent_ = 0;
  // If the bandwidth allows one direction its full rate, that direction spends no more than it
  // receives, and leaves the rest of each cycle and the saved beats to the other one.
  const double rest_;  // beats a cycle; negative: not even one direction has its full rate
  double left_;
};

}  // namespace timing
