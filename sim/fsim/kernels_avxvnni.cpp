// Kernels for CPUs with VNNI on 256-bit registers only (desktop processors without AVX-512).
#include <immintrin.h>

#define FSIM_TARGET __attribute__((target("avxvnni,avx2")))

#include "simd_x86.hpp"
#include "vnni_format.hpp"

namespace fsim {
namespace {

struct VnniXmm : Xmm {
  static constexpr int kGroup = 4;
  static constexpr bool kHasOffset = true;
  FSIM_INLINE static Register dot(Register sum, Register inputs, Register weights) {
    return _mm_dpbusd_avx_epi32(sum, inputs, weights);
  }
  template <int Block>
  FSIM_INLINE static void transpose(uint8_t* to, const int8_t* from) {
    transpose_groups<Block>(to, from);
  }
};

struct VnniYmm : Ymm {
  static constexpr int kGroup = 4;
  static constexpr bool kHasOffset = true;
  FSIM_INLINE static Register dot(Register sum, Register inputs, Register weights) {
    return _mm256_dpbusd_avx_epi32(sum, inputs, weights);
  }
  template <int Block>
  FSIM_INLINE static void transpose(uint8_t* to, const int8_t* from) {
    transpose_groups<Block>(to, from);
  }
};

}  // namespace

// 16 registers: weights of larger tiles are reloaded for every four products.
Kernels avxvnni_kernels(const Geometry& geometry) {
  constexpr const char* kName = "avxvnni";
  switch (geometry.block) {
    case 4: return vnni_kernels<VnniXmm, DotTile<VnniXmm, 4, 1, true>>(kName, geometry);
    case 8: return vnni_kernels<VnniYmm, DotTile<VnniYmm, 8, 1, true>>(kName, geometry);
    case 16: return vnni_kernels<VnniYmm, DotTile<VnniYmm, 16, 2, false>>(kName, geometry);
    case 32: return vnni_kernels<VnniYmm, DotTile<VnniYmm, 32, 2, false>>(kName, geometry);
    default: return vnni_kernels<VnniYmm, DotTile<VnniYmm, 64, 2, false>>(kName, geometry);
  }
}

}  // namespace fsim
