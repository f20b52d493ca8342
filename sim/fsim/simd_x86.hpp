// The register operations of DotTile common to all x86 instruction sets. The including
// file defines FSIM_TARGET (at least AVX2) and adds kGroup, kHasOffset and dot.
#pragma once

#include <immintrin.h>

#include "gemm_nest.hpp"

namespace fsim {
namespace {

FSIM_INLINE int32_t load_group(const uint8_t* from) {
  int32_t group;
  std::memcpy(&group, from, sizeof group);
  return group;
}

struct Xmm {
  using Register = __m128i;
  static constexpr int kLanes = 4;
  FSIM_INLINE static Register zero() { return _mm_setzero_si128(); }
  FSIM_INLINE static Register load(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  }
  FSIM_INLINE static void store(void* to, Register value) {
    _mm_storeu_si128(static_cast<__m128i*>(to), value);
  }
  FSIM_INLINE static Register broadcast(const uint8_t* from) {
    return _mm_set1_epi32(load_group(from));
  }
  FSIM_INLINE static void accumulate(int32_t* to, Register sum) {
    store(to, _mm_add_epi32(load(to), sum));
  }
  FSIM_INLINE static Register subtract(Register a, Register b) { return _mm_sub_epi32(a, b); }
};

struct Ymm {
  using Register = __m256i;
  static constexpr int kLanes = 8;
  FSIM_INLINE static Register zero() { return _mm256_setzero_si256(); }
  FSIM_INLINE static Register load(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  FSIM_INLINE static void store(void* to, Register value) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), value);
  }
  FSIM_INLINE static Register broadcast(const uint8_t* from) {
    return _mm256_set1_epi32(load_group(from));
  }
  FSIM_INLINE static void accumulate(int32_t* to, Register sum) {
    store(to, _mm256_add_epi32(load(to), sum));
  }
  FSIM_INLINE static Register subtract(Register a, Register b) { return _mm256_sub_epi32(a, b); }
};

}  // namespace
}  // namespace fsim
