// Runs CUDA kernels on the CPU: one fiber per GPU thread, one block after another, and a detector of
// races. __syncthreads() and warp shuffles are barriers between fibers; between two barriers the
// threads run one by one in an order that a seed chooses.
//
// Kernels are compiled with -fsanitize=thread, which makes the compiler call the __tsan_ functions at
// the end of this file for each access to memory. They know which thread touched which element in
// which barrier interval: two threads, one element, one interval, one of them writing: a race,
// whatever the order in which the threads happened to run. Between blocks there is no barrier at all.
// Warp shuffles order nothing, as in CUDA. Also found: accesses outside of all arrays, and reads of
// registers that their thread has not written, and of shared memory that no thread of the block has, addresses that are no multiple of what is
// accessed there, threads that wait at different barriers, results that no thread wrote.
//
// A profile counts what a warp asks of the memory. The accesses of its threads that one GPU
// instruction makes are those of one place in the code (the caller's address) in the same iterations
// of all loops around it. Global memory answers in sectors of 32 bytes. Shared memory has 32 banks of
// 4 bytes, each of which gives one word at a time; 8 bytes per thread are served to half a warp, 16
// bytes to a quarter of it, at once.
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

struct Index { int x, y, z; };
constexpr int kLoops = 64;
Index blockIdx, threadIdx;
volatile int emulator_loops[kLoops];

// What is counted of the accesses to one array, reads or writes. The layout is known to profile.py.
struct Traffic {
  long requests;  // of warps
  long lanes;     // threads that took part in them
  long bytes;     // that they asked for
  long units;     // sectors; or turns of the banks
  long fewest;    // units of the best arrangement of so many bytes
  long worst;     // turns of the worst request, by those that it would need: the ways of a conflict
  long touched;   // sectors of the array that were touched at all
};

struct Step {  // one access, for a diagram
  int thread, step, array, element, write;
};

namespace {

enum class State { Ready, AtBlockBarrier, AtWarpBarrier, Done };
enum Order { InOrder = 0, Reversed = 1 };  // above: the seed of a shuffle

constexpr int kWarp = 32;
constexpr size_t kStack = 1 << 16, kRegisters = 1 << 14;  // bytes of a thread
constexpr int kNobody = -1, kSeveral = -2;
constexpr size_t kSharedMemory = 48 << 10;  // of a block, declared in its code

struct Copy {
  void* target;
  const void* source;
  int bytes;
};

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;          // the registers are behind it
  std::unique_ptr<bool[]> set;            // which bytes of them were written
  State state;
  Index index;
  uint64_t slot;  // what the thread offers to a shuffle
  std::vector<Copy> begun;                 // asynchronous copies
  std::deque<std::vector<Copy>> groups;    // and those in groups, oldest first
  int barrier;                             // where it waits
  int loops[kLoops];                       // `emulator_loops` while others run
  const void* fragment;                    // the place of a fragment's access in progress
  uint64_t fragment_key;
  int steps;
};

struct Lane {
  size_t address;
  int thread, bytes;
};

// What a warp asks of an array by one instruction.
struct Request {
  int array;
  bool write, fragment;
  int last = -1, times = 0;  // the thread that came last, and how often it came here before
  std::vector<Lane> lanes;
};

// Who touched an element last, and when: threads of the grid, numbers of barrier intervals.
struct Touched {
  int writer = kNobody, reader = kNobody;
  long written = -1, read = -1;
  bool in_flight = false;  // an asynchronous copy may write it any time
};

struct Registers {
  std::string name;
  size_t start, bytes;
};

struct Array {
  std::string name;
  char* data;
  size_t bytes, element;
  bool shared;
  std::vector<Touched> touched;
};

