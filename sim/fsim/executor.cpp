// Implementation of executor.hpp.
#include "executor.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace fsim {

namespace {

// Lane operations between two checks of the clock: some milliseconds.
constexpr std::size_t kSliceLanes = std::size_t{1} << 24;

constexpr std::size_t kTableValues = 256;  // one for each int8

std::size_t micro_op_count(const Instruction& in) {
  return static_cast<std::size_t>(std::max<int64_t>(in.uop_end - in.uop_begin, 0));
}

uint64_t iterations(const Instruction& in) {
  return static_cast<uint64_t>(in.iter_out * in.iter_in) * micro_op_count(in);
}

std::string elements(const char* memory, int64_t begin, int64_t count) {
  return std::string(memory) + " elements " + std::to_string(begin) + ".." +
         std::to_string(begin + count);
}

}  // namespace

Executor::Executor(const Geometry& geometry, const Encoding& encoding, const Kernels& kernels,
                   const Limits& limits, Dram& dram)
    : geometry_(geometry),
      encoding_(encoding),
      kernels_(kernels),
      limits_(limits),
      dram_(dram),
      sram_(geometry, kernels),
      out_(limits.separate_out || geometry.post_rows ? geometry.acc_depth * geometry.lanes() : 0),
      parameters_(2 * geometry.post_rows * geometry.block),
      tables_(geometry.tables * kTableValues) {}

void Executor::randomise(std::mt19937_64& random) {
  sram_.randomise(random, encoding_, kernels_);
  for (int8_t& lane : out_) lane = static_cast<int8_t>(random());
  for (int32_t& lane : parameters_) lane = static_cast<int32_t>(random());
  for (int8_t& value : tables_) value = static_cast<int8_t>(random());
}

// Faults name the feature that the limits exclude.
void Executor::require_supported(const Instruction& in) const {
  const char* missing = nullptr;
  if (in.is(Opcode::Load)) {
    const bool pads = in.y_pad_top || in.y_pad_bottom || in.x_pad_left || in.x_pad_right;
    const auto memory = static_cast<Memory>(in.memory);
    if (memory == Memory::Wgt && pads && !limits_.weight_padding) missing = "weight padding";
    const bool acc = memory == Memory::Acc || memory == Memory::Acc8Bit;
    if (acc && pads && !limits_.acc_padding) missing = "accumulator padding";
    if (memory == Memory::Acc8Bit && !limits_.acc_8bit) missing = "8-bit accumulator loads";
    if (in.x_size && !in.y_size && !limits_.empty_rows) missing = "loads of padding alone";
  }
  if (in.is(Opcode::Alu)) {
    const auto op = static_cast<AluOp>(in.alu_op);
    const bool is_long = in.use_imm && (in.imm < -15 || in.imm > 15);
    if (op == AluOp::Mul && !limits_.mul) missing = "MUL";
    if (op == AluOp::Shr && is_long && !limits_.long_shift) missing = "shifts beyond 15 bits";
    if (op == AluOp::Shr && !in.use_imm && !limits_.tensor_shift) missing = "shifts by tensors";
    if (geometry_.batch > 1 && !limits_.alu_batch) missing = "an ALU for tiles of several rows";
  }
  if (missing) throw Fault(std::string("{0}: this device has no ") + missing);
}

