// The walk of a program on names of tiles (vtaops._proof.Names): what `proof/names.py` does, with flat
// arrays instead of objects. That file says what names and steps are; its plain form is the
// specification, and tests compare the two, step by step.
#include "names.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace {

template <class Number>
using Column = nb::ndarray<const Number, nb::ndim<1>, nb::device::cpu>;
template <class Number>
using Table = nb::ndarray<const Number, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Numbers = std::vector<int32_t>;

// Hands a vector over to NumPy.
template <class Number>
nb::object numpy_of(std::vector<Number>&& numbers, std::size_t columns = 0) {
  auto* const own = new std::vector<Number>(std::move(numbers));
  const nb::capsule owner(own, [](void* p) noexcept { delete static_cast<std::vector<Number>*>(p); });
  if (columns == 0) {
    return nb::cast(nb::ndarray<Number, nb::numpy, nb::c_contig>(own->data(), {own->size()}, owner));
  }
  return nb::cast(nb::ndarray<Number, nb::numpy, nb::c_contig>(
      own->data(), {own->size() / columns, columns}, owner));
}

template <class Number>
const Number& at(const std::vector<Number>& numbers, int64_t place) {
  if (place < 0 || static_cast<std::size_t>(place) >= numbers.size()) {
    throw nb::index_error("an index lies outside its table");
  }
  return numbers[static_cast<std::size_t>(place)];
}
template <class Number>
Number& at(std::vector<Number>& numbers, int64_t place) {
  if (place < 0 || static_cast<std::size_t>(place) >= numbers.size()) {
    throw nb::index_error("an index lies outside its table");
  }
  return numbers[static_cast<std::size_t>(place)];
}

enum Opcode : int64_t { kLoad, kStore, kGemm, kFinish, kAlu, kPost, kDepthwise, kPool, kOpcodes };
enum Memory : int64_t { kUop, kWgt, kInp, kAcc, kOut, kAcc8, kPostRows, kTable, kMemories };

// The fields of instructions that the walk reads, and their names in `machine/isa.py`.
enum Field : std::size_t {
  kMemory, kSramBase, kDramBase, kYSize, kXSize, kXStride, kTop, kBottom, kLeft, kRight, kNibbles,
  kForward, kReset, kBegin, kEnd, kOuter, kInner, kDstOut, kDstIn, kSrcOut, kSrcIn, kWgtOut, kWgtIn,
  kOverwrite, kAluOp, kUseImm, kImm, kTiles, kEnable, kUseBias, kUseScale, kRow, kRowOut, kRowIn,
  kUseTable, kTableIndex, kFields
};
constexpr std::array<const char*, kFields> kNames = {
    "memory", "sram_base", "dram_base", "y_size", "x_size", "x_stride", "y_pad_top", "y_pad_bottom",
    "x_pad_left", "x_pad_right", "nibbles", "forward", "reset", "uop_begin", "uop_end", "iter_out",
    "iter_in", "dst_factor_out", "dst_factor_in", "src_factor_out", "src_factor_in",
    "wgt_factor_out", "wgt_factor_in", "overwrite", "alu_op", "use_imm", "imm", "tiles", "enable",
    "use_bias", "use_scale", "row", "row_factor_out", "row_factor_in", "use_table", "table_index"};

// The instructions of one opcode: a column for each field, or none, which means 0.
struct Columns {
  std::array<const int64_t*, kFields> first{};
  std::array<int64_t, kFields> step{};
  std::vector<Column<int64_t>> held;
  std::size_t count = 0;
};

// One instruction.
class Instruction {
 public:
  Instruction(const Columns& columns, int64_t row) : columns_(columns), row_(row) {}

  int64_t operator[](Field field) const {
    const int64_t* const first = columns_.first[field];
    return first ? first[row_ * columns_.step[field]] : 0;
  }
  int64_t columns() const { return (*this)[kXSize] << (*this)[kNibbles]; }
  int64_t sram_row() const { return (*this)[kLeft] + columns() + (*this)[kRight]; }
  int64_t sram_size() const {
    return ((*this)[kTop] + (*this)[kYSize] + (*this)[kBottom]) * sram_row();
  }
  int64_t micro_ops() const { return std::max<int64_t>(0, (*this)[kEnd] - (*this)[kBegin]); }
  int64_t iterations() const { return (*this)[kOuter] * (*this)[kInner] * micro_ops(); }

 private:
  const Columns& columns_;
  int64_t row_;
};

// The elements of rows: `start + y * stride + x`.
Numbers grid(int64_t start, int64_t rows, int64_t length, int64_t stride) {
  Numbers made;
  made.reserve(static_cast<std::size_t>(rows * length));
  for (int64_t y = 0; y < rows; ++y) {
    for (int64_t x = 0; x < length; ++x) made.push_back(static_cast<int32_t>(start + y * stride + x));
  }
  return made;
}

using MicroOp = std::array<int64_t, 3>;

