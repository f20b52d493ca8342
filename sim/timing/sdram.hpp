// An SDRAM behind LiteDRAM: the cycles between two bursts, determined by banks, rows and directions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "machine.hpp"

namespace timing {

enum Direction { kRead, kWrite };

// One burst at a time, word after word. The gap between two of them comes from LiteDRAM's pipeline
// and the rules of the chip; vtaops.program.timing.Sdram gives the sources of the numbers.
class Sdram {
 public:
  explicit Sdram(const Machine& machine) : m_(machine), refresh_(m_.refresh_interval) {}

  // When a burst would begin: at once if the SDRAM is idle, else after the current burst. A burst in
  // the current direction comes first until the other one has waited long enough; among several
  // read clients, the least recently served one comes first.
  double turn(int client, Direction direction, double ready) const {
    if (ready >= free_) return ready;
    const bool changes = direction != direction_;
    const bool later = changes == (run_ < m_.most_bursts);
    return free_ + (later ? 0.5 : 0.0) + 0.125 * ((client - client_ + 3) & 3);
  }

  // Serves a burst of a number of words; returns when it begins.
  double serve(int client, Direction direction, double ready, int64_t address, int64_t words) {
    const int64_t page = address / m_.page_bytes, bank = page % kBanks, row = page / kBanks;
    const bool other = bank != bank_, changes = direction != direction_;
    const int64_t opens = row_opens(bank, row);
    int64_t gap = (other ? kBankChange : 0) + opens;
    if (changes) gap += m_.cas_latency + (direction == kRead && !other ? 3 : 1);
    if (!changes && !other && opens && direction == kWrite) gap += m_.cas_latency + 1;
    double start = std::max(free_ + static_cast<double>(gap), ready + static_cast<double>(opens));
    if (start >= refresh_) start = refreshed(start, ready);
    rows_[bank] = row;
    bank_ = bank;
    client_ = client;
    run_ = changes ? 1 : run_ + 1;
    direction_ = direction;
    free_ = start + static_cast<double>(words);
    return start;
  }

 private:
  static constexpr int64_t kBanks = 4, kClosed = -1;
  static constexpr int64_t kBankChange = 3;  // the previous bank's queue drains, then the new one fills
  static constexpr int64_t kRefresh = 5;     // until the banks have stopped and resume

  // Cycles until the row of a burst is open.
  int64_t row_opens(int64_t bank, int64_t row) const {
    if (rows_[bank] == row) return 0;
    const int64_t command = bank == bank_ ? 0 : 1;  // before the last access, if it was known by then
    return command + m_.activate + (rows_[bank] == kClosed ? 0 : m_.precharge);
  }

  // When a burst wanted at `start` begins, after the refreshes before it.
  double refreshed(double start, double ready) {
    const double interval = static_cast<double>(m_.refresh_interval);
    const double missed = static_cast<double>(static_cast<int64_t>((start - refresh_) / interval));
    const double begin = std::max(refresh_ + missed * interval, free_);
    refresh_ += (missed + 1) * interval;
    rows_.fill(kClosed);
    int64_t cost = kRefresh + m_.precharge + m_.refresh + m_.activate;
    if (direction_ == kWrite) cost += m_.cas_latency + 3;
    return std::max(begin + static_cast<double>(cost), ready + static_cast<double>(m_.activate));
  }

  const Machine m_;
  std::array<int64_t, kBanks> rows_{kClosed, kClosed, kClosed, kClosed};
  double free_ = 0, refresh_;  // end of the current burst, and time of the next refresh
  int64_t bank_ = 0, run_ = 0;  // bursts in this direction
  int client_ = 0;
  Direction direction_ = kRead;
};

// Splits a block of DRAM with strided rows into the bursts of burst_generator.sv.
class Bursts {
 public:
  struct Burst {
    int64_t address, beats;
    bool ends_row;
  };

  void begin(int64_t address, int64_t row_bytes, int64_t stride) {
    row_ = next_ = address;
    row_bytes_ = row_bytes;
    stride_ = stride;
  }

  Burst next(const Machine& m) {
    const int64_t block = m.burst_beats * m.port_bytes, row_end = row_ + row_bytes_;
    const int64_t begin = next_, end = std::min(row_end, (begin / block + 1) * block);
    const bool ends_row = end == row_end;
    next_ = ends_row ? row_ += stride_ : end;
    return {begin, (end + m.port_bytes - 1) / m.port_bytes - begin / m.port_bytes, ends_row};
  }

 private:
  int64_t row_ = 0, next_ = 0, row_bytes_ = 0, stride_ = 0;
};

}  // namespace timing
