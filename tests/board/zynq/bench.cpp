// A processing system for bench.sv: its processor reads and writes registers, its DRAM is an array.
// Both hesitate by a generator of their own.
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "Vbench.h"
#include "verilated.h"

namespace {

struct Burst {
  unsigned id, address, words;
};

struct System {
  VerilatedContext context;
  Vbench model{&context};
  std::vector<uint8_t> memory;
  std::deque<Burst> reads, writes;
  std::deque<unsigned> answers;  // IDs
  uint32_t state = 1;
  bool wrong = false;  // an access beyond the memory, or a last word in the wrong place

  bool chance() { return (state = state * 1664525 + 1013904223) >> 30; }

  uint8_t* at(unsigned address) {
    wrong |= address + 8 > memory.size();
    return &memory[address + 8 > memory.size() ? 0 : address];
  }

  // One cycle; what the processor drives is set before.
  void clock() {
    Vbench& m = model;
    m.m_arready = chance(), m.m_awready = chance(), m.m_wready = !writes.empty() && chance();
    m.m_rvalid = !reads.empty() && (m.m_rvalid || chance());
    if (m.m_rvalid) {
      const Burst& burst = reads.front();
      m.m_rid = burst.id, m.m_rlast = burst.words == 1;
      std::memcpy(&m.m_rdata, at(burst.address), 8);
    }
    m.m_bvalid = !answers.empty();
    if (m.m_bvalid) m.m_bid = answers.front();
    m.eval();
    const bool taken = m.m_rvalid && m.m_rready, answered = m.m_bvalid && m.m_bready;
    const bool written = m.m_wvalid && m.m_wready;
    if (written) {
      Burst& burst = writes.front();
      for (int i = 0; i < 8; i++)
        if (m.m_wstrb >> i & 1) at(burst.address)[i] = static_cast<uint8_t>(m.m_wdata >> 8 * i);
      burst.address += 8;
      wrong |= m.m_wlast != (--burst.words == 0);
    }
    if (taken) reads.front().address += 8, reads.front().words--;
    if (answered) answers.pop_front();
    if (taken && m.m_rlast) reads.pop_front();
    if (m.m_arvalid && m.m_arready) reads.push_back({m.m_arid, m.m_araddr, m.m_arlen + 1u});
    if (m.m_awvalid && m.m_awready) writes.push_back({m.m_awid, m.m_awaddr, m.m_awlen + 1u});
    if (written && writes.front().words == 0) {
      answers.push_back(writes.front().id);
      writes.pop_front();
    }
    m.clk = 1;
    m.eval();
    if (taken) m.m_rvalid = 0;
    m.clk = 0;
    m.eval();
  }
};

constexpr int MOST_CYCLES = 1000;

}  // namespace

extern "C" {

System* bench_new(unsigned nbytes) {
  System* s = new System;
  s->memory.resize(nbytes);
  s->model.eval();  // the first evaluation of a model sees no edge
  for (int i = 0; i < 4; i++) s->clock();
  s->model.resetn = 1;
  for (int i = 0; i < 4; i++) s->clock();
  return s;
}

void bench_delete(System* s) { delete s; }
uint8_t* bench_memory(System* s) { return s->memory.data(); }
int bench_wrong(System* s) { return s->wrong; }
int bench_irq(System* s) { return s->model.irq; }

// Write a burst of words to registers; return BRESP, or -1 if nothing answers or another ID does.
int bench_write(System* s, unsigned address, const uint32_t* words, int count, int id, int strobe) {
  Vbench& m = s->model;
  m.awvalid = 1, m.awid = id, m.awaddr = address, m.awlen = count - 1;
  m.wstrb = strobe;
  for (int cycle = 0, sent = 0; cycle < MOST_CYCLES; cycle++) {
    m.wvalid = sent < count && (m.wvalid || s->chance());
    m.wdata = words[sent < count ? sent : 0];
    m.bready = s->chance();
    m.eval();
    const bool began = m.awvalid && m.awready, taken = m.wvalid && m.wready;
    const int answer = !m.bvalid || !m.bready ? -2 : m.bid == id && sent == count ? m.bresp : -1;
    s->clock();
    if (began) m.awvalid = 0;
    if (taken) sent++, m.wvalid = 0;
    if (answer != -2) return m.bready = 0, answer;
  }
  return -1;
}

// Read a burst of words from registers; return RRESP, or -1 as bench_write does.
int bench_read(System* s, unsigned address, uint32_t* words, int count, int id) {
  Vbench& m = s->model;
  m.arvalid = 1, m.arid = id, m.araddr = address, m.arlen = count - 1;
  int answer = 0;
  for (int cycle = 0, got = 0; cycle < MOST_CYCLES; cycle++) {
    m.rready = s->chance();
    m.eval();
    const bool began = m.arvalid && m.arready, taken = m.rvalid && m.rready;
    if (taken) {
      if (m.rid != id || m.rlast != (got == count - 1)) answer = -1;
      words[got++] = m.rdata;
      if (answer >= 0) answer |= m.rresp;
    }
    s->clock();
    if (began) m.arvalid = 0;
    if (got == count) return m.rready = 0, answer;
  }
  return -1;
}

}  // extern "C"