// Results of the ALU and of accumulating GEMMs in the separate output memory: each accumulator
// once, however many steps of the instruction wrote it, with adjacent ones together.
void Executor::write_output(const Instruction& in, const MicroOp* uops) {
  if (out_.empty()) return;
  if (post_.enable) {  // several steps may write one element; the row of the last one applies
    for (int64_t o = 0; o < in.iter_out; ++o) {
      for (int64_t i = 0; i < in.iter_in; ++i) {
        const std::size_t row = post_.row + o * post_.row_factor_out + i * post_.row_factor_in;
        for (std::size_t u = 0; u < micro_op_count(in); ++u) {
          post_process(uops[u].dst + o * in.dst_factor_out + i * in.dst_factor_in, row);
        }
      }
    }
    return;
  }
  written_.clear();
  for (std::size_t u = 0; u < micro_op_count(in); ++u) written_.push_back(uops[u].dst);
  std::sort(written_.begin(), written_.end());
  written_.erase(std::unique(written_.begin(), written_.end()), written_.end());

  const std::size_t lanes = geometry_.lanes();
  const int64_t outer = in.dst_factor_out ? in.iter_out : std::min<int64_t>(in.iter_out, 1);
  const int64_t inner = in.dst_factor_in ? in.iter_in : std::min<int64_t>(in.iter_in, 1);
  const bool in_a_row = in.dst_factor_in == 1;
  for (int64_t o = 0; o < outer; ++o) {
    for (const uint32_t dst : written_) {
      const std::size_t first = dst + o * in.dst_factor_out;
      for (int64_t i = 0; i < (in_a_row ? std::min<int64_t>(inner, 1) : inner); ++i) {
        const std::size_t lane = (first + i * in.dst_factor_in) * lanes;
        kernels_.narrow(&out_[lane], &sram_.acc[lane], in_a_row ? inner * lanes : lanes);
      }
    }
  }
}

// Throws Fault if an instruction would read parameters beyond the last row.
void Executor::check_rows(const Instruction& in) const {
  if (in.reset || !post_.enable || !(post_.use_bias || post_.use_scale)) return;
  const int64_t last = post_.row + (in.iter_out - 1) * post_.row_factor_out +
                       (in.iter_in - 1) * post_.row_factor_in;
  if (last >= static_cast<int64_t>(geometry_.post_rows)) {
    throw Fault("{0}: reads row " + std::to_string(last) + " of the post-processing; it has " +
                std::to_string(geometry_.post_rows));
  }
}

namespace {

// The multiplier of a sum, and the term added to the product before the shift.
struct Scale {
  int64_t multiplier, shift, nudge;
};

Scale coarse(int32_t word) { return {word & 0xFFFF, word >> 16 & 0x3F, 0}; }

// A word of the extension `exact`: the highest bit of the multiplier is not stored.
Scale fine(int32_t word, int64_t kind) {
  const int64_t base = kind < 2 ? 0 : int64_t{1} << (21 + kind);
  return {(word & 0x7FFFFF) | 0x800000, (word >> 23 & 0x1F) + 20,
          base + (word >> 28) * int64_t{1 << 14}};
}

}  // namespace

// out = clip((((acc + bias) * multiplier + half) >> shift) + zero_point) of one element, or its
// entry in a table. The nudge of a fine scale is added to half, with the sign of the sum.
void Executor::post_process(std::size_t element, std::size_t row) {
  const std::size_t lanes = geometry_.lanes(), block = geometry_.block;
  const int32_t* const bias = &parameters_[row % geometry_.post_rows * block];
  const int32_t* const scale = bias + geometry_.post_rows * block;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const std::size_t channel = lane % block;
    const uint32_t acc = static_cast<uint32_t>(sram_.acc[element * lanes + lane]);
    const uint32_t added = post_.use_bias ? static_cast<uint32_t>(bias[channel]) : 0;
    const int64_t sum = static_cast<int32_t>(acc + added);
    const Scale by = !post_.use_scale ? Scale{post_.multiplier, post_.shift, 0}
                     : post_.fine     ? fine(scale[channel], post_.fine)
                                      : coarse(scale[channel]);
    const int64_t half = post_.round_half && by.shift ? int64_t{1} << (by.shift - 1) : 0;
    const int64_t rounding = half + (sum < 0 ? -by.nudge : by.nudge);
    const int64_t value = ((sum * by.multiplier + rounding) >> by.shift) + post_.zero_point;
    const int64_t clipped = std::min(std::max(value, post_.low), post_.high);
    out_[element * lanes + lane] =
        post_.use_table ? tables_[post_.table_index * kTableValues + (clipped + 128)]
                        : static_cast<int8_t>(clipped);
  }
}

