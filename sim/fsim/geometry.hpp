// Geometry: the sizes of tiles and scratchpads of one VTA instance. The values are those that
// vtaops/machine/config.py derives; lanes are int8 (input, weight, output) and int32 (accumulator).
#pragma once

#include <cstddef>

namespace fsim {

struct Geometry {
  std::size_t batch = 0;      // rows of an input, accumulator or output tile
  std::size_t block = 0;      // input and output channels of a tile
  std::size_t uop_depth = 0;  // elements of each scratchpad
  std::size_t inp_depth = 0;
  std::size_t wgt_depth = 0;
  std::size_t acc_depth = 0;
  std::size_t post_rows = 0;  // rows of post-processing parameters; 0: the device has none
  std::size_t tables = 0;     // tables of 256 values for post-processing
  std::size_t window_tiles = 0;  // input elements of a window; 0: the device has no windows
  std::size_t window_channels = 0;  // channels that a window mixes
  std::size_t pools = 0;            // 1: the device has POOL
  std::size_t pairs = 0;            // 1: adjacent products of one accumulator are one sum

  std::size_t lanes() const { return batch * block; }          // of input, accumulator and output
  std::size_t weight_lanes() const { return block * block; }
};

}  // namespace fsim
