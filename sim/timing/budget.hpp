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
    auto at = std::lower_bound(transfers_.begin(), transfers_.end(), next,
                               [](const Transfer& t, Time cycle) { return t.cycle < cycle; });
    Transfer last = at == transfers_.begin() ? before_ : *(at - 1);
    while (beats > 0) {
      const Time cycle = std::max(next, last.cycle + std::ceil((1 - last.left) / rate_));
      if (at == transfers_.end() || at->cycle > cycle) {
        at = transfers_.insert(at, {cycle, 0, 0});
      }
      at->left = left(last, *at);
      if (at->cycle == cycle && !(at->left < 1)) {
        ++at->beats;
        --at->left;
        --beats;
        taken(cycle);
      }
      last = *at++;
      next = std::max(next, last.cycle + 1);
    }
    for (; at != transfers_.end() && at->left != left(last, *at); last = *at++) {
      at->left = left(last, *at);
    }
  }

 private:
  // The transfers of a cycle, and the beats that are left after them.
  struct Transfer {
    Time cycle;
    int beats;
    double left;
  };

  // What `now` leaves; negative if a younger burst spent what an older one will need.
  double left(const Transfer& last, const Transfer& now) const {
    return std::min(last.left + (now.cycle - last.cycle) * rate_, most_) - now.beats;
  }

  const double rate_, most_;
  Transfer before_;                 // the last transfer of the settled past
  std::deque<Transfer> transfers_;  // the later ones
};

}  // namespace timing