void Executor::execute(const Instruction& in, Deadline& deadline) {
  require_supported(in);
  switch (static_cast<Opcode>(in.opcode)) {
    case Opcode::Load: return load(in);
    case Opcode::Store: return store(in);
    case Opcode::Gemm:
    case Opcode::Depthwise: return gemm(in, deadline);
    case Opcode::Alu: return alu(in, deadline);
    case Opcode::Pool: return pool(in, deadline);
    case Opcode::Post: post_ = in; return;
    case Opcode::Finish: post_ = Instruction{}; return;
  }
}

// ------------------------------------------------------------------------ LOAD and STORE

// Calls zero(element, count) for padding and copy(element, from, count) for rows, in SRAM order; the
// count of rows is that of DRAM elements.
template <class Zero, class Copy>
void Executor::load_block(const Instruction& in, const char* memory, std::size_t depth,
                          std::size_t element_bytes, Zero zero, Copy copy) {
  const int64_t filled = in.x_size << in.nibbles;
  const int64_t row = in.x_pad_left + filled + in.x_pad_right;
  const int64_t size = (in.y_pad_top + in.y_size + in.y_pad_bottom) * row;
  if (in.sram_base + size > static_cast<int64_t>(depth)) {
    throw Fault("{0}: writes " + elements(memory, in.sram_base, size) + "; " + memory + " has " +
                std::to_string(depth));
  }
  // Rows that are contiguous in both memories are treated as one long row.
  const bool is_dense = in.x_stride == in.x_size && row == filled && in.y_size > 1;
  const int64_t rows = is_dense ? 1 : in.y_size;
  const int64_t x_size = is_dense ? in.y_size * in.x_size : in.x_size;
  Dram::Hint hint;

  std::size_t to = in.sram_base;
  zero(to, in.y_pad_top * row);
  to += in.y_pad_top * row;
  for (int64_t y = 0; y < rows; ++y) {
    const uint64_t first = in.dram_base + y * in.x_stride;
    const uint8_t* const from =
        in.forward ? output(first, x_size)
                   : dram_.at(first * element_bytes, x_size * element_bytes, hint);
    if (in.x_pad_left) zero(to, in.x_pad_left);
    copy(to + in.x_pad_left, from, x_size);
    const int64_t end = in.x_pad_left + (x_size << in.nibbles);
    if (in.x_pad_right) zero(to + end, in.x_pad_right);
    to += end + in.x_pad_right;
  }
  zero(to, in.y_pad_bottom * row);
}

// The output memory, starting at an element.
const uint8_t* Executor::output(std::size_t first, std::size_t count) {
  if (first + count > geometry_.acc_depth) {
    throw Fault("{0}: reads " + elements("OUT", first, count) + "; OUT has " +
                std::to_string(geometry_.acc_depth));
  }
  const std::size_t lanes = geometry_.lanes();
  if (!out_.empty()) return reinterpret_cast<const uint8_t*>(&out_[first * lanes]);
  forwarded_.resize(count * lanes);
  kernels_.narrow(forwarded_.data(), &sram_.acc[first * lanes], count * lanes);
  return reinterpret_cast<const uint8_t*>(forwarded_.data());
}

// Numbers of four bits as bytes: two of each byte, the low one first.
const uint8_t* Executor::expanded(const uint8_t* from, std::size_t count) {
  expanded_.resize(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    expanded_[2 * i] = static_cast<int8_t>(from[i] << 4) >> 4;
    expanded_[2 * i + 1] = static_cast<int8_t>(from[i]) >> 4;
  }
  return reinterpret_cast<const uint8_t*>(expanded_.data());
}

// Copies elements (zeros without a source) to the plain lanes, if the device has them.
static void keep(std::vector<int8_t>& plain, std::size_t to, const uint8_t* from, std::size_t count,
          std::size_t lanes) {
  if (plain.empty() || count == 0) return;
  int8_t* const first = plain.data() + to * lanes;
  if (from) {
    std::memcpy(first, from, count * lanes);
  } else {
    std::memset(first, 0, count * lanes);
  }
}

