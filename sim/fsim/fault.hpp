// Fault: the one exception of the simulator. Its kind decides which vtaops error it becomes in
// vtaops/runtime/fsim.py, which also owns the text of instructions: where a message names one, it
// contains "{0}", "{1}", ... for the members of `instructions`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace fsim {

// One 128-bit instruction as stored in DRAM.
struct Word {
  uint64_t low = 0;
  uint64_t high = 0;
};

// An instruction of the running program, for messages.
struct InstructionRef {
  std::size_t index = 0;
  Word word;
};

class Fault : public std::exception {
 public:
  enum class Kind { Device, Deadlock, Timeout, NoRoom };

  explicit Fault(std::string message, std::vector<InstructionRef> refs = {},
                 Kind fault_kind = Kind::Device)
      : kind(fault_kind), text(std::move(message)), instructions(std::move(refs)) {}

  const char* what() const noexcept override { return text.c_str(); }

  Kind kind;
  std::string text;
  std::vector<InstructionRef> instructions;
};

}  // namespace fsim