std::vector<Thread> threads;
ucontext_t scheduler;
int current, block_number;
long interval, block_start, kernel_start;  // intervals are counted over all blocks and kernels
int skipped;                 // the statement that is left out
Index blockDim;
void (*kernel)(void**);
void** arguments;
std::vector<Array> arrays;
std::map<int, std::unique_ptr<char[]>> shared_memory;
size_t shared_bytes;  // of a block of this kernel
std::map<int, Registers> registers;  // arrays that the kernel keeps there, by number
size_t register_bytes;
std::vector<long> passed;  // how often each barrier was passed
std::string fault;
bool profiling;
int loops_used;
std::unordered_map<uint64_t, Request> requests;
std::vector<std::unordered_set<size_t>> sectors;    // of each array
std::vector<std::pair<Traffic, Traffic>> traffic;   // of each array: reads, writes
std::vector<long> kinds;                            // instructions of threads, by kind
std::unordered_map<uint64_t, int> blocks_run;       // basic blocks of a warp: threads that came by
long warp_blocks, lane_blocks;
std::vector<Step> steps;
size_t steps_wanted;
constexpr int kSector = 32, kBanks = 32, kWord = 4;

uint64_t mix(uint64_t a, uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15ull + (a << 6) + (a >> 2);
  return a * 0xff51afd7ed558ccdull;
}

// A key for this place of the code, in the present iterations of the loops, in this warp.
uint64_t place(const void* code) {
  uint64_t key = mix(reinterpret_cast<uint64_t>(code), current / kWarp);
  for (int i = 0; i < loops_used; ++i) key = mix(key, uint64_t(emulator_loops[i]));
  return key;
}

void record(int array, size_t address, int bytes, bool write, const void* code) {
  Thread& t = threads[current];
  if (steps.size() < steps_wanted) {
    const auto element = int((address - size_t(arrays[array].data)) / arrays[array].element);
    steps.push_back({block_number * int(threads.size()) + current, t.steps, array, element, write});
  }
  if (!t.fragment) ++t.steps;
  address -= size_t(arrays[array].data);  // as if each array began at its own sector
  const uint64_t key = t.fragment ? t.fragment_key : place(code);
  Request* request = &requests[key];
  if (!t.fragment) {
    request->times = request->last == current ? request->times + 1 : 0, request->last = current;
    if (request->times) request = &requests[mix(key, request->times)];  // in a loop without a name
  }
  request->array = array, request->write = write, request->fragment = t.fragment;
  request->lanes.push_back({address, current, bytes});
}

