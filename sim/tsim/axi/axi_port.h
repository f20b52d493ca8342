// An AXI4 memory behind vta_axi.v, a processor on its AXI4-Lite port, and a protocol checker. A
// divided port (TSIM_SPLIT_PORT) has two such memories with the same content, each with the half of
// the bandwidth.
//
// The memory answers reads of one ID in order and may interleave IDs; an access to unallocated pages
// is answered with DECERR. With jitter, all five channels stall at random, IDs overtake each other
// and interleave, and the seed selects one of the memory's allowed behaviours: accept words before
// their address, words only after it, or an address only when a word is offered.
//
// Checked in every cycle: VALID and payload stay until READY; size, type, alignment, length and
// attributes of bursts; no burst crosses 4 KiB; no word before its address is offered; LAST on the
// last word and no other; no new burst while stopping or after a fault. The first violation is kept
// as text and ends the run.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <type_traits>

#include "Vvta_axi.h"
#include "Vvta_axi___024root.h"
#include "dram.h"

#define TSIM_LAST_CLOCK __Vtrigprevexpr___TOP__aclk__0

// The signals of a master that reads and writes.
#define AXI_PINS(PIN)                                                                     \
  PIN(arvalid) PIN(arready) PIN(arid) PIN(araddr) PIN(arlen) PIN(arsize) PIN(arburst)     \
  PIN(arcache) PIN(arprot) PIN(rvalid) PIN(rready) PIN(rid) PIN(rdata) PIN(rresp)         \
  PIN(rlast) PIN(awvalid) PIN(awready) PIN(awid) PIN(awaddr) PIN(awlen) PIN(awsize)       \
  PIN(awburst) PIN(awcache) PIN(awprot) PIN(wvalid) PIN(wready) PIN(wdata) PIN(wstrb)     \
  PIN(wlast) PIN(bvalid) PIN(bready) PIN(bid) PIN(bresp)
#define AXI_DECLARE(name) std::add_lvalue_reference_t<decltype(Vvta_axi::m_axi_##name)> name;
#define AXI_FIRST(name) model.m_axi_##name,
#define AXI_SECOND(name) model.n_axi_##name,

struct Pins {
  AXI_PINS(AXI_DECLARE)
};

constexpr uint32_t kOkay = 0, kDecodeError = 3;
constexpr uint32_t kIncrementing = 1, kCache = 3;
enum Manner : uint32_t { kAny, kAddressFirst, kWordFirst };

// A burst with its remaining words.
struct ReadBurst {
  uint64_t address;
  uint32_t beats;
  uint64_t ready_cycle;
  uint32_t response;
};

// The rules of the protocol; the first one that is broken is kept.
struct Rules {
  // A channel driven by the RTL, as it was one cycle ago.
  struct Offer {
    bool pending = false;
    std::string payload;
  };

  const Dram& dram;
  bool halted = false;  // the fault register was set a cycle ago
  std::string message;

  void require(bool holds, const char* rule) {
    if (!holds && message.empty())
      message = std::string(rule) + " (cycle " + std::to_string(dram.cycle) + ")";
  }

  template <typename... Fields>
  static std::string payload(const Fields&... fields) {
    std::string text;
    (text.append(reinterpret_cast<const char*>(&fields), sizeof fields), ...);
    return text;
  }

  // True if something is offered now that was not offered in the cycle before.
  bool watch(Offer& offer, bool valid, bool ready, const std::string& now, const char* rule) {
    if (offer.pending) require(valid && offer.payload == now, rule);
    const bool begins = valid && !offer.pending;
    offer.pending = valid && !ready;
    offer.payload = now;
    return begins;
  }

  void check_burst(uint64_t address, uint32_t length, uint32_t size, uint32_t type, uint32_t cache,
                   uint32_t protection) {
    const uint64_t last = address + uint64_t{length + 1} * PORT_BYTES - 1;
    require(1u << size == PORT_BYTES, "a burst is narrower than the port");
    require(type == kIncrementing, "a burst is not of type INCR");
    require(cache == kCache && protection == 0, "AxCACHE or AxPROT is not as documented");
    require(address % PORT_BYTES == 0, "a burst is not aligned to the port");
    require(length < BURST_BEATS, "a burst is longer than BURST_BEATS");
    require(address / 4096 == last / 4096, "a burst crosses a multiple of 4 KiB");
  }
};

// A memory behind one master, with the rules that the master must keep.
struct Memory {
  struct Word {
    std::array<uint8_t, PORT_BYTES> data;
    uint64_t strobe;
    bool last;
  };
  struct Answer {
    uint64_t ready_cycle;
    uint32_t response;
  };

