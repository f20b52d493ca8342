// What a generated CUDA kernel sees when it is compiled for the CPU: the built-in names of CUDA C++,
// over the functions of emulator.cpp.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__

using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;
using schar = signed char;

template <typename T> static inline T max(T a, T b) { return a < b ? b : a; }
template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }

struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) uint4 { uint x, y, z, w; };
struct alignas(8) uint2 { uint x, y; };
struct alignas(4) char4 { schar x, y, z, w; };
struct alignas(4) uchar4 { uchar x, y, z, w; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline uint4 make_uint4(uint x, uint y, uint z, uint w) { return {x, y, z, w}; }
static inline uint2 make_uint2(uint x, uint y) { return {x, y}; }
static inline char4 make_char4(schar x, schar y, schar z, schar w) { return {x, y, z, w}; }
static inline int __float_as_int(float f) { int i; std::memcpy(&i, &f, 4); return i; }
static inline float __int_as_float(int i) { float f; std::memcpy(&f, &i, 4); return f; }

struct Index { int x, y, z; };
extern Index blockIdx, threadIdx;

extern "C" {
// The shared array number `array` of the kernel, of `bytes` bytes in elements of `element` bytes.
void* emulator_shared(int array, int bytes, int element);
// Wait at __syncthreads() number `barrier` of the source.
void emulator_barrier(int barrier);
// Exchange 8 bytes with the other threads of the warp.
uint64_t emulator_shuffle(uint64_t value, int from_lane, int width, bool relative);
}

static inline unsigned __activemask() { return 0xffffffffu; }

template <typename T>
static inline T emulator_exchange(T value, int lane, int width, bool relative) {
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
