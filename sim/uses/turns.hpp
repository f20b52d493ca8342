// Interleaves the tiles of consecutive operators (vtaops/lowering/linking/ordering.py says why).
#pragma once

#include "conflicts.hpp"
#include "operations.hpp"

// Of each operation, the last places of each kind on which it depends, as `Conflicts` finds them.
inline std::vector<std::vector<int64_t>> conflicts_of(const Stream& operations,
                                                      const std::vector<std::size_t>& kinds,
                                                      std::size_t count) {
  const Accesses accesses = accesses_of(operations);
  Conflicts conflicts(accesses, count);
  std::vector<std::vector<int64_t>> found(operations.size(), std::vector<int64_t>(count));
  for (std::size_t place = 0; place < operations.size(); ++place) {
    conflicts.follow(place, kinds[place], found[place].data());
  }
  return found;
}

class Turns {
 public:
  Turns(const Machine& machine, int64_t lag) : machine_(machine), lag_(lag) {}

  // Returns the operations of some operators, group by group, with their POST settings restored.
  Stream interleaved(const std::vector<Stream>& streams) {
    const bool close = lag_ < machine_.close;
    const int64_t ahead = close ? machine_.ahead : machine_.weights_ahead;
    std::vector<Operation> settings;
    for (const Stream& stream : streams) {
      takes_.emplace_back(hoisted(grouped(stream, close), ahead));
      settings.push_back({});
      settings.back().word.set(machine_.opcode, kOfPost);  // off
      settings.back().number = stream.front().number;
    }
    find_needs();
    Word now = settings.front().word;
    Stream result;
    std::size_t left = 0;
    for (const Take& take : takes_) left += take.groups.size();
    for (; left > 0; --left) {
      const std::size_t k = next();
      const Stream& group = takes_[k].groups[takes_[k].done++];
      bool computes = false;
      for (const Operation& o : group) computes |= machine_.unit(o.word) == kCompute;
      if (computes && settings[k].word != now) result.push_back(settings[k]);
      for (const Operation& o : group) {
        if (machine_.is(o.word, kOfPost)) settings[k] = o;
        result.push_back(o);
      }
      if (computes) now = settings[k].word;
    }
    return result;
  }

 private:
  // An operator's groups, each: loads of the load unit, and the operations up to the next ones.
  // `needs` has the last groups of earlier operators that each waits for; `begun` is the operator's
  // start as a fraction of all.
  struct Take {
    explicit Take(std::vector<Stream> own) : groups(std::move(own)) {}

    double progress() const {
      return begun + static_cast<double>(done) / static_cast<double>(groups.size());
    }

    std::vector<Stream> groups;
    std::vector<std::vector<int64_t>> needs;
    std::size_t done = 0;
    double begun = 0;
    bool waits = true;
  };

  // Splits operations before each run of loads of the load unit, and, if asked, behind stores.
  std::vector<Stream> grouped(const Stream& operations, bool behind_stores) const {
    std::vector<Stream> groups(1);
    std::size_t last = kUnits;
    for (const Operation& o : operations) {
      const std::size_t unit = machine_.unit(o.word);
      const bool loads = unit == kLoad && last != kUnits && last != kLoad;
      if (loads || (behind_stores && last == kStore && unit != kStore)) groups.emplace_back();
      groups.back().push_back(o);
      last = unit;
    }
    return groups;
  }

  // Moves loads to earlier groups as far as dependences allow: weights up to `weights_ahead`.
  std::vector<Stream> hoisted(const std::vector<Stream>& groups, int64_t weights_ahead) const {
    Stream operations;
    std::vector<std::size_t> rests;
    std::vector<int64_t> places;
    for (const Stream& group : groups) {
      for (const Operation& o : group) {
        rests.push_back(machine_.unit(o.word) != kLoad);
        places.push_back(&group - groups.data());
        operations.push_back(o);
      }
    }
    const auto last = conflicts_of(operations, rests, 2);
    std::vector<Stream> loads(groups.size()), others(groups.size());
    std::array<int64_t, 8> slots{};  // loads of one memory keep their order
    for (std::size_t n = 0; n < operations.size(); ++n) {
      const Operation& o = operations[n];
      if (rests[n]) {
        others[static_cast<std::size_t>(places[n])].push_back(o);
        continue;
      }
      const int64_t rest = last[n][1];  // the last one that it depends on
      const int64_t first = rest == kNone ? 0 : places[static_cast<std::size_t>(rest)] + 1;
      const int64_t ahead = machine_.loads(o.word, kWgt) ? weights_ahead : machine_.ahead;
      int64_t& slot = slots[static_cast<std::size_t>(o.word[machine_.memory])];
      slot = std::min(places[n], std::max({slot, places[n] - ahead, first}));
      loads[static_cast<std::size_t>(slot)].push_back(o);
    }
    for (std::size_t n = 0; n < loads.size(); ++n) {
      loads[n].insert(loads[n].end(), others[n].begin(), others[n].end());
    }
    return loads;
  }