void Executor::load(const Instruction& in) {
  if (in.x_size == 0) return;
  if (in.forward && in.memory != static_cast<int64_t>(Memory::Inp)) {
    throw Fault("{0}: takes the output memory to memory " + std::to_string(in.memory) +
                "; only to INP (2)");
  }
  if (in.nibbles && in.memory != static_cast<int64_t>(Memory::Wgt)) {
    throw Fault("{0}: expands weights of four bits to memory " + std::to_string(in.memory) +
                "; only to WGT (1)");
  }
  const uint64_t moved = in.forward ? 0 : in.x_size * in.y_size;  // over the port
  const std::size_t lanes = geometry_.lanes(), weight_lanes = geometry_.weight_lanes();
  const auto zero_acc = [&](std::size_t to, std::size_t count) {
    std::memset(sram_.acc.get() + to * lanes, 0, count * lanes * sizeof(int32_t));
  };
  switch (static_cast<Memory>(in.memory)) {
    case Memory::Uop:
      load_block(
          in, "UOP", micro_op_depth(), kMicroOpBytes,
          [&](std::size_t to, std::size_t n) { std::fill_n(&sram_.uop[to], n, MicroOp{}); },
          [&](std::size_t to, const uint8_t* from, std::size_t n) {
            for (std::size_t i = 0; i < n; ++i) {
              uint32_t word;
              std::memcpy(&word, from + i * kMicroOpBytes, sizeof word);
              sram_.uop[to + i] = encoding_.decode_micro_op(word);
            }
          });
      counters.uop_load_nbytes += moved * kMicroOpBytes;
      return;
    case Memory::Wgt:
      load_block(
          in, "WGT", geometry_.wgt_depth, weight_lanes,
          [&](std::size_t to, std::size_t n) {
            std::memset(&sram_.wgt[to * kernels_.wgt_bytes], 0, n * kernels_.wgt_bytes);
            keep(sram_.plain_wgt, to, nullptr, n, weight_lanes);
          },
          [&](std::size_t to, const uint8_t* from, std::size_t n) {
            if (in.nibbles) {
              from = expanded(from, n * weight_lanes);
              n *= 2;
            }
            kernels_.pack_wgt(&sram_.wgt[to * kernels_.wgt_bytes],
                              reinterpret_cast<const int8_t*>(from), n * weight_lanes);
            keep(sram_.plain_wgt, to, from, n, weight_lanes);
          });
      counters.wgt_load_nbytes += moved * weight_lanes;
      return;
    case Memory::Inp:
      load_block(
          in, "INP", geometry_.inp_depth, lanes,
          [&](std::size_t to, std::size_t n) {
            std::memset(&sram_.inp[to * kernels_.inp_bytes], kernels_.inp_zero,
                        n * kernels_.inp_bytes);
            keep(sram_.plain_inp, to, nullptr, n, lanes);
          },
          [&](std::size_t to, const uint8_t* from, std::size_t n) {
            kernels_.pack_inp(&sram_.inp[to * kernels_.inp_bytes],
                              reinterpret_cast<const int8_t*>(from), n * lanes);
            keep(sram_.plain_inp, to, from, n, lanes);
          });
      counters.inp_load_nbytes += moved * lanes;
      return;
    case Memory::Acc:
      load_block(in, "ACC", geometry_.acc_depth, lanes * sizeof(int32_t), zero_acc,
                 [&](std::size_t to, const uint8_t* from, std::size_t n) {
                   std::memcpy(&sram_.acc[to * lanes], from, n * lanes * sizeof(int32_t));
                 });
      counters.acc_load_nbytes += moved * lanes * sizeof(int32_t);
      return;
    case Memory::Acc8Bit:
      load_block(in, "ACC", geometry_.acc_depth, lanes, zero_acc,
                 [&](std::size_t to, const uint8_t* from, std::size_t n) {
                   kernels_.widen(&sram_.acc[to * lanes], reinterpret_cast<const int8_t*>(from),
                                  n * lanes);
                 });
      counters.acc_load_nbytes += moved * lanes * sizeof(int32_t);  // as upstream: bytes filled
      return;
    case Memory::Post: {
      const std::size_t block = geometry_.block;
      load_block(
          in, "POST", 2 * geometry_.post_rows, block * sizeof(int32_t),
          [&](std::size_t to, std::size_t n) {
            std::fill_n(parameters_.begin() + to * block, n * block, 0);
          },
          [&](std::size_t to, const uint8_t* from, std::size_t n) {
            std::memcpy(&parameters_[to * block], from, n * block * sizeof(int32_t));
          });
      return;  // upstream has no counter for it
    }
    case Memory::Table: {
      const auto no_padding = [](std::size_t, std::size_t count) {
        if (count) throw Fault("{0}: pads a table; all pads must be 0");
      };
      load_block(in, "TABLE", geometry_.tables, kTableValues, no_padding,
                 [&](std::size_t to, const uint8_t* from, std::size_t n) {
                   std::memcpy(&tables_[to * kTableValues], from, n * kTableValues);
                 });
      return;  // no counter for it either
    }
    case Memory::Out:
      return;  // refused by Encoding::decode
  }
}

