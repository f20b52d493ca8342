// Kernels for CPUs with AVX-512 VNNI: 64 multiplications in one instruction.
#include <immintrin.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false, in immintrin.h: GCC bug 105593
#endif

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
  template <int Block>
  FSIM_INLINE static void transpose(uint8_t* to, const int8_t* from) {
    transpose_groups<Block>(to, from);
  }
};

struct VnniYmm : Ymm {
  static constexpr int kGroup = 4;
  static constexpr bool kHasOffset = true;
  FSIM_INLINE static Register dot(Register sum, Register inputs, Register weights) {
    return _mm256_dpbusd_epi32(sum, inputs, weights);
  }
  template <int Block>
  FSIM_INLINE static void transpose(uint8_t* to, const int8_t* from) {
    transpose_groups<Block>(to, from);
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
  // 16 output channels by 4 groups at a time: four registers of 4 rows each become the columns.
  template <int Block>
  FSIM_INLINE static void transpose(uint8_t* to, const int8_t* from) {
    const Register low_groups = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28,  //
                                                  1, 5, 9, 13, 17, 21, 25, 29);
    const Register high_groups = _mm512_add_epi32(low_groups, _mm512_set1_epi32(2));
    for (int oc = 0; oc < Block; oc += 16) {
      for (int s = 0; s < Block / 4; s += 4) {
        const int8_t* const corner = from + oc * Block + s * 4;
        const Register a = four_rows<Block>(corner), b = four_rows<Block>(corner + 4 * Block);
        const Register c = four_rows<Block>(corner + 8 * Block);
        const Register d = four_rows<Block>(corner + 12 * Block);
        const Register ab01 = _mm512_permutex2var_epi32(a, low_groups, b);
        const Register ab23 = _mm512_permutex2var_epi32(a, high_groups, b);
        const Register cd01 = _mm512_permutex2var_epi32(c, low_groups, d);
        const Register cd23 = _mm512_permutex2var_epi32(c, high_groups, d);
        uint8_t* const column = to + (s * Block + oc) * 4;
        store(column, _mm512_shuffle_i64x2(ab01, cd01, 0x44));
        store(column + Block * 4, _mm512_shuffle_i64x2(ab01, cd01, 0xEE));
        store(column + Block * 8, _mm512_shuffle_i64x2(ab23, cd23, 0x44));
        store(column + Block * 12, _mm512_shuffle_i64x2(ab23, cd23, 0xEE));
      }
    }
  }

 private:
  // 16 bytes of each of four rows.
  template <int Block>
  FSIM_INLINE static Register four_rows(const int8_t* from) {
    if constexpr (Block == 16) return load(from);
    const __m256i low = _mm256_set_m128i(Xmm::load(from + Block), Xmm::load(from));
    const __m256i high = _mm256_set_m128i(Xmm::load(from + 3 * Block), Xmm::load(from + 2 * Block));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
};

}  // namespace

// At most 16 of the 32 registers hold weights. If an element is one register of output channels,
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
