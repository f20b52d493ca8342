// Scratchpads: the on-chip memories, in the formats that the kernels require.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "encoding.hpp"
#include "geometry.hpp"
#include "kernels.hpp"

namespace fsim {

struct Scratchpads {
  // Filled with zeros.
  Scratchpads(const Geometry& geometry, const Kernels& kernels);

  // Fills all memories with pseudo-random contents, the same for all kernels.
  void randomise(std::mt19937_64& random, const Encoding& encoding, const Kernels& kernels);

  std::vector<MicroOp> uop;

  struct Free {
    void operator()(void* data) const { ::operator delete[](data, std::align_val_t{64}); }
  };
  template <class T>
  using Array = std::unique_ptr<T[], Free>;

  Array<uint8_t> inp;
  Array<uint8_t> wgt;
  Array<int32_t> acc;
  // Lanes of inputs and weights in DRAM format, for products of windows and POOL; else empty.
  std::vector<int8_t> plain_inp, plain_wgt;

 private:
  Geometry geometry_;
};

}  // namespace fsim
