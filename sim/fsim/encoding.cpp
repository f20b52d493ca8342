// Implementation of encoding.hpp.
#include "encoding.hpp"

#include <iterator>
#include <stdexcept>

namespace fsim {

namespace {

constexpr const char* kClasses[] = {"Load", "Store", "Gemm",      "Finish",
                                    "Alu",  "Post",  "Depthwise", "Pool"};
constexpr int64_t kOpcodes = std::size(kClasses);
constexpr int64_t kAluOps = static_cast<int64_t>(kLastAluOp) + 1;

const std::map<std::string, int64_t Instruction::*> kMembers = {
    {"pop_prev", &Instruction::pop_prev},
    {"pop_next", &Instruction::pop_next},
    {"push_prev", &Instruction::push_prev},
    {"push_next", &Instruction::push_next},
    {"memory", &Instruction::memory},
    {"sram_base", &Instruction::sram_base},
    {"dram_base", &Instruction::dram_base},
    {"y_size", &Instruction::y_size},
    {"x_size", &Instruction::x_size},
    {"x_stride", &Instruction::x_stride},
    {"y_pad_top", &Instruction::y_pad_top},
    {"y_pad_bottom", &Instruction::y_pad_bottom},
    {"x_pad_left", &Instruction::x_pad_left},
    {"x_pad_right", &Instruction::x_pad_right},
    {"forward", &Instruction::forward},
    {"nibbles", &Instruction::nibbles},
    {"reset", &Instruction::reset},
    {"uop_begin", &Instruction::uop_begin},
    {"uop_end", &Instruction::uop_end},
    {"iter_out", &Instruction::iter_out},
    {"iter_in", &Instruction::iter_in},
    {"dst_factor_out", &Instruction::dst_factor_out},
    {"dst_factor_in", &Instruction::dst_factor_in},
    {"src_factor_out", &Instruction::src_factor_out},
    {"src_factor_in", &Instruction::src_factor_in},
    {"wgt_factor_out", &Instruction::wgt_factor_out},
    {"wgt_factor_in", &Instruction::wgt_factor_in},
    {"overwrite", &Instruction::overwrite},
    {"alu_op", &Instruction::alu_op},
    {"use_imm", &Instruction::use_imm},
    {"imm", &Instruction::imm},
    {"tiles", &Instruction::tiles},
    {"enable", &Instruction::enable},
    {"use_bias", &Instruction::use_bias},
    {"use_scale", &Instruction::use_scale},
    {"round_half", &Instruction::round_half},
    {"multiplier", &Instruction::multiplier},
    {"shift", &Instruction::shift},
    {"zero_point", &Instruction::zero_point},
    {"low", &Instruction::low},
    {"high", &Instruction::high},
    {"row", &Instruction::row},
    {"row_factor_out", &Instruction::row_factor_out},
    {"row_factor_in", &Instruction::row_factor_in},
    {"use_table", &Instruction::use_table},
    {"table_index", &Instruction::table_index},
    {"fine", &Instruction::fine},
};

uint64_t mask_of(unsigned width) { return width >= 64 ? ~0ull : (1ull << width) - 1; }

Unit unit_of(Opcode opcode, Memory memory) {
  if (opcode == Opcode::Store) return Unit::Store;
  const bool is_data = memory == Memory::Inp || memory == Memory::Wgt || memory == Memory::Post ||
                       memory == Memory::Table;
  return opcode == Opcode::Load && is_data ? Unit::Load : Unit::Compute;
}

}  // namespace

Encoding::Encoding(const Table& table) {
  if (table.count("Post")) memories_ = table.at("Post").count("table_index") ? 8 : 7;
  for (int code = 0; code < kOpcodes; ++code) {
    if (!table.count(kClasses[code])) continue;  // belongs to an extension that the device lacks
    for (const auto& [name, slot] : table.at(kClasses[code])) {
      const auto [offset, width, is_signed] = slot;
      const unsigned half = offset / 64, shift = offset % 64;
      if (half > 1 || width == 0 || shift + width > 64) {
        throw std::invalid_argument("field " + name + " crosses a 64-bit word");
      }
      if (name == "opcode") {
        opcode_ = {&Instruction::opcode, half, shift, width, false};
      } else {
        fields_[code].push_back({kMembers.at(name), half, shift, width, is_signed});
        if (name == "memory" || name == "alu_op") choice_[code] = fields_[code].back();
      }
    }
  }
  const auto micro_op_field = [&](const char* name) {
    const auto [offset, width, is_signed] = table.at("MicroOp").at(name);
    (void)is_signed;
    return MicroOpField{offset, static_cast<uint32_t>(mask_of(width))};
  };
  dst_ = micro_op_field("dst");
  src_ = micro_op_field("src");
  wgt_ = micro_op_field("wgt");
}

int64_t Encoding::extract(Word word, const Field& field) {
  const uint64_t value =
      ((field.half ? word.high : word.low) >> field.shift) & mask_of(field.width);
  const uint64_t sign = field.is_signed ? 1ull << (field.width - 1) : 0;
  return static_cast<int64_t>(value ^ sign) - static_cast<int64_t>(sign);
}

Kind Encoding::kind(Word word) const {
  const int64_t code = extract(word, opcode_);
  if (code >= kOpcodes || fields_[code].empty()) {
    std::string known = "0..4";
    for (int64_t other = 5; other < kOpcodes; ++other) {
      if (!fields_[other].empty()) known += ", " + std::to_string(other);
    }
    throw Fault("{0} has opcode " + std::to_string(code) + "; valid opcodes are " + known);
  }
  const auto opcode = static_cast<Opcode>(code);
  const int64_t choice = extract(word, choice_[code]);
  if (opcode == Opcode::Alu && choice >= kAluOps) {
    throw Fault("{0} has ALU operation " + std::to_string(choice) + "; valid values are 0.." +
                std::to_string(kAluOps - 1));
  }
  if (opcode != Opcode::Alu && choice >= memories_) {
    throw Fault("{0} has memory " + std::to_string(choice) + "; valid values are 0.." +
                std::to_string(memories_ - 1));
  }
  const auto memory = static_cast<Memory>(choice);
  if (opcode == Opcode::Load && memory == Memory::Out) {
    throw Fault("{0} loads the output memory; LOAD reaches UOP, WGT, INP, ACC and ACC_8BIT");
  }
  return {opcode, unit_of(opcode, memory)};
}

Instruction Encoding::decode(Word word) const {
  Instruction result;
  result.opcode = extract(word, opcode_);
  for (const Field& field : fields_[result.opcode]) result.*field.member = extract(word, field);
  return result;
}

MicroOp Encoding::decode_micro_op(uint32_t word) const {
  return {(word >> dst_.shift) & dst_.mask, (word >> src_.shift) & src_.mask,
          (word >> wgt_.shift) & wgt_.mask};
}

}  // namespace fsim
