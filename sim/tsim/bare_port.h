// The DRAM behind the port of vta.sv. It answers read bursts after `latency` cycles with one port
// word per cycle, and acknowledges a written burst `latency` cycles after its last word. With
// jitter, requests wait, answers of different clients interleave, words have gaps and tokens are
// late.
#pragma once

#include <deque>

#include "Vvta.h"
#include "Vvta___024root.h"
#include "dram.h"

#define TSIM_LAST_CLOCK __Vtrigprevexpr___TOP__clk__0

struct Port {
  Vvta model;
  Dram& dram;

  std::deque<Burst> reads[kClients];
  std::deque<Burst> weights;  // those of the second port
  size_t queued_reads = 0;
  std::deque<Burst> writes;  // requested, words outstanding
  std::deque<uint64_t> acks;

  Port(VerilatedContext* context, Dram& dram_) : model(context), dram(dram_) {}

  // The client whose oldest burst is answered in this cycle, or -1.
  int answering() {
    if (queued_reads == 0) return -1;
    int best = -1;
    if (dram.jitter) {
      if (dram.random.below(4) == 0) return -1;
      const int first = static_cast<int>(dram.random.below(kClients));
      for (int k = 0; k < kClients && best < 0; ++k) {
        const int c = (first + k) % kClients;
        if (!reads[c].empty() && reads[c].front().ready_cycle <= dram.cycle) best = c;
      }
      return best;
    }
    for (int c = 0; c < kClients; ++c) {
      if (reads[c].empty() || reads[c].front().ready_cycle > dram.cycle) continue;
      if (best < 0 || reads[c].front().ready_cycle < reads[best].front().ready_cycle) best = c;
    }
    return best;
  }

  void drive_reads() {
    model.rd_req_ready = queued_reads < kQueuedBursts && !dram.stalls();
    if (model.rd_req_valid && model.rd_req_ready) {
      dram.check(model.rd_req_address, model.rd_req_beats, model.rd_req_client);
      reads[model.rd_req_client].push_back(
          {model.rd_req_address, model.rd_req_beats, dram.cycle + dram.delay()});
      ++queued_reads;
    }
    const int client = answering();
    model.rd_valid = client >= 0 && dram.bad_client < 0 && dram.spend(kMemoryPort);
    if (!model.rd_valid) return;
    Burst& burst = reads[client].front();
    std::memcpy(&model.rd_data, dram.bytes + burst.address, PORT_BYTES);
    model.rd_client = static_cast<CData>(client);
    model.rd_last = burst.beats == 1;
    burst.address += PORT_BYTES;
    if (--burst.beats == 0) {
      reads[client].pop_front();
      --queued_reads;
    }
  }

  void drive_weights() {
    model.wgt_req_ready = weights.size() < kQueuedBursts && !dram.stalls();
    if (model.wgt_req_valid && model.wgt_req_ready) {
      dram.check(model.wgt_req_address, model.wgt_req_beats, kLoadUnit);
      weights.push_back({model.wgt_req_address, model.wgt_req_beats, dram.cycle + dram.delay()});
    }
    model.wgt_valid = !weights.empty() && weights.front().ready_cycle <= dram.cycle &&
                      dram.bad_client < 0 && !dram.stalls() && dram.spend(kWeightPort);
    if (!model.wgt_valid) return;
    Burst& burst = weights.front();
    std::memcpy(&model.wgt_data, dram.bytes + burst.address, PORT_BYTES);
    model.wgt_last = burst.beats == 1;
    burst.address += PORT_BYTES;
    if (--burst.beats == 0) weights.pop_front();
  }

  void drive_writes() {
    model.wr_req_ready = writes.size() < kQueuedBursts && !dram.stalls();
    if (model.wr_req_valid && model.wr_req_ready) {
      dram.check(model.wr_req_address, model.wr_req_beats, kClients);
      writes.push_back({model.wr_req_address, model.wr_req_beats, dram.cycle});
    }
    const bool room = !writes.empty() && !dram.stalls();
    // Ready even without a word, because a handshake needs both.
    model.wr_ready = room && dram.bad_client < 0 && (!model.wr_valid || dram.spend(kMemoryPort));
    if (model.wr_valid && model.wr_ready) {
      Burst& burst = writes.front();
      uint8_t data[PORT_BYTES];
      std::memcpy(data, &model.wr_data, PORT_BYTES);
      dram.store(burst.address, data, model.wr_strobe);
      burst.address += PORT_BYTES;
      if (--burst.beats == 0) {
        uint64_t done = dram.cycle + dram.delay();
        if (!acks.empty()) done = std::max(done, acks.back());
        acks.push_back(done);
        writes.pop_front();
      }
    }
    model.wr_ack = !acks.empty() && acks.front() <= dram.cycle;
    if (model.wr_ack) acks.pop_front();
  }

  // Sets the inputs of a cycle from the outputs.
  void drive() {
#ifdef TSIM_WEIGHT_PORT
    drive_weights();
#endif
    if (dram.jitter)
      model.token_hold = static_cast<CData>(dram.random.below(16) & dram.random.below(16));
    const bool writing =
        model.wr_req_valid || model.wr_valid || !writes.empty() || !acks.empty();
    if (writing && dram.limited() && write_is_older()) {
      drive_writes();
      drive_reads();
      return;
    }
    drive_reads();
    if (writing) drive_writes();
    else model.wr_req_ready = model.wr_ready = model.wr_ack = 0;
  }

  // Whether the oldest burst in flight is a write, which then gets bandwidth first.
  bool write_is_older() {
    if (writes.empty()) return false;
    const int client = answering();
    return client < 0 || writes.front().ready_cycle < reads[client].front().ready_cycle;
  }

  // Calls `cycle` for every cycle with reset.
  template <typename Cycle>
  void reset(Cycle cycle) {
    for (auto& queue : reads) queue.clear();
    queued_reads = 0;
    weights.clear();
    writes.clear();
    acks.clear();
    model.token_hold = 0;
    model.csr_we = model.rd_valid = model.rd_req_ready = model.memory_error = 0;
    model.wr_req_ready = model.wr_ready = model.wr_ack = 0;
    model.wgt_req_ready = model.wgt_valid = 0;
    model.rst = 1;
    cycle();
    cycle();
    model.rst = 0;
  }

  void set_clock(int value) {
    model.clk = static_cast<CData>(value);
#ifdef TSIM_ARRAY_CLOCK
    if (value) model.array_clk = 1;  // the edge that both share
#endif
  }

  template <typename Tick>
  void write_register(uint32_t address, uint32_t value, Tick tick) {
    model.csr_address = static_cast<SData>(address);
    model.csr_wdata = value;
    model.csr_we = 1;
    tick();
    model.csr_we = 0;
  }

  template <typename Tick>
  uint32_t read_register(uint32_t address, Tick) {  // takes no time
    model.csr_read_address = static_cast<SData>(address);
    model.eval();
    return model.csr_rdata;
  }

  bool stops_at_bad_access() const { return true; }
  size_t outstanding() const { return queued_reads + weights.size() + writes.size() + acks.size(); }
  const char* violation() const { return ""; }
};
