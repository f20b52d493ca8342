// A Tile for gemm_nest.hpp made of SIMD dot products: each 32-bit lane of a register holds kGroup
// consecutive input channels of one output channel, and one operation computes for all lanes
//
//   sum[oc] += dot(inputs[ic .. ic + kGroup] broadcast, weights[oc][ic .. ic + kGroup])
//
// A weight element is stored as [ic / kGroup][oc][kGroup], followed, if kHasOffset, by the 32-bit
// value at which each output channel's products start (see vnni_format.hpp).
//
// Simd defines: Register, kLanes (of 32 bits), kGroup, kHasOffset, zero, load, broadcast, dot, and
// accumulate (adds a sum to int32 lanes in memory).
#pragma once

#include "gemm_nest.hpp"

namespace fsim {
namespace {

// Without this, compilers compute all products first and run out of registers.
template <class Register>
FSIM_INLINE void keep_order(Register& sum) {
#if defined(__x86_64__)
  __asm__("" : "+v"(sum));
#elif defined(__aarch64__)
  __asm__("" : "+w"(sum));
#endif
}

// Elements: number of weight elements per object, of Registers registers of output channels each.
// Resident: the weights stay in registers (needs Elements * Registers * Block / kGroup of them);
// otherwise they are reloaded for every call of update.
template <class Simd, int Block, int Registers, bool Resident, int Elements = 1>
class DotTile {
  using Register = typename Simd::Register;
  static constexpr int kSteps = Block / Simd::kGroup;
  static constexpr int kStepBytes = Block * 4;
  static constexpr int kRegisters = Registers * Elements;

 public:
  static constexpr int kBlock = Block;
  static constexpr int kWidth = Registers * Simd::kLanes;
  static constexpr int kElements = Elements;
  static constexpr int kInpBytes = kSteps * 4;
  static constexpr int kWgtBytes = kSteps * kStepBytes + (Simd::kHasOffset ? kStepBytes : 0);

  FSIM_INLINE DotTile(const uint8_t* wgt, std::ptrdiff_t wgt_step, std::ptrdiff_t acc_step)
      : wgt_(wgt), wgt_step_(wgt_step), acc_step_(acc_step) {
    if constexpr (Resident) {
#pragma GCC unroll 32
      for (int s = 0; s < kSteps; ++s) {
#pragma GCC unroll 4
        for (int r = 0; r < kRegisters; ++r) held_[s * kRegisters + r] = read(s, r);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRegisters; ++r) {
      if constexpr (Simd::kHasOffset) {
        start_[r] = read(kSteps, r);
      } else {
        start_[r] = Simd::zero();
      }
    }
  }

  template <int N>
  FSIM_INLINE void update(int32_t* const (&acc)[N], const uint8_t* const (&inp)[N]) const {
    Register sums[N][kRegisters];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
      for (int r = 0; r < kRegisters; ++r) sums[n][r] = start_[r];
    }
    for (int first = 0; first < kSteps; first += kUnrolled) {
#pragma GCC unroll 32
      for (int s = first; s < first + kUnrolled; ++s) add_step<N>(sums, inp, s);
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
      for (int r = 0; r < kRegisters; ++r) {
        Simd::accumulate(acc[n] + r / Registers * acc_step_ + r % Registers * Simd::kLanes,
                         sums[n][r]);
      }
    }
  }

 private:
  // Weights in registers need all steps written out. Other tiles do with a loop: less code, which also
  // compiles in less time.
  static constexpr int kUnrolled = Resident || kSteps < 8 * Simd::kGroup ? kSteps : 8 * Simd::kGroup;
  static_assert(kSteps % kUnrolled == 0);

  template <int N>
  FSIM_INLINE void add_step(Register (&sums)[N][kRegisters], const uint8_t* const (&inp)[N],
                            int s) const {
    Register weights[kRegisters];
#pragma GCC unroll 4
    for (int r = 0; r < kRegisters; ++r) {
      weights[r] = Resident ? held_[s * kRegisters + r] : read(s, r);
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const Register inputs = Simd::broadcast(inp[n] + s * 4);
#pragma GCC unroll 4
      for (int r = 0; r < kRegisters; ++r) {
        sums[n][r] = Simd::dot(sums[n][r], inputs, weights[r]);
        keep_order(sums[n][r]);
      }
    }
  }

  FSIM_INLINE Register read(int step, int index) const {
    return Simd::load(wgt_ + index / Registers * wgt_step_ + step * kStepBytes +
                      index % Registers * Simd::kLanes * 4);
  }

  const uint8_t* wgt_;
  std::ptrdiff_t wgt_step_, acc_step_;
  Register start_[kRegisters];
  Register held_[Resident ? kSteps * kRegisters : 1];
};

}  // namespace
}  // namespace fsim
