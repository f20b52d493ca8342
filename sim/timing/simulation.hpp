// The event-driven simulation: fetch, load, compute and store as processes around one DRAM port.
//
// Each process handles its instructions in order and computes their times; the units interact only
// through tokens, the queues of instructions, and the port. All times are cycles from the launch;
// intervals are half-open.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "events.hpp"
#include "machine.hpp"
#include "port.hpp"

namespace timing {

// The events of one instruction with their times; same as vtaops.program.timing.simulation.Life.
struct Life {
  Time queue_stall, dispatched, prev_token, next_token, taken, end, completed;
};

// An interval in which an instruction worked.
struct Stretch {
  int64_t index;
  Time start, end;
};

struct Result {
  Time end;                            // completion of FINISH; without FINISH, of everything
  std::array<int, kProcesses> stuck;   // channel for which each process waits forever, or -1
  int64_t compute_work;                // cycles of the compute unit, if its loads are never delayed
  std::array<int64_t, kProcesses + 1> beats;  // by client; the last one is for weights at their port
  std::array<Time, kProcesses> contention;
  std::vector<Life> lives;             // these three only if they are recorded
  std::vector<Stretch> stretches;      // those of one instruction in order
  std::vector<Grant> grants;
};

Result simulate(const Work& work, const Machine& machine, bool keep);

}  // namespace timing
