// The DRAM port that all units share: a read and a write direction, and a common bandwidth.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "budget.hpp"
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
        budget_(1 / machine.beat_cycles, machine.saved_beats),
        beat_words_(machine.beat_words),
        return_latency_(static_cast<Time>(machine.return_latency)),
        flight_(static_cast<Time>(machine.request_latency + machine.dram_latency)),
        outstanding_(static_cast<std::size_t>(machine.outstanding)) {}

  // When a request would be served now; orders the requests. A read is one that a client offers at
  // `time`, a write one that arrives at the DRAM then.
  Time turn(Process client, Direction direction, Time time) const {
    const Time ready = direction == kRead ? accepts(time) + flight_ : time;
    if (cuts) {
      return sdram_.turn(client, direction, direction == kRead ? ready - return_latency_ : ready);
    }
    if (direction == kWrite) return ready + 0.5;
    return ready + 0.125 * ((client - client_ + kReaders - 1) % kReaders);  // round robin
  }

  // Serves `beats` for instruction `index`: a read offered at `time`, or a write whose beats come from
  // then on; the SDRAM needs their address.
  Grant grant(Process client, Direction direction, Time time, int64_t beats, int64_t index,
              int64_t address = 0) {
    Time ready = time;
    if (direction == kRead) {
      accepted = accepts(time);
      client_ = client;
      ready = accepted + flight_;
      if (limited) settle(ready);
    }
    const Grant grant = cuts ? serve(client, direction, ready, beats, index, address)
                             : transfer(client, direction, ready, beats, index);
    if (direction == kRead) {
      if (in_flight_.size() == outstanding_) in_flight_.pop_front();
      in_flight_.push_back(grant.end);
    }
    return grant;
  }

  // The time of a beat of the last grant, which has `beats`.
  Time beat(const Grant& last, int64_t beats, int64_t number) const {
    if (limited && !cuts) return cycles_[static_cast<std::size_t>(number)];
    const Time intervals = static_cast<Time>(std::max<int64_t>(beats - 1, 1));
    return last.start + static_cast<Time>(number) * (last.end - 1 - last.start) / intervals;
  }

  // From now on all requests arrive at `time` or later.
  void settle(Time time) { budget_.settle(time); }

  const bool of_weights;       // reads of the load unit only, so no client precedes it
  const bool cuts;             // single bursts matter, with their addresses
  const bool limited;          // the DRAM is slower than the port
  const Time acknowledgement;  // from the last beat of a store
  Time accepted = -1;          // when the last read was
  std::array<int64_t, kProcesses> beats_of{};
  // Cycles that the requests of each client waited because others were served.
  std::array<Time, kProcesses> contention{};
  std::vector<Grant> grants;

 private:
  static constexpr int kReaders = 3;  // fetch, load, compute

  // When a read that is offered at `time` is accepted: one in a cycle, while few are in flight.
  Time accepts(Time time) const {
    const bool full = in_flight_.size() == outstanding_;
    return std::max({time, accepted + 1, full ? in_flight_.front() : 0.0});
  }

  Grant transfer(Process client, Direction direction, Time ready, int64_t beats, int64_t index) {
    Time start = std::max(free_[direction], ready);
    if (start > ready) {
      contention[client] += std::min(start - ready, served_[direction] - served_at_last_[client]);
    }
    Time end = start + static_cast<Time>(beats);
    if (limited) {
      cycles_.clear();
      budget_.take(start, beats, [this](Time cycle) { cycles_.push_back(cycle); });
      start = cycles_.front();
      end = cycles_.back() + 1;
    }
    free_[direction] = end;
    return granted(client, direction, beats, {client, index, start, end});
  }

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

  const bool keep_;
  Sdram sdram_;
  Budget budget_;              // if `limited`; one burst is granted at a time, in order of arrival
  std::vector<Time> cycles_;   // of the beats of the last grant
  const int64_t beat_words_;
  const Time return_latency_;
  const Time flight_;       // from the acceptance of a read to its first beat
  int client_ = kCompute;   // of the last read
  const std::size_t outstanding_;
  std::deque<Time> in_flight_;  // ends of the last reads, at most `outstanding_`
  std::array<Time, 2> free_{};    // when each direction is free
  std::array<Time, 2> served_{};  // cycles granted so far
  std::array<Time, kProcesses> served_at_last_{};
};

}  // namespace timing
