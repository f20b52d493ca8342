// Runs CUDA kernels that TVM generated on the CPU: one fiber per GPU thread, one block after
// another. __syncthreads() and warp shuffles are barriers between fibers; between two barriers the
// threads run one by one in an order that a seed shuffles, so that a missing barrier is seen.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__

using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;
using std::max;
using std::min;

struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) int2 { int x, y; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int __float_as_int(float f) { int i; std::memcpy(&i, &f, 4); return i; }
static inline float __int_as_float(int i) { float f; std::memcpy(&f, &i, 4); return f; }

struct Index { int x, y, z; };
static Index blockIdx, threadIdx, blockDim, gridDim;

namespace emulator {

enum class State { Ready, AtBlockBarrier, AtWarpBarrier, Done };
enum Result { Finished = 0, BarrierDivergence = 2 };

constexpr int kWarp = 32;
constexpr size_t kStack = 1 << 16;

struct Thread {
  ucontext_t context;
  std::vector<char> stack;
  State state;
  Index index;
  uint64_t slot;  // what the thread offers to a shuffle
};

static std::vector<Thread> threads;
static ucontext_t scheduler;
static int current;
static std::function<void()> kernel;
static long barriers;

static void wait(State state) {
  threads[current].state = state;
  swapcontext(&threads[current].context, &scheduler);
}

static void enter() {
  kernel();
  wait(State::Done);
}

static void start_block(Index block) {
  blockIdx = block;
  for (size_t i = 0; i < threads.size(); ++i) {
    Thread& t = threads[i];
    t.stack.resize(kStack);
    t.state = State::Ready;
    t.index = {int(i) % blockDim.x, int(i) / blockDim.x % blockDim.y,
               int(i) / (blockDim.x * blockDim.y)};
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = t.stack.data();
    t.context.uc_stack.ss_size = t.stack.size();
    t.context.uc_link = nullptr;
    makecontext(&t.context, enter, 0);
  }
}

// Release the warps of which all living threads wait. Returns whether there was one.
static bool release_warps() {
  bool released = false;
  for (size_t first = 0; first < threads.size(); first += kWarp) {
    size_t end = std::min(first + kWarp, threads.size());
    auto waits = [](const Thread& t) { return t.state == State::AtWarpBarrier; };
    auto other = [](const Thread& t) {
      return t.state != State::AtWarpBarrier && t.state != State::Done;
    };
    auto b = threads.begin() + first, e = threads.begin() + end;
    if (std::any_of(b, e, waits) && std::none_of(b, e, other)) {
      for (auto t = b; t != e; ++t)
        if (t->state == State::AtWarpBarrier) t->state = State::Ready;
      released = true;
    }
  }
  return released;
}

static Result run_block(std::vector<int>& order, std::mt19937& random, bool shuffled) {
  for (;;) {
    if (shuffled) std::shuffle(order.begin(), order.end(), random);
    bool ran = false;
    for (int i : order) {
      if (threads[i].state != State::Ready) continue;
      current = i;
      threadIdx = threads[i].index;
      swapcontext(&scheduler, &threads[i].context);
      ran = true;
    }
    if (ran || release_warps()) continue;
    size_t done = 0;
    for (auto& t : threads) done += t.state == State::Done;
    if (done == threads.size()) return Finished;
    bool block = std::all_of(threads.begin(), threads.end(), [](const Thread& t) {
      return t.state == State::AtBlockBarrier;
    });
    if (!block) return BarrierDivergence;  // some threads have ended, or wait elsewhere
    for (auto& t : threads) t.state = State::Ready;
  }
}

static Result launch(Index grid, Index block, unsigned seed, std::function<void()> body) {
  kernel = body;
  gridDim = grid;
  blockDim = block;
  barriers = 0;
  threads.resize(size_t(block.x) * block.y * block.z);
  std::vector<int> order(threads.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int(i);
  std::mt19937 random(seed);
  for (int z = 0; z < grid.z; ++z)
    for (int y = 0; y < grid.y; ++y)
      for (int x = 0; x < grid.x; ++x) {
        start_block({x, y, z});
        if (Result r = run_block(order, random, seed != 0)) return r;
      }
  return Finished;
}

}  // namespace emulator

static inline void __syncthreads() {
  ++emulator::barriers;
  emulator::wait(emulator::State::AtBlockBarrier);
}

static inline unsigned __activemask() { return 0xffffffffu; }

template <typename T>
static inline T __shfl_down_sync(unsigned, T value, int delta, int width = emulator::kWarp) {
  using namespace emulator;
  const int me = current, lane = me % width;
  threads[me].slot = 0;
  std::memcpy(&threads[me].slot, &value, sizeof(T));
  wait(State::AtWarpBarrier);
  const int from = lane + delta < width ? me + delta : me;
  if (size_t(from) < threads.size()) std::memcpy(&value, &threads[from].slot, sizeof(T));
  wait(State::AtWarpBarrier);
  return value;
}

template <typename T>
static inline T __shfl_sync(unsigned, T value, int lane, int width = emulator::kWarp) {
  using namespace emulator;
  const int me = current;
  threads[me].slot = 0;
  std::memcpy(&threads[me].slot, &value, sizeof(T));
  wait(State::AtWarpBarrier);
  std::memcpy(&value, &threads[me / width * width + lane % width].slot, sizeof(T));
  wait(State::AtWarpBarrier);
  return value;
}