void Executor::store(const Instruction& in) {
  if (in.x_size == 0) return;
  if (in.memory != static_cast<int64_t>(Memory::Out)) {
    throw Fault("{0}: stores memory " + std::to_string(in.memory) +
                "; STORE reads the output memory only (OUT, 4)");
  }
  if (in.y_pad_top || in.y_pad_bottom || in.x_pad_left || in.x_pad_right) {
    throw Fault("{0}: a STORE cannot pad; all pads must be 0");
  }
  const int64_t size = in.y_size * in.x_size;
  if (in.sram_base + size > static_cast<int64_t>(geometry_.acc_depth)) {
    throw Fault("{0}: reads " + elements("OUT", in.sram_base, size) + "; OUT has " +
                std::to_string(geometry_.acc_depth));
  }
  const std::size_t lanes = geometry_.lanes();
  Dram::Hint hint;
  for (int64_t y = 0; y < in.y_size; ++y) {
    const uint64_t address = (in.dram_base + y * in.x_stride) * lanes;
    uint8_t* const to = dram_.at(address, in.x_size * lanes, hint);
    const std::size_t lane = (in.sram_base + y * in.x_size) * lanes;
    if (out_.empty()) {
      kernels_.narrow(reinterpret_cast<int8_t*>(to), &sram_.acc[lane], in.x_size * lanes);
    } else {
      std::memcpy(to, &out_[lane], in.x_size * lanes);
    }
  }
  counters.out_store_nbytes += size * lanes;
}

// -------------------------------------------------------------------------- GEMM and ALU

int64_t Executor::micro_op_depth() const {
  const int64_t configured = static_cast<int64_t>(geometry_.uop_depth);
  return limits_.micro_ops ? std::min(limits_.micro_ops, configured) : configured;
}

const MicroOp* Executor::micro_ops(const Instruction& in) const {
  const int64_t depth = micro_op_depth();
  if (in.uop_end > depth) {
    throw Fault("{0}: reads " + elements("UOP", in.uop_begin, in.uop_end - in.uop_begin) +
                "; UOP has " + std::to_string(depth));
  }
  return &sram_.uop[in.uop_begin];
}

// All terms are unsigned, so the last iteration has the largest index.
void Executor::require_in_bounds(const Instruction& in, const MicroOp* uops,
                                 const Index& index) const {
  const std::size_t count = micro_op_count(in);
  uint32_t largest = 0;
  for (std::size_t u = 0; u < count; ++u) largest = std::max(largest, uops[u].*index.field);
  const int64_t offset =
      (in.iter_out - 1) * index.factor_out + (in.iter_in - 1) * index.factor_in + index.further;
  if (largest + offset < static_cast<int64_t>(index.depth)) return;

  const MicroOp* const worst = std::find_if(
      uops, uops + count, [&](const MicroOp& uop) { return uop.*index.field == largest; });
  throw Fault("{0}: micro-op " + std::to_string(in.uop_begin + (worst - uops)) + " reaches " +
              index.name + " " + std::to_string(largest + offset) + " = " +
              std::to_string(largest) + " + " + std::to_string(in.iter_out - 1) + "*" +
              std::to_string(index.factor_out) + " + " + std::to_string(in.iter_in - 1) + "*" +
              std::to_string(index.factor_in) +
              (index.further ? " + " + std::to_string(index.further) : "") + "; " + index.memory + " has " +
              std::to_string(index.depth) + " elements");
}

