// A Tile for gemm_nest.hpp on CPUs with a dot product of neighbouring lanes: each 32-bit lane of a
// register holds kGroup consecutive input channels of one output channel, so that
//
//   sum[oc] += dot(inputs[ic .. ic + kGroup] broadcast, weights[oc][ic .. ic + kGroup])
//
// is one instruction. A weight element is kept as [ic / kGroup][oc][kGroup], followed by one int32
// for each output channel that every product starts from (see the VNNI kernels) if kHasOffset.
//
// Simd gives: Register, kLanes (of 32 bits), kGroup, kHasOffset, load, store, broadcast, add, dot.
#pragma once

#include "gemm_nest.hpp"

namespace fsim {
namespace {

// Registers: how many registers of output channels one object computes. Resident: the weights stay
// in registers (needs Registers * Block / kGroup of them), else they are read from L1 for every
// four products.
template <class Simd, int Block, int Registers, bool Resident>
class DotTile {
  using Register = typename Simd::Register;
  static constexpr int kSteps = Block / Simd::kGroup;
  static constexpr int kStepBytes = Block * 4;

 public:
  static constexpr int kBlock = Block;
  static constexpr int kWidth = Registers * Simd::kLanes;
  static constexpr int kInpBytes = kSteps * 4;
  static constexpr int kWgtBytes = kSteps * kStepBytes + (Simd::kHasOffset ? kStepBytes : 0);

  FSIM_INLINE DotTile(const uint8_t* wgt, int pass) : wgt_(wgt + pass * kWidth * 4) {
    if constexpr (Resident) {
#pragma GCC unroll 32
      for (int s = 0; s < kSteps; ++s) {
#pragma GCC unroll 4
        for (int r = 0; r < Registers; ++r) held_[s * Registers + r] = read(s, r);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < Registers; ++r) {
      if constexpr (Simd::kHasOffset) {
        start_[r] = read(kSteps, r);
      } else {
        start_[r] = Simd::zero();
      }
    }
  }

  template <int N>
  FSIM_INLINE void update(int32_t* const (&acc)[N], const uint8_t* const (&inp)[N]) const {
    Register sum[N][Registers];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
      for (int r = 0; r < Registers; ++r) sum[n][r] = start_[r];
    }
#pragma GCC unroll 32
    for (int s = 0; s < kSteps; ++s) {
      Register weights[Registers];
#pragma GCC unroll 4
      for (int r = 0; r < Registers; ++r) {
        weights[r] = Resident ? held_[s * Registers + r] : read(s, r);
      }
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const Register inputs = Simd::broadcast(inp[n] + s * 4);
#pragma GCC unroll 4
        for (int r = 0; r < Registers; ++r) sum[n][r] = Simd::dot(sum[n][r], inputs, weights[r]);
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
      for (int r = 0; r < Registers; ++r) {
        int32_t* const to = acc[n] + r * Simd::kLanes;
        Simd::store(to, Simd::add(Simd::load(to), sum[n][r]));
      }
    }
  }

 private:
  FSIM_INLINE Register read(int step, int index) const {
    return Simd::load(wgt_ + step * kStepBytes + index * Simd::kLanes * 4);
  }

  const uint8_t* wgt_;
  Register start_[Registers];
  Register held_[Resident ? kSteps * Registers : 1];
};

}  // namespace
}  // namespace fsim