  Pins pins;
  Dram& dram;
  Rules& rules;
  DramPort port;
  Manner manner = kAny;

  std::deque<ReadBurst> reads[kClients];
  size_t queued_reads = 0;
  int waiting = -1;  // the ID whose word waits for RREADY
  std::deque<Burst> addresses;  // of writes, their words outstanding
  std::deque<Word> words;       // whose address has not arrived, or which are not yet stored
  std::deque<Answer> answers;
  uint64_t offered_writes = 0, complete_writes = 0;  // bursts, by address and by last word
  uint32_t burst_word = 0;
  bool current_exists = true;
  Rules::Offer ar, aw, w;

  Memory(Pins pins_, Dram& dram_, Rules& rules_, DramPort port_)
      : pins(pins_), dram(dram_), rules(rules_), port(port_) {
    if (dram.jitter) manner = static_cast<Manner>(dram.random.below(3));
  }

  void check_protocol() {
    if (rules.watch(ar, pins.arvalid, pins.arready,
                    Rules::payload(pins.arid, pins.araddr, pins.arlen),
              "AR changed before ARREADY")) {
      rules.require(!rules.halted, "a read burst began after a fault");
      rules.require(pins.arid < kClients, "a read burst has no client");
      rules.check_burst(pins.araddr, pins.arlen, pins.arsize, pins.arburst,
                  pins.arcache, pins.arprot);
    }
    if (rules.watch(aw, pins.awvalid, pins.awready,
                    Rules::payload(pins.awid, pins.awaddr, pins.awlen),
              "AW changed before AWREADY")) {
      rules.require(!rules.halted, "a write burst began after a fault");
      rules.check_burst(pins.awaddr, pins.awlen, pins.awsize, pins.awburst,
                  pins.awcache, pins.awprot);
      ++offered_writes;
    }
    rules.watch(w, pins.wvalid, pins.wready,
                Rules::payload(pins.wdata, pins.wstrb, pins.wlast),
          "W changed before WREADY");
    rules.require(!pins.wvalid || complete_writes < offered_writes,
            "a word was offered before its address");
    rules.require(pins.bready && (pins.rready || kHalves > 1), "RREADY or BREADY is low");
    if (pins.wvalid && pins.wready && pins.wlast) ++complete_writes;
  }

  void drive_read_addresses() {
    pins.arready = queued_reads < kQueuedBursts && !dram.stalls();
    if (!pins.arvalid || !pins.arready || pins.arid >= kClients) return;
    const uint32_t beats = pins.arlen + 1u;
    const bool exists = dram.check(pins.araddr, beats, kHalves > 1 ? kAnyReader : pins.arid);
    reads[pins.arid].push_back({pins.araddr, beats, dram.cycle + dram.delay(),
                                       exists ? kOkay : kDecodeError});
    ++queued_reads;
  }

  int answering() {  // the ID whose oldest burst is answered in this cycle, or -1
    if (queued_reads == 0 || dram.stalls()) return -1;
    const int first = dram.jitter ? static_cast<int>(dram.random.below(kClients)) : 0;
    int best = -1;
    for (int k = 0; k < kClients; ++k) {
      const int id = (first + k) % kClients;
      if (reads[id].empty() || reads[id].front().ready_cycle > dram.cycle) continue;
      const bool older =
          best < 0 || reads[id].front().ready_cycle < reads[best].front().ready_cycle;
      if (best < 0 || (!dram.jitter && older)) best = id;
    }
    return best;
  }

  void drive_read_data() {
    const int id = waiting >= 0 ? waiting : answering();
    pins.rvalid = waiting >= 0 || (id >= 0 && dram.spend(port));
    if (!pins.rvalid) return;
    ReadBurst& burst = reads[id].front();
    if (burst.response == kOkay)
      std::memcpy(&pins.rdata, dram.bytes + burst.address, PORT_BYTES);
    pins.rid = static_cast<CData>(id);
    pins.rresp = static_cast<CData>(burst.response);
    pins.rlast = burst.beats == 1;
    waiting = pins.rready ? -1 : id;
    if (waiting >= 0) return;
    burst.address += PORT_BYTES;
    if (--burst.beats == 0) {
      reads[id].pop_front();
      --queued_reads;
    }
  }