// Sorts micro-ops by weight (stable counting sort), unless they are already sorted.
void Executor::group_by_weight(const MicroOp* uops, std::size_t count, GemmNest& nest) {
  const auto by_weight = [](const MicroOp& a, const MicroOp& b) { return a.wgt < b.wgt; };
  nest.grouped = uops;
  if (!std::is_sorted(uops, uops + count, by_weight)) {
    const auto [low, high] = std::minmax_element(uops, uops + count, by_weight);
    const uint32_t first = low->wgt;
    positions_.assign(high->wgt - first + 2, 0);
    for (std::size_t u = 0; u < count; ++u) ++positions_[uops[u].wgt - first + 1];
    for (std::size_t w = 1; w < positions_.size(); ++w) positions_[w] += positions_[w - 1];
    grouped_.resize(count);
    for (std::size_t u = 0; u < count; ++u) grouped_[positions_[uops[u].wgt - first]++] = uops[u];
    nest.grouped = grouped_.data();
  }
  runs_.clear();
  for (std::size_t u = 0; u < count; ++u) {
    if (runs_.empty() || runs_.back().wgt != nest.grouped[u].wgt) {
      Run run;
      run.wgt = nest.grouped[u].wgt;
      run.begin = u;
      runs_.push_back(run);
    }
    runs_.back().end = u + 1;
  }
  if (kernels_.uses_twins) pair_twins(nest.grouped);
  nest.runs = runs_.data();
  nest.run_count = runs_.size();
}

// Joins runs that differ only in the output block, like those of adjacent output channels. Programs
// are regular: all twins have the same distances as those of the first run.
void Executor::pair_twins(const MicroOp* grouped) {
  const auto are_twins = [&](const Run& a, const Run& b) {
    const MicroOp* const x = grouped + a.begin;
    const MicroOp* const y = grouped + b.begin;
    const auto shifted = [&](const MicroOp& p, const MicroOp& q) {
      return p.src == q.src && q.dst - p.dst == y->dst - x->dst;
    };
    return a.end - a.begin == b.end - b.begin && std::equal(x, grouped + a.end, y, shifted);
  };
  const auto is_joined = [](const Run& run) { return run.begin == run.end; };

  const auto twin = std::find_if(runs_.begin() + 1, runs_.end(),
                                 [&](const Run& run) { return are_twins(runs_[0], run); });
  if (twin == runs_.end()) return;
  const std::size_t distance = twin - runs_.begin();
  for (std::size_t a = 0; a + distance < runs_.size(); ++a) {
    Run &run = runs_[a], &other = runs_[a + distance];
    if (is_joined(run) || !are_twins(run, other)) continue;
    run.twin_wgt = static_cast<std::ptrdiff_t>(other.wgt - run.wgt);
    run.twin_dst = std::ptrdiff_t{grouped[other.begin].dst} - grouped[run.begin].dst;
    other.end = other.begin;
  }
  runs_.erase(std::remove_if(runs_.begin(), runs_.end(), is_joined), runs_.end());
}

