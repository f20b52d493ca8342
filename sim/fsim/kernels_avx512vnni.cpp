// Kernels for CPUs with AVX-512 VNNI: 64 multiplications in one instruction.
#include <immintrin.h>

#define FSIM_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,avx2")))

#include "simd_x86.hpp"
#include "vnni_format.hpp"

namespace fsim {
namespace {

struct VnniXmm : Xmm {
  static constexpr int kGroup = 4;
  static constexpr bool kHasOffset = true;
  FSIM_INLINE static Register dot(Register sum, Register inputs, Register weights) {
    return _mm_dpbusd_epi32(sum, inputs, weights);
  }
};

struct VnniYmm : Ymm {
  static constexpr int kGroup = 4;
  static constexpr bool kHasOffset = true;
  FSIM_INLINE static Register dot(Register sum, Register inputs, Register weights) {
    return _mm256_dpbusd_epi32(sum, inputs, weights);
  }
};

struct VnniZmm {
  using Register = __m512i;
  static constexpr int kLanes = 16, kGroup = 4;
  static constexpr bool kHasOffset = true;
  FSIM_INLINE static Register zero() { return _mm512_setzero_si512(); }
  FSIM_INLINE static Register load(const void* from) { return _mm512_loadu_si512(from); }
  FSIM_INLINE static void store(void* to, Register value) { _mm512_storeu_si512(to, value); }
  FSIM_INLINE static Register broadcast(const uint8_t* from) {
    return _mm512_set1_epi32(load_group(from));
  }
  FSIM_INLINE static void accumulate(int32_t* to, Register sum) {
    store(to, _mm512_add_epi32(load(to), sum));
  }
  FSIM_INLINE static Register subtract(Register a, Register b) { return _mm512_sub_epi32(a, b); }
  FSIM_INLINE static Register dot(Register sum, Register inputs, Register weights) {
    return _mm512_dpbusd_epi32(sum, inputs, weights);
  }
};

}  // namespace

// At most 16 of the 32 registers hold weights. Where an element is one register of output channels,
// two elements share the inputs.
Kernels avx512vnni_kernels(const Geometry& geometry) {
  constexpr const char* kName = "avx512vnni";
  switch (geometry.block) {
    case 4:
      return vnni_kernels<VnniXmm, DotTile<VnniXmm, 4, 1, true>>(kName, geometry);
    case 8:
      return vnni_kernels<VnniYmm, DotTile<VnniYmm, 8, 1, true>, DotTile<VnniYmm, 8, 1, true, 2>>(
          kName, geometry);
    case 16:
      return vnni_kernels<VnniZmm, DotTile<VnniZmm, 16, 1, true>,
                          DotTile<VnniZmm, 16, 1, true, 2>>(kName, geometry);
    case 32:
      return vnni_kernels<VnniZmm, DotTile<VnniZmm, 32, 2, true>>(kName, geometry);
    default:
      return vnni_kernels<VnniZmm, DotTile<VnniZmm, 64, 1, true>>(kName, geometry);
  }
}

}  // namespace fsim
