// Loops over lanes: ALU, reset, conversions, on the vector types of GCC and Clang or left to their
// vectorisers. Compiled once per instruction set, with the attribute FSIM_TARGET that the including
// file defines.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels.hpp"
#include "windows.hpp"

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

// Eight lanes, which divide every element. Arithmetic wraps, so it uses unsigned values.
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

// Shifts by 0..31, the range of immediates.
struct Right {
  FSIM_TARGET static void apply(Lanes& x, const Lanes& y) { x = x >> y; }
};
struct Left {
  FSIM_TARGET static void apply(Lanes& x, const Lanes& y) {
    x = reinterpret_cast<Lanes>(reinterpret_cast<WrappingLanes>(x)
                                << reinterpret_cast<WrappingLanes>(y));
  }
};

// Whether the elements of the micro-ops are consecutive.
inline bool is_consecutive(const MicroOp* uops, std::size_t count) {
  for (std::size_t u = 1; u < count; ++u) {
    if (uops[u].dst != uops[0].dst + u) return false;
  }
  return true;
}

// Calls visit(first lane, number of lanes) for the destinations of a nest, merging adjacent ones.
// Most nests are a single span: an ALU instruction iterates over the accumulators of a tile.
template <class Nest, class Visit>
FSIM_TARGET void for_spans(const Nest& nest, std::size_t lanes, Visit visit) {
  const bool is_run = is_consecutive(nest.uops, nest.uop_count);
  const std::size_t starts = is_run ? 1 : nest.uop_count;
  std::size_t span = is_run ? nest.uop_count : 1;
  std::size_t inner = nest.inner.extent, outer = nest.outer.extent;
  if (is_run && (inner == 1 || nest.inner.dst == span)) {
    span *= inner;
    inner = 1;
    if (outer == 1 || nest.outer.dst == span) {
      span *= outer;
      outer = 1;
    }
  }
  for (std::size_t o = 0; o < outer; ++o) {
    for (std::size_t i = 0; i < inner; ++i) {
      const std::size_t first = nest.first_dst + o * nest.outer.dst + i * nest.inner.dst;
      for (std::size_t u = 0; u < starts; ++u) {
        visit(nest.acc + (first + nest.uops[u].dst) * lanes, span * lanes);
      }
    }
  }
}

template <class Op>
FSIM_TARGET void alu_imm(const AluNest& nest, int32_t imm) {
  const Lanes y = Lanes{} + imm;
  for_spans(nest, nest.lanes, [&](int32_t* dst, std::size_t lanes) FSIM_TARGET {
    for (std::size_t k = 0; k < lanes; k += kLanes) {
      Lanes x;
      std::memcpy(&x, dst + k, sizeof x);
      Op::apply(x, y);
      std::memcpy(dst + k, &x, sizeof x);
    }
  });
}

template <class Op>
FSIM_TARGET void alu_tensor(const AluNest& nest) {
  const std::size_t lanes = nest.lanes;
  for (std::size_t o = 0; o < nest.outer.extent; ++o) {
    for (std::size_t i = 0; i < nest.inner.extent; ++i) {
      const std::size_t first_dst = nest.first_dst + o * nest.outer.dst + i * nest.inner.dst;
      const std::size_t first_src = nest.first_src + o * nest.outer.src + i * nest.inner.src;
      for (std::size_t u = 0; u < nest.uop_count; ++u) {
        int32_t* const dst = nest.acc + (first_dst + nest.uops[u].dst) * lanes;
        const int32_t* const src = nest.acc + (first_src + nest.uops[u].src) * lanes;
        for (std::size_t k = 0; k < lanes; k += kLanes) {
          Lanes x, y;
          std::memcpy(&x, dst + k, sizeof x);
          std::memcpy(&y, src + k, sizeof y);
          Op::apply(x, y);
          std::memcpy(dst + k, &x, sizeof x);
        }
      }
    }
  }
}

template <class Op>
FSIM_TARGET void alu_of(const AluNest& nest) {
  nest.use_imm ? alu_imm<Op>(nest, nest.imm) : alu_tensor<Op>(nest);
}

FSIM_TARGET inline void shift(const AluNest& nest) {
  if (!nest.use_imm) return alu_tensor<Shr>(nest);
  if (nest.imm >= 0) return alu_imm<Right>(nest, std::min(nest.imm, 31));
  if (nest.imm > -32) return alu_imm<Left>(nest, -nest.imm);
  alu_imm<Shr>(nest, nest.imm);
}

FSIM_TARGET inline void alu(const AluNest& nest) {
  switch (nest.op) {
    case AluOp::Min: return alu_of<Min>(nest);
    case AluOp::Max: return alu_of<Max>(nest);
    case AluOp::Add: return alu_of<Add>(nest);
    case AluOp::Shr: return shift(nest);
    case AluOp::Mul: return alu_of<Mul>(nest);
  }
}

// -------------------------------------------------------------------------- GEMM reset

FSIM_TARGET inline void reset(const GemmNest& nest) {
  for_spans(nest, nest.batch * nest.block, [](int32_t* dst, std::size_t lanes) {
    std::memset(dst, 0, lanes * sizeof(int32_t));
  });
}

// --------------------------------------------------------------------- products of windows

FSIM_TARGET inline void depthwise(const GemmNest& nest) {
  for_windows(nest, [](int32_t& acc, int32_t sum, std::size_t, std::size_t) {
    acc = static_cast<int32_t>(static_cast<uint32_t>(acc) + static_cast<uint32_t>(sum));
  });
}

// --------------------------------------------------------------------------- maxima (POOL)

FSIM_TARGET inline void pool(const GemmNest& nest) {
  const std::size_t lanes = nest.batch * nest.block;
  const int8_t* const inp = reinterpret_cast<const int8_t*>(nest.inp);
  for (std::size_t o = 0; o < nest.outer.extent; ++o) {
    for (std::size_t i = 0; i < nest.inner.extent; ++i) {
      for (std::size_t u = 0; u < nest.uop_count; ++u) {
        const MicroOp& uop = nest.uops[u];
        const std::size_t d = nest.first_dst + o * nest.outer.dst + i * nest.inner.dst + uop.dst;
        const std::size_t s = nest.first_src + o * nest.outer.src + i * nest.inner.src + uop.src;
        int32_t* __restrict const acc = nest.acc + d * lanes;
        const int8_t* __restrict x = inp + s * lanes;
        if (nest.overwrite) {
          for (std::size_t k = 0; k < lanes; ++k) acc[k] = x[k];
        }
        for (std::size_t t = 0; t < nest.window_tiles; ++t, x += lanes) {
          for (std::size_t k = 0; k < lanes; ++k) acc[k] = std::max<int32_t>(acc[k], x[k]);
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

// Everything except inputs, weights and their product.
inline Kernels lane_kernels(const char* name) {
  Kernels kernels{};
  kernels.name = name;
  kernels.widen = widen;
  kernels.narrow = narrow;
  kernels.depthwise = depthwise;
  kernels.pool = pool;
  kernels.reset = reset;
  kernels.alu = alu;
  return kernels;
}

}  // namespace
}  // namespace fsim