  void drive_writes() {
    const bool may_take = addresses.size() + answers.size() < kQueuedBursts && !dram.stalls();
    pins.awready =
        may_take && (manner != kWordFirst || pins.wvalid || !words.empty());
    if (pins.awvalid && pins.awready)
      addresses.push_back({pins.awaddr, pins.awlen + 1u, dram.cycle});
    const bool expected = manner != kAddressFirst || !addresses.empty();
    // Ready even without a word, because a handshake needs both.
    pins.wready = words.size() < kQueuedBursts && expected &&
                         (!pins.wvalid || (!dram.stalls() && dram.spend(port)));
    if (pins.wvalid && pins.wready) {
      Word word;
      std::memcpy(word.data.data(), &pins.wdata, PORT_BYTES);
      word.strobe = pins.wstrb;
      word.last = pins.wlast;
      words.push_back(word);
    }
    store_words();
    pins.bvalid =
        !answers.empty() && answers.front().ready_cycle <= dram.cycle && !dram.stalls();
    if (pins.bvalid) {
      pins.bresp = static_cast<CData>(answers.front().response);
      answers.pop_front();
    }
  }

  // Whether the oldest burst in flight is a write, which then gets bandwidth first.
  bool write_is_older() {
    if (addresses.empty()) return false;
    const int id = answering();
    return id < 0 || addresses.front().ready_cycle < reads[id].front().ready_cycle;
  }

  void store_words() {
    while (!words.empty() && !addresses.empty()) {
      Burst& burst = addresses.front();
      if (burst_word == 0) current_exists = dram.check(burst.address, burst.beats, kClients);
      const Word& word = words.front();
      ++burst_word;
      rules.require(word.last == (burst_word == burst.beats), "WLAST is not on the last word");
      if (current_exists)
        dram.store(burst.address + uint64_t{burst_word - 1} * PORT_BYTES, word.data.data(),
                   word.strobe);
      words.pop_front();
      if (burst_word < burst.beats) continue;
      uint64_t done = dram.cycle + dram.delay();
      if (!answers.empty()) done = std::max(done, answers.back().ready_cycle);
      answers.push_back({done, current_exists ? kOkay : kDecodeError});
      addresses.pop_front();
      burst_word = 0;
    }
  }

  void drive() {
    drive_read_addresses();
    if (dram.limited() && write_is_older()) {
      drive_writes();
      drive_read_data();
    } else {
      drive_read_data();
      drive_writes();
    }
    check_protocol();
  }

  void reset() {
    for (auto& queue : reads) queue.clear();
    queued_reads = 0;
    waiting = -1;
    addresses.clear();
    words.clear();
    answers.clear();
    offered_writes = complete_writes = burst_word = 0;
    ar = aw = w = Rules::Offer();
    pins.rvalid = pins.bvalid = pins.arready = 0;
    pins.awready = pins.wready = pins.bid = 0;
  }

  size_t outstanding() const { return queued_reads + addresses.size() + answers.size(); }
};

struct Port {
  static constexpr uint64_t kNever = UINT64_MAX;
  static constexpr int kResetCycles = 16;  // as AXI recommends
  static constexpr int kAnswerCycles = 1000;  // within which a register must answer

  Vvta_axi model;
  Dram& dram;
  Rules rules{dram};
  Memory memory{{AXI_PINS(AXI_FIRST)}, dram, rules, kMemoryPort};
#ifdef TSIM_SPLIT_PORT
  Memory second{{AXI_PINS(AXI_SECOND)}, dram, rules, kSecondPort};
#endif
  std::deque<ReadBurst> weights;  // those of the master for weights
  Rules::Offer weights_ar, control_b, control_r;

  Port(VerilatedContext* context, Dram& dram_) : model(context), dram(dram_) {}

  // Calls `action` for the memory of each master that reads and writes.
  template <typename Action>
  void each(Action action) {
    action(memory);
#ifdef TSIM_SPLIT_PORT
    action(second);
#endif
  }

  void check_protocol() {
    if (rules.watch(weights_ar, model.w_axi_arvalid, model.w_axi_arready,
              Rules::payload(model.w_axi_araddr, model.w_axi_arlen), "AR of the weights changed")) {
      rules.require(!rules.halted, "a read burst of weights began after a fault");
      rules.check_burst(model.w_axi_araddr, model.w_axi_arlen, model.w_axi_arsize, model.w_axi_arburst,
                  model.w_axi_arcache, model.w_axi_arprot);
    }
    rules.require(model.w_axi_rready, "RREADY of the weights is low");
    rules.watch(control_b, model.s_axi_bvalid, model.s_axi_bready, Rules::payload(model.s_axi_bresp),
          "B of the registers changed before BREADY");
    rules.watch(control_r, model.s_axi_rvalid, model.s_axi_rready,
          Rules::payload(model.s_axi_rdata, model.s_axi_rresp), "R of the registers changed before RREADY");
    rules.halted = model.fault;
    rules.require(model.irq == (model.finished || model.fault), "the interrupt is not its causes'");
  }