// What an instruction does in its iterations: `names.Iterations`.
class Plan {
 public:
  Plan(const Instruction& i, int64_t opcode, std::vector<MicroOp> micro_ops, bool pairs)
      : micro_ops_(std::move(micro_ops)),
        outer_(i[kOuter]),
        inner_(i[kInner]),
        factors_{i[kDstOut], i[kDstIn], i[kSrcOut], i[kSrcIn], i[kWgtOut], i[kWgtIn]},
        window_(opcode == kDepthwise),
        overwrites_(i[kOverwrite] && (opcode == kGemm || opcode == kDepthwise)),
        own_(opcode == kAlu && !i[kUseImm]) {
    const bool multiplies = opcode == kGemm || opcode == kDepthwise;
    written = reached(0, 1);
    if (multiplies) inputs = reached(1, window_ ? kWindow : 1), tiles = reached(2, 1);
    if (multiplies && pairs) {
      shares_.resize(micro_ops_.size());
      for (std::size_t u = 1; u < micro_ops_.size(); ++u) {
        shares_[u] = micro_ops_[u][0] == micro_ops_[u - 1][0];
      }
    }
  }

  static constexpr int64_t kWindow = 3;

  // The different accumulators that it writes, its sources and tiles of weights, in order.
  Numbers written, inputs, tiles;
  // A number that is equal for equal `written`.
  int32_t place = -1;

  int64_t steps() const { return outer_ * inner_ * static_cast<int64_t>(micro_ops_.size()); }

  // The element of an operand in a step.
  int64_t element(std::size_t operand, int64_t step) const {
    const auto count = static_cast<int64_t>(micro_ops_.size());
    const int64_t loop = step / count;
    return micro_ops_[static_cast<std::size_t>(step % count)][operand] +
           loop / inner_ * factors_[2 * operand] + loop % inner_ * factors_[2 * operand + 1];
  }

  // The row of parameters of each accumulator that is written: that of the last step.
  const Numbers& rows(int64_t outer, int64_t inner) {
    const auto [found, is_new] = rows_.try_emplace({outer, inner});
    if (is_new) {
      for (const int64_t step : last()) {
        const int64_t loop = step / static_cast<int64_t>(micro_ops_.size());
        found->second.push_back(static_cast<int32_t>(loop / inner_ * outer + loop % inner_ * inner));
      }
    }
    return found->second;
  }

  // Calls a function with the accumulator, the input, the tile of weights and its part in a window,
  // for each product that counts.
  template <class Function>
  void products(Function function) {
    const auto one = [&](int64_t dst, int64_t src, int64_t wgt) {
      if (!window_) return function(dst, src, wgt, 0);
      for (int64_t t = 0; t < kWindow; ++t) function(dst, src + t, wgt, static_cast<int32_t>(1 + t));
    };
    if (overwrites_) {
      for (const int64_t step : last_steps()) one(element(0, step), element(1, step), element(2, step));
      return;
    }
    for (int64_t o = 0; o < outer_; ++o) {
      for (int64_t i = 0; i < inner_; ++i) {
        std::array<int64_t, 3> base;
        for (std::size_t k = 0; k < 3; ++k) base[k] = o * factors_[2 * k] + i * factors_[2 * k + 1];
        for (const MicroOp& op : micro_ops_) one(base[0] + op[0], base[1] + op[1], base[2] + op[2]);
      }
    }
  }

  // The most products that it has.
  std::size_t most() const { return static_cast<std::size_t>(steps() * (window_ ? kWindow : 1)); }

  // The steps in batches that read nothing written before in the same batch.
  const std::vector<std::vector<int64_t>>& batches() {
    if (!batches_.empty()) return batches_;
    const int64_t count = steps();
    if (static_cast<int64_t>(written.size()) == count && !own_) {
      batches_.emplace_back();
      for (int64_t step = 0; step < count; ++step) batches_[0].push_back(step);
      return batches_;
    }
    std::unordered_map<int64_t, std::size_t> wrote, read;
    for (int64_t step = 0; step < count; ++step) {
      const int64_t dst = element(0, step);
      std::size_t level = wrote[dst];
      if (own_) {
        const int64_t src = element(1, step);
        level = std::max({level, wrote[src], read[dst]});
        read[src] = std::max(read[src], level);
      }
      wrote[dst] = level + 1;
      if (batches_.size() <= level) batches_.resize(level + 1);
      batches_[level].push_back(step);
    }
    return batches_;
  }

