// Limits: features that an implementation of VTA lacks, named as in vtaops/machine/capabilities.py; by
// default nothing is missing and STORE reads the accumulators, as in upstream's simulator.
#pragma once

#include <cstdint>

namespace fsim {

struct Limits {
  bool weight_padding = true;
  bool acc_padding = true;
  bool mul = true;
  bool acc_8bit = true;
  bool long_shift = true;
  bool tensor_shift = true;
  bool empty_rows = true;
  bool alu_batch = true;
  bool separate_out = false;   // STORE reads a memory written by the ALU and accumulating GEMMs
  int64_t micro_ops = 0;       // 0: as many as the micro-op memory holds
  uint64_t token_capacity = 0;  // 0: any number
};

}  // namespace fsim
