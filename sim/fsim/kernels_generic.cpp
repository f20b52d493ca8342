// Kernels for every CPU, in plain C++ that compilers vectorise: weights as int16 [ic][oc].
#define FSIM_TARGET

#include "gemm_nest.hpp"
#include "lane_loops.hpp"

namespace fsim {
namespace {

template <int Block>
class PlainTile {
 public:
  static constexpr int kBlock = Block;
  static constexpr int kWidth = Block;
  static constexpr int kInpBytes = Block * 2;
  static constexpr int kWgtBytes = Block * Block * 2;

  PlainTile(const uint8_t* wgt, int) : wgt_(reinterpret_cast<const int16_t*>(wgt)) {}

  template <int N>
  FSIM_INLINE void update(int32_t* const (&acc)[N], const uint8_t* const (&inp)[N]) const {
    for (int n = 0; n < N; ++n) {
      const int16_t* const x = reinterpret_cast<const int16_t*>(inp[n]);
      uint32_t sum[Block];  // unsigned: accumulation wraps
      std::memcpy(sum, acc[n], sizeof sum);
      for (int ic = 0; ic < Block; ++ic) {
        const int16_t* const row = wgt_ + ic * Block;
        for (int oc = 0; oc < Block; ++oc) sum[oc] += static_cast<uint32_t>(x[ic] * row[oc]);
      }
      std::memcpy(acc[n], sum, sizeof sum);
    }
  }

 private:
  const int16_t* wgt_;
};

void pack_inputs(uint8_t* to, const int8_t* from, std::size_t lanes) {
  int16_t* __restrict wide = reinterpret_cast<int16_t*>(to);
  for (std::size_t i = 0; i < lanes; ++i) wide[i] = from[i];
}

template <int Block>
void pack_weights(uint8_t* to, const int8_t* from, std::size_t lanes) {
  int16_t* __restrict wide = reinterpret_cast<int16_t*>(to);
  const int8_t* const end = from + lanes;
  for (; from != end; from += Block * Block, wide += Block * Block) {
    for (int ic = 0; ic < Block; ++ic) {
      for (int oc = 0; oc < Block; ++oc) wide[ic * Block + oc] = from[oc * Block + ic];
    }
  }
}

template <int Block>
Kernels plain_kernels(const Geometry& geometry) {
  Kernels kernels{};
  kernels.name = "generic";
  kernels.inp_bytes = geometry.lanes() * sizeof(int16_t);
  kernels.wgt_bytes = PlainTile<Block>::kWgtBytes;
  kernels.pack_inp = pack_inputs;
  kernels.pack_wgt = pack_weights<Block>;
  kernels.widen = widen;
  kernels.narrow = narrow;
  kernels.gemm = gemm<PlainTile<Block>>;
  kernels.reset = reset;
  kernels.alu = alu;
  return kernels;
}

}  // namespace

Kernels generic_kernels(const Geometry& geometry) {
  switch (geometry.block) {
    case 4: return plain_kernels<4>(geometry);
    case 8: return plain_kernels<8>(geometry);
    case 16: return plain_kernels<16>(geometry);
    case 32: return plain_kernels<32>(geometry);
    default: return plain_kernels<64>(geometry);
  }
}

}  // namespace fsim