 private:
  Numbers reached(std::size_t operand, int64_t window) const {
    int64_t most = 0;
    for (const MicroOp& op : micro_ops_) most = std::max(most, op[operand]);
    most += (outer_ - 1) * factors_[2 * operand] + (inner_ - 1) * factors_[2 * operand + 1] + window;
    std::vector<bool> flags(static_cast<std::size_t>(most));
    // Loops that stand still reach nothing else.
    const int64_t outer = factors_[2 * operand] ? outer_ : 1;
    const int64_t inner = factors_[2 * operand + 1] ? inner_ : 1;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t base = o * factors_[2 * operand] + i * factors_[2 * operand + 1];
        for (const MicroOp& op : micro_ops_) {
          for (int64_t t = 0; t < window; ++t) flags[static_cast<std::size_t>(base + op[operand] + t)] = true;
        }
      }
    }
    Numbers made;
    for (std::size_t k = 0; k < flags.size(); ++k) {
      if (flags[k]) made.push_back(static_cast<int32_t>(k));
    }
    return made;
  }

  // The last step that writes each accumulator.
  const std::vector<int64_t>& last() {
    if (last_.empty()) {
      std::vector<int64_t> of(static_cast<std::size_t>(written.back()) + 1);
      for (int64_t step = 0; step < steps(); ++step) of[static_cast<std::size_t>(element(0, step))] = step;
      for (const int32_t dst : written) last_.push_back(of[static_cast<std::size_t>(dst)]);
    }
    return last_;
  }

  // The steps of the last sum of each accumulator, in order.
  std::vector<int64_t> last_steps() {
    const auto joined = [&](int64_t step) {
      return !shares_.empty() && shares_[static_cast<std::size_t>(step) % micro_ops_.size()];
    };
    std::vector<int64_t> made;
    for (int64_t step : last()) {
      made.push_back(step);
      while (joined(step)) made.push_back(--step);
    }
    std::sort(made.begin(), made.end());
    return made;
  }

  std::vector<MicroOp> micro_ops_;
  int64_t outer_, inner_;
  std::array<int64_t, 6> factors_;
  bool window_, overwrites_, own_;
  std::vector<bool> shares_;
  std::vector<int64_t> last_;
  std::map<std::pair<int64_t, int64_t>, Numbers> rows_;
  std::vector<std::vector<int64_t>> batches_;
};

// The operations of steps, each with up to three parameters.
enum What : int64_t { kZeros, kFill, kGiven, kCast, kPosted, kSum, kAluStep, kExtremum };
using Operation = std::array<int64_t, 4>;

struct Step {
  int32_t what, arity, first, count, instruction;
  int64_t begin;  // of its operands
};

// What a GEMM multiplies: the names that its accumulators, inputs and tiles of weights had.
struct Multiplied {
  Plan* plan;
  Numbers sums, inputs, tiles;
  bool shared;  // whether it adds to several steps
};

// A buffer that the program writes.
struct Written {
  Numbers own_names, own_writers;
  std::size_t first = 0, size = 0;
  bool in_arena = false;
};

class Walk {
 public:
  Walk(const nb::dict& classes, const Column<int64_t>& opcodes, const Column<int64_t>& rows,
       const Table<uint64_t>& words, const Table<int64_t>& micro_ops,
       const Column<int64_t>& relocations, const Table<int64_t>& buffers,
       const Column<int64_t>& depths, const Column<int64_t>& element_bytes, int64_t arena,
       int64_t parameter_rows, int64_t most, bool pairs)
      : opcodes_(opcodes), rows_(rows), words_(words), micro_ops_(micro_ops),
        relocations_(relocations), buffers_(buffers), element_bytes_(element_bytes),
        unit_(element_bytes(kOut)), parameter_rows_(parameter_rows), most_(most), pairs_(pairs) {
    for (const auto& [opcode, columns] : classes) add_class(nb::cast<int64_t>(opcode), nb::cast<nb::dict>(columns));
    if (rows.size() != opcodes.size() || words.shape(0) != opcodes.size() || words.shape(1) != 2 ||
        relocations.size() != opcodes.size() || micro_ops.shape(1) != 3 || buffers.shape(1) != 5 ||
        depths.size() != kMemories || element_bytes.size() != kMemories || unit_ <= 0) {
      throw nb::value_error("tables differ in shape");
    }
    for (std::size_t m = 0; m < kMemories; ++m) sram_[m].assign(static_cast<std::size_t>(depths(m)), 0);
    uop_.resize(static_cast<std::size_t>(depths(kUop)));
    for (Numbers& column : settings_) column.assign(sram_[kAcc].size(), 0);
    kinds_[{}] = 0;
    kind_rows_.push_back(-1);
    make({kZeros}, 1, {});
    add_buffers(static_cast<std::size_t>(arena));
  }

  void run() {
    for (std::size_t n = 0; n < opcodes_.size(); ++n) {
      index_ = static_cast<int32_t>(n);
      const int64_t opcode = opcodes_(n);
      if (opcode < 0 || opcode >= kOpcodes) throw nb::index_error("an index lies outside its table");
      const Columns& columns = classes_[static_cast<std::size_t>(opcode)];
      if (rows_(n) < 0 || static_cast<std::size_t>(rows_(n)) >= columns.count) {
        throw nb::index_error("an index lies outside its table");
      }
      execute(Instruction(columns, rows_(n)), opcode, n);
    }
    std::vector<Numbers>().swap(recalled_);
  }

  nb::object steps() const {
    std::vector<int64_t> made;
    for (const Step& step : steps_) {
      made.insert(made.end(), {step.what, step.arity, step.first, step.count, step.instruction, step.begin});
    }
    return numpy_of(std::move(made), 6);
  }
  nb::object operations() const {
    std::vector<int64_t> made;
    for (const Operation& what : operations_) made.insert(made.end(), what.begin(), what.end());
    return numpy_of(std::move(made), 4);
  }
  // The instruction of each kind of POST; -1 for none.
  nb::object kinds() const { return numpy_of(std::vector<int64_t>(kind_rows_)); }
  // Not a copy: the array keeps this object.
  nb::object operands() {
    const nb::object self = nb::find(*this);
    return nb::cast(nb::ndarray<const int32_t, nb::numpy, nb::c_contig>(operands_.data(), {operands_.size()}, self));
  }
  nb::object levels() const { return numpy_of(Numbers(levels_)); }
  nb::object step_of() const { return numpy_of(Numbers(step_of_)); }