// The different words that some threads touch, in order.
template <typename Iterator> std::vector<size_t> words_of(Iterator begin, Iterator end) {
  std::vector<size_t> words;
  for (; begin != end; ++begin)
    for (size_t w = begin->address / kWord; w <= (begin->address + begin->bytes - 1) / kWord; ++w)
      words.push_back(w);
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

// How often the banks must turn until all these words were served.
long turns(const std::vector<size_t>& words) {
  long banks[kBanks] = {};
  for (size_t w : words) ++banks[w % kBanks];
  return *std::max_element(banks, banks + kBanks);
}

void count(Request& request) {
  auto& [reads, writes] = traffic[request.array];
  Traffic& t = request.write ? writes : reads;
  auto& lanes = request.lanes;
  std::stable_sort(lanes.begin(), lanes.end(),
                   [](const Lane& a, const Lane& b) { return a.thread < b.thread; });
  ++t.requests;
  for (size_t i = 0; i < lanes.size(); ++i) {
    t.bytes += lanes[i].bytes;
    t.lanes += i == 0 || lanes[i].thread != lanes[i - 1].thread;
  }
  auto add = [&t](long units, long fewest) {
    t.units += units, t.fewest += fewest;
    t.worst = std::max(t.worst, (units + fewest - 1) / fewest);
  };
  const auto words = words_of(lanes.begin(), lanes.end());
  if (!arrays[request.array].shared) {
    long used = 0;
    size_t last = SIZE_MAX;
    for (size_t w : words)
      if (w * kWord / kSector != last) {
        last = w * kWord / kSector, ++used;
        sectors[request.array].insert(last);
      }
    return add(used, (words.size() * kWord + kSector - 1) / kSector);
  }
  if (request.fragment) return add(turns(words), (words.size() + kBanks - 1) / kBanks);
  const int together = kWarp * kWord / std::max(kWord, lanes[0].bytes);
  for (auto begin = lanes.begin(); begin != lanes.end();) {
    auto end = begin;
    while (end != lanes.end() && end->thread / together == begin->thread / together) ++end;
    add(turns(words_of(begin, end)), 1);
    begin = end;
  }
}

void count_block() {
  for (auto& [key, request] : requests) count(request);
  for (auto& [key, lanes] : blocks_run)
    warp_blocks += (lanes + kWarp - 1) / kWarp, lane_blocks += lanes;
  requests.clear(), blocks_run.clear();
}

void report(const char* kind, const Array* array, size_t element, int other) {
  if (!fault.empty()) return;
  char text[256];
  std::snprintf(text, sizeof text, "%s: %s[%zu], threads %d and %d, block (%d, %d, %d)", kind,
                array ? array->name.c_str() : "?", element, current, other, blockIdx.x, blockIdx.y,
                blockIdx.z);
  fault = text;
}

void wait(State state) {
  Thread& t = threads[current];
  t.state = state;
  for (int i = 0; profiling && i < loops_used; ++i) t.loops[i] = emulator_loops[i];
  swapcontext(&t.context, &scheduler);
  for (int i = 0; profiling && i < loops_used; ++i) emulator_loops[i] = t.loops[i];
}

void enter() {
  for (int i = 0; i < kLoops; ++i) emulator_loops[i] = 0;
  kernel(arguments);
  wait(State::Done);
}

void start_block(Index block) {
  blockIdx = block;
  block_start = ++interval;
  for (auto& array : arrays)
    if (array.shared) {
      array.touched.assign(array.touched.size(), {});
      std::memset(array.data, 0xff, array.bytes);  // NaN, -1
    }
  for (size_t i = 0; i < threads.size(); ++i) {
    Thread& t = threads[i];
    t.state = State::Ready;
    t.begun.clear(), t.groups.clear();
    t.fragment = nullptr, t.steps = 0;
    t.index = {int(i) % blockDim.x, int(i) / blockDim.x % blockDim.y,
               int(i) / (blockDim.x * blockDim.y)};
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = t.stack.get();
    t.context.uc_stack.ss_size = kStack;
    t.context.uc_link = nullptr;
    makecontext(&t.context, enter, 0);
  }
}

// Release the warps of which all living threads wait. Returns whether there was one.
bool release_warps() {
  bool released = false;
  for (size_t first = 0; first < threads.size(); first += kWarp) {
    auto b = threads.begin() + first;
    auto e = threads.begin() + std::min(first + kWarp, threads.size());
    bool all = std::all_of(b, e, [](const Thread& t) {
      return t.state == State::AtWarpBarrier || t.state == State::Done;
    });
    for (auto t = b; all && t != e; ++t)
      if (t->state == State::AtWarpBarrier) {
        t->state = State::Ready;
        released = true;
      }
  }
  return released;
}

// Run the threads of a block; returns whether all reached each barrier together.
bool run_block(std::vector<int>& order, std::mt19937& random, bool shuffled) {
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
    auto all = [](State state) {
      return std::all_of(threads.begin(), threads.end(),
                         [=](const Thread& t) { return t.state == state; });
    };
    if (all(State::Done)) return true;
    if (!all(State::AtBlockBarrier)) return false;
    for (auto& t : threads)
      if (t.barrier != threads[0].barrier) return false;
    for (auto& t : threads) t.state = State::Ready;
    ++interval;
  }
}

Array* find(const char* address, size_t bytes) {
  for (auto& array : arrays)
    if (address >= array.data && address + bytes <= array.data + array.bytes) return &array;
  return nullptr;
}

// Whether an element's last access, by `who` in the interval `when`, is not ordered before one now.
bool concurrent(const Array& array, int who, long when) {
  if (who == kNobody) return false;
  const int me = block_number * int(threads.size()) + current;
  if (when < kernel_start) return false;         // another kernel: all of it is over
  if (when < block_start) return !array.shared;  // another block
  return when == interval && who != me;
}

