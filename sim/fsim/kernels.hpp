// Kernels: the inner loops of the simulator, one set per CPU instruction set, and the choice between
// them. A set also determines the format of inputs and weights in the scratchpads, which is opaque to
// other code. All index sets are checked before a kernel is called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "encoding.hpp"
#include "geometry.hpp"

namespace fsim {

// One hardware loop; steps are in elements.
struct Loop {
  std::size_t extent = 1;
  std::size_t dst = 0, src = 0, wgt = 0;
};

// Micro-ops that use one weight tile: [begin, end) of `GemmNest::grouped`. A twin is another run
// with the same inputs, whose weights and accumulators are at a constant distance.
struct Run {
  std::size_t wgt = 0;
  std::size_t begin = 0, end = 0;
  std::ptrdiff_t twin_wgt = 0, twin_dst = 0;  // 0 weights: no twin
};

// A GEMM or POOL instruction, or a slice of its loops.
struct GemmNest {
  int32_t* acc = nullptr;       // the scratchpads
  const uint8_t* inp = nullptr;
  const uint8_t* wgt = nullptr;
  std::size_t batch = 0, block = 0;
  Loop outer, inner;
  std::size_t first_dst = 0, first_src = 0, first_wgt = 0;  // first elements of the slice
  const MicroOp* uops = nullptr;                            // in program order
  std::size_t uop_count = 0;
  const MicroOp* grouped = nullptr;  // the same in runs of equal weight; not used by a reset
  const Run* runs = nullptr;
  std::size_t run_count = 0;
  // For a product of windows and POOL, whose inp and wgt point to lanes in DRAM format:
  std::size_t window_tiles = 0, window_channels = 0;
  bool overwrite = false;  // the accumulator's previous value is ignored
  bool pairs = false;      // adjacent products of one accumulator are one sum

  // Whether a micro-op adds to the sum of the preceding one.
  bool joins(std::size_t u) const {
    return pairs && u > 0 && uops[u].dst == uops[u - 1].dst;
  }
};

// An ALU instruction, or a slice of its loops.
struct AluNest {
  int32_t* acc = nullptr;
  std::size_t lanes = 0;  // of an accumulator element
  Loop outer, inner;
  std::size_t first_dst = 0, first_src = 0;
  const MicroOp* uops = nullptr;
  std::size_t uop_count = 0;
  AluOp op = AluOp::Min;
  bool use_imm = false;
  int32_t imm = 0;
};

struct Kernels {
  const char* name;
  std::size_t inp_bytes;  // of one element in the scratchpad
  std::size_t wgt_bytes;
  uint8_t inp_zero;       // each byte of a zero input element; a zero weight element is all 0
  bool uses_twins;        // gemm profits from runs with twins

  // DRAM format -> scratchpad format, for int8 lanes that form whole elements.
  void (*pack_inp)(uint8_t* to, const int8_t* from, std::size_t lanes);
  void (*pack_wgt)(uint8_t* to, const int8_t* from, std::size_t lanes);
  void (*widen)(int32_t* to, const int8_t* from, std::size_t lanes);
  // Accumulator lanes -> DRAM format of the output: the low 8 bits.
  void (*narrow)(int8_t* to, const int32_t* from, std::size_t lanes);

  void (*gemm)(const GemmNest& nest);   // updates commute: in any order
  void (*depthwise)(const GemmNest& nest);  // in the order of the ISA
  void (*pool)(const GemmNest& nest);       // in the order of the ISA
  void (*reset)(const GemmNest& nest);  // zeros to every dst
  void (*alu)(const AluNest& nest);     // in the order of the ISA
};

// Names of the sets that this CPU can run, fastest first.
std::vector<std::string> available_kernels();

// Returns the set `name`, or the fastest for "auto"; throws Fault if this CPU lacks it.
Kernels select_kernels(const std::string& name, const Geometry& geometry);

// Slow loops in the order of the ISA that throw Fault on int32 overflow.
Kernels checked_kernels(const Geometry& geometry);

Kernels generic_kernels(const Geometry& geometry);
#if defined(FSIM_X86)
Kernels avx2_kernels(const Geometry& geometry);
Kernels avxvnni_kernels(const Geometry& geometry);
Kernels avx512vnni_kernels(const Geometry& geometry);
#endif

}  // namespace fsim
