// What a generated CUDA kernel sees when it is compiled for the CPU: the built-in names of CUDA C++,
// over the functions of emulator.cpp.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define UNSEEN __attribute__((no_sanitize("thread")))  // the detector does not see its accesses

using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;
using schar = signed char;
using half = _Float16;

#define CUDART_INF_F __builtin_inff()  // math_constants.h

template <typename T> static inline T max(T a, T b) { return a < b ? b : a; }
template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }

// Vectors are copied by the emulator, in one access, as GPUs load and store them.
extern "C" void emulator_move(void* target, const void* source, int bytes);

template <typename T, int N> struct Lanes;
template <typename T> struct Lanes<T, 2> { T x, y; };
template <typename T> struct Lanes<T, 4> { T x, y, z, w; };

template <typename T, int N> struct alignas(sizeof(T) * N) Vector : Lanes<T, N> {
  Vector() = default;
  template <typename... S, typename = std::enable_if_t<sizeof...(S) == N>>
  Vector(S... values) : Lanes<T, N>{T(values)...} {}
  __attribute__((always_inline)) Vector(const Vector& v) { emulator_move(this, &v, sizeof v); }
  __attribute__((always_inline)) Vector& operator=(const Vector& v) {
    emulator_move(this, &v, sizeof v);
    return *this;
  }
};

using float4 = Vector<float, 4>;
using float2 = Vector<float, 2>;
using int4 = Vector<int, 4>;
using int2 = Vector<int, 2>;
using uint4 = Vector<uint, 4>;
using uint2 = Vector<uint, 2>;
using char4 = Vector<schar, 4>;
using uchar4 = Vector<uchar, 4>;
using ushort2 = Vector<ushort, 2>;
using ushort4 = Vector<ushort, 4>;
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline uint4 make_uint4(uint x, uint y, uint z, uint w) { return {x, y, z, w}; }
static inline uint2 make_uint2(uint x, uint y) { return {x, y}; }
static inline char4 make_char4(schar x, schar y, schar z, schar w) { return {x, y, z, w}; }
static inline int __float_as_int(float f) { int i; std::memcpy(&i, &f, 4); return i; }
static inline float __int_as_float(int i) { float f; std::memcpy(&f, &i, 4); return f; }

// Instructions that are counted by kind; profile.py has the same order.
enum Kind { Dp4a, Mma, Shuffle, FragmentLoad, FragmentStore };
extern "C" void emulator_count(int kind);

static inline half __float2half_rn(float f) { return half(f); }
static inline uint __pack_half2(half x, half y) {
  uint16_t low, high;
  std::memcpy(&low, &x, 2);
  std::memcpy(&high, &y, 2);
  return uint(high) << 16 | low;
}
static inline int __dp4a(int a, int b, int c) {
  emulator_count(Dp4a);
  for (int i = 0; i < 32; i += 8) c += int8_t(a >> i) * int8_t(b >> i);
  return c;
}
static inline uint __dp4a(uint a, uint b, uint c) {
  emulator_count(Dp4a);
  for (int i = 0; i < 32; i += 8) c += uint8_t(a >> i) * uint8_t(b >> i);
  return c;
}

struct Index { int x, y, z; };
extern Index blockIdx, threadIdx;
// The loops of the kernel around the present statement: where each of them is.
extern volatile int emulator_loops[];

extern "C" {
// The shared array number `array` of the kernel, of `bytes` bytes in elements of `element` bytes.
void* emulator_shared(int array, int bytes, int element);
// This thread's array number `array` in registers, from here on unwritten.
void* emulator_registers(int array, const char* name, int bytes);
// Wait at __syncthreads() number `barrier` of the source.
void emulator_barrier(int barrier);
// Whether a statement is not the one that is left out.
bool emulator_at(int point);
// Exchange 8 bytes with the other threads of the warp.
uint64_t emulator_shuffle(uint64_t value, int from_lane, int width, bool relative);
// Wait for the warp, and tell all its threads (`everyone`, 32) what each of them shows.
void emulator_show(const void* mine, const void** everyone);
// cp.async: begin to copy to shared memory; close a group of copies; wait for all but the last.
void emulator_copy(void* target, const void* source, int bytes);
void emulator_commit();
void emulator_wait(int groups);
// A fault unless an address and the stride of its rows are multiples of `bytes`.
void emulator_aligned(const void* address, long stride, int bytes);
// Between these two, what the threads of a warp touch is one request.
void emulator_begin_fragment();
void emulator_end_fragment();
// Return the number of this thread in its warp.
int emulator_lane();
}