  // The names in the elements of each buffer that the program writes, and the instructions that
  // stored them.
  nb::dict written() const {
    nb::dict found;
    for (std::size_t number = 0; number < written_.size(); ++number) {
      const Written* const own = written_[number].get();
      if (!own) continue;
      const auto part = [&](const Numbers& whole, const Numbers& alone) {
        const Numbers& from = own->in_arena ? whole : alone;
        const auto first = from.begin() + static_cast<std::ptrdiff_t>(own->first);
        return numpy_of(Numbers(first, first + static_cast<std::ptrdiff_t>(own->size)));
      };
      found[nb::int_(number)] =
          nb::make_tuple(part(arena_, own->own_names), part(arena_writers_, own->own_writers));
    }
    return found;
  }

  // Returns the last level that reads each step, or -1.
  nb::object last_levels() const {
    Numbers last(steps_.size(), -1);
    const auto note = [&](int32_t name, int32_t level) {
      int32_t& own = last[static_cast<std::size_t>(step_of_[static_cast<std::size_t>(name)])];
      own = std::max(own, level);
    };
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      const auto end = static_cast<int64_t>(s + 1 < steps_.size() ? static_cast<std::size_t>(steps_[s + 1].begin) : operands_.size());
      for (int64_t k = steps_[s].begin; k < end; ++k) note(operands_[static_cast<std::size_t>(k)], levels_[s]);
    }
    for (const auto& [number, gemms] : added_) {
      for (const std::size_t gemm : gemms) {
        for (const int32_t name : multiplied_[gemm].inputs) note(name, levels_[static_cast<std::size_t>(number)]);
        for (const int32_t name : multiplied_[gemm].tiles) note(name, levels_[static_cast<std::size_t>(number)]);
      }
    }
    return numpy_of(std::move(last));
  }

  // Returns the products that steps add: their sums, counted among all tiles of these steps, the
  // names of inputs, and those of weights, times four, plus 1 to 3 for a tile of a window.
  nb::object products(const Column<int64_t>& numbers) {
    std::size_t most = 0;
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      for (const std::size_t gemm : added_to(numbers(k))) most += multiplied_[gemm].plan->most();
    }
    Numbers sums, sources, weights;
    for (Numbers* part : {&sums, &sources, &weights}) part->reserve(most);
    if (recalled_.empty()) {
      for (const Memory m : {kAcc, kInp, kWgt}) recalled_.emplace_back(sram_[m].size());
    }
    int32_t begin = 0;
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      const auto number = static_cast<int32_t>(numbers(k));
      for (const std::size_t gemm : added_to(number)) {
        const Multiplied& own = multiplied_[gemm];
        const Numbers* const places[] = {&own.plan->written, &own.plan->inputs, &own.plan->tiles};
        const Numbers* const names[] = {&own.sums, &own.inputs, &own.tiles};
        for (std::size_t m = 0; m < 3; ++m) {
          for (std::size_t e = 0; e < places[m]->size(); ++e) {
            recalled_[m][static_cast<std::size_t>((*places[m])[e])] = (*names[m])[e];
          }
        }
        const int32_t distance = begin - steps_[static_cast<std::size_t>(number)].first;
        own.plan->products([&](int64_t dst, int64_t src, int64_t wgt, int32_t part) {
          const int32_t sum = recalled_[0][static_cast<std::size_t>(dst)];
          if (own.shared && step_of_[static_cast<std::size_t>(sum)] != number) return;
          sums.push_back(sum + distance);
          sources.push_back(recalled_[1][static_cast<std::size_t>(src)]);
          weights.push_back(4 * recalled_[2][static_cast<std::size_t>(wgt)] + part);
        });
      }
      begin += steps_[static_cast<std::size_t>(number)].count;
    }
    return nb::make_tuple(numpy_of(std::move(sums)), numpy_of(std::move(sources)), numpy_of(std::move(weights)));
  }

 private:
  void add_class(int64_t opcode, const nb::dict& columns) {
    Columns& own = classes_.at(static_cast<std::size_t>(opcode));
    for (std::size_t f = 0; f < kFields; ++f) {
      if (!columns.contains(kNames[f])) continue;
      own.held.push_back(nb::cast<Column<int64_t>>(columns[kNames[f]]));
      own.first[f] = own.held.back().data();
      own.step[f] = own.held.back().stride(0);
      own.count = own.held.back().size();
    }
    if (opcode == kFinish) own.count = opcodes_.size();
    for (const Column<int64_t>& column : own.held) {
      if (column.size() != own.count) throw nb::value_error("columns differ in length");
    }
    if (opcode == kPost) {  // all fields say what it does but when and where it acts
      for (const auto& [name, values] : nb::cast<nb::dict>(columns["settings"])) {
        settings_fields_.push_back(nb::cast<Column<int64_t>>(values));
      }
    }
  }

  // Buffers are rows of (bytes, whether the program writes them, whether filled, the fill, the
  // offset in the arena or -1).
  void add_buffers(std::size_t arena) {
    arena_.assign(arena, 0);
    arena_writers_.assign(arena, 0);
    written_.resize(buffers_.shape(0));
    for (std::size_t number = 0; number < buffers_.shape(0); ++number) {
      if (!buffers_(number, 1)) continue;
      auto own = std::make_unique<Written>();
      own->size = static_cast<std::size_t>((buffers_(number, 0) + unit_ - 1) / unit_);
      const int64_t offset = buffers_(number, 4);
      if (!buffers_(number, 2) && offset >= 0 && offset % unit_ == 0) {
        own->first = static_cast<std::size_t>(offset / unit_);
        own->in_arena = true;
        if (own->first + own->size > arena) throw nb::index_error("a buffer exceeds the arena");
      } else {
        own->own_names.assign(own->size, 0);
        own->own_writers.assign(own->size, 0);
        if (buffers_(number, 2)) {
          own->own_names.assign(own->size, make({kFill, buffers_(number, 3), unit_}, 1, {}));
        }
      }
      written_[number] = std::move(own);
    }
  }

  int32_t& name_in(Written& buffer, int64_t element) {
    if (element < 0 || static_cast<std::size_t>(element) >= buffer.size) throw nb::index_error("an element lies outside its buffer");
    const std::size_t place = buffer.first + static_cast<std::size_t>(element);
    return buffer.in_arena ? arena_[place] : buffer.own_names[place];
  }
  int32_t& writer_in(Written& buffer, int64_t element) {
    const std::size_t place = buffer.first + static_cast<std::size_t>(element);
    return buffer.in_arena ? arena_writers_[place] : buffer.own_writers[place];
  }

  // Creates tiles by an operation on names of others, operand after operand; returns the first name.
  int32_t make(const Operation& what, std::size_t count, std::initializer_list<const Numbers*> operands) {
    return make(what, count, operands.begin(), operands.size());
  }
  int32_t make(const Operation& what, std::size_t count, const Numbers* const* operands, std::size_t arity) {
    adds_to_.clear();
    const auto number = static_cast<int32_t>(steps_.size());
    const auto first = static_cast<int32_t>(step_of_.size());
    if (static_cast<int64_t>(step_of_.size() + count) > most_) {
      throw nb::value_error(("it has more than " + std::to_string(most_) + " tiles").c_str());
    }
    const auto [found, is_new] = what_of_.try_emplace(what, static_cast<int32_t>(operations_.size()));
    if (is_new) operations_.push_back(what);
    steps_.push_back({found->second, static_cast<int32_t>(arity), first, static_cast<int32_t>(count), index_,
                      static_cast<int64_t>(operands_.size())});
    step_of_.resize(step_of_.size() + count, number);
    int32_t level = arity ? 1 : 0;
    for (std::size_t k = 0; k < arity; ++k) {
      for (const int32_t name : *operands[k]) {
        const auto step = static_cast<std::size_t>(step_of_[static_cast<std::size_t>(name)]);
        open_[step] = false;
        level = std::max(level, levels_[step] + 1);
      }
      operands_.insert(operands_.end(), operands[k]->begin(), operands[k]->end());
    }
    levels_.push_back(level);
    open_.push_back(false);
    return first;
  }

  void execute(const Instruction& i, int64_t opcode, std::size_t n) {
    switch (opcode) {
      case kLoad:
        if (i[kXSize] == 0) return;
        return i[kMemory] == kUop ? load_micro_ops(i) : load(i, relocations_(n));
      case kStore:
        return i[kXSize] == 0 ? void() : store(i, relocations_(n));
      case kPost:
        return set_post(i, n);
      case kGemm:
      case kDepthwise:
      case kAlu:
      case kPool:
        return i.iterations() ? loop(i, opcode, n) : void();
      default:
        return;
    }
  }

  // ------------------------------------------------------------------------------ LOAD, STORE

  void load_micro_ops(const Instruction& i) {
    for (int64_t k = 0; k < i[kXSize]; ++k) {
      const int64_t from = i[kDramBase] + k;
      if (from < 0 || static_cast<std::size_t>(from) >= micro_ops_.shape(0)) throw nb::index_error("an index lies outside its table");
      MicroOp& own = at(uop_, i[kSramBase] + k);
      for (std::size_t c = 0; c < 3; ++c) own[c] = micro_ops_(static_cast<std::size_t>(from), c);
    }
    current_.clear();
  }

  void load(const Instruction& i, int64_t buffer) {
    const int64_t memory = i[kMemory] == kAcc8 ? static_cast<int64_t>(kAcc) : i[kMemory];
    const Numbers rows = grid(i[kDramBase], i[kYSize], i[kXSize], i[kXStride]);
    const Numbers names = i[kForward] ? outputs(rows) : from_dram(i, buffer, rows);
    Numbers& sram = sram_.at(static_cast<std::size_t>(memory));
    for (int64_t k = 0; k < i.sram_size(); ++k) at(sram, i[kSramBase] + k) = 0;
    const int64_t first = i[kSramBase] + i[kTop] * i.sram_row() + i[kLeft];
    std::size_t k = 0;
    for (int64_t y = 0; y < i[kYSize]; ++y) {
      for (int64_t x = 0; x < i.columns(); ++x) at(sram, first + y * i.sram_row() + x) = names[k++];
    }
    if (memory == kAcc) adds_to_.clear();
  }

  // Scalars are counted in halves of bytes.
  Numbers from_dram(const Instruction& i, int64_t buffer, const Numbers& rows) {
    const int64_t nbytes = element_bytes_(static_cast<std::size_t>(i[kMemory]));
    if (i[kNibbles]) {
      return read(buffer, grid(2 * i[kDramBase], i[kYSize], 2 * i[kXSize], 2 * i[kXStride]), nbytes / 2, 1);
    }
    return read(buffer, rows, nbytes, i[kMemory] == kAcc || i[kMemory] == kPostRows ? 8 : 2);
  }

  // The names of elements of `nbytes` bytes of a buffer.
  Numbers read(int64_t buffer, const Numbers& index, int64_t nbytes, int64_t scalar) {
    Written* const own = at(written_, buffer).get();
    if (!own) {
      Numbers made = index;
      const int32_t first = given(buffer, nbytes, scalar);
      for (int32_t& name : made) name += first;
      return made;
    }
    if (scalar == 1) throw nb::value_error("it loads as weights of four bits what it stored before");
    Numbers made;
    if (nbytes == unit_ && scalar == 2) {
      for (const int32_t element : index) made.push_back(name_in(*own, element));
      return made;
    }
    return casts(*own, index, nbytes, scalar);
  }

  Numbers casts(Written& own, const Numbers& index, int64_t nbytes, int64_t scalar) {
    const int64_t count = std::max<int64_t>(1, nbytes / unit_);
    std::map<int64_t, std::vector<std::size_t>> parts;
    for (std::size_t k = 0; k < index.size(); ++k) {
      parts[nbytes < unit_ ? index[k] * nbytes % unit_ / nbytes : 0].push_back(k);
    }
    Numbers made(index.size());
    for (const auto& [part, chosen] : parts) {
      Numbers tiles;
      for (const std::size_t k : chosen) {
        const int64_t first = index[k] * nbytes / unit_;
        for (int64_t c = 0; c < count; ++c) tiles.push_back(name_in(own, first + c));
      }
      int32_t name = make({kCast, part, nbytes, scalar}, chosen.size(), {&tiles});
      for (const std::size_t k : chosen) made[k] = name++;
    }
    return made;
  }

  // The name of the first element of a buffer that the host writes.
  int32_t given(int64_t buffer, int64_t nbytes, int64_t scalar) {
    const Operation key{kGiven, buffer, nbytes, scalar};
    const auto found = given_.find(key);
    if (found != given_.end()) return found->second;
    const int64_t bytes = buffers_(static_cast<std::size_t>(buffer), 0);
    return given_[key] = make(key, static_cast<std::size_t>(bytes / nbytes), {});
  }

  void store(const Instruction& i, int64_t buffer) {
    const Numbers names = outputs(grid(i[kSramBase], 1, i.sram_size(), 0));
    Written* const own = at(written_, buffer).get();
    if (!own) throw nb::index_error("it stores to a buffer that only the host writes");
    std::size_t k = 0;
    for (int64_t y = 0; y < i[kYSize]; ++y) {
      for (int64_t x = 0; x < i[kXSize]; ++x) {
        const int64_t element = i[kDramBase] + y * i[kXStride] + x;
        name_in(*own, element) = at(names, static_cast<int64_t>(k++));
        writer_in(*own, element) = index_;
      }
    }
  }

  // --------------------------------------------------------------------------- post-processing

  // Returns the names of elements of the output memory.
  Numbers outputs(const Numbers& index) {
    std::map<int32_t, std::vector<std::size_t>> kinds;
    for (std::size_t k = 0; k < index.size(); ++k) kinds[at(settings_[0], index[k])].push_back(k);
    Numbers made(index.size());
    for (const auto& [kind, chosen] : kinds) {
      std::array<Numbers, 4> operands;
      for (const std::size_t k : chosen) {
        operands[0].push_back(at(sram_[kAcc], index[k]));
        for (std::size_t c = 1; c < 4; ++c) operands[c].push_back(settings_[c][static_cast<std::size_t>(index[k])]);
      }
      int32_t name = make({kPosted, kind}, chosen.size(), {&operands[0], &operands[1], &operands[2], &operands[3]});
      for (const std::size_t k : chosen) made[k] = name++;
    }
    return made;
  }

  void set_post(const Instruction& i, std::size_t n) {
    post_ = std::make_unique<Instruction>(i);
    std::vector<int64_t> key;
    for (const auto& column : settings_fields_) key.push_back(column(static_cast<std::size_t>(rows_(n))));
    if (std::all_of(key.begin(), key.end(), [](int64_t value) { return value == 0; })) key.clear();
    const auto [found, is_new] = kinds_.try_emplace(std::move(key), static_cast<int32_t>(kinds_.size()));
    setting_ = found->second;
    if (is_new) kind_rows_.push_back(static_cast<int64_t>(n));
  }

  void note_post(Plan& plan) {
    if (kinds_.size() == 1) return;
    const Instruction& post = *post_;
    const bool reads = post[kEnable] && (post[kUseBias] || post[kUseScale]);
    const Numbers* const rows = reads ? &plan.rows(post[kRowOut], post[kRowIn]) : nullptr;
    const int32_t table = post[kUseTable] ? at(sram_[kTable], post[kTableIndex]) : 0;
    for (std::size_t k = 0; k < plan.written.size(); ++k) {
      const auto element = static_cast<std::size_t>(plan.written[k]);
      const int64_t row = reads ? post[kRow] + (*rows)[k] : 0;
      settings_[0][element] = setting_;
      settings_[1][element] = reads && post[kUseBias] ? at(sram_[kPostRows], row) : 0;
      settings_[2][element] = reads && post[kUseScale] ? at(sram_[kPostRows], parameter_rows_ + row) : 0;
      settings_[3][element] = table;
    }
  }

  // -------------------------------------------------------------------------- GEMM, ALU, POOL

  Plan& plan_of(const Instruction& i, int64_t opcode, std::size_t n) {
    const std::array<uint64_t, 2> word{words_(n, 0), words_(n, 1)};
    const auto known = current_.find(word);
    if (known != current_.end()) return *known->second;
    std::vector<MicroOp> micro_ops;
    for (int64_t u = i[kBegin]; u < i[kEnd]; ++u) micro_ops.push_back(at(uop_, u));
    std::string key(reinterpret_cast<const char*>(word.data()), sizeof word);
    key.append(reinterpret_cast<const char*>(micro_ops.data()), micro_ops.size() * sizeof(MicroOp));
    std::unique_ptr<Plan>& plan = plans_[key];
    if (!plan) {
      plan = std::make_unique<Plan>(i, opcode, std::move(micro_ops), pairs_);
      std::string written(reinterpret_cast<const char*>(plan->written.data()), plan->written.size() * sizeof(int32_t));
      plan->place = places_.try_emplace(std::move(written), static_cast<int32_t>(places_.size())).first->second;
    }
    current_[word] = plan.get();
    return *plan;
  }

  static Numbers names_in(const Numbers& memory, const Numbers& places) {
    Numbers made;
    made.reserve(places.size());
    for (const int32_t place : places) made.push_back(at(memory, place));
    return made;
  }

  void loop(const Instruction& i, int64_t opcode, std::size_t n) {
    Plan& plan = plan_of(i, opcode, n);
    at(sram_[kAcc], plan.written.back());
    if (i[kReset]) return begin_sums(plan.written, Numbers(plan.written.size()));
    note_post(plan);
    if (opcode == kAlu) return alu(i, plan);
    if (opcode == kPool) return pool(i, plan);
    gemm(i, plan);
  }

  // Begins sums in accumulators, to which products may be added.
  void begin_sums(const Numbers& places, const Numbers& base) {
    int32_t name = make({kSum}, base.size(), {&base});
    open_.back() = true;
    for (const int32_t place : places) sram_[kAcc][static_cast<std::size_t>(place)] = name++;
  }

  // Returns the steps of the sums in accumulators; where none is open, begins new ones.
  Numbers opened(const Plan& plan, bool overwrites) {
    Numbers& acc = sram_[kAcc];
    if (overwrites) {
      begin_sums(plan.written, Numbers(plan.written.size()));
      return {static_cast<int32_t>(steps_.size() - 1)};
    }
    Numbers places, base;
    for (const int32_t place : plan.written) {
      const int32_t name = acc[static_cast<std::size_t>(place)];
      if (open_[static_cast<std::size_t>(step_of_[static_cast<std::size_t>(name)])]) continue;
      places.push_back(place);
      base.push_back(name);
    }
    if (!base.empty()) begin_sums(places, base);
    Numbers found;
    for (const int32_t place : plan.written) {
      const int32_t step = step_of_[static_cast<std::size_t>(acc[static_cast<std::size_t>(place)])];
      if (found.empty() || found.back() != step) found.push_back(step);
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  void gemm(const Instruction& i, Plan& plan) {
    const auto known = i[kOverwrite] ? adds_to_.end() : adds_to_.find(plan.place);
    Numbers sums = known == adds_to_.end() ? opened(plan, i[kOverwrite]) : known->second;
    if (known == adds_to_.end()) adds_to_[plan.place] = sums;
    multiplied_.push_back({&plan, names_in(sram_[kAcc], plan.written), names_in(sram_[kInp], plan.inputs),
                           names_in(sram_[kWgt], plan.tiles), sums.size() > 1});
    int32_t level = 0;
    for (const Numbers* names : {&multiplied_.back().inputs, &multiplied_.back().tiles}) {
      for (const int32_t name : *names) {
        level = std::max(level, levels_[static_cast<std::size_t>(step_of_[static_cast<std::size_t>(name)])]);
      }
    }
    for (const int32_t number : sums) {
      int32_t& own = levels_[static_cast<std::size_t>(number)];
      own = std::max(own, level + 1);
      added_[number].push_back(multiplied_.size() - 1);
    }
  }

  void alu(const Instruction& i, Plan& plan) {
    Numbers& acc = sram_[kAcc];
    constexpr int64_t kMin = 0, kMax = 1;
    const bool alone = i[kUseImm];
    Operation what{kAluStep, i[kAluOp], alone, alone ? i[kImm] : 0};
    if (!alone && (i[kAluOp] == kMin || i[kAluOp] == kMax)) what = {kExtremum, i[kAluOp] == kMax ? 1 : -1};
    for (const auto& batch : plan.batches()) {
      Numbers first, second;
      for (const int64_t step : batch) {
        first.push_back(at(acc, plan.element(0, step)));
        if (!alone) second.push_back(at(acc, plan.element(1, step)));
      }
      const Numbers* const operands[] = {&first, &second};
      write(acc, plan, batch, make(what, batch.size(), operands, alone ? 1 : 2));
    }
  }

  void pool(const Instruction& i, Plan& plan) {
    Numbers& acc = sram_[kAcc];
    for (const auto& batch : plan.batches()) {
      std::vector<Numbers> operands(static_cast<std::size_t>(i[kTiles]) + !i[kOverwrite]);
      for (const int64_t step : batch) {
        for (int64_t t = 0; t < i[kTiles]; ++t) {
          operands[static_cast<std::size_t>(t)].push_back(at(sram_[kInp], plan.element(1, step) + t));
        }
        if (!i[kOverwrite]) operands.back().push_back(at(acc, plan.element(0, step)));
      }
      std::vector<const Numbers*> parts;
      for (const Numbers& own : operands) parts.push_back(&own);
      write(acc, plan, batch, make({kExtremum, 1}, batch.size(), parts.data(), parts.size()));
    }
  }

  static void write(Numbers& acc, const Plan& plan, const std::vector<int64_t>& batch, int32_t name) {
    for (const int64_t step : batch) at(acc, plan.element(0, step)) = name++;
  }

  const std::vector<std::size_t>& added_to(int64_t number) const {
    static const std::vector<std::size_t> none;
    const auto found = added_.find(static_cast<int32_t>(number));
    return found == added_.end() ? none : found->second;
  }

  struct WordHash {
    std::size_t operator()(const std::array<uint64_t, 2>& word) const {
      return word[0] * 0x9E3779B97F4A7C15 ^ word[1];
    }
  };

  std::array<Columns, kOpcodes> classes_;
  std::vector<Column<int64_t>> settings_fields_;
  Column<int64_t> opcodes_, rows_;
  Table<uint64_t> words_;
  Table<int64_t> micro_ops_;
  Column<int64_t> relocations_;
  Table<int64_t> buffers_;
  Column<int64_t> element_bytes_;
  int64_t unit_, parameter_rows_, most_;
  bool pairs_;

  std::array<Numbers, kMemories> sram_;
  std::vector<MicroOp> uop_;
  std::array<Numbers, 4> settings_;  // of each element: its kind, and names of bias, scale and table
  std::unique_ptr<Instruction> post_;
  int32_t setting_ = 0, index_ = -1;
  std::map<std::vector<int64_t>, int32_t> kinds_;
  std::vector<int64_t> kind_rows_;
  Numbers arena_, arena_writers_;
  std::vector<std::unique_ptr<Written>> written_;
  std::map<Operation, int32_t> given_;

  std::unordered_map<std::string, std::unique_ptr<Plan>> plans_;
  std::unordered_map<std::array<uint64_t, 2>, Plan*, WordHash> current_;
  std::unordered_map<std::string, int32_t> places_;
  std::unordered_map<int32_t, Numbers> adds_to_;

  std::vector<Operation> operations_;
  std::map<Operation, int32_t> what_of_;
  std::vector<Step> steps_;
  Numbers operands_, levels_, step_of_;
  std::vector<char> open_;
  std::vector<Multiplied> multiplied_;
  std::unordered_map<int32_t, std::vector<std::size_t>> added_;
  std::vector<Numbers> recalled_;
};

}  // namespace

void bind_names(nb::module_& m) {
  nb::class_<Walk>(m, "Names")
      .def(nb::init<const nb::dict&, const Column<int64_t>&, const Column<int64_t>&,
                    const Table<uint64_t>&, const Table<int64_t>&, const Column<int64_t>&,
                    const Table<int64_t>&, const Column<int64_t>&, const Column<int64_t>&, int64_t,
                    int64_t, int64_t, bool>(),
           nb::arg("classes"), nb::arg("opcodes"), nb::arg("rows"), nb::arg("words"),
           nb::arg("micro_ops"), nb::arg("relocations"), nb::arg("buffers"), nb::arg("depths"),
           nb::arg("element_bytes"), nb::arg("arena"), nb::arg("parameter_rows"), nb::arg("most"),
           nb::arg("pairs"))
      .def("run", &Walk::run)
      .def("steps", &Walk::steps)
      .def("operations", &Walk::operations)
      .def("kinds", &Walk::kinds)
      .def("operands", &Walk::operands)
      .def("levels", &Walk::levels)
      .def("step_of", &Walk::step_of)
      .def("written", &Walk::written)
      .def("last_levels", &Walk::last_levels)
      .def("products", &Walk::products, nb::arg("numbers"));
}
