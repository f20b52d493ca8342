// Kernels for CPUs with AVX2. VPMADDWD multiplies pairs of int16, so inputs and weights are kept as
// int16, weights as [ic / 2][oc][2]. (VPMADDUBSW on bytes would saturate.)
#include <immintrin.h>

#define FSIM_TARGET __attribute__((target("avx2")))

#include "dot_tile.hpp"
#include "lane_loops.hpp"
#include "simd_x86.hpp"

namespace fsim {
namespace {

struct PairXmm : Xmm {
  static constexpr int kGroup = 2;
  static constexpr bool kHasOffset = false;
  FSIM_INLINE static Register dot(Register sum, Register inputs, Register weights) {
    return _mm_add_epi32(sum, _mm_madd_epi16(inputs, weights));
  }
};

struct PairYmm : Ymm {
  static constexpr int kGroup = 2;
  static constexpr bool kHasOffset = false;
  FSIM_INLINE static Register dot(Register sum, Register inputs, Register weights) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(inputs, weights));
  }
};

template <int Block>
FSIM_TARGET void pack_weights(uint8_t* to, const int8_t* from, std::size_t lanes) {
  int16_t* __restrict wide = reinterpret_cast<int16_t*>(to);
  const int8_t* const end = from + lanes;
  for (; from != end; from += Block * Block, wide += Block * Block) {
#pragma GCC unroll 2
    for (int oc = 0; oc < Block; ++oc) {
      for (int p = 0; p < Block / 2; ++p) {
        wide[(p * Block + oc) * 2] = from[oc * Block + 2 * p];
        wide[(p * Block + oc) * 2 + 1] = from[oc * Block + 2 * p + 1];
      }
    }
  }
}

template <class Simd, int Block, int Registers>
Kernels pair_kernels(const Geometry& geometry) {
  using Tile = DotTile<Simd, Block, Registers, false>;
  Kernels kernels = lane_kernels("avx2");
  kernels.inp_bytes = geometry.lanes() * sizeof(int16_t);
  kernels.wgt_bytes = Tile::kWgtBytes;
  kernels.pack_inp = convert_inputs<int16_t>;
  kernels.pack_wgt = pack_weights<Block>;
  kernels.gemm = gemm<Tile>;
  return kernels;
}

}  // namespace

Kernels avx2_kernels(const Geometry& geometry) {
  switch (geometry.block) {
    case 4: return pair_kernels<PairXmm, 4, 1>(geometry);
    case 8: return pair_kernels<PairYmm, 8, 1>(geometry);
    case 16: return pair_kernels<PairYmm, 16, 2>(geometry);
    case 32: return pair_kernels<PairYmm, 32, 2>(geometry);
    default: return pair_kernels<PairYmm, 64, 2>(geometry);
  }
}

}  // namespace fsim
