// Inputs of the simulation: the machine, and the work of each instruction.
#pragma once

#include <cstddef>
#include <cstdint>

namespace timing {

// The numbers of vtaops.program.timing.TimingParameters (described there), and those that follow
// from the configuration.
struct Machine {
  int64_t dram_latency, request_latency, buffer_latency, dispatch_latency;
  int64_t load_window, outstanding, burst_beats, fetch_bursts;
  int64_t command_depth, loads_in_flight, stores_in_flight;
  int64_t load_fill, gemm_interval, alu_interval, alu_tensor_interval, compute_fill;
  int64_t loads_in_order;     // number in flight in both engines of a load unit with two ports
  int64_t store_fill, store_words, store_drain, write_bursts, saved_beats;

  int64_t port_bytes;         // of a beat
  int64_t beat_micro_ops;     // in a beat
  int64_t instruction_bytes;  // of an instruction
  int64_t left_out;           // instructions of the aligned program before the first that is fetched
  int64_t compute_depth;      // stages after the issue of a micro-op
  int64_t output_delay;       // cycles from the write of the accumulator to that of the output memory
  int64_t forwards;           // 1 with the extension of this name
  int64_t weight_port;        // 1 if weight loads have a separate port
  double beat_cycles;         // per beat, if the bandwidth is limited; 0 without a limit

  // The SDRAM behind the port, if known; else the numbers are 0.
  int64_t beat_words, page_bytes, most_bursts;
  int64_t cas_latency, precharge, activate, refresh, refresh_interval;
  int64_t return_latency, write_latency;
};

// Kinds of work that cost differently; the numbers are those of vtaops.program.timing.work.
enum Kind { kUopLoad = 2, kGemm = 4, kReset = 5, kAlu = 6, kControl = 8 };

// The instructions of a program as columns; see vtaops.program.timing.work.Work.
struct Work {
  std::size_t count;
  const int64_t *unit, *kind, *beats, *before, *between, *zeros, *steps, *stalled, *last_waits;
  const int64_t *tensor, *first, *last, *offset;
  const int64_t *address, *row_bytes, *stride_bytes;
  const int64_t* of_weights;
  const int64_t *pop_prev, *pop_next, *push_prev, *push_next, *finish;
};

}  // namespace timing