  void find_needs() {
    Stream operations;
    std::vector<std::size_t> numbers;
    std::vector<int64_t> group_of;
    for (std::size_t k = 0; k < takes_.size(); ++k) {
      for (std::size_t g = 0; g < takes_[k].groups.size(); ++g) {
        for (const Operation& o : takes_[k].groups[g]) {
          operations.push_back(o);
          numbers.push_back(k);
          group_of.push_back(static_cast<int64_t>(g));
        }
      }
    }
    const auto found = conflicts_of(operations, numbers, takes_.size());
    std::size_t place = 0;
    for (std::size_t k = 0; k < takes_.size(); ++k) {
      std::vector<int64_t> latest(k, kNone);
      for (const Stream& group : takes_[k].groups) {
        for (const std::size_t end = place + group.size(); place < end; ++place) {
          for (std::size_t other = 0; other < k; ++other) {
            const int64_t on = found[place][other];
            const int64_t g = on == kNone ? kNone : group_of[static_cast<std::size_t>(on)];
            latest[other] = std::max(latest[other], g);
          }
        }
        takes_[k].needs.push_back(latest);
      }
    }
  }

  // Whether the next group of an operator is at least a lag behind all that it needs.
  bool may_run(const Take& take) const {
    const std::vector<int64_t>& needs = take.needs[take.done];
    for (std::size_t k = 0; k < needs.size(); ++k) {
      const Take& other = takes_[k];
      const auto done = static_cast<int64_t>(other.done);
      if (needs[k] >= done) return false;
      if (needs[k] + lag_ >= done && other.done != other.groups.size()) return false;
    }
    return true;
  }

  // Returns the operator whose turn it is: all go at one pace, as their dependences allow. One that
  // waited goes on at the pace of the others: to catch up, it would take all units.
  std::size_t next() {
    double now = 0;
    bool any = false;
    for (const Take& take : takes_) {
      if (take.done == take.groups.size() || take.waits) continue;
      now = any ? std::min(now, take.progress()) : take.progress();
      any = true;
    }
    std::size_t chosen = takes_.size();
    for (std::size_t k = takes_.size(); k-- > 0;) {
      Take& take = takes_[k];
      if (take.done == take.groups.size()) continue;
      const bool waited = take.waits;
      take.waits = !may_run(take);
      if (waited && !take.waits) take.begun += std::max(0.0, now - take.progress());
      if (take.waits) continue;
      if (chosen == takes_.size() || take.progress() < takes_[chosen].progress()) chosen = k;
    }
    if (chosen == takes_.size()) throw std::logic_error("no operator may run");
    return chosen;
  }

  const Machine& machine_;
  int64_t lag_;
  std::vector<Take> takes_;
};

// Moves the first weight loads of each operator, or of those that take turns, as early as pays off.
class Prefetch {
 public:
  Prefetch(const Machine& machine, const Stream& operations)
      : machine_(machine), operations_(operations) {}

  // `begins` are the places at which the operators begin, 0 first.
  Stream ahead(const std::vector<std::size_t>& begins) {
    const std::size_t count = operations_.size();
    int64_t loads = 0;
    for (const Operation& o : operations_) {
      beats_.push_back(beats(o.word));
      slack_.push_back(computed(o) - beats_.back());
      loads_before_.push_back(loads += machine_.unit(o.word) == kLoad);
    }
    last_ = conflicts_of(operations_, std::vector<std::size_t>(count), 1);
    for (std::size_t n = 0; n < count; ++n) order_.push_back({2 * static_cast<int64_t>(n), n});
    for (std::size_t run = 1; run < begins.size(); ++run) {
      hoist(first_weights(begins[run], run + 1 < begins.size() ? begins[run + 1] : count), begins[run]);
    }
    std::sort(order_.begin(), order_.end());
    Stream result;
    for (const auto& [key, place] : order_) result.push_back(operations_[place]);
    return result;
  }