// An access to registers of the current thread, `at` bytes behind the first.
void touch_registers(size_t at, size_t bytes, bool write) {
  bool* set = threads[current].set.get() + at;
  if (write) return void(std::memset(set, true, bytes));
  if (!std::memchr(set, false, bytes) || !fault.empty()) return;
  for (auto& [number, r] : registers)
    if (at >= r.start && at < r.start + r.bytes)
      fault = "register never written: " + r.name + ", byte " + std::to_string(at - r.start) +
              ", thread " + std::to_string(current);
}

void touch(const void* pointer, size_t bytes, bool write, const void* code) {
  const char* address = static_cast<const char*>(pointer);
  const char* stack = threads[current].stack.get();
  if (address >= stack && address < stack + kStack) return;
  if (address >= stack && address < stack + kStack + kRegisters)
    return touch_registers(address - stack - kStack, bytes, write);
  const char* index = reinterpret_cast<const char*>(&threadIdx);
  if (address >= index && address < index + sizeof threadIdx) return;
  index = reinterpret_cast<const char*>(&blockIdx);
  if (address >= index && address < index + sizeof blockIdx) return;
  index = reinterpret_cast<const char*>(const_cast<const int*>(emulator_loops));
  if (address >= index && address < index + kLoops * sizeof(int)) return;
  Array* array = find(address, bytes);
  if (!array) return report("out of bounds", nullptr, size_t(address), current);
  if (!(bytes & (bytes - 1)) && size_t(address) % bytes)
    return report("not aligned", array, (address - array->data) / array->element, current);
  if (profiling) record(int(array - arrays.data()), size_t(address), int(bytes), write, code);
  const size_t first = (address - array->data) / array->element;
  const size_t last = (address + bytes - 1 - array->data) / array->element;
  const int me = block_number * int(threads.size()) + current;
  for (size_t i = first; i <= last; ++i) {
    Touched& t = array->touched[i];
    if (t.in_flight) report("copy in flight", array, i, t.writer);
    if (concurrent(*array, t.writer, t.written))
      report(write ? "write after write" : "read after write", array, i, t.writer);
    if (write) {
      if (concurrent(*array, t.reader, t.read)) report("write after read", array, i, t.reader);
      t.writer = me, t.written = interval;
    } else {
      if (array->shared && t.writer == kNobody) report("never written", array, i, current);
      t.reader = t.read == interval && t.reader != me ? kSeveral : me;
      t.read = interval;
    }
  }
}

void set_in_flight(const Copy& copy, bool value) {
  const char* address = static_cast<const char*>(copy.target);
  Array* array = find(address, copy.bytes);
  if (!array) return;  // reported by touch
  for (size_t i = (address - array->data) / array->element;
       i <= (address + copy.bytes - 1 - array->data) / array->element; ++i)
    array->touched[i].in_flight = value;
}

}  // namespace

