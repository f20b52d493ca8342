// The DRAM of the simulation and its irregularities, shared by the ports of bare_port.h and
// axi/axi_port.h. 4 GiB of lazily mapped pages, of which only the allocated ones may be accessed;
// `latency` cycles; `bandwidth` bytes per cycle in both directions together, which bursts receive in
// order of arrival (the port of the weights has the same amount for itself; the ports of a divided one
// have half of it each). With a jitter seed, all
// times are irregular but reproducible: results must not depend on them.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

constexpr uint64_t kDramBytes = uint64_t{1} << 32;
constexpr uint64_t kPageBytes = 4096;
constexpr int kClients = 3;           // reading clients; the next number represents writes
constexpr int kLoadUnit = 1;          // the client that may have a second port, for weights
constexpr int kAnyReader = kClients + 1;
constexpr double kSavedBytes = 4.0 * PORT_BYTES;  // budget that an idle DRAM of limited bandwidth saves
constexpr size_t kQueuedBursts = 64;  // accepted by the DRAM before a client must wait

#ifdef TSIM_SPLIT_PORT
constexpr int kHalves = 2;
#else
constexpr int kHalves = 1;
#endif
enum DramPort { kMemoryPort, kWeightPort, kSecondPort, kDramPorts };

struct Burst {
  uint64_t address;
  uint32_t beats;
  uint64_t ready_cycle;  // of the first word; for a write, its arrival
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

struct Dram {
  uint8_t* bytes = nullptr;
  std::vector<uint8_t> allocated = std::vector<uint8_t>(kDramBytes / kPageBytes);

  uint32_t latency;
  double bandwidth;  // bytes per cycle; 0: unlimited
  bool jitter;
  Random random;

  uint64_t cycle = 0;
  double budgets[kDramPorts];  // bytes that each port may transfer now
  uint64_t bad_address = 0;
  int bad_client = -1;  // -1: none; kClients: a write

  Dram(uint32_t latency_, double bandwidth_, bool jitter_, uint64_t seed)
      : latency(latency_), bandwidth(bandwidth_), jitter(jitter_), random(seed) {
    std::fill_n(budgets, int{kDramPorts}, kSavedBytes);
  }

  bool map() {
    void* memory = mmap(nullptr, kDramBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) bytes = static_cast<uint8_t*>(memory);
    return bytes != nullptr;
  }

  // Whether a burst is in allocated pages; remembers the first one that is not.
  bool check(uint64_t address, uint32_t beats, int client) {
    const uint64_t end = address + uint64_t{beats} * PORT_BYTES;
    const bool inside =
        end <= kDramBytes && allocated[address / kPageBytes] && allocated[(end - 1) / kPageBytes];
    if (!inside && bad_client < 0) {
      bad_address = address;
      bad_client = client;
    }
    return inside;
  }

  void store(uint64_t address, const uint8_t* data, uint64_t strobe) {
    for (int i = 0; i < PORT_BYTES; ++i)
      if (strobe >> i & 1) bytes[address + i] = data[i];
  }

  // Whether bandwidth is spent in order; with jitter it is not.
  bool limited() const { return bandwidth != 0 && !jitter; }

  void refill() {
    if (bandwidth == 0) return;
    for (int port = 0; port < kDramPorts; ++port) {
      const double rate = port == kWeightPort ? bandwidth : bandwidth / kHalves;
      budgets[port] = std::min(budgets[port] + rate, kSavedBytes);
    }
  }

  bool spend(DramPort port) {  // one port word of bandwidth
    if (bandwidth == 0) return true;
    if (budgets[port] < PORT_BYTES) return false;
    budgets[port] -= PORT_BYTES;
    return true;
  }

  uint64_t delay() { return latency + (jitter ? random.below(latency) : 0); }
  bool stalls() { return jitter && random.below(4) == 0; }
};
