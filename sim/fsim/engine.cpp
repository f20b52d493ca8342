// Implementation of engine.hpp.
#include "engine.hpp"

#include <cstring>
#include <limits>

namespace fsim {

namespace {
constexpr int kLoad = static_cast<int>(Unit::Load);
constexpr int kCompute = static_cast<int>(Unit::Compute);
constexpr int kStore = static_cast<int>(Unit::Store);
constexpr int kNobody = -1;
}  // namespace

const char* const Engine::kQueueNames[kQueues] = {"load->compute", "compute->load",
                                                  "compute->store", "store->compute"};

const Engine::Ports Engine::kPorts[kUnits] = {
    {kNone, kComputeToLoad, kNone, kLoadToCompute},
    {kLoadToCompute, kStoreToCompute, kComputeToLoad, kComputeToStore},
    {kComputeToStore, kNone, kStoreToCompute, kNone},
};

Engine::Engine(const Encoding& encoding, Executor& executor, Dram& dram,
               uint64_t token_capacity, std::optional<uint64_t> seed)
    : encoding_(encoding),
      executor_(executor),
      dram_(dram),
      token_capacity_(token_capacity),
      is_random_(seed.has_value()),
      random_(seed.value_or(0)) {}

void Engine::launch(uint64_t address, uint64_t count, double timeout,
                    std::function<void()> poll) {
  Deadline deadline(timeout, std::move(poll));
  fetch(address, count);
  dispatch();
  require_finish();
  std::memset(tokens_, 0, sizeof tokens_);
  if (is_random_) {
    executor_.randomise(random_);
    for (unsigned& pace : pace_) pace = 1u << (2 * (random_() % 3));
  }
  try {
    for (int unit = pick(); unit != kNobody; unit = pick()) {
      step(unit, deadline);
      deadline.check();
    }
  } catch (const Fault& fault) {
    if (fault.kind == Fault::Kind::Timeout) report_timeout(timeout);
    throw;
  }
  for (const UnitState& unit : units_) {
    if (!unit.is_done()) report_deadlock();
  }
  require_no_tokens();
}

// ---------------------------------------------------------------------- before the first step

// Copies the stream, so that a STORE into it has no effect on this launch.
void Engine::fetch(uint64_t address, uint64_t count) {
  if (count == 0 || count > std::numeric_limits<uint32_t>::max()) {
    throw Fault("a launch of " + std::to_string(count) + " instructions; give at least 1");
  }
  if (address % kInstructionBytes) {
    throw Fault("instruction address " + std::to_string(address) + " is not a multiple of " +
                std::to_string(kInstructionBytes));
  }
  Dram::Hint hint;
  const uint8_t* const from = dram_.at(address, count * kInstructionBytes, hint);
  words_.resize(count);
  std::memcpy(words_.data(), from, count * kInstructionBytes);
}

void Engine::dispatch() {
  for (UnitState& unit : units_) unit = {};
  first_finish_.reset();
  for (std::size_t index = 0; index < words_.size(); ++index) {
    try {
      const Kind kind = encoding_.kind(words_[index]);
      std::vector<uint32_t>& indices = units_[static_cast<int>(kind.unit)].indices;
      if (kind.opcode == Opcode::Finish && !first_finish_) first_finish_ = indices.size();
      indices.push_back(static_cast<uint32_t>(index));
    } catch (const Fault& fault) {
      throw Fault(fault.text, {ref(index)});
    }
  }
  for (int unit = 0; unit < kUnits; ++unit) decode_head(unit);
}

void Engine::require_finish() const {
  const std::vector<uint32_t>& compute = units_[kCompute].indices;
  if (!first_finish_) {
    throw Fault("the program has no FINISH; it must be the last instruction of the compute unit");
  }
  const std::size_t k = *first_finish_;
  if (k + 1 == compute.size()) return;
  throw Fault("{0} is followed by {1} on the compute unit; FINISH must be its last instruction",
              {ref(compute[k]), ref(compute[k + 1])});
}

void Engine::decode_head(int unit) {
  UnitState& state = units_[unit];
  if (!state.is_done()) state.head = encoding_.decode(words_[state.indices[state.next]]);
}

// -------------------------------------------------------------------------------- one step

bool Engine::is_empty(bool pops, Queue queue) const {
  return pops && queue != kNone && tokens_[queue] == 0;
}

bool Engine::can_run(int unit) const {
  const UnitState& state = units_[unit];
  return !state.is_done() && !is_empty(state.head.pop_prev, kPorts[unit].pop_prev) &&
         !is_empty(state.head.pop_next, kPorts[unit].pop_next);
}

int Engine::pick() { return is_random_ ? pick_randomly() : pick_on_demand(); }

int Engine::pick_on_demand() const {
  if (can_run(kCompute)) return kCompute;
  const UnitState& compute = units_[kCompute];
  if (!compute.is_done()) {
    if (is_empty(compute.head.pop_prev, kLoadToCompute) && can_run(kLoad)) return kLoad;
    if (is_empty(compute.head.pop_next, kStoreToCompute) && can_run(kStore)) return kStore;
  }
  if (can_run(kLoad)) return kLoad;
  return can_run(kStore) ? kStore : kNobody;
}

int Engine::pick_randomly() {
  unsigned total = 0;
  for (int unit = 0; unit < kUnits; ++unit) total += can_run(unit) ? pace_[unit] : 0;
  if (total == 0) return kNobody;
  unsigned choice = static_cast<unsigned>(random_() % total);
  for (int unit = 0; unit < kUnits; ++unit) {
    if (!can_run(unit)) continue;
    if (choice < pace_[unit]) return unit;
    choice -= pace_[unit];
  }
  return kNobody;
}

void Engine::push(bool pushes, Queue queue, int unit) {
  if (!pushes || queue == kNone) return;
  if (token_capacity_ && tokens_[queue] == token_capacity_) {
    throw Fault("{0} sends a token into " + std::string(kQueueNames[queue]) + ", which holds " +
                    std::to_string(token_capacity_) + " already: its capacity",
                {head_ref(unit)});
  }
  ++tokens_[queue];
}

void Engine::step(int unit, Deadline& deadline) {
  UnitState& state = units_[unit];
  const Instruction& in = state.head;
  const Ports& ports = kPorts[unit];
  if (in.pop_prev && ports.pop_prev != kNone) --tokens_[ports.pop_prev];
  if (in.pop_next && ports.pop_next != kNone) --tokens_[ports.pop_next];
  try {
    executor_.execute(in, deadline);
  } catch (const Fault& fault) {
    if (fault.kind == Fault::Kind::Timeout) throw;
    const bool names_it = fault.text.find("{0}") != std::string::npos;
    throw Fault(names_it ? fault.text : "{0}: " + fault.text, {head_ref(unit)});
  }
  push(in.push_prev, ports.push_prev, unit);
  push(in.push_next, ports.push_next, unit);
  if (in.is(Opcode::Finish)) require_all_done();
  ++state.next;
  decode_head(unit);
}

// --------------------------------------------------------------------------------- reports

void Engine::require_all_done() const {
  for (const int unit : {kLoad, kStore}) {
    const UnitState& state = units_[unit];
    if (state.is_done()) continue;
    throw Fault("{0} completed while the " + std::string(kUnitNames[unit]) + " unit had " +
                    std::to_string(state.indices.size() - state.next) +
                    " instructions to execute, first {1}; FINISH must wait for their tokens",
                {head_ref(kCompute), head_ref(unit)});
  }
}

void Engine::require_no_tokens() const {
  for (const uint64_t count : tokens_) {
    if (count) {
      throw Fault("tokens remain after the last instruction (" + tokens_text() +
                  "); every token that is pushed must be popped");
    }
  }
}

std::string Engine::tokens_text() const {
  std::string text;
  for (int queue = 0; queue < kQueues; ++queue) {
    text += std::string(queue ? ", " : "") + kQueueNames[queue] + " " +
            std::to_string(tokens_[queue]);
  }
  return text;
}

std::vector<Engine::Queue> Engine::waits_for(int unit) const {
  const UnitState& state = units_[unit];
  const Ports& ports = kPorts[unit];
  std::vector<Queue> queues;
  if (is_empty(state.head.pop_prev, ports.pop_prev)) queues.push_back(ports.pop_prev);
  if (is_empty(state.head.pop_next, ports.pop_next)) queues.push_back(ports.pop_next);
  return queues;
}

void Engine::report_deadlock() const {
  std::string text = "deadlock: no unit can continue";
  std::vector<InstructionRef> refs;
  for (int unit = 0; unit < kUnits; ++unit) {
    text += "\n  " + std::string(kUnitNames[unit]) + " unit: ";
    if (units_[unit].is_done()) {
      text += "done";
      continue;
    }
    text += "{" + std::to_string(refs.size()) + "} waits for a token of ";
    refs.push_back(head_ref(unit));
    const std::vector<Queue> queues = waits_for(unit);
    for (std::size_t k = 0; k < queues.size(); ++k) {
      text += std::string(k ? " and of " : "") + kQueueNames[queues[k]];
    }
  }
  text += "\n  tokens held: " + tokens_text();
  throw Fault(text, refs, Fault::Kind::Deadlock);
}

void Engine::report_timeout(double timeout) const {
  std::size_t executed = 0;
  for (const UnitState& unit : units_) executed += unit.next;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", timeout);
  std::string text = "not finished after " + std::string(seconds) + " s: " +
                     std::to_string(executed) + " of " + std::to_string(words_.size()) +
                     " instructions executed";
  std::vector<InstructionRef> refs;
  if (!units_[kCompute].is_done()) {
    text += ", the compute unit is at {0}";
    refs.push_back(head_ref(kCompute));
  }
  throw Fault(text, refs, Fault::Kind::Timeout);
}

}  // namespace fsim
