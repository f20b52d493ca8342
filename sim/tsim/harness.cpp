// Drives the Verilated model of vta.sv and is its DRAM; a C interface for vtaops.runtime.tsim.
//
// The DRAM is 4 GiB of lazily mapped pages, of which only the allocated ones may be accessed. It
// answers read bursts after `latency` cycles with one port word per cycle, and acknowledges a
// written burst `latency` cycles after its last word. `bandwidth` limits the bytes per cycle of
// both directions together. With a jitter seed, requests wait, answers of different clients
// interleave, words come with gaps and tokens late, reproducibly: results must not depend on it.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "Vvta.h"
#include "verilated.h"
#if defined(TSIM_TRACE_FST)
#include "verilated_fst_c.h"
using Trace = VerilatedFstC;
#elif defined(TSIM_TRACE_VCD)
#include "verilated_vcd_c.h"
using Trace = VerilatedVcdC;
#endif
#if defined(TSIM_TRACE_FST) || defined(TSIM_TRACE_VCD)
#define TSIM_TRACE 1
#endif

namespace {

constexpr uint64_t kDramBytes = uint64_t{1} << 32;
constexpr uint64_t kPageBytes = 4096;
constexpr int kClients = 3;
constexpr size_t kQueuedBursts = 64;   // that the DRAM accepts before it makes a client wait
constexpr int kQuietCycles = 64;       // of complete standstill that count as a deadlock

// Results of tsim_run; vtaops.runtime.tsim.model names them again.
enum Result : int { kFinished = 0, kRunning = 1, kStandstill = 2, kFault = 3, kBadAccess = 4 };

struct Burst {
  uint64_t address;
  uint32_t beats;
  uint64_t ready_cycle;  // of the first word, or of the acknowledgement
};

// xorshift64*: small and reproducible everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint32_t below(uint32_t limit) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>((state_ * 0x2545F4914F6CDD1Du) >> 33) % limit;
  }

 private:
  uint64_t state_;
};

}  // namespace

struct Tsim {
  VerilatedContext context;
  Vvta model{&context};
  uint8_t* dram = nullptr;
  std::vector<uint8_t> allocated = std::vector<uint8_t>(kDramBytes / kPageBytes);

  uint32_t latency;
  double bandwidth;  // bytes per cycle; 0: unlimited
  bool jitter;
  Random random;

  uint64_t cycle = 0;
  double budget = 0;  // bytes that the bandwidth allows now
  std::deque<Burst> reads[kClients];
  size_t queued_reads = 0;
  std::deque<Burst> writes;  // requested, words outstanding
  std::deque<uint64_t> acks;
  uint64_t bad_address = 0;
  int bad_client = -1;  // -1: none; kClients: a write
  int quiet_cycles = 0;

#ifdef TSIM_TRACE
  std::unique_ptr<Trace> trace;
  uint64_t trace_first = 0, trace_last = 0;
#endif

  Tsim(uint32_t latency_, double bandwidth_, bool jitter_, uint64_t seed)
      : latency(latency_), bandwidth(bandwidth_), jitter(jitter_), random(seed) {}

  void check(uint64_t address, uint32_t beats, int client) {
    const uint64_t end = address + uint64_t{beats} * PORT_BYTES;
    const bool inside =
        end <= kDramBytes && allocated[address / kPageBytes] && allocated[(end - 1) / kPageBytes];
    if (!inside && bad_client < 0) {
      bad_address = address;
      bad_client = client;
    }
  }

  bool spend() {  // one port word of bandwidth
    if (bandwidth == 0) return true;
    if (budget < PORT_BYTES) return false;
    budget -= PORT_BYTES;
    return true;
  }

  uint64_t delay() { return latency + (jitter ? random.below(latency) : 0); }

  // The client whose oldest burst is answered in this cycle, or -1.
  int answering() {
    if (queued_reads == 0) return -1;
    int best = -1;
    if (jitter) {
      if (random.below(4) == 0) return -1;
      const int first = static_cast<int>(random.below(kClients));
      for (int k = 0; k < kClients && best < 0; ++k) {
        const int c = (first + k) % kClients;
        if (!reads[c].empty() && reads[c].front().ready_cycle <= cycle) best = c;
      }
      return best;
    }
    for (int c = 0; c < kClients; ++c) {
      if (reads[c].empty() || reads[c].front().ready_cycle > cycle) continue;
      if (best < 0 || reads[c].front().ready_cycle < reads[best].front().ready_cycle) best = c;
    }
    return best;
  }

  void drive_reads() {
    model.rd_req_ready = queued_reads < kQueuedBursts && !(jitter && random.below(4) == 0);
    if (model.rd_req_valid && model.rd_req_ready) {
      check(model.rd_req_address, model.rd_req_beats, model.rd_req_client);
      reads[model.rd_req_client].push_back(
          {model.rd_req_address, model.rd_req_beats, cycle + delay()});
      ++queued_reads;
    }
    const int client = answering();
    model.rd_valid = client >= 0 && bad_client < 0 && spend();
    if (!model.rd_valid) return;
    Burst& burst = reads[client].front();
    std::memcpy(&model.rd_data, dram + burst.address, PORT_BYTES);
    model.rd_client = static_cast<CData>(client);
    model.rd_last = burst.beats == 1;
    burst.address += PORT_BYTES;
    if (--burst.beats == 0) {
      reads[client].pop_front();
      --queued_reads;
    }
  }

