// Decoding of instructions and micro-ops. Bit positions are not defined here: the table of fields
// comes from vtaops/machine/isa.py when a device is constructed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "fault.hpp"

namespace fsim {

enum class Opcode { Load, Store, Gemm, Finish, Alu, Post, Depthwise, Pool };
enum class Memory { Uop, Wgt, Inp, Acc, Out, Acc8Bit, Post, Table };
enum class AluOp { Min, Max, Add, Shr, Mul };
constexpr AluOp kLastAluOp = AluOp::Mul;
enum class Unit { Load, Compute, Store };

constexpr int kUnits = 3;
constexpr const char* kUnitNames[kUnits] = {"load", "compute", "store"};
constexpr std::size_t kInstructionBytes = 16;
constexpr std::size_t kMicroOpBytes = 4;

// All fields of all instructions, under the names of vtaops/machine/isa.py; fields that an instruction does
// not have are 0.
struct Instruction {
  int64_t opcode = 0;
  int64_t pop_prev = 0, pop_next = 0, push_prev = 0, push_next = 0;
  // LOAD, STORE
  int64_t memory = 0, sram_base = 0, dram_base = 0, y_size = 0, x_size = 0, x_stride = 0;
  int64_t y_pad_top = 0, y_pad_bottom = 0, x_pad_left = 0, x_pad_right = 0;
  int64_t forward = 0, nibbles = 0;
  // GEMM, ALU, POOL
  int64_t reset = 0, uop_begin = 0, uop_end = 0, iter_out = 0, iter_in = 0;
  int64_t dst_factor_out = 0, dst_factor_in = 0, src_factor_out = 0, src_factor_in = 0;
  int64_t wgt_factor_out = 0, wgt_factor_in = 0, overwrite = 0;
  int64_t alu_op = 0, use_imm = 0, imm = 0, tiles = 0;
  // POST
  int64_t enable = 0, use_bias = 0, use_scale = 0, round_half = 0, multiplier = 0, shift = 0;
  int64_t zero_point = 0, low = 0, high = 0, row = 0, row_factor_out = 0, row_factor_in = 0;
  int64_t use_table = 0, table_index = 0, fine = 0;

  bool is(Opcode code) const { return opcode == static_cast<int64_t>(code); }
};

// The kind of an instruction, without its other fields.
struct Kind {
  Opcode opcode;
  Unit unit;
};

struct MicroOp {
  uint32_t dst, src, wgt;
};

class Encoding {
 public:
  // Offset of the lowest bit, width, and whether the value is signed.
  using Slot = std::tuple<unsigned, unsigned, bool>;
  // Class name of vtaops/machine/isa.py ("Load", ..., "MicroOp") -> field name -> slot. Instructions of
  // extensions that the device lacks are absent.
  using Table = std::map<std::string, std::map<std::string, Slot>>;

  explicit Encoding(const Table& table);

  // Throws Fault if the ISA does not define the opcode, memory or ALU operation.
  Kind kind(Word word) const;
  // Decodes a word that has a kind.
  Instruction decode(Word word) const;
  MicroOp decode_micro_op(uint32_t word) const;

 private:
  struct Field {
    int64_t Instruction::*member;
    unsigned half, shift, width;
    bool is_signed;
  };
  struct MicroOpField {
    unsigned shift;
    uint32_t mask;
  };

  static int64_t extract(Word word, const Field& field);

  Field opcode_{};
  int64_t memories_ = 6;  // number of memories that exist
  std::vector<Field> fields_[8];  // by opcode; empty for an instruction that does not exist
  Field choice_[8] = {};          // the memory of a LOAD or STORE, the operation of an ALU
  MicroOpField dst_{}, src_{}, wgt_{};
};

}  // namespace fsim
