// Runs CUDA kernels on the CPU: one fiber per GPU thread, one block after another, and a detector of
// races. __syncthreads() and warp shuffles are barriers between fibers; between two barriers the
// threads run one by one in an order that a seed chooses.
//
// Kernels are compiled with -fsanitize=thread, which makes the compiler call the __tsan_ functions at
// the end of this file for each access to memory. They know which thread touched which element in
// which barrier interval: two threads, one element, one interval, one of them writing: a race,
// whatever the order in which the threads happened to run. Between blocks there is no barrier at all.
// Warp shuffles order nothing, as in CUDA. Also found: accesses outside of all arrays, and reads of
// shared memory that no thread of the block has written.
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
#include <vector>

struct Index { int x, y, z; };
Index blockIdx, threadIdx;

namespace {

enum class State { Ready, AtBlockBarrier, AtWarpBarrier, Done };
enum Order { InOrder = 0, Reversed = 1 };  // above: the seed of a shuffle

constexpr int kWarp = 32;
constexpr size_t kStack = 1 << 16;
constexpr int kNobody = -1, kSeveral = -2;

struct Copy {
  void* target;
  const void* source;
  int bytes;
};

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  State state;
  Index index;
  uint64_t slot;  // what the thread offers to a shuffle
  std::vector<Copy> begun;                 // asynchronous copies
  std::deque<std::vector<Copy>> groups;    // and those in groups, oldest first
};

// Who touched an element last, and when: threads of the grid, numbers of barrier intervals.
struct Touched {
  int writer = kNobody, reader = kNobody;
  long written = -1, read = -1;
  bool in_flight = false;  // an asynchronous copy may write it any time
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
long interval, block_start;  // intervals are counted over all blocks
int skipped;                 // the barrier that is left out
Index blockDim;
void (*kernel)(void**);
void** arguments;
std::vector<Array> arrays;
std::map<int, std::unique_ptr<char[]>> shared_memory;
std::vector<long> passed;  // how often each barrier was passed
std::string fault;

void report(const char* kind, const Array* array, size_t element, int other) {
  if (!fault.empty()) return;
  char text[256];
  std::snprintf(text, sizeof text, "%s: %s[%zu], threads %d and %d, block (%d, %d, %d)", kind,
                array ? array->name.c_str() : "?", element, current, other, blockIdx.x, blockIdx.y,
                blockIdx.z);
  fault = text;
}

void wait(State state) {
  threads[current].state = state;
  swapcontext(&threads[current].context, &scheduler);
}

void enter() {
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
  if (when < block_start) return !array.shared;  // another block
  return when == interval && who != me;
}

void touch(const void* pointer, size_t bytes, bool write) {
  const char* address = static_cast<const char*>(pointer);
  const char* stack = threads[current].stack.get();
  if (address >= stack && address < stack + kStack) return;
  const char* index = reinterpret_cast<const char*>(&threadIdx);
  if (address >= index && address < index + sizeof threadIdx) return;
  index = reinterpret_cast<const char*>(&blockIdx);
  if (address >= index && address < index + sizeof blockIdx) return;
  Array* array = find(address, bytes);
  if (!array) return report("out of bounds", nullptr, size_t(address), current);
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
  touch(target, bytes, true);
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
      set_in_flight(copy, false);
      touch(copy.source, copy.bytes, false);
      touch(copy.target, copy.bytes, true);
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
    return data;
  }
  return memory.get() + (256 - reinterpret_cast<uintptr_t>(memory.get()) % 256);
}

void emulator_barrier(int barrier) {
  if (passed.size() <= size_t(barrier)) passed.resize(barrier + 1);
  ++passed[barrier];
  if (barrier != skipped) wait(State::AtBlockBarrier);
}

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

int emulator_lane() { return current % kWarp; }

void emulator_show(const void* mine, const void** everyone) {
  const size_t first = size_t(current) / kWarp * kWarp;
  threads[current].slot = reinterpret_cast<uint64_t>(mine);
  wait(State::AtWarpBarrier);
  for (size_t i = first; i < first + kWarp && i < threads.size(); ++i)
    everyone[i - first] = reinterpret_cast<const void*>(threads[i].slot);
  wait(State::AtWarpBarrier);
}

// Run a kernel and write what is wrong with it, or nothing, to `message`.
void emulator_launch(void (*body)(void**), void** pointers, const char** names, const int* bytes,
                     const int* elements, int count, const int* grid, const int* block, int order,
                     int skip, char* message, int capacity) {
  kernel = body, arguments = pointers, skipped = skip;
  blockDim = {block[0], block[1], block[2]};
  interval = block_number = 0;
  arrays.clear(), shared_memory.clear(), passed.clear(), fault.clear();
  for (int i = 0; i < count; ++i)
    arrays.push_back({names[i], static_cast<char*>(pointers[i]), size_t(bytes[i]),
                      size_t(elements[i]), false, std::vector<Touched>(bytes[i] / elements[i])});
  threads.resize(size_t(block[0]) * block[1] * block[2]);
  for (auto& t : threads)
    if (!t.stack) t.stack.reset(new char[kStack]);
  std::vector<int> sequence(threads.size());
  for (size_t i = 0; i < sequence.size(); ++i) sequence[i] = int(i);
  if (order == Reversed) std::reverse(sequence.begin(), sequence.end());
  std::mt19937 random(order);
  for (int z = 0; z < grid[2] && fault.empty(); ++z)
    for (int y = 0; y < grid[1] && fault.empty(); ++y)
      for (int x = 0; x < grid[0] && fault.empty(); ++x, ++block_number) {
        start_block({x, y, z});
        if (!run_block(sequence, random, order > Reversed))
          fault = "barrier divergence: some threads wait where others never arrive";
      }
  std::snprintf(message, capacity, "%s", fault.c_str());
}

// How often barrier number `barrier` was passed in the last run, summed over the threads.
long emulator_passed(int barrier) {
  return size_t(barrier) < passed.size() ? passed[barrier] : 0;
}

// What the compiler calls for each access with -fsanitize=thread.
#define ACCESS(n)                                                                \
  void __tsan_read##n(void* p) { touch(p, n, false); }                           \
  void __tsan_write##n(void* p) { touch(p, n, true); }                           \
  void __tsan_unaligned_read##n(void* p) { touch(p, n, false); }                 \
  void __tsan_unaligned_write##n(void* p) { touch(p, n, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* p, long bytes) { touch(p, bytes, false); }
void __tsan_write_range(void* p, long bytes) { touch(p, bytes, true); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