// Runs a kernel on slices of the two loops that are short enough to meet the deadline.
template <class Nest, class Kernel>
void Executor::run_slices(const Instruction& in, Nest nest, Kernel kernel,
                          Deadline& deadline) const {
  const std::size_t budget =
      std::max<std::size_t>(kSliceLanes / (geometry_.lanes() * nest.uop_count), 1);
  const std::size_t iter_out = in.iter_out, iter_in = in.iter_in;
  const std::size_t step_in = std::min(iter_in, budget);
  const std::size_t step_out = std::min(iter_out, std::max<std::size_t>(budget / iter_in, 1));
  for (std::size_t o = 0; o < iter_out; o += step_out) {
    for (std::size_t i = 0; i < iter_in; i += step_in) {
      Nest slice = nest;
      slice.outer.extent = std::min(step_out, iter_out - o);
      slice.inner.extent = std::min(step_in, iter_in - i);
      slice.first_dst += o * nest.outer.dst + i * nest.inner.dst;
      slice.first_src += o * nest.outer.src + i * nest.inner.src;
      if constexpr (std::is_same_v<Nest, GemmNest>) {
        slice.first_wgt += o * nest.outer.wgt + i * nest.inner.wgt;
      }
      kernel(slice);
      deadline.check();
    }
  }
}

void Executor::gemm(const Instruction& in, Deadline& deadline) {
  if (iterations(in) == 0) return;
  const MicroOp* const uops = micro_ops(in);
  require_in_bounds(in, uops, {&MicroOp::dst, "accumulator", "ACC", geometry_.acc_depth,
                               in.dst_factor_out, in.dst_factor_in});
  check_rows(in);
  GemmNest nest;
  nest.acc = sram_.acc.get();
  nest.inp = sram_.inp.get();
  nest.wgt = sram_.wgt.get();
  nest.batch = geometry_.batch;
  nest.block = geometry_.block;
  nest.uops = uops;
  nest.uop_count = micro_op_count(in);
  nest.pairs = geometry_.pairs;
  nest.outer.dst = in.dst_factor_out;
  nest.inner.dst = in.dst_factor_in;
  if (in.reset) {
    run_slices(in, nest, kernels_.reset, deadline);
    return;
  }
  const bool windows = in.is(Opcode::Depthwise);
  const int64_t further = windows ? geometry_.window_tiles - 1 : 0;
  require_in_bounds(in, uops, {&MicroOp::src, "input", "INP", geometry_.inp_depth,
                               in.src_factor_out, in.src_factor_in, further});
  require_in_bounds(in, uops, {&MicroOp::wgt, "weight", "WGT", geometry_.wgt_depth,
                               in.wgt_factor_out, in.wgt_factor_in});
  nest.outer.src = in.src_factor_out;
  nest.inner.src = in.src_factor_in;
  nest.outer.wgt = in.wgt_factor_out;
  nest.inner.wgt = in.wgt_factor_in;
  if (windows) {
    nest.inp = reinterpret_cast<const uint8_t*>(sram_.plain_inp.data());
    nest.wgt = reinterpret_cast<const uint8_t*>(sram_.plain_wgt.data());
    nest.window_tiles = geometry_.window_tiles;
    nest.window_channels = geometry_.window_channels;
    nest.overwrite = in.overwrite;
    run_slices(in, nest, kernels_.depthwise, deadline);
  } else if (in.overwrite) {
    overwrite(in, nest, deadline);
  } else {
    group_by_weight(uops, nest.uop_count, nest);
    run_slices(in, nest, kernels_.gemm, deadline);
  }
  write_output(in, uops);
  counters.gemm_counter += iterations(in);
}

// Whether several steps of a product write one accumulator.
bool Executor::repeats_accumulators(const Instruction& in, const GemmNest& nest) {
  seen_.assign(geometry_.acc_depth, false);
  for (int64_t o = 0; o < in.iter_out; ++o) {
    for (int64_t i = 0; i < in.iter_in; ++i) {
      for (std::size_t u = 0; u < nest.uop_count; ++u) {
        if (nest.joins(u)) continue;
        const std::size_t dst = nest.uops[u].dst + o * in.dst_factor_out + i * in.dst_factor_in;
        if (seen_[dst]) return true;
        seen_[dst] = true;
      }
    }
  }
  return false;
}

