// Drives a Verilated model of the RTL through a C interface for vtaops.runtime.tsim. The port to its
// DRAM is that of vta.sv, or AXI if TSIM_AXI is defined.
#include <memory>

#include "dram.h"
#include "verilated.h"
#if defined(TSIM_AXI)
#include "axi_port.h"
#else
#include "bare_port.h"
#endif
#if defined(TSIM_TRACE)
#include "verilated_vcd_c.h"
#endif

namespace {

constexpr int kQuietCycles = 64;  // without any activity that count as a deadlock

// Results of tsim_run; the same as in vtaops.runtime.tsim.model.
enum Result : int {
  kFinished = 0,
  kRunning = 1,
  kStandstill = 2,
  kFault = 3,
  kBadAccess = 4,
  kViolation = 5
};

// Nothing happens at a falling edge, but Verilator would evaluate all logic that depends on the
// inputs. If its models store the clock's last value under this name, setting it avoids that.
template <typename Root>
auto forget_high_clock(Root& root, int) -> decltype(root.TSIM_LAST_CLOCK, true) {
  root.TSIM_LAST_CLOCK = 0;
  return true;
}
template <typename Root>
bool forget_high_clock(Root&, long) {  // another version of Verilator
  return false;
}

}  // namespace

struct Tsim {
  VerilatedContext context;
  Dram dram;
  Port port{&context, dram};
  int quiet_cycles = 0;

#ifdef TSIM_TRACE
  std::unique_ptr<VerilatedVcdC> trace;
  uint64_t trace_first = 0, trace_last = 0;
#endif

  Tsim(uint32_t latency, double bandwidth, bool jitter, uint64_t seed)
      : dram(latency, bandwidth, jitter, seed) {}

#ifdef TSIM_ARRAY_CLOCK
  // The array clock's edge in the middle of the cycle; its other edge is that of the clock.
  void middle() {
    port.model.array_clk = 0;
    port.model.eval();
    port.model.array_clk = 1;
    port.model.eval();
    port.model.array_clk = 0;  // falls with the clock
  }
#else
  void middle() {}
#endif

  void edges() {
    port.set_clock(1);
    port.model.eval();
#ifdef TSIM_TRACE
    const bool dump = trace && dram.cycle >= trace_first && dram.cycle < trace_last;
    if (dump) trace->dump(10 * dram.cycle);
    middle();
    port.set_clock(0);
    port.model.eval();
    if (dump) trace->dump(10 * dram.cycle + 5);
#elif defined(TSIM_ARRAY_CLOCK)
    middle();
    port.set_clock(0);
    port.model.eval();
#else
    port.set_clock(0);
    if (!forget_high_clock(*port.model.rootp, 0)) port.model.eval();
#endif
    ++dram.cycle;
  }

  void tick() {
    dram.refill();
    port.drive();
    edges();
  }

  void reset() {
    dram.bad_client = -1;
    quiet_cycles = 0;
    port.reset([this] { edges(); });
  }

  int run(uint64_t cycles) {
    for (uint64_t n = 0; n < cycles; ++n) {
      tick();
      if (port.violation()[0]) return kViolation;
      if (dram.bad_client >= 0 && (port.stops_at_bad_access() || port.model.fault))
        return kBadAccess;
      if (port.model.fault) return kFault;
      quiet_cycles = port.model.quiet ? quiet_cycles + 1 : 0;
      if (quiet_cycles == kQuietCycles) return port.model.finished ? kFinished : kStandstill;
    }
    return kRunning;
  }
};

extern "C" {

Tsim* tsim_new(uint32_t latency, double bandwidth, int jitter, uint64_t seed) {
  auto sim = std::make_unique<Tsim>(latency, bandwidth, jitter != 0, seed);
  if (!sim->dram.map()) return nullptr;
  sim->reset();
  return sim.release();
}

void tsim_free(Tsim* sim) {
#ifdef TSIM_TRACE
  if (sim->trace) sim->trace->close();
#endif
  sim->port.model.final();
  munmap(sim->dram.bytes, kDramBytes);
  delete sim;
}

uint8_t* tsim_dram(Tsim* sim) { return sim->dram.bytes; }

// Allocates (value 1, zeroed) or releases (value 0) whole pages.
void tsim_pages(Tsim* sim, uint64_t address, uint64_t nbytes, int value) {
  const auto first = sim->dram.allocated.begin() + static_cast<int64_t>(address / kPageBytes);
  std::fill(first, first + static_cast<int64_t>(nbytes / kPageBytes), static_cast<uint8_t>(value));
  if (!value) madvise(sim->dram.bytes + address, nbytes, MADV_DONTNEED);
}

void tsim_reset(Tsim* sim) { sim->reset(); }

void tsim_csr_write(Tsim* sim, uint32_t address, uint32_t value) {
  sim->port.write_register(address, value, [sim] { sim->tick(); });
}

uint32_t tsim_csr_read(Tsim* sim, uint32_t address) {
  return sim->port.read_register(address, [sim] { sim->tick(); });
}

int tsim_run(Tsim* sim, uint64_t cycles) { return sim->run(cycles); }

uint64_t tsim_bad_address(Tsim* sim) { return sim->dram.bad_address; }
int tsim_bad_client(Tsim* sim) { return sim->dram.bad_client; }
uint64_t tsim_outstanding(Tsim* sim) { return sim->port.outstanding(); }
const char* tsim_violation(Tsim* sim) { return sim->port.violation(); }

// Records cycles first..last-1, counted from now; returns 0, or -1 without tracing.
int tsim_trace(Tsim* sim, const char* path, uint64_t first, uint64_t last) {
#ifdef TSIM_TRACE
  sim->context.traceEverOn(true);
  sim->trace = std::make_unique<VerilatedVcdC>();
  sim->port.model.trace(sim->trace.get(), 99);
  sim->trace->open(path);
  sim->trace_first = sim->dram.cycle + first;
  sim->trace_last = last == UINT64_MAX ? last : sim->dram.cycle + last;
  return 0;
#else
  (void)sim, (void)path, (void)first, (void)last;
  return -1;
#endif
}

}  // extern "C"