 private:
  // The port beats of a load; 0 for others.
  double beats(const Word& word) const {
    if (!machine_.is(word, kOfLoad)) return 0;
    const int64_t bytes = word[machine_.y_size] * word[machine_.x_size] * machine_.bytes_of(word);
    return static_cast<double>(bytes) / static_cast<double>(machine_.port_width);
  }

  // The cycles of the array or the vector ALU, which takes two for two tiles.
  double computed(const Operation& o) const {
    if (o.sequence == kNone || !machine_.loops(o.word)) return 0;
    const int64_t rows = std::max<int64_t>(0, o.word[machine_.uop_end] - o.word[machine_.uop_begin]);
    const int64_t steps = o.word[machine_.iter_out] * o.word[machine_.iter_in] * rows;
    const bool of_tiles = machine_.is(o.word, kOfAlu) && !o.word[machine_.use_imm];
    return static_cast<double>(steps << of_tiles);
  }

  // Returns the weight loads to elements that no operation of begin .. end - 1 has loaded before.
  // Of a single operator, only those before the first load that reuses a place.
  std::vector<std::size_t> first_weights(std::size_t begin, std::size_t end) const {
    const bool single = operations_[begin].number == operations_[end - 1].number;
    std::vector<bool> touched(static_cast<std::size_t>(machine_.wgt_depth));
    std::vector<std::size_t> loads;
    for (std::size_t place = begin; place < end; ++place) {
      const Operation& o = operations_[place];
      if (!machine_.loads(o.word, kWgt) || o.first == o.last) continue;
      bool fresh = o.dram == nullptr;
      o.first->each([&](std::size_t element) { fresh = fresh && !touched.at(element); });
      if (fresh) loads.push_back(place);
      else if (single) break;
      o.first->each([&](std::size_t element) { touched.at(element) = true; });
    }
    return loads;
  }

  // Finds earlier places for the first weights of an operator that begins at `begin`: each goes to
  // where the remaining array work covers the beats of its load; only as many are moved as can hide.
  void hoist(const std::vector<std::size_t>& loads, std::size_t begin) {
    if (loads.empty()) return;
    std::vector<double> hidden, total;
    double most = 0, sum = 0;
    for (std::size_t n = begin; n-- > 0;) {
      hidden.push_back(sum += slack_[n]);
      most = std::max(most, sum);
    }
    sum = 0;
    for (const std::size_t load : loads) total.push_back(sum += beats_[load]);
    const auto count =
        static_cast<std::size_t>(std::upper_bound(total.begin(), total.end(), most) - total.begin());
    for (std::size_t k = count; k-- > 0;) {
      const double wanted = total[count - 1] - (k > 0 ? total[k - 1] : 0);
      const auto enough = [&](double cycles) { return cycles >= wanted; };
      const auto found = std::find_if(hidden.begin(), hidden.end(), enough);
      const auto steps = found == hidden.end() ? 1 : found - hidden.begin() + 1;
      const int64_t place = std::max({static_cast<int64_t>(begin) - steps, int64_t{0}, earliest(loads[k])});
      if (place > static_cast<int64_t>(begin)) continue;
      order_[loads[k]].first = 2 * place - 1;  // before it
      slack_[static_cast<std::size_t>(place)] -= beats_[loads[k]];
      slack_[loads[k]] += beats_[loads[k]];
    }
  }

  // Returns the first place that is enough loads behind the last use of what a load overwrites.
  int64_t earliest(std::size_t load) const {
    const int64_t last = last_[load][0];
    if (last == kNone) return 0;
    const int64_t wanted = loads_before_[static_cast<std::size_t>(last)] + machine_.behind;
    return std::lower_bound(loads_before_.begin(), loads_before_.end(), wanted) - loads_before_.begin();
  }

  const Machine& machine_;
  const Stream& operations_;
  std::vector<double> beats_, slack_;
  std::vector<int64_t> loads_before_;
  std::vector<std::vector<int64_t>> last_;
  std::vector<std::pair<int64_t, std::size_t>> order_;
};
