// The operations on which each one depends, and the tokens that make it wait for them.
#pragma once

#include <array>

#include "accesses.hpp"

// For each kind of operation, the last place at which each element was written and read.
class Conflicts {
 public:
  Conflicts(const Accesses& accesses, std::size_t kinds)
      : accesses_(accesses),
        writes_(kinds, accesses.numbers<int32_t>(kNone)),
        reads_(kinds, accesses.numbers<int32_t>(kNone)) {}

  // Writes to `found` the last place of each kind on which the next operation depends: one that
  // accesses a common element, if either of the two writes it. Notes its accesses as of its kind.
  void follow(std::size_t place, std::size_t kind, int64_t* found) {
    std::fill_n(found, writes_.size(), kNone);
    const auto latest = [](const std::vector<int32_t>& last, const Access& access) {
      int32_t most = kNone;
      access.each([&](std::size_t element) { most = std::max(most, last[element]); });
      return int64_t{most};
    };
    for (const Access& t : accesses_.of(place)) {
      for (std::size_t k = 0; k < writes_.size(); ++k) {
        found[k] = std::max(found[k], latest(writes_[k][t.memory], t));
        if (t.writes) found[k] = std::max(found[k], latest(reads_[k][t.memory], t));
      }
    }
    for (const Access& t : accesses_.of(place)) {
      std::vector<int32_t>& last = (t.writes ? writes_ : reads_)[kind][t.memory];
      t.each([&](std::size_t element) { last[element] = static_cast<int32_t>(place); });
    }
  }

 private:
  const Accesses& accesses_;
  std::vector<PerElement<int32_t>> writes_, reads_;
};

// Walks over the instructions with a vector clock for each unit, as ordering.py explains.
class Tokens {
 public:
  // A position of each unit's instructions, or kNone.
  using Clock = std::array<int64_t, kUnits>;

  // An instruction: its operation, whether it relays a wait of that, and its flags.
  struct Row {
    int64_t place, relays, pop_prev, pop_next, push_prev, push_next;
  };

  Tokens() {
    for (Clock& known : known_) known = kNothing;
  }

  // Appends an operation that waits for the instructions `need`; returns its position.
  int64_t append(std::size_t place, std::size_t unit, Clock need, bool relays = false) {
    Clock& known = known_[unit];
    for (std::size_t v = 0; v < kUnits; ++v) need[v] = std::max(need[v], far_behind(unit, v));
    for (std::size_t v = 0; v < kUnits; ++v) need[v] = need[v] > known[v] ? need[v] : kNone;
    const std::size_t opposite = kStore - unit;
    if (unit != kCompute && need[opposite] != kNone) {
      // Load and store unit are no neighbours: the compute unit waits, and passes it on.
      Clock far = kNothing;
      std::swap(far[opposite], need[opposite]);
      need[kCompute] = append(place, kCompute, far, true);
    }
    drop_implied(need);
    const auto position = static_cast<int64_t>(rows_.size());
    rows_.push_back({static_cast<int64_t>(place), relays, 0, 0, 0, 0});
    for (std::size_t source = 0; source < kUnits; ++source) {
      if (need[source] == kNone) continue;
      Row& pusher = rows_[static_cast<std::size_t>(need[source])];
      (unit > source ? pusher.push_next : pusher.push_prev) = 1;
      (unit > source ? rows_.back().pop_prev : rows_.back().pop_next) = 1;
      pops_[source][unit].push_back(position);
      const Clock& seen = clock_after(need[source]);
      for (std::size_t v = 0; v < kUnits; ++v) known[v] = std::max(known[v], seen[v]);
    }
    known[unit] = position;
    clocks_.push_back(known);
    return position;
  }

  // The last instructions of the load and the store unit.
  Clock last() const { return {known_[kLoad][kLoad], kNone, known_[kStore][kStore]}; }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  static constexpr Clock kNothing = {kNone, kNone, kNone};

  // Queues hold 255 tokens (TOKEN_CAPACITY of the verifier). The rest is for tokens that are pushed
  // before the instructions that pop them are appended.
  static constexpr std::size_t kPending = 192;

  const Clock& clock_after(int64_t position) const {
    return clocks_[static_cast<std::size_t>(position)];
  }

  // The last pop of tokens between two units, where the pusher has seen none of the last kPending.
  int64_t far_behind(std::size_t pusher, std::size_t popper) const {
    const std::vector<int64_t>& pops = pops_[pusher][popper];
    const bool full = pops.size() >= kPending && pops[pops.size() - kPending] > known_[pusher][popper];
    return full ? pops.back() : kNone;
  }

  // Drops waits that another wait of the same instruction implies.
  void drop_implied(Clock& need) const {
    for (std::size_t via = 0; via < kUnits; ++via) {
      for (std::size_t other = 0; other < kUnits; ++other) {
        const bool both = via != other && need[via] != kNone && need[other] != kNone;
        if (both && clock_after(need[via])[other] >= need[other]) need[other] = kNone;
      }
    }
  }

  std::array<Clock, kUnits> known_;  // what each unit has waited for
  std::vector<Clock> clocks_;        // the same after each instruction
  std::vector<Row> rows_;
  std::array<std::array<std::vector<int64_t>, kUnits>, kUnits> pops_;  // by pusher and popper
};

// Returns the instructions of operations, each of a unit, with their tokens; the last one, FINISH,
// waits for all.
inline std::vector<Tokens::Row> synchronize(const Accesses& accesses,
                                            const std::vector<std::size_t>& units) {
  Conflicts conflicts(accesses, kUnits);
  Tokens tokens;
  std::vector<int64_t> positions;  // of the operations, behind relays
  for (std::size_t place = 0; place < units.size(); ++place) {
    Tokens::Clock need;
    conflicts.follow(place, units[place], need.data());
    for (int64_t& n : need) n = n == kNone ? n : positions[static_cast<std::size_t>(n)];
    const bool is_last = place + 1 == units.size();
    positions.push_back(tokens.append(place, units[place], is_last ? tokens.last() : need));
  }
  return tokens.rows();
}
