// The loops around a tile product, shared by all instruction sets. A file that includes this one
// defines FSIM_TARGET, the attribute under which everything here is compiled, and passes a Tile:
//
//   kBlock, kWidth       channels of a tile; output channels that one Tile object computes
//   kInpBytes, kWgtBytes bytes of one row of an input element, of one weight element
//   Tile(wgt, pass)      takes hold of output channels [pass * kWidth, (pass + 1) * kWidth)
//   update<N>(acc, inp)  adds N products of a row of inputs with the weights to N rows of
//                        accumulators, one after the other: rows may coincide
//
// The weight tile stays where it is while everything that uses it is done.
#pragma once

#include <cstring>
#include <utility>

#include "kernels.hpp"

#define FSIM_INLINE FSIM_TARGET __attribute__((always_inline)) inline

namespace fsim {
namespace {

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
  for (; count; --count, acc += acc_step, inp += inp_step) {
    update_rows<1>(tile, acc, acc_step, inp, inp_step);
  }
}

// All products of one weight tile when an element has one row: the longer of the micro-op list
// and the loop `longest` goes innermost.
template <class Tile>
FSIM_INLINE void update_single_rows(const Tile& tile, const GemmNest& nest, const Run& run,
                                    const Loop& other, const Loop& longest, int32_t* acc,
                                    const uint8_t* inp) {
  constexpr std::size_t kAcc = Tile::kBlock, kInp = Tile::kInpBytes;
  const MicroOp* const begin = nest.grouped + run.begin;
  const MicroOp* const end = nest.grouped + run.end;
  if (longest.extent >= run.end - run.begin) {
    for (const MicroOp* uop = begin; uop != end; ++uop) {
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
      for (; end - uop >= 4; uop += 4) {
        int32_t* acc_rows[4];
        const uint8_t* inp_rows[4];
        for (int n = 0; n < 4; ++n) {
          acc_rows[n] = acc_base + uop[n].dst * kAcc;
          inp_rows[n] = inp_base + uop[n].src * kInp;
        }
        tile.template update<4>(acc_rows, inp_rows);
      }
      for (; uop != end; ++uop) {
        update_rows<1>(tile, acc_base + uop->dst * kAcc, 0, inp_base + uop->src * kInp, 0);
      }
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

template <class Tile>
FSIM_TARGET void gemm(const GemmNest& nest) {
  // Loops over which the weight stays go inside, the others outside the micro-ops.
  Loop fixed[2], varying[2];
  const Loop loops[2] = {nest.outer, nest.inner};
  for (int k = 0; k < 2; ++k) (loops[k].wgt ? varying : fixed)[k] = loops[k];
  if (fixed[0].extent > fixed[1].extent) std::swap(fixed[0], fixed[1]);
  // Where every product has its own weight, let the accumulator change too: no chain through it.
  if (varying[1].dst == 0) std::swap(varying[0], varying[1]);

  for (std::size_t r = 0; r < nest.run_count; ++r) {
    const Run& run = nest.runs[r];
    for (std::size_t i = 0; i < varying[0].extent; ++i) {
      for (std::size_t j = 0; j < varying[1].extent; ++j) {
        const std::size_t dst = nest.first_dst + i * varying[0].dst + j * varying[1].dst;
        const std::size_t src = nest.first_src + i * varying[0].src + j * varying[1].src;
        const std::size_t wgt =
            nest.first_wgt + run.wgt + i * varying[0].wgt + j * varying[1].wgt;
        const uint8_t* const inp = nest.inp + src * nest.batch * Tile::kInpBytes;
        for (int pass = 0; pass < Tile::kBlock / Tile::kWidth; ++pass) {
          int32_t* const acc = nest.acc + dst * nest.batch * Tile::kBlock + pass * Tile::kWidth;
          const Tile tile(nest.wgt + wgt * Tile::kWgtBytes, pass);
          if (nest.batch == 1) {
            update_single_rows(tile, nest, run, fixed[0], fixed[1], acc, inp);
          } else {
            update_batches(tile, nest, run, fixed[0], fixed[1], acc, inp);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fsim