  void drive_writes() {
    model.wr_req_ready = writes.size() < kQueuedBursts && !(jitter && random.below(4) == 0);
    if (model.wr_req_valid && model.wr_req_ready) {
      check(model.wr_req_address, model.wr_req_beats, kClients);
      writes.push_back({model.wr_req_address, model.wr_req_beats, 0});
    }
    const bool room = !writes.empty() && !(jitter && random.below(4) == 0);
    model.wr_ready = model.wr_valid && room && bad_client < 0 && spend();
    if (model.wr_ready) {
      Burst& burst = writes.front();
      uint8_t data[PORT_BYTES];
      std::memcpy(data, &model.wr_data, PORT_BYTES);
      const uint64_t strobe = model.wr_strobe;
      for (int i = 0; i < PORT_BYTES; ++i)
        if (strobe >> i & 1) dram[burst.address + i] = data[i];
      burst.address += PORT_BYTES;
      if (--burst.beats == 0) {
        uint64_t done = cycle + delay();
        if (!acks.empty()) done = std::max(done, acks.back());
        acks.push_back(done);
        writes.pop_front();
      }
    }
    model.wr_ack = !acks.empty() && acks.front() <= cycle;
    if (model.wr_ack) acks.pop_front();
  }

  void edges() {
    model.clk = 1;
    model.eval();
#ifdef TSIM_TRACE
    const bool dump = trace && cycle >= trace_first && cycle < trace_last;
    if (dump) trace->dump(10 * cycle);
#endif
    model.clk = 0;
    model.eval();
#ifdef TSIM_TRACE
    if (dump) trace->dump(10 * cycle + 5);
#endif
    ++cycle;
  }

  void tick() {
    if (bandwidth != 0) budget = std::min(budget + bandwidth, 4.0 * PORT_BYTES);
    if (jitter) model.token_hold = static_cast<CData>(random.below(16) & random.below(16));
    drive_reads();
    if (model.wr_req_valid || model.wr_valid || !writes.empty() || !acks.empty()) drive_writes();
    else model.wr_req_ready = model.wr_ready = model.wr_ack = 0;
    edges();
  }

  void reset() {
    for (auto& queue : reads) queue.clear();
    queued_reads = 0;
    writes.clear();
    acks.clear();
    bad_client = -1;
    quiet_cycles = 0;
    model.token_hold = 0;
    model.csr_we = model.rd_valid = model.rd_req_ready = 0;
    model.wr_req_ready = model.wr_ready = model.wr_ack = 0;
    model.rst = 1;
    edges();
    edges();
    model.rst = 0;
  }

  int run(uint64_t cycles) {
    for (uint64_t n = 0; n < cycles; ++n) {
      tick();
      if (bad_client >= 0) return kBadAccess;
      if (model.fault) return kFault;
      quiet_cycles = model.quiet ? quiet_cycles + 1 : 0;
      if (quiet_cycles == kQuietCycles) return model.finished ? kFinished : kStandstill;
    }
    return kRunning;
  }
};

extern "C" {

Tsim* tsim_new(uint32_t latency, double bandwidth, int jitter, uint64_t seed) {
  auto* sim = new Tsim(latency, bandwidth, jitter != 0, seed);
  void* memory = mmap(nullptr, kDramBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    delete sim;
    return nullptr;
  }
  sim->dram = static_cast<uint8_t*>(memory);
  sim->reset();
  return sim;
}

void tsim_free(Tsim* sim) {
#ifdef TSIM_TRACE
  if (sim->trace) sim->trace->close();
#endif
  sim->model.final();
  munmap(sim->dram, kDramBytes);
  delete sim;
}

uint8_t* tsim_dram(Tsim* sim) { return sim->dram; }

// Allocates (value 1, zeroed) or releases (value 0) whole pages.
void tsim_pages(Tsim* sim, uint64_t address, uint64_t nbytes, int value) {
  const auto first = sim->allocated.begin() + static_cast<int64_t>(address / kPageBytes);
  std::fill(first, first + static_cast<int64_t>(nbytes / kPageBytes), static_cast<uint8_t>(value));
  if (!value) madvise(sim->dram + address, nbytes, MADV_DONTNEED);
}

void tsim_reset(Tsim* sim) { sim->reset(); }

void tsim_csr_write(Tsim* sim, uint32_t address, uint32_t value) {
  sim->model.csr_address = static_cast<SData>(address);
  sim->model.csr_wdata = value;
  sim->model.csr_we = 1;
  sim->tick();
  sim->model.csr_we = 0;
}

uint32_t tsim_csr_read(Tsim* sim, uint32_t address) {
  sim->model.csr_address = static_cast<SData>(address);
  sim->model.eval();
  return sim->model.csr_rdata;
}

int tsim_run(Tsim* sim, uint64_t cycles) { return sim->run(cycles); }

uint64_t tsim_bad_address(Tsim* sim) { return sim->bad_address; }
int tsim_bad_client(Tsim* sim) { return sim->bad_client; }

// Records cycles first..last-1, counted from now; returns 0, or -1 where tracing is not built in.
int tsim_trace(Tsim* sim, const char* path, uint64_t first, uint64_t last) {
#ifdef TSIM_TRACE
  sim->context.traceEverOn(true);
  sim->trace = std::make_unique<Trace>();
  sim->model.trace(sim->trace.get(), 99);
  sim->trace->open(path);
  sim->trace_first = sim->cycle + first;
  sim->trace_last = last == UINT64_MAX ? last : sim->cycle + last;
  return 0;
#else
  (void)sim, (void)path, (void)first, (void)last;
  return -1;
#endif
}

}  // extern "C"
