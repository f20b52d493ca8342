// The event-driven simulation: fetch, load, compute and store as processes around one DRAM port.
//
// Each process walks its instructions in order and computes their times; nothing couples the units
// but tokens, the queues of instructions, and the port. All times are cycles from the launch; an
// interval is half-open.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "events.hpp"
#include "machine.hpp"
#include "port.hpp"

namespace timing {

// What happened to one instruction, and when; vtaops.program.timing.simulation.Life says the same.
struct Life {
  Time queue_stall, dispatched, prev_token, next_token, taken, end, completed;
};

// An interval in which an instruction worked.
struct Stretch {
  int64_t index;
  Time start, end;
};

struct Result {
  Time end;                            // when FINISH completes; without FINISH, all of it
  std::array<int, kProcesses> stuck;   // channel that each process waits for for ever, or -1
  int64_t compute_work;                // cycles of the compute unit, if nothing holds up its loads
  std::array<int64_t, kProcesses + 1> beats;  // by client; the last: of the weights, at their port
  std::array<Time, kProcesses> contention;
  std::vector<Life> lives;             // these three only where they are kept
  std::vector<Stretch> stretches;      // those of one instruction in order
  std::vector<Grant> grants;
};

Result simulate(const Work& work, const Machine& machine, bool keep);

}  // namespace timing
