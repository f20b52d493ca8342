// Products of windows (the instruction DEPTHWISE): plain loops in the order of the ISA.
#pragma once

#include "kernels.hpp"

namespace fsim {
namespace {

// Calls add(accumulator, sum, element, lane) for each lane of each step. A lane multiplies the
// channels of its group, in each tile of the window, by a row of weights.
template <class Add>
void for_windows(const GemmNest& nest, Add add) {
  const std::size_t block = nest.block, lanes = nest.batch * block, group = nest.window_channels;
  const int8_t* const inp = reinterpret_cast<const int8_t*>(nest.inp);
  const int8_t* const wgt = reinterpret_cast<const int8_t*>(nest.wgt);
  for (std::size_t o = 0; o < nest.outer.extent; ++o) {
    for (std::size_t i = 0; i < nest.inner.extent; ++i) {
      for (std::size_t u = 0; u < nest.uop_count; ++u) {
        const MicroOp& uop = nest.uops[u];
        const std::size_t d = nest.first_dst + o * nest.outer.dst + i * nest.inner.dst + uop.dst;
        const std::size_t s = nest.first_src + o * nest.outer.src + i * nest.inner.src + uop.src;
        const std::size_t w = nest.first_wgt + o * nest.outer.wgt + i * nest.inner.wgt + uop.wgt;
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          const int8_t* x = inp + s * lanes + lane / group * group;
          const int8_t* y = wgt + (w * block + lane % block) * block;
          int32_t sum = 0;
          for (std::size_t t = 0; t < nest.window_tiles; ++t, x += lanes, y += group) {
            for (std::size_t c = 0; c < group; ++c) sum += x[c] * y[c];
          }
          int32_t& acc = nest.acc[d * lanes + lane];
          if (nest.overwrite && !nest.joins(u)) acc = 0;
          add(acc, sum, d, lane);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fsim