static inline void* __cvta_generic_to_shared(void* p) { return p; }
static inline unsigned __activemask() { return 0xffffffffu; }

template <typename T>
static inline T emulator_exchange(T value, int lane, int width, bool relative) {
  emulator_count(Shuffle);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = emulator_shuffle(bits, lane, width, relative);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <typename T>
static inline T __shfl_down_sync(unsigned, T value, int delta, int width = 32) {
  return emulator_exchange(value, delta, width, true);
}

template <typename T>
static inline T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  return emulator_exchange(value, lane, width, false);
}

// Tensor cores. Which thread holds which elements of a fragment is left open by CUDA; here each has
// eight that follow each other in a row.
namespace nvcuda::wmma {
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
constexpr int kSize = 16, kEach = 8;

template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
  static_assert(M == kSize && N == kSize && K == kSize, "the emulator has 16 x 16 x 16 only");
  T x[kEach];
};

// PTX wants each row of a fragment aligned to what a thread holds of it: eight elements of two bytes
// (tensor cores hold float16 operands twice), or of one, or of a sum.
template <typename T> static inline void emulator_check(const T* memory, int row) {
  const int held = sizeof(T) == 2 ? 32 : kEach * int(sizeof(T));
  emulator_aligned(memory, long(row) * sizeof(T), held);
}

template <typename F> static inline void fill_fragment(F& f, float value) {
  for (auto& x : f.x) x = value;
}

template <typename Use, int M, int N, int K, typename T, typename Layout>
static inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const T* source, int row) {
  emulator_check(source, row);
  emulator_count(FragmentLoad);
  emulator_begin_fragment();
  for (int i = 0; i < kEach; ++i) {
    const int element = emulator_lane() * kEach + i, r = element / kSize, c = element % kSize;
    f.x[i] = source[std::is_same_v<Layout, row_major> ? r * row + c : c * row + r];
  }
  emulator_end_fragment();
}

template <int M, int N, int K, typename T>
static inline void store_matrix_sync(T* target, const fragment<accumulator, M, N, K, T>& f, int row,
                                     layout_t layout) {
  emulator_check(target, row);
  emulator_count(FragmentStore);
  emulator_begin_fragment();
  for (int i = 0; i < kEach; ++i) {
    const int element = emulator_lane() * kEach + i, r = element / kSize, c = element % kSize;
    target[layout == mem_row_major ? r * row + c : c * row + r] = f.x[i];
  }
  emulator_end_fragment();
}

// These read the registers of other threads.
template <typename T> UNSEEN static T emulator_element(const void** fragments, int r, int c) {
  const int element = r * kSize + c;
  return static_cast<const T*>(fragments[element / kEach])[element % kEach];
}

template <int M, int N, int K, typename T, typename LayoutA, typename LayoutB, typename S>
UNSEEN static void mma_sync(
    fragment<accumulator, M, N, K, S>& d, const fragment<matrix_a, M, N, K, T, LayoutA>& a,
    const fragment<matrix_b, M, N, K, T, LayoutB>& b, const fragment<accumulator, M, N, K, S>& c) {
  emulator_count(Mma);
  const void *as[32], *bs[32];
  emulator_show(&a, as);
  emulator_show(&b, bs);
  S sums[kEach];
  for (int i = 0; i < kEach; ++i) {
    const int element = emulator_lane() * kEach + i;
    sums[i] = c.x[i];
    for (int k = 0; k < kSize; ++k)
      sums[i] += S(emulator_element<T>(as, element / kSize, k)) *
                 S(emulator_element<T>(bs, k, element % kSize));
  }
  emulator_show(nullptr, as);  // nobody goes on while another still reads
  for (int i = 0; i < kEach; ++i) d.x[i] = sums[i];
}
}  // namespace nvcuda::wmma
