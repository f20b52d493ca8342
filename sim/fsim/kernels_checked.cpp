// Kernels that detect overflow: plain loops over lanes in the order of the ISA, on the formats of
// DRAM, in 64-bit arithmetic. The sum of one tile product cannot overflow (at most 64 products
// of magnitude 2**14); adding it to the accumulator can.
#include <cstring>
#include <limits>

#include "fault.hpp"

#define FSIM_TARGET
#include "lane_loops.hpp"

namespace fsim {
namespace {

// Where a result goes, for messages.
struct Lane {
  std::size_t element, lane;
};

int32_t require_int32(int64_t exact, Lane where, int64_t x, const char* op, int64_t y) {
  if (exact < std::numeric_limits<int32_t>::min() || exact > std::numeric_limits<int32_t>::max()) {
    throw Fault("{0}: int32 overflow in accumulator " + std::to_string(where.element) +
                ", lane " + std::to_string(where.lane) + ": " + std::to_string(x) + op +
                std::to_string(y) + " = " + std::to_string(exact));
  }
  return static_cast<int32_t>(exact);
}

// Calls body(first dst, first src, first wgt, micro-op) in the order of the ISA.
template <class Nest, class Body>
void for_each_step(const Nest& nest, std::size_t first_wgt, Body body) {
  for (std::size_t o = 0; o < nest.outer.extent; ++o) {
    for (std::size_t i = 0; i < nest.inner.extent; ++i) {
      for (std::size_t u = 0; u < nest.uop_count; ++u) {
        const MicroOp& uop = nest.uops[u];
        body(nest.first_dst + o * nest.outer.dst + i * nest.inner.dst + uop.dst,
             nest.first_src + o * nest.outer.src + i * nest.inner.src + uop.src,
             first_wgt + o * nest.outer.wgt + i * nest.inner.wgt + uop.wgt);
      }
    }
  }
}

void checked_gemm(const GemmNest& nest) {
  const std::size_t block = nest.block, lanes = nest.batch * block;
  const int8_t* const inp = reinterpret_cast<const int8_t*>(nest.inp);
  const int8_t* const wgt = reinterpret_cast<const int8_t*>(nest.wgt);
  for_each_step(nest, nest.first_wgt, [&](std::size_t d, std::size_t s, std::size_t w) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const int8_t* const x = inp + s * lanes + lane / block * block;
      const int8_t* const y = wgt + (w * block + lane % block) * block;
      int64_t sum = 0;
      for (std::size_t ic = 0; ic < block; ++ic) sum += x[ic] * y[ic];
      int32_t& acc = nest.acc[d * lanes + lane];
      acc = require_int32(acc + sum, {d, lane}, acc, " + ", sum);
    }
  });
}

void checked_depthwise(const GemmNest& nest) {
  for_windows(nest, [](int32_t& acc, int32_t sum, std::size_t element, std::size_t lane) {
    acc = require_int32(int64_t{acc} + sum, {element, lane}, acc, " + ", sum);
  });
}

// Of the ALU, sums and products can overflow.
void checked_alu(const AluNest& nest) {
  const bool adds = nest.op == AluOp::Add;
  if (!adds && nest.op != AluOp::Mul) return alu(nest);
  const std::size_t lanes = nest.lanes;
  for_each_step(nest, 0, [&](std::size_t d, std::size_t s, std::size_t) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const int64_t y = nest.use_imm ? nest.imm : nest.acc[s * lanes + lane];
      int32_t& x = nest.acc[d * lanes + lane];
      x = require_int32(adds ? x + y : x * y, {d, lane}, x, adds ? " + " : " * ", y);
    }
  });
}

void copy_lanes(uint8_t* to, const int8_t* from, std::size_t lanes) {
  std::memcpy(to, from, lanes);
}

}  // namespace

Kernels checked_kernels(const Geometry& geometry) {
  Kernels kernels = lane_kernels("checked");
  kernels.inp_bytes = geometry.lanes();
  kernels.wgt_bytes = geometry.weight_lanes();
  kernels.pack_inp = copy_lanes;
  kernels.pack_wgt = copy_lanes;
  kernels.gemm = checked_gemm;
  kernels.depthwise = checked_depthwise;
  kernels.alu = checked_alu;
  return kernels;
}

}  // namespace fsim
