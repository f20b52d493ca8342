// Kernels for every CPU, on the vector types of GCC and Clang. Products are computed in float: the
// sum of a tile product is below 2**24 in magnitude (at most 64 products of magnitude 2**14), so it
// is exact, and every CPU multiplies floats fast. Weights are stored as [ic][oc].
#define FSIM_TARGET

#include "dot_tile.hpp"
#include "lane_loops.hpp"

namespace fsim {
namespace {

struct Float4 {
  using Register = float __attribute__((vector_size(16)));
  using Integers = int32_t __attribute__((vector_size(16)));
  static constexpr int kLanes = 4, kGroup = 1;
  static constexpr bool kHasOffset = false;

  FSIM_INLINE static Register zero() { return Register{}; }
  FSIM_INLINE static Register load(const void* from) {
    Register value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  FSIM_INLINE static Register broadcast(const uint8_t* from) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return Register{value, value, value, value};
  }
  FSIM_INLINE static Register dot(Register sum, Register inputs, Register weights) {
    return sum + inputs * weights;
  }
  FSIM_INLINE static void accumulate(int32_t* to, Register sum) {
    using Wrapping = uint32_t __attribute__((vector_size(16)));
    Wrapping value;
    std::memcpy(&value, to, sizeof value);
    value += reinterpret_cast<Wrapping>(__builtin_convertvector(sum, Integers));
    std::memcpy(to, &value, sizeof value);
  }
};

template <int Block>
void pack_weights(uint8_t* to, const int8_t* from, std::size_t lanes) {
  float* __restrict values = reinterpret_cast<float*>(to);
  const int8_t* const end = from + lanes;
  for (; from != end; from += Block * Block, values += Block * Block) {
#pragma GCC unroll 2
    for (int ic = 0; ic < Block; ++ic) {
      for (int oc = 0; oc < Block; ++oc) values[ic * Block + oc] = from[oc * Block + ic];
    }
  }
}

// Two registers of output channels for four products: 8 sums, the weights and an input fit in 16
// registers.
template <int Block>
Kernels float_kernels(const Geometry& geometry) {
  using Tile = DotTile<Float4, Block, (Block > 4 ? 2 : 1), false>;
  Kernels kernels = lane_kernels("generic");
  kernels.inp_bytes = geometry.lanes() * sizeof(float);
  kernels.wgt_bytes = Tile::kWgtBytes;
  kernels.pack_inp = convert_inputs<float>;
  kernels.pack_wgt = pack_weights<Block>;
  kernels.gemm = gemm<Tile>;
  return kernels;
}

}  // namespace

Kernels generic_kernels(const Geometry& geometry) {
  switch (geometry.block) {
    case 4: return float_kernels<4>(geometry);
    case 8: return float_kernels<8>(geometry);
    case 16: return float_kernels<16>(geometry);
    case 32: return float_kernels<32>(geometry);
    default: return float_kernels<64>(geometry);
  }
}

}  // namespace fsim
