// The loops around a tile product, shared by all instruction sets. A file that includes this one
// defines FSIM_TARGET, the attribute with which everything here is compiled, and passes Tiles:
//
//   kBlock               channels of a tile
//   kInpBytes, kWgtBytes bytes of one row of an input element, of one weight element
//   kWidth               output channels that one Tile object computes from one weight element
//   kElements            weight elements that one Tile object computes with: 1, or 2 (a wide tile)
//   Tile(wgt, wgt_step, acc_step)
//                        loads kWidth channels of the element at wgt and, if wide, also of the one
//                        wgt_step bytes on, whose accumulators are acc_step lanes on
//   update<N>(acc, inp)  adds N products of a row of inputs with the weights to N rows of
//                        accumulators, one after another, because rows may coincide
//
// A weight tile stays in registers (or L1) until everything that uses it is done.
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
  switch (count) {
    case 3: return update_rows<3>(tile, acc, acc_step, inp, inp_step);
    case 2: return update_rows<2>(tile, acc, acc_step, inp, inp_step);
    case 1: return update_rows<1>(tile, acc, acc_step, inp, inp_step);
  }
}

// The rows addressed by N steps.
template <int N, class Tile>
FSIM_INLINE void update_steps(const Tile& tile, const MicroOp* steps, int32_t* acc,
                              const uint8_t* inp) {
  int32_t* acc_rows[N];
  const uint8_t* inp_rows[N];
  for (int n = 0; n < N; ++n) {
    acc_rows[n] = acc + std::size_t{steps[n].dst} * Tile::kBlock;
    inp_rows[n] = inp + std::size_t{steps[n].src} * Tile::kInpBytes;
  }
  tile.template update<N>(acc_rows, inp_rows);
}

// Steps that use a weight tile: micro-ops, or the iterations of loops written out as such.
struct Steps {
  const MicroOp* begin = nullptr;
  std::size_t count = 0;
};

template <class Tile>
FSIM_INLINE void update_list(const Tile& tile, const Steps& steps, int32_t* acc,
                             const uint8_t* inp) {
  const MicroOp* step = steps.begin;
  for (std::size_t blocks = steps.count / 4; blocks; --blocks, step += 4) {
    update_steps<4>(tile, step, acc, inp);
  }
  switch (steps.count % 4) {
    case 3: return update_steps<3>(tile, step, acc, inp);
    case 2: return update_steps<2>(tile, step, acc, inp);
    case 1: return update_steps<1>(tile, step, acc, inp);
  }
}

// The loops over which the weight stays the same.
struct Fixed {
  Loop outer, inner;
  Steps steps;  // their iterations, if they are few
};

// All products of one weight tile if an element has one row. Of micro-ops and loop steps, the longer
// list goes innermost.
template <class Tile>
FSIM_INLINE void update_single_rows(const Tile& tile, const Steps& uops, const Fixed& fixed,
                                    int32_t* acc, const uint8_t* inp) {
  constexpr std::size_t kAcc = Tile::kBlock, kInp = Tile::kInpBytes;
  if (!fixed.steps.count) {
    const Loop &outer = fixed.outer, &inner = fixed.inner;
    for (const MicroOp* uop = uops.begin; uop != uops.begin + uops.count; ++uop) {
      for (std::size_t i = 0; i < outer.extent; ++i) {
        update_many(tile, inner.extent, acc + (uop->dst + i * outer.dst) * kAcc, inner.dst * kAcc,
                    inp + (uop->src + i * outer.src) * kInp, inner.src * kInp);
      }
    }
    return;
  }
  const bool uops_inside = uops.count > fixed.steps.count;
  const Steps& inside = uops_inside ? uops : fixed.steps;
  const Steps& outside = uops_inside ? fixed.steps : uops;
  for (const MicroOp* step = outside.begin; step != outside.begin + outside.count; ++step) {
    update_list(tile, inside, acc + step->dst * kAcc, inp + step->src * kInp);
  }
}

// The same if an element has several rows, which go innermost.
template <class Tile>
FSIM_INLINE void update_batches(const Tile& tile, std::size_t batch, const Steps& uops,
                                const Fixed& fixed, int32_t* acc, const uint8_t* inp) {
  const Loop &outer = fixed.outer, &inner = fixed.inner;
  for (const MicroOp* uop = uops.begin; uop != uops.begin + uops.count; ++uop) {
    for (std::size_t i = 0; i < outer.extent; ++i) {
      std::size_t dst = uop->dst + i * outer.dst, src = uop->src + i * outer.src;
      for (std::size_t j = 0; j < inner.extent; ++j, dst += inner.dst, src += inner.src) {
        update_many(tile, batch, acc + dst * batch * Tile::kBlock, Tile::kBlock,
                    inp + src * batch * Tile::kInpBytes, Tile::kInpBytes);
      }
    }
  }
}

