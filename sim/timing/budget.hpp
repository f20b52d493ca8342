// The bandwidth of a DRAM: what both directions together may transfer in each cycle.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>

#include "events.hpp"

namespace timing {

// Beats that accumulate at a rate, up to a maximum, and are spent on transfers, as in `dram.h`. Bursts
// spend in order of arrival, so a younger one gets the beats that the older ones leave in each cycle.
class Budget {
 public:
  Budget(double beats_a_cycle, int64_t most)
      : rate_(beats_a_cycle), most_(static_cast<double>(most)), before_{-1, 0, most_} {}

  // No burst will ask for a cycle before `time` any more.
  void settle(Time time) {
    for (; !transfers_.empty() && transfers_.front().cycle < time; transfers_.pop_front()) {
      before_ = transfers_.front();
    }
  }

  // Calls `taken(cycle)` for each of `beats` transfers in one direction, the first not before `from`.
  template <class Taken>
  void take(Time from, int64_t beats, Taken&& taken) {
    Time next = std::max(std::ceil(from), before_.cycle + 1);
    auto at = transfers_.end();
    while (at != transfers_.begin() && (at - 1)->cycle >= next) --at;
    Transfer last = at == transfers_.begin() ? before_ : *(at - 1);
    while (beats > 0) {
      const Transfer alone = following(last, next);
      if (at == transfers_.end() || at->cycle > alone.cycle) {
        at = transfers_.insert(at, alone);
      } else {
        at->left = left(last, at->cycle) - at->beats;
        if (at->cycle < alone.cycle || at->left < 1) {
          last = *at++;
          next = std::max(next, last.cycle + 1);
          continue;
        }
        ++at->beats;
        --at->left;
      }
      taken(at->cycle);
      --beats;
      last = *at++;
      next = last.cycle + 1;
    }
    for (; at != transfers_.end(); last = *at++) {
      const double rest = left(last, at->cycle) - at->beats;
      if (at->left == rest) break;
      at->left = rest;
    }
  }

 private:
  // The transfers of a cycle, and the beats that are left after them: fewer than none if a younger
  // burst spent what an older one will need.
  struct Transfer {
    Time cycle;
    int beats;
    double left;
  };

  // The next transfer after `last` that has a beat, not before the cycle `next`.
  Transfer following(const Transfer& last, Time next) const {
    Time cycle = next;
    if (last.left < 1) cycle = std::max(next, last.cycle + std::ceil((1 - last.left) / rate_));
    return {cycle, 1, left(last, cycle) - 1};
  }

  // What there is in a cycle after `last`.
  double left(const Transfer& last, Time cycle) const {
    return std::min(last.left + (cycle - last.cycle) * rate_, most_);
  }

  const double rate_, most_;
  Transfer before_;                 // the last transfer of the settled past
  std::deque<Transfer> transfers_;  // the later ones
};

}  // namespace timing
