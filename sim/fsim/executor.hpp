// Executor: the effect of each instruction. Checks all addresses and indices of an instruction before
// the kernels run, and counts like upstream's simulator. Knows nothing of units and tokens.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "deadline.hpp"
#include "dram.hpp"
#include "encoding.hpp"
#include "geometry.hpp"
#include "kernels.hpp"
#include "limits.hpp"
#include "scratchpads.hpp"

namespace fsim {

// The names and rules of vtaops.program.statistics.Statistics.
struct Counters {
  uint64_t inp_load_nbytes = 0;
  uint64_t wgt_load_nbytes = 0;
  uint64_t acc_load_nbytes = 0;
  uint64_t uop_load_nbytes = 0;
  uint64_t out_store_nbytes = 0;
  uint64_t gemm_counter = 0;
  uint64_t alu_counter = 0;
};

class Executor {
 public:
  Executor(const Geometry& geometry, const Encoding& encoding, const Kernels& kernels,
           const Limits& limits, Dram& dram);

  // Throws Fault with a message about "{0}", the instruction.
  void execute(const Instruction& instruction, Deadline& deadline);
  void randomise(std::mt19937_64& random);

  Counters counters;

 private:
  // One of the three index fields of micro-ops, with its bounds.
  struct Index {
    uint32_t MicroOp::*field;
    const char* name;
    const char* memory;
    std::size_t depth;
    int64_t factor_out, factor_in;
    int64_t further = 0;  // elements after the first one that a step reads
  };

  void load(const Instruction& in);
  void store(const Instruction& in);
  void gemm(const Instruction& in, Deadline& deadline);
  void alu(const Instruction& in, Deadline& deadline);

  template <class Zero, class Copy>
  void load_block(const Instruction& in, const char* memory, std::size_t depth,
                  std::size_t element_bytes, Zero zero, Copy copy);
  void require_supported(const Instruction& in) const;
  void write_output(const Instruction& in, const MicroOp* uops);
  int64_t micro_op_depth() const;  // that of the configuration, or less if limited
  void check_rows(const Instruction& in) const;
  void post_process(std::size_t element, std::size_t row);
  const uint8_t* output(std::size_t first, std::size_t count);
  const uint8_t* expanded(const uint8_t* from, std::size_t count);
  const MicroOp* micro_ops(const Instruction& in) const;
  void require_in_bounds(const Instruction& in, const MicroOp* uops, const Index& index) const;
  bool repeats_accumulators(const Instruction& in, const GemmNest& nest);
  void overwrite(const Instruction& in, GemmNest nest, Deadline& deadline);
  void pool(const Instruction& in, Deadline& deadline);
  void group_by_weight(const MicroOp* uops, std::size_t count, GemmNest& nest);
  void pair_twins(const MicroOp* grouped);
  template <class Nest, class Kernel>
  void run_slices(const Instruction& in, Nest nest, Kernel kernel, Deadline& deadline) const;

  Geometry geometry_;
  Encoding encoding_;
  Kernels kernels_;
  Limits limits_;
  Dram& dram_;
  Scratchpads sram_;
  std::vector<int8_t> out_;        // the output memory, if it is separate
  Instruction post_;               // the last settings of POST
  std::vector<int32_t> parameters_;  // of POST: rows of biases, then rows of scales
  std::vector<int8_t> tables_;       // of 256 values each
  std::vector<uint32_t> written_;  // reused by write_output
  std::vector<int8_t> forwarded_;  // reused by output
  std::vector<int8_t> expanded_;   // reused by load
  std::vector<MicroOp> grouped_;   // reused by group_by_weight
  std::vector<Run> runs_;
  std::vector<uint32_t> positions_;
  std::vector<bool> seen_;  // reused by repeats_accumulators
};

}  // namespace fsim