// ------------------------------------------------------------------------ one instruction

// First elements of a step of the loops.
struct Origin {
  std::size_t dst, src, wgt;

  FSIM_INLINE Origin after(const Loop& loop, std::size_t steps) const {
    return {dst + steps * loop.dst, src + steps * loop.src, wgt + steps * loop.wgt};
  }
};

// All products of a run with one weight element, or with two if the tile is wide: the second weight
// is wgt_step further, and its accumulators dst_step elements further.
template <class Tile>
FSIM_TARGET void multiply(const GemmNest& nest, const Run& run, const Origin& at,
                          const Fixed& fixed, std::ptrdiff_t wgt_step = 0,
                          std::ptrdiff_t dst_step = 0) {
  constexpr std::ptrdiff_t kPassBytes = Tile::kWidth * 4;  // weights are stored in groups of 32 bits
  const std::ptrdiff_t acc_element = nest.batch * Tile::kBlock;
  const uint8_t* const inp = nest.inp + at.src * nest.batch * Tile::kInpBytes;
  const uint8_t* const wgt = nest.wgt + (at.wgt + run.wgt) * Tile::kWgtBytes;
  for (int pass = 0; pass < Tile::kBlock / Tile::kWidth; ++pass) {
    const Tile tile(wgt + pass * kPassBytes, wgt_step * Tile::kWgtBytes, dst_step * acc_element);
    int32_t* const acc = nest.acc + at.dst * acc_element + pass * Tile::kWidth;
    const Steps uops{nest.grouped + run.begin, run.end - run.begin};
    if (nest.batch == 1) {
      update_single_rows(tile, uops, fixed, acc, inp);
    } else {
      update_batches(tile, nest.batch, uops, fixed, acc, inp);
    }
  }
}

// Much work per weight: the loops over which it stays (and the runs of micro-ops) go inside. Two
// weights are processed together if they multiply the same inputs: in a run with a twin, or in two
// steps of a loop.
template <class Tile, class WideTile>
FSIM_TARGET void gemm_by_weight(const GemmNest& nest, const Fixed& fixed, const Loop& outer,
                                const Loop& loop) {
  constexpr bool kIsWide = WideTile::kElements == 2;
  const Origin origin{nest.first_dst, nest.first_src, nest.first_wgt};
  for (std::size_t i = 0; i < outer.extent; ++i) {
    const Origin row = origin.after(outer, i);
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

// Little work per weight: one product after another. A loop that changes the accumulator, if any,
// goes innermost, so that additions do not wait for each other.
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

// The whole instruction. WideTile: a Tile for two weight elements, or Tile itself.
template <class Tile, class WideTile = Tile>
FSIM_TARGET void gemm(const GemmNest& nest) {
  Loop fixed[2], varying[2];
  const Loop loops[2] = {nest.outer, nest.inner};
  for (int k = 0; k < 2; ++k) (loops[k].wgt ? varying : fixed)[k] = loops[k];
  if (fixed[0].extent > fixed[1].extent) std::swap(fixed[0], fixed[1]);
  if (varying[1].extent == 1 || varying[1].src) std::swap(varying[0], varying[1]);

  const std::size_t products = nest.uop_count * fixed[0].extent * fixed[1].extent;
  if (products < 4 * nest.run_count) return gemm_by_product<Tile>(nest);

  Fixed inside{fixed[0], fixed[1], {}};
  constexpr std::size_t kFew = 32;
  MicroOp steps[kFew * kFew];
  if (nest.batch == 1 && fixed[1].extent <= kFew) {
    for (std::size_t i = 0; i < fixed[0].extent; ++i) {
      for (std::size_t j = 0; j < fixed[1].extent; ++j) {
        MicroOp& step = steps[inside.steps.count++];
        step.dst = static_cast<uint32_t>(i * fixed[0].dst + j * fixed[1].dst);
        step.src = static_cast<uint32_t>(i * fixed[0].src + j * fixed[1].src);
      }
    }
    inside.steps.begin = steps;
  }
  gemm_by_weight<Tile, WideTile>(nest, inside, varying[0], varying[1]);
}

}  // namespace
}  // namespace fsim