extern "C" {

// The data arrives as late as can be, at the wait; meanwhile nobody may touch its place.
void emulator_copy(void* target, const void* source, int bytes) {
  if ((reinterpret_cast<uintptr_t>(target) | reinterpret_cast<uintptr_t>(source)) % bytes)
    report("not aligned", nullptr, size_t(target), current);
  const Copy copy{target, source, bytes};
  const bool counted = profiling;
  touch(target, bytes, true, __builtin_return_address(0));
  if (Array* array = find(static_cast<const char*>(source), bytes); array && counted)
    record(int(array - arrays.data()), size_t(source), bytes, false,
           static_cast<const char*>(__builtin_return_address(0)) + 1);
  set_in_flight(copy, true);
  threads[current].begun.push_back(copy);
}

void emulator_commit() {
  Thread& t = threads[current];
  t.groups.push_back(std::move(t.begun));
  t.begun.clear();
}

void emulator_wait(int groups) {
  for (auto& waiting = threads[current].groups; waiting.size() > size_t(groups); waiting.pop_front())
    for (const Copy& copy : waiting.front()) {
      const bool counted = profiling;
      profiling = false;  // it was counted when it began
      set_in_flight(copy, false);
      touch(copy.source, copy.bytes, false, nullptr);
      touch(copy.target, copy.bytes, true, nullptr);
      profiling = counted;
      if (fault.empty()) std::memcpy(copy.target, copy.source, copy.bytes);
    }
}

void* emulator_shared(int number, int bytes, int element) {
  auto& memory = shared_memory[number];
  if (!memory) {
    memory.reset(new char[bytes + 256]);
    char* data = memory.get() + (256 - reinterpret_cast<uintptr_t>(memory.get()) % 256);
    std::memset(data, 0xff, bytes);
    arrays.push_back({"shared array " + std::to_string(number), data, size_t(bytes),
                      size_t(element), true, std::vector<Touched>(bytes / element)});
    sectors.emplace_back(), traffic.emplace_back();
    shared_bytes += bytes;
    if (shared_bytes > kSharedMemory)
      report("too much shared memory", &arrays.back(), shared_bytes, current);
    return data;
  }
  return memory.get() + (256 - reinterpret_cast<uintptr_t>(memory.get()) % 256);
}

void* emulator_registers(int number, const char* name, int bytes) {
  Thread& t = threads[current];
  if (!registers.count(number)) {
    if (register_bytes + bytes > kRegisters) {
      if (fault.empty()) fault = std::string("too many registers: ") + name;
      return t.stack.get() + kStack;
    }
    registers[number] = {name, register_bytes, size_t(bytes)};
    register_bytes += (bytes + 63) / 64 * 64;
  }
  const size_t start = registers[number].start;
  std::fill_n(t.set.get() + start, bytes, false);
  return t.stack.get() + kStack + start;
}

void emulator_barrier(int barrier) {
  if (passed.size() <= size_t(barrier)) passed.resize(barrier + 1);
  ++passed[barrier];
  threads[current].barrier = barrier;
  if (barrier != skipped) wait(State::AtBlockBarrier);
}

bool emulator_at(int point) { return point != skipped; }

uint64_t emulator_shuffle(uint64_t value, int lane, int width, bool relative) {
  const int me = current, own = me % width;
  threads[me].slot = value;
  wait(State::AtWarpBarrier);
  int from = relative ? (own + lane < width ? me + lane : me) : me / width * width + lane % width;
  if (size_t(from) < threads.size()) value = threads[from].slot;
  wait(State::AtWarpBarrier);
  return value;
}

void emulator_aligned(const void* address, long stride, int bytes) {
  const size_t at = reinterpret_cast<uintptr_t>(address);
  if (at % bytes || stride % bytes) report("not aligned", nullptr, at % bytes, current);
}

// Copy a vector in one access; the stack, where it may come from or go to, does not count.
void emulator_move(void* target, const void* source, int bytes) {
  touch(source, bytes, false, __builtin_return_address(0));
  touch(target, bytes, true, static_cast<const char*>(__builtin_return_address(0)) + 1);
  if (fault.empty()) std::memcpy(target, source, bytes);
}

void emulator_begin_fragment() {
  Thread& t = threads[current];
  t.fragment = __builtin_return_address(0);
  if (profiling) t.fragment_key = place(t.fragment);
}

void emulator_end_fragment() {
  threads[current].fragment = nullptr;
  ++threads[current].steps;
}

void emulator_count(int kind) {
  if (kinds.size() <= size_t(kind)) kinds.resize(kind + 1);
  ++kinds[kind];
}

// Called by the compiler at the beginning of each basic block.
void __sanitizer_cov_trace_pc() {
  if (profiling) ++blocks_run[place(__builtin_return_address(0))];
}

int emulator_lane() { return current % kWarp; }

void emulator_show(const void* mine, const void** everyone) {
  const size_t first = size_t(current) / kWarp * kWarp;
  threads[current].slot = reinterpret_cast<uint64_t>(mine);
  wait(State::AtWarpBarrier);
  for (size_t i = first; i < first + kWarp && i < threads.size(); ++i)
    everyone[i - first] = reinterpret_cast<const void*>(threads[i].slot);
  wait(State::AtWarpBarrier);
}

// Run a kernel and write what is wrong with it, or nothing, to `message`. The first of several that
// work on the same arrays forgets what was counted before.
void emulator_launch(void (*body)(void**), void** pointers, const char** names, const int* bytes,
                     const int* elements, const int* results, int count, const int* grid,
                     const int* block, int order, int skip, const int* chosen, int choices,
                     bool counting, int loops, long wanted, bool first, char* message,
                     int capacity) {
  kernel = body, arguments = pointers, skipped = skip;
  profiling = counting, loops_used = loops, steps_wanted = size_t(wanted);
  blockDim = {block[0], block[1], block[2]};
  block_number = 0, shared_bytes = 0, register_bytes = 0, registers.clear();
  if (first) {
    interval = 0;
    arrays.clear(), shared_memory.clear(), passed.clear(), fault.clear(), kinds.clear();
    requests.clear(), blocks_run.clear(), steps.clear(), warp_blocks = lane_blocks = 0;
    arrays.reserve(count + 64);
    for (int i = 0; i < count; ++i)
      arrays.push_back({names[i], static_cast<char*>(pointers[i]), size_t(bytes[i]),
                        size_t(elements[i]), false, std::vector<Touched>(bytes[i] / elements[i])});
    sectors.assign(count, {}), traffic.assign(count, {});
  }
  kernel_start = ++interval;
  threads.resize(size_t(block[0]) * block[1] * block[2]);
  for (auto& t : threads)
    if (!t.stack) t.stack.reset(new char[kStack + kRegisters]), t.set.reset(new bool[kRegisters]);
  std::vector<int> sequence(threads.size());
  for (size_t i = 0; i < sequence.size(); ++i) sequence[i] = int(i);
  if (order == Reversed) std::reverse(sequence.begin(), sequence.end());
  std::mt19937 random(order);
  const int blocks = choices ? choices : grid[0] * grid[1] * grid[2];
  for (int i = 0; i < blocks && fault.empty(); ++i, ++block_number) {
    const int b = choices ? chosen[i] : i;
    start_block({b % grid[0], b / grid[0] % grid[1], b / (grid[0] * grid[1])});
    if (!run_block(sequence, random, order > Reversed))
      fault = "barrier divergence: some threads wait where others never arrive";
    count_block();
  }
  for (int a = 0; a < count && !choices && fault.empty(); ++a)
    for (size_t i = 0; results[a] && i < arrays[a].touched.size(); ++i)
      if (arrays[a].touched[i].writer == kNobody) report("never written", &arrays[a], i, kNobody);
  std::snprintf(message, capacity, "%s", fault.c_str());
}

// How often barrier number `barrier` was passed in the last run, summed over the threads.
long emulator_passed(int barrier) {
  return size_t(barrier) < passed.size() ? passed[barrier] : 0;
}

// What was counted: the traffic of array `array`, by the order of arguments, then shared arrays.
bool emulator_traffic(int array, bool write, Traffic* result, bool* shared) {
  if (size_t(array) >= arrays.size()) return false;
  *result = write ? traffic[array].second : traffic[array].first;
  result->touched = long(sectors[array].size());
  *shared = arrays[array].shared;
  return true;
}

long emulator_counted(int kind) { return size_t(kind) < kinds.size() ? kinds[kind] : 0; }
long emulator_warp_blocks() { return warp_blocks; }
long emulator_lane_blocks() { return lane_blocks; }
long emulator_steps(Step* result) {
  if (result) std::copy(steps.begin(), steps.end(), result);
  return long(steps.size());
}

// What the compiler calls for each access with -fsanitize=thread.
#define CALLER __builtin_return_address(0)
#define ACCESS(n)                                                                \
  void __tsan_read##n(void* p) { touch(p, n, false, CALLER); }                           \
  void __tsan_write##n(void* p) { touch(p, n, true, CALLER); }                           \
  void __tsan_unaligned_read##n(void* p) { touch(p, n, false, CALLER); }                 \
  void __tsan_unaligned_write##n(void* p) { touch(p, n, true, CALLER); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* p, long bytes) { touch(p, bytes, false, CALLER); }
void __tsan_write_range(void* p, long bytes) { touch(p, bytes, true, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