  void drive_weights() {
    model.w_axi_arready = weights.size() < kQueuedBursts && !dram.stalls();
    if (model.w_axi_arvalid && model.w_axi_arready) {
      const uint32_t beats = model.w_axi_arlen + 1u;
      const bool exists = dram.check(model.w_axi_araddr, beats, kLoadUnit);
      weights.push_back({model.w_axi_araddr, beats, dram.cycle + dram.delay(),
                         exists ? kOkay : kDecodeError});
    }
    model.w_axi_rvalid = !weights.empty() && weights.front().ready_cycle <= dram.cycle &&
                         !dram.stalls() && dram.spend(kWeightPort);
    if (!model.w_axi_rvalid) return;
    ReadBurst& burst = weights.front();
    if (burst.response == kOkay)
      std::memcpy(&model.w_axi_rdata, dram.bytes + burst.address, PORT_BYTES);
    model.w_axi_rresp = static_cast<CData>(burst.response);
    model.w_axi_rlast = burst.beats == 1;
    burst.address += PORT_BYTES;
    if (--burst.beats == 0) weights.pop_front();
  }

  void drive() {
    each([](Memory& one) { one.drive(); });
#ifdef TSIM_WEIGHT_PORT
    drive_weights();
#endif
    check_protocol();
  }

  template <typename Cycle>
  void reset(Cycle cycle) {
    each([](Memory& one) { one.reset(); });
    weights.clear();
    rules.halted = false;
    rules.message.clear();
    weights_ar = control_b = control_r = Rules::Offer();
    model.s_axi_awvalid = model.s_axi_wvalid = model.s_axi_arvalid = 0;
    model.s_axi_bready = model.s_axi_rready = 0;
    model.w_axi_rvalid = model.w_axi_arready = 0;
    model.aresetn = 0;
    for (int n = 0; n < kResetCycles; ++n) cycle();
    model.aresetn = 1;
    cycle();
  }

  void set_clock(int value) {
    model.aclk = static_cast<CData>(value);
#ifdef TSIM_ARRAY_CLOCK
    if (value) model.array_clk = 1;  // the edge that both share
#endif
  }

  // ----------------------------------------------------------------------------- registers

  uint64_t start() { return dram.cycle + (dram.jitter ? dram.random.below(4) : 0); }

  template <typename Tick>
  void write_register(uint32_t address, uint32_t value, Tick tick) {
    uint64_t address_from = start(), data_from = start(), take_from = start();
    model.s_axi_awaddr = static_cast<SData>(address);
    model.s_axi_wdata = value;
    model.s_axi_wstrb = 0xF;
    for (int n = 0; n < kAnswerCycles; ++n) {
      model.s_axi_awvalid = address_from <= dram.cycle;
      model.s_axi_wvalid = data_from <= dram.cycle;
      model.s_axi_bready = take_from <= dram.cycle;
      const bool address_taken = model.s_axi_awvalid && model.s_axi_awready;
      const bool data_taken = model.s_axi_wvalid && model.s_axi_wready;
      const bool answered = model.s_axi_bvalid && model.s_axi_bready;
      if (answered) rules.require(model.s_axi_bresp == kOkay, "the write of a register failed");
      tick();
      if (address_taken) address_from = kNever;
      if (data_taken) data_from = kNever;
      if (answered) {
        model.s_axi_bready = 0;
        return;
      }
    }
    rules.require(false, "the write of a register was not answered");
  }

  template <typename Tick>
  uint32_t read_register(uint32_t address, Tick tick) {
    uint64_t address_from = start(), take_from = start();
    model.s_axi_araddr = static_cast<SData>(address);
    for (int n = 0; n < kAnswerCycles; ++n) {
      model.s_axi_arvalid = address_from <= dram.cycle;
      model.s_axi_rready = take_from <= dram.cycle;
      const bool address_taken = model.s_axi_arvalid && model.s_axi_arready;
      const bool answered = model.s_axi_rvalid && model.s_axi_rready;
      const uint32_t value = model.s_axi_rdata;
      if (answered) rules.require(model.s_axi_rresp == kOkay, "the read of a register failed");
      tick();
      if (address_taken) address_from = kNever;
      if (answered) {
        model.s_axi_rready = 0;
        return value;
      }
    }
    rules.require(false, "the read of a register was not answered");
    return 0;
  }

  bool stops_at_bad_access() const { return false; }  // the RTL sees the error response
  size_t outstanding() {
    size_t found = weights.size();
    each([&found](Memory& one) { found += one.outstanding(); });
    return found;
  }
  const char* violation() const { return rules.message.c_str(); }
};
