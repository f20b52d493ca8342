// Engine: runs an instruction stream on three concurrent units (load, compute, store), each in
// program order, synchronised by tokens. Owns the order of execution and the rules for a whole
// stream: no deadlock, FINISH last, no token left over.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "encoding.hpp"
#include "executor.hpp"

namespace fsim {

class Engine {
 public:
  // A token capacity of 0 means that queues are unbounded.
  Engine(const Encoding& encoding, Executor& executor, Dram& dram, uint64_t token_capacity,
         std::optional<uint64_t> seed);

  // Without a seed, the compute unit runs whenever it can, and the others only as far as it (or the
  // end) needs them: this order relies only on the tokens. With a seed, each step runs a random
  // unit among those that can continue, and scratchpads start with random contents.
  void launch(uint64_t address, uint64_t count, double timeout, std::function<void()> poll);

 private:
  enum Queue { kLoadToCompute, kComputeToLoad, kComputeToStore, kStoreToCompute, kQueues, kNone };
  static const char* const kQueueNames[kQueues];

  // The queues at the ends of a unit; instructions ignore flags towards kNone.
  struct Ports {
    Queue pop_prev, pop_next, push_prev, push_next;
  };
  static const Ports kPorts[kUnits];

  struct UnitState {
    std::vector<uint32_t> indices;  // its instructions
    std::size_t next = 0;
    Instruction head;               // the decoded next instruction
    bool is_done() const { return next == indices.size(); }
  };

  void fetch(uint64_t address, uint64_t count);
  void dispatch();
  void require_finish() const;
  void decode_head(int unit);

  std::vector<Queue> waits_for(int unit) const;
  bool is_empty(bool pops, Queue queue) const;
  bool can_run(int unit) const;
  int pick();
  int pick_on_demand() const;
  int pick_randomly();
  void step(int unit, Deadline& deadline);
  void push(bool pushes, Queue queue, int unit);

  InstructionRef ref(std::size_t index) const { return {index, words_[index]}; }
  InstructionRef head_ref(int unit) const {
    return ref(units_[unit].indices[units_[unit].next]);
  }
  void require_all_done() const;
  void require_no_tokens() const;
  [[noreturn]] void report_deadlock() const;
  [[noreturn]] void report_timeout(double timeout) const;
  std::string tokens_text() const;

  Encoding encoding_;
  Executor& executor_;
  Dram& dram_;
  uint64_t token_capacity_;
  bool is_random_;
  std::mt19937_64 random_;
  unsigned pace_[kUnits] = {1, 1, 1};  // weights of the units in the random choice

  std::vector<Word> words_;
  UnitState units_[kUnits];
  std::optional<std::size_t> first_finish_;  // among the compute unit's instructions
  uint64_t tokens_[kQueues] = {};
};

}  // namespace fsim