// Steps that write their products instead of adding them: they add to zeros. If several steps write
// one accumulator, the last one wins, so they run one by one, in order.
void Executor::overwrite(const Instruction& in, GemmNest nest, Deadline& deadline) {
  const MicroOp* const uops = nest.uops;
  if (!repeats_accumulators(in, nest)) {
    run_slices(in, nest, kernels_.reset, deadline);
    group_by_weight(uops, nest.uop_count, nest);
    run_slices(in, nest, kernels_.gemm, deadline);
    return;
  }
  const GemmNest all = nest;
  const std::size_t count = nest.uop_count;
  const Loop outer = nest.outer, inner = nest.inner;
  nest.outer = nest.inner = Loop{};
  for (int64_t o = 0; o < in.iter_out; ++o) {
    for (int64_t i = 0; i < in.iter_in; ++i) {
      nest.first_dst = o * outer.dst + i * inner.dst;
      nest.first_src = o * outer.src + i * inner.src;
      nest.first_wgt = o * outer.wgt + i * inner.wgt;
      for (std::size_t u = 0; u < count; u += nest.uop_count) {
        nest.uops = uops + u;
        for (nest.uop_count = 1; u + nest.uop_count < count && all.joins(u + nest.uop_count);)
          ++nest.uop_count;
        kernels_.reset(nest);
        group_by_weight(nest.uops, nest.uop_count, nest);
        kernels_.gemm(nest);
      }
      deadline.check();
    }
  }
}

void Executor::pool(const Instruction& in, Deadline& deadline) {
  if (in.tiles == 0) throw Fault("{0}: takes no input tile; tiles must be 1..3");
  if (iterations(in) == 0) return;
  const MicroOp* const uops = micro_ops(in);
  require_in_bounds(in, uops, {&MicroOp::dst, "accumulator", "ACC", geometry_.acc_depth,
                               in.dst_factor_out, in.dst_factor_in});
  require_in_bounds(in, uops, {&MicroOp::src, "input", "INP", geometry_.inp_depth,
                               in.src_factor_out, in.src_factor_in, in.tiles - 1});
  check_rows(in);
  GemmNest nest;
  nest.acc = sram_.acc.get();
  nest.inp = reinterpret_cast<const uint8_t*>(sram_.plain_inp.data());
  nest.batch = geometry_.batch;
  nest.block = geometry_.block;
  nest.uops = uops;
  nest.uop_count = micro_op_count(in);
  nest.outer.dst = in.dst_factor_out;
  nest.inner.dst = in.dst_factor_in;
  nest.outer.src = in.src_factor_out;
  nest.inner.src = in.src_factor_in;
  nest.window_tiles = in.tiles;
  nest.overwrite = in.overwrite;
  run_slices(in, nest, kernels_.pool, deadline);
  write_output(in, uops);
  counters.alu_counter += iterations(in);
}

void Executor::alu(const Instruction& in, Deadline& deadline) {
  if (iterations(in) == 0) return;
  const MicroOp* const uops = micro_ops(in);
  require_in_bounds(in, uops, {&MicroOp::dst, "accumulator", "ACC", geometry_.acc_depth,
                               in.dst_factor_out, in.dst_factor_in});
  check_rows(in);
  AluNest nest;
  nest.acc = sram_.acc.get();
  nest.lanes = geometry_.lanes();
  nest.uops = uops;
  nest.uop_count = micro_op_count(in);
  nest.outer.dst = in.dst_factor_out;
  nest.inner.dst = in.dst_factor_in;
  nest.op = static_cast<AluOp>(in.alu_op);
  nest.use_imm = in.use_imm != 0;
  nest.imm = static_cast<int32_t>(in.imm);
  if (!nest.use_imm) {
    require_in_bounds(in, uops, {&MicroOp::src, "accumulator", "ACC", geometry_.acc_depth,
                                 in.src_factor_out, in.src_factor_in});
    nest.outer.src = in.src_factor_out;
    nest.inner.src = in.src_factor_in;
  }
  run_slices(in, nest, kernels_.alu, deadline);
  write_output(in, uops);
  counters.alu_counter += iterations(in);
}

}  // namespace fsim
