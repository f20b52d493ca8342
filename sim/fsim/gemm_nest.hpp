// The loops around a tile product, shared by all instruction sets. A file that includes this one
// defines FSIM_TARGET, the attribute under which everything here is compiled, and passes Tiles:
//
//   kBlock               channels of a tile
//   kInpBytes, kWgtBytes bytes of one row of an input element, of one weight element
//   kWidth               output channels that one Tile object computes from one weight element
//   kElements            weight elements that one Tile object computes with: 1, or 2 (a wide tile)
//   Tile(wgt, wgt_step, acc_step)
//                        takes hold of kWidth channels of the element at wgt, and if wide also of
//                        the one wgt_step bytes on, whose accumulators are acc_step lanes on
//   update<N>(acc, inp)  adds N products of a row of inputs with the weights to N rows of
//                        accumulators, one after the other: rows may coincide
//
// A weight tile stays in registers (or L1) while everything that uses it is done.
#pragma once

#include <cstring>
#include <utility>

#include "kernels.hpp"

#define FSIM_INLINE FSIM_TARGET __attribute__((always_inline)) inline

namespace fsim {
namespace {

// ------------------------------------------------------------------- rows of one weight tile

// N rows of accumulators and inputs at constant distances.
template <int N, class Tile>
FSIM_INLINE void update_rows(const Tile& tile, int32_t* acc, std::size_t acc_step,
                             const uint8_t* inp, std::size_t inp_step) {
  int32_t* acc_rows[N];
  const uint8_t* inp_rows[N];
  for (int n = 0; n < N; ++n) {
    acc_rows[n] = acc + n * acc_step;
    inp_rows[n] = inp + n * inp_step;
  }
  tile.template update<N>(acc_rows, inp_rows);
}

template <class Tile>
FSIM_INLINE void update_many(const Tile& tile, std::size_t count, int32_t* acc,
                             std::size_t acc_step, const uint8_t* inp, std::size_t inp_step) {
  for (; count >= 4; count -= 4, acc += 4 * acc_step, inp += 4 * inp_step) {
    update_rows<4>(tile, acc, acc_step, inp, inp_step);
  }
  if (count & 2) {
    update_rows<2>(tile, acc, acc_step, inp, inp_step);
    acc += 2 * acc_step;
    inp += 2 * inp_step;
  }
  if (count & 1) update_rows<1>(tile, acc, acc_step, inp, inp_step);
}

// The rows that N micro-ops address.
template <int N, class Tile>
FSIM_INLINE void update_uops(const Tile& tile, const MicroOp* uops, int32_t* acc,
                             const uint8_t* inp) {
  int32_t* acc_rows[N];
  const uint8_t* inp_rows[N];
  for (int n = 0; n < N; ++n) {
    acc_rows[n] = acc + std::size_t{uops[n].dst} * Tile::kBlock;
    inp_rows[n] = inp + std::size_t{uops[n].src} * Tile::kInpBytes;
  }
  tile.template update<N>(acc_rows, inp_rows);
}

// All products of one weight tile when an element has one row: the longer of the micro-op list
// and the loop `longest` goes innermost.
template <class Tile>
FSIM_INLINE void update_single_rows(const Tile& tile, const GemmNest& nest, const Run& run,
                                    const Loop& other, const Loop& longest, int32_t* acc,
                                    const uint8_t* inp) {
  constexpr std::size_t kAcc = Tile::kBlock, kInp = Tile::kInpBytes;
  const std::size_t count = run.end - run.begin;
  const MicroOp* const begin = nest.grouped + run.begin;
  if (longest.extent >= count) {
    for (const MicroOp* uop = begin; uop != begin + count; ++uop) {
      for (std::size_t i = 0; i < other.extent; ++i) {
        update_many(tile, longest.extent, acc + (uop->dst + i * other.dst) * kAcc,
                    longest.dst * kAcc, inp + (uop->src + i * other.src) * kInp,
                    longest.src * kInp);
      }
    }
    return;
  }
  for (std::size_t i = 0; i < other.extent; ++i) {
    for (std::size_t j = 0; j < longest.extent; ++j) {
      int32_t* const acc_base = acc + (i * other.dst + j * longest.dst) * kAcc;
      const uint8_t* const inp_base = inp + (i * other.src + j * longest.src) * kInp;
      const MicroOp* uop = begin;
      for (std::size_t blocks = count / 4; blocks; --blocks, uop += 4) {
        update_uops<4>(tile, uop, acc_base, inp_base);
      }
      if (count & 2) {
        update_uops<2>(tile, uop, acc_base, inp_base);
        uop += 2;
      }
      if (count & 1) update_uops<1>(tile, uop, acc_base, inp_base);
    }
  }
}

// The same when an element has several rows: they go innermost.
template <class Tile>
FSIM_INLINE void update_batches(const Tile& tile, const GemmNest& nest, const Run& run,
                                const Loop& other, const Loop& longest, int32_t* acc,
                                const uint8_t* inp) {
  const std::size_t acc_element = nest.batch * Tile::kBlock;
  const std::size_t inp_element = nest.batch * Tile::kInpBytes;
  for (std::size_t u = run.begin; u < run.end; ++u) {
    for (std::size_t i = 0; i < other.extent; ++i) {
      std::size_t dst = nest.grouped[u].dst + i * other.dst;
      std::size_t src = nest.grouped[u].src + i * other.src;
      for (std::size_t j = 0; j < longest.extent; ++j, dst += longest.dst, src += longest.src) {
        update_many(tile, nest.batch, acc + dst * acc_element, Tile::kBlock,
                    inp + src * inp_element, Tile::kInpBytes);
      }
    }
  }
}

// ------------------------------------------------------------------------ one instruction

// Elements that a step of the loops starts from.
struct Origin {
  std::size_t dst, src, wgt;

