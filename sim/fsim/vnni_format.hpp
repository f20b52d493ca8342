// Format of inputs and weights for the VNNI kernels. VPDPBUSD multiplies unsigned by signed bytes, so
// the top bit of each input is flipped (x + 128), and each weight element [ic / 4][oc][4] is
// followed by the correction -128 * sum(w) of each output channel, at which every product starts.
#pragma once

#include "dot_tile.hpp"
#include "lane_loops.hpp"

namespace fsim {
namespace {

constexpr uint8_t kFlip = 0x80;

FSIM_TARGET inline void pack_vnni_inputs(uint8_t* __restrict to, const int8_t* __restrict from,
                                         std::size_t lanes) {
  for (std::size_t i = 0; i < lanes; ++i) to[i] = static_cast<uint8_t>(from[i]) ^ kFlip;
}

// [oc][ic] -> [ic / 4][oc][4]: transposes groups of 4 bytes.
template <int Block>
FSIM_TARGET inline void transpose_groups(uint8_t* __restrict to, const int8_t* __restrict from) {
  for (int oc = 0; oc < Block; ++oc) {
    for (int s = 0; s < Block / 4; ++s) {
      std::memcpy(to + (s * Block + oc) * 4, from + oc * Block + s * 4, 4);
    }
  }
}

template <class Tile, class Simd>
FSIM_TARGET void pack_vnni_weights(uint8_t* __restrict to, const int8_t* __restrict from,
                                   std::size_t lanes) {
  constexpr int kBlock = Tile::kBlock, kSteps = kBlock / 4, kStepBytes = kBlock * 4;
  const uint8_t group[4] = {kFlip, kFlip, kFlip, kFlip};
  const typename Simd::Register flip = Simd::broadcast(group);
  const int8_t* const end = from + lanes;
  for (; from != end; from += kBlock * kBlock, to += Tile::kWgtBytes) {
    Simd::template transpose<kBlock>(to, from);
    for (int oc = 0; oc < kBlock; oc += Simd::kLanes) {
      typename Simd::Register sum = Simd::zero();
      for (int s = 0; s < kSteps; ++s) {
        sum = Simd::dot(sum, flip, Simd::load(to + s * kStepBytes + oc * 4));
      }
      Simd::store(to + kSteps * kStepBytes + oc * 4, Simd::subtract(Simd::zero(), sum));
    }
  }
}

template <class Simd, class Tile, class WideTile = Tile>
Kernels vnni_kernels(const char* name, const Geometry& geometry) {
  Kernels kernels = lane_kernels(name);
  kernels.inp_bytes = geometry.lanes();
  kernels.wgt_bytes = Tile::kWgtBytes;
  kernels.inp_zero = kFlip;
  kernels.uses_twins = WideTile::kElements == 2;
  kernels.pack_inp = pack_vnni_inputs;
  kernels.pack_wgt = pack_vnni_weights<Tile, Simd>;
  kernels.gemm = gemm<Tile, WideTile>;
  return kernels;
}

}  // namespace
}  // namespace fsim
