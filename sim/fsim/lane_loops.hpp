// Loops over lanes that compilers vectorise by themselves: ALU, reset, conversions. Compiled once
// for each instruction set, under the attribute FSIM_TARGET that the including file defines.
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

// Operations on a lane x with an operand y. Arithmetic wraps, so it is done on unsigned values.
struct Min {
  FSIM_TARGET static int32_t apply(int32_t x, int32_t y) { return x < y ? x : y; }
};
struct Max {
  FSIM_TARGET static int32_t apply(int32_t x, int32_t y) { return x > y ? x : y; }
};
struct Add {
  FSIM_TARGET static int32_t apply(int32_t x, int32_t y) {
    return static_cast<int32_t>(static_cast<uint32_t>(x) + static_cast<uint32_t>(y));
  }
};
struct Mul {
  FSIM_TARGET static int32_t apply(int32_t x, int32_t y) {
    return static_cast<int32_t>(static_cast<uint32_t>(x) * static_cast<uint32_t>(y));
  }
};
// y >= 0: arithmetic shift right, by 31 at most (the sign); y < 0: shift left by -y, 0 from 32 on.
struct Shr {
  FSIM_TARGET static int32_t apply(int32_t x, int32_t y) {
    const uint32_t left_by = 0u - static_cast<uint32_t>(y);
    const uint32_t left = left_by < 32 ? static_cast<uint32_t>(x) << (left_by & 31) : 0u;
    const int32_t right = x >> (static_cast<uint32_t>(y) < 32 ? y & 31 : 31);
    return y < 0 ? static_cast<int32_t>(left) : right;
  }
};

// Chunk: lanes that are done together; it divides the lanes of an element.
template <class Op, bool UseImm, std::size_t Chunk>
FSIM_TARGET void alu_loops(const AluNest& nest) {
  const std::size_t lanes = nest.lanes;
  for (std::size_t o = 0; o < nest.outer.extent; ++o) {
    for (std::size_t i = 0; i < nest.inner.extent; ++i) {
      const std::size_t first_dst = nest.first_dst + o * nest.outer.dst + i * nest.inner.dst;
      const std::size_t first_src = nest.first_src + o * nest.outer.src + i * nest.inner.src;
      for (std::size_t u = 0; u < nest.uop_count; ++u) {
        int32_t* const dst = nest.acc + (first_dst + nest.uops[u].dst) * lanes;
        const int32_t* const src =
            UseImm ? dst : nest.acc + (first_src + nest.uops[u].src) * lanes;
        for (std::size_t c = 0; c < lanes; c += Chunk) {
          int32_t x[Chunk], y[Chunk];  // copies: dst and src may be the same element
          std::memcpy(x, dst + c, sizeof x);
          if constexpr (!UseImm) std::memcpy(y, src + c, sizeof y);
          for (std::size_t k = 0; k < Chunk; ++k) x[k] = Op::apply(x[k], UseImm ? nest.imm : y[k]);
          std::memcpy(dst + c, x, sizeof x);
        }
      }
    }
  }
}

template <class Op>
FSIM_TARGET void alu_of(const AluNest& nest) {
  const bool wide = nest.lanes % 16 == 0;  // an element has a power of two of lanes, at least 8
  if (nest.use_imm) {
    wide ? alu_loops<Op, true, 16>(nest) : alu_loops<Op, true, 8>(nest);
  } else {
    wide ? alu_loops<Op, false, 16>(nest) : alu_loops<Op, false, 8>(nest);
  }
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
        for (std::size_t c = 0; c < lanes; c += 8) std::memset(dst + c, 0, 8 * sizeof(int32_t));
      }
    }
  }
}

}  // namespace
}  // namespace fsim