  FSIM_INLINE Origin after(const Loop& loop, std::size_t steps) const {
    return {dst + steps * loop.dst, src + steps * loop.src, wgt + steps * loop.wgt};
  }
};

// All products of a run with one weight element, or with two if the tile is wide: the second is
// wgt_step weights on, and its accumulators dst_step elements.
template <class Tile>
FSIM_TARGET void multiply(const GemmNest& nest, const Run& run, const Origin& at,
                          const Loop (&fixed)[2], std::ptrdiff_t wgt_step = 0,
                          std::ptrdiff_t dst_step = 0) {
  constexpr std::ptrdiff_t kPassBytes = Tile::kWidth * 4;  // weights lie in groups of 32 bits
  const std::ptrdiff_t acc_element = nest.batch * Tile::kBlock;
  const uint8_t* const inp = nest.inp + at.src * nest.batch * Tile::kInpBytes;
  const uint8_t* const wgt = nest.wgt + (at.wgt + run.wgt) * Tile::kWgtBytes;
  for (int pass = 0; pass < Tile::kBlock / Tile::kWidth; ++pass) {
    const Tile tile(wgt + pass * kPassBytes, wgt_step * Tile::kWgtBytes, dst_step * acc_element);
    int32_t* const acc = nest.acc + at.dst * acc_element + pass * Tile::kWidth;
    if (nest.batch == 1) {
      update_single_rows(tile, nest, run, fixed[0], fixed[1], acc, inp);
    } else {
      update_batches(tile, nest, run, fixed[0], fixed[1], acc, inp);
    }
  }
}

// Much to do for each weight: the loops over which it stays (and the runs of micro-ops) go inside.
// Two weights are done at once where they meet the same inputs: in a run with a twin, or in two
// steps of a loop.
template <class Tile, class WideTile>
FSIM_TARGET void gemm_by_weight(const GemmNest& nest, const Loop (&fixed)[2],
                                const Loop (&varying)[2]) {
  constexpr bool kIsWide = WideTile::kElements == 2;
  const Origin origin{nest.first_dst, nest.first_src, nest.first_wgt};
  const Loop& loop = varying[1];
  for (std::size_t i = 0; i < varying[0].extent; ++i) {
    const Origin row = origin.after(varying[0], i);
    for (std::size_t j = 0; j < loop.extent; j += 2) {
      const Origin at = row.after(loop, j), next = row.after(loop, j + 1);
      const bool has_next = j + 1 < loop.extent;
      for (std::size_t r = 0; r < nest.run_count; ++r) {
        const Run& run = nest.runs[r];
        if (kIsWide && run.twin_wgt) {
          multiply<WideTile>(nest, run, at, fixed, run.twin_wgt, run.twin_dst);
          if (has_next) multiply<WideTile>(nest, run, next, fixed, run.twin_wgt, run.twin_dst);
        } else if (kIsWide && has_next && loop.src == 0) {
          multiply<WideTile>(nest, run, at, fixed, loop.wgt, loop.dst);
        } else {
          multiply<Tile>(nest, run, at, fixed);
          if (has_next) multiply<Tile>(nest, run, next, fixed);
        }
      }
    }
  }
}

// Little to do for each weight: one product after the other. A loop that changes the accumulator
// goes innermost, if there is one, so that additions do not wait for each other.
template <class Tile>
FSIM_TARGET void gemm_by_product(const GemmNest& nest) {
  constexpr std::size_t kPassBytes = Tile::kWidth * 4;
  const std::size_t acc_element = nest.batch * Tile::kBlock;
  const std::size_t inp_element = nest.batch * Tile::kInpBytes;
  Loop outer = nest.outer, inner = nest.inner;
  if (inner.dst == 0 || inner.extent == 1) std::swap(outer, inner);
  for (std::size_t o = 0; o < outer.extent; ++o) {
    for (std::size_t u = 0; u < nest.uop_count; ++u) {
      const MicroOp& uop = nest.uops[u];
      Origin at = Origin{nest.first_dst + uop.dst, nest.first_src + uop.src,
                         nest.first_wgt + uop.wgt}.after(outer, o);
      for (std::size_t i = 0; i < inner.extent; ++i, at = at.after(inner, 1)) {
        for (std::size_t pass = 0; pass < Tile::kBlock / Tile::kWidth; ++pass) {
          const Tile tile(nest.wgt + at.wgt * Tile::kWgtBytes + pass * kPassBytes, 0, 0);
          update_many(tile, nest.batch, nest.acc + at.dst * acc_element + pass * Tile::kWidth,
                      Tile::kBlock, nest.inp + at.src * inp_element, Tile::kInpBytes);
        }
      }
    }
  }
}

template <class Tile, class WideTile = Tile>
FSIM_TARGET void gemm(const GemmNest& nest) {
  Loop fixed[2], varying[2];
  const Loop loops[2] = {nest.outer, nest.inner};
  for (int k = 0; k < 2; ++k) (loops[k].wgt ? varying : fixed)[k] = loops[k];
  if (fixed[0].extent > fixed[1].extent) std::swap(fixed[0], fixed[1]);
  if (varying[1].extent == 1 || varying[1].src) std::swap(varying[0], varying[1]);

  const std::size_t products = nest.uop_count * fixed[0].extent * fixed[1].extent;
  if (products >= 4 * nest.run_count) {
    gemm_by_weight<Tile, WideTile>(nest, fixed, varying);
  } else {
    gemm_by_product<Tile>(nest);
  }
}

}  // namespace
}  // namespace fsim
