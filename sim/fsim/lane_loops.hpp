// Loops over lanes: ALU, reset, conversions, on the vector types of GCC and Clang or left to their
// vectorisers. Compiled once for each instruction set, under the attribute FSIM_TARGET that the
// including file defines.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels.hpp"

namespace fsim {
namespace {

// ----------------------------------------------------------------------------- conversions

FSIM_TARGET inline void widen(int32_t* __restrict to, const int8_t* __restrict from,
                              std::size_t lanes) {
  for (std::size_t i = 0; i < lanes; ++i) to[i] = from[i];
}

FSIM_TARGET inline void narrow(int8_t* __restrict to, const int32_t* __restrict from,
                               std::size_t lanes) {
  for (std::size_t i = 0; i < lanes; ++i) to[i] = static_cast<int8_t>(from[i]);
}

// --------------------------------------------------------------------------------- ALU

// Eight lanes, which divide every element. Arithmetic wraps, so it is done on unsigned values.
using Lanes = int32_t __attribute__((vector_size(32)));
using WrappingLanes = uint32_t __attribute__((vector_size(32)));
constexpr std::size_t kLanes = 8;

// Operations x = op(x, y) on lanes; by reference, as the baseline has no registers of this size.
struct Min {
  FSIM_TARGET static void apply(Lanes& x, const Lanes& y) { x = x < y ? x : y; }
};
struct Max {
  FSIM_TARGET static void apply(Lanes& x, const Lanes& y) { x = x > y ? x : y; }
};
struct Add {
  FSIM_TARGET static void apply(Lanes& x, const Lanes& y) {
    x = reinterpret_cast<Lanes>(reinterpret_cast<WrappingLanes>(x) +
                                reinterpret_cast<WrappingLanes>(y));
  }
};
struct Mul {
  FSIM_TARGET static void apply(Lanes& x, const Lanes& y) {
    x = reinterpret_cast<Lanes>(reinterpret_cast<WrappingLanes>(x) *
                                reinterpret_cast<WrappingLanes>(y));
  }
};
// y >= 0: arithmetic shift right, by 31 at most (the sign); y < 0: shift left by -y, 0 from 32 on.
struct Shr {
  FSIM_TARGET static void apply(Lanes& x, const Lanes& y) {
    const WrappingLanes left_by = 0u - reinterpret_cast<WrappingLanes>(y);
    const Lanes shifted_left =
        reinterpret_cast<Lanes>(reinterpret_cast<WrappingLanes>(x) << (left_by & 31u));
    const Lanes left = left_by < 32u ? shifted_left : Lanes{};
    const Lanes right = x >> (y < 31 ? y & 31 : 31);
    x = y < 0 ? left : right;
  }
};

template <class Op, bool UseImm>
FSIM_TARGET void alu_loops(const AluNest& nest) {
  const std::size_t lanes = nest.lanes;
  Lanes y = Lanes{} + nest.imm;
  for (std::size_t o = 0; o < nest.outer.extent; ++o) {
    for (std::size_t i = 0; i < nest.inner.extent; ++i) {
      const std::size_t first_dst = nest.first_dst + o * nest.outer.dst + i * nest.inner.dst;
      const std::size_t first_src = nest.first_src + o * nest.outer.src + i * nest.inner.src;
      for (std::size_t u = 0; u < nest.uop_count; ++u) {
        int32_t* const dst = nest.acc + (first_dst + nest.uops[u].dst) * lanes;
        const int32_t* const src =
            UseImm ? nullptr : nest.acc + (first_src + nest.uops[u].src) * lanes;
        for (std::size_t k = 0; k < lanes; k += kLanes) {
          Lanes x;
          std::memcpy(&x, dst + k, sizeof x);
          if constexpr (!UseImm) std::memcpy(&y, src + k, sizeof y);
          Op::apply(x, y);
          std::memcpy(dst + k, &x, sizeof x);
        }
      }
    }
  }
}

template <class Op>
FSIM_TARGET void alu_of(const AluNest& nest) {
  nest.use_imm ? alu_loops<Op, true>(nest) : alu_loops<Op, false>(nest);
}

FSIM_TARGET inline void alu(const AluNest& nest) {
  switch (nest.op) {
    case AluOp::Min: return alu_of<Min>(nest);
    case AluOp::Max: return alu_of<Max>(nest);
    case AluOp::Add: return alu_of<Add>(nest);
    case AluOp::Shr: return alu_of<Shr>(nest);
    case AluOp::Mul: return alu_of<Mul>(nest);
  }
}

// -------------------------------------------------------------------------- GEMM reset

FSIM_TARGET inline void reset(const GemmNest& nest) {
  const std::size_t lanes = nest.batch * nest.block;
  for (std::size_t o = 0; o < nest.outer.extent; ++o) {
    for (std::size_t i = 0; i < nest.inner.extent; ++i) {
      const std::size_t first = nest.first_dst + o * nest.outer.dst + i * nest.inner.dst;
      for (std::size_t u = 0; u < nest.uop_count; ++u) {
        int32_t* const dst = nest.acc + (first + nest.uops[u].dst) * lanes;
        for (std::size_t k = 0; k < lanes; k += kLanes) {
          std::memset(dst + k, 0, kLanes * sizeof(int32_t));
        }
      }
    }
  }
}

// ------------------------------------------------------------------- the parts of Kernels

// Input lanes, each converted to T.
template <class T>
FSIM_TARGET void convert_inputs(uint8_t* to, const int8_t* from, std::size_t lanes) {
  T* __restrict values = reinterpret_cast<T*>(to);
  for (std::size_t i = 0; i < lanes; ++i) values[i] = from[i];
}

// Everything but inputs, weights and their product.
inline Kernels lane_kernels(const char* name) {
  Kernels kernels{};
  kernels.name = name;
  kernels.widen = widen;
  kernels.narrow = narrow;
  kernels.reset = reset;
  kernels.alu = alu;
  return kernels;
}

}  // namespace
}  // namespace fsim
