// Operations as `link` handles them: words of instructions, micro-ops, and what they access.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>

#include "accesses.hpp"

// The bits of a field: `width` from bit `offset` of the word on.
struct Slot {
  const char* name;
  unsigned offset = 0, width = 0;

  uint64_t mask() const { return (uint64_t{1} << width) - 1; }
};

// An instruction of 128 bits.
struct Word {
  std::array<uint64_t, 2> halves{};

  int64_t operator[](const Slot& slot) const {
    return static_cast<int64_t>(halves[slot.offset / 64] >> slot.offset % 64 & slot.mask());
  }

  void set(const Slot& slot, int64_t value) {
    if (value < 0 || static_cast<uint64_t>(value) > slot.mask()) {
      throw std::overflow_error(std::string("the field ") + slot.name + " is " + std::to_string(value) +
                                "; its " + std::to_string(slot.width) + " bits hold 0.." +
                                std::to_string(slot.mask()));
    }
    uint64_t& half = halves[slot.offset / 64];
    half = (half & ~(slot.mask() << slot.offset % 64)) | static_cast<uint64_t>(value)
                                                             << slot.offset % 64;
  }

  bool operator==(const Word& other) const { return halves == other.halves; }
  bool operator!=(const Word& other) const { return halves != other.halves; }
};

// As in vtaops/machine: opcodes, and memories.
enum Opcode : int64_t { kOfLoad, kOfStore, kOfGemm, kOfFinish, kOfAlu, kOfPost };
enum Memory : int64_t { kUop, kWgt, kInp, kAcc, kOut, kAcc8Bit, kRows, kTable };

// Where the fields lie that `link` reads or writes, and the numbers of the machine and of the order.
struct Machine {
  Slot opcode{"opcode", 0, 3};
  Slot memory{"memory"}, sram_base{"sram_base"}, dram_base{"dram_base"}, y_size{"y_size"},
      x_size{"x_size"}, x_stride{"x_stride"}, y_pad_top{"y_pad_top"}, y_pad_bottom{"y_pad_bottom"},
      x_pad_left{"x_pad_left"}, x_pad_right{"x_pad_right"}, forward{"forward"};
  Slot uop_begin{"uop_begin"}, uop_end{"uop_end"}, iter_out{"iter_out"}, iter_in{"iter_in"},
      use_imm{"use_imm"};
  Slot enable{"enable"}, use_bias{"use_bias"}, use_scale{"use_scale"}, row{"row"},
      use_table{"use_table"}, table_index{"table_index"}, zero_point{"zero_point"}, low{"low"},
      high{"high"};
  Slot pop_prev{"pop_prev"}, pop_next{"pop_next"}, push_prev{"push_prev"}, push_next{"push_next"};
  std::vector<int64_t> element_bytes;  // of each memory, in DRAM
  int64_t granule, port_width, wgt_depth, uop_depth, forwards;
  int64_t close, ahead, weights_ahead, behind, min_elements_per_load, most_parts;

  // `slots` has the offset and the width of each field that exists, `numbers` the rest.
  Machine(const nb::dict& slots, const nb::dict& numbers, const std::vector<int64_t>& bytes)
      : element_bytes(bytes) {
    for (Slot* slot : {&memory, &sram_base, &dram_base, &y_size, &x_size, &x_stride, &y_pad_top,
                       &y_pad_bottom, &x_pad_left, &x_pad_right, &forward, &uop_begin, &uop_end,
                       &iter_out, &iter_in, &use_imm, &enable, &use_bias, &use_scale, &row,
                       &use_table, &table_index, &zero_point, &low, &high, &pop_prev, &pop_next, &push_prev, &push_next}) {
      if (!slots.contains(slot->name)) continue;
      const auto place = nb::cast<std::pair<unsigned, unsigned>>(slots[slot->name]);
      slot->offset = static_cast<unsigned>(checked(place.first, 128));
      slot->width = static_cast<unsigned>(checked(place.second, 64));
    }
    const auto number = [&](const char* name) { return nb::cast<int64_t>(numbers[name]); };
    granule = number("granule"), port_width = number("port_width");
    wgt_depth = number("wgt_depth"), uop_depth = number("uop_depth"), forwards = number("forwards");
    close = number("LAG"), ahead = number("AHEAD"), weights_ahead = number("WEIGHTS_AHEAD");
    behind = number("BEHIND"), most_parts = number("PARTS");
    min_elements_per_load = number("MIN_ELEMENTS_PER_LOAD");
    if (granule < 1 || port_width < 1 || element_bytes.size() != 8) {
      throw nb::value_error("a number of the machine is missing");
    }
  }

  bool is(const Word& word, Opcode code) const { return word[opcode] == code; }
  bool loads(const Word& word, Memory from) const {
    return is(word, kOfLoad) && word[memory] == from;
  }
  bool moves(const Word& word) const { return is(word, kOfLoad) || is(word, kOfStore); }
  bool loops(const Word& word) const {
    const int64_t code = word[opcode];
    return code == kOfGemm || code == kOfAlu || code > kOfPost;
  }
  int64_t bytes_of(const Word& word) const {
    return element_bytes[static_cast<std::size_t>(word[memory])];
  }

  std::size_t unit(const Word& word) const {
    if (is(word, kOfStore)) return kStore;
    const int64_t from = word[memory];
    const bool own = from == kWgt || from == kInp || from == kRows || from == kTable;
    return is(word, kOfLoad) && own ? kLoad : kCompute;
  }
};

// Offsets of accesses, which live as long as this.
class Shared {
 public:
  // 0, 1, 2, ...
  const int64_t* ascending(std::size_t size) {
    if (ranges_.empty() || ranges_.back().size() < size) {
      std::vector<int64_t> range(std::max(2 * size, std::size_t{1024}));
      for (std::size_t n = 0; n < range.size(); ++n) range[n] = static_cast<int64_t>(n);
      ranges_.push_back(std::move(range));
    }
    return ranges_.back().data();
  }

  const int64_t* keep(std::vector<int64_t> numbers) {
    kept_.push_back(std::move(numbers));
    return kept_.back().data();
  }

  // Accesses `count` rows of `size` elements, one `stride` behind the other.
  Access block(std::size_t memory, int64_t first, int64_t count, int64_t stride, int64_t size,
               bool writes) {
    const auto begin = checked(first, kMost);
    if (count == 1 || stride <= size) {
      const int64_t joined = count == 1 ? size : (count - 1) * stride + size;
      const auto all = static_cast<std::size_t>(joined);
      return {memory, begin, ascending(all), all, writes, !writes};
    }
    const int64_t*& rows = known_[{count, stride, size}];
    const auto all = static_cast<std::size_t>(count * size);
    if (rows == nullptr) {
      std::vector<int64_t> numbers;
      numbers.reserve(all);
      for (int64_t row = 0; row < count; ++row) {
        for (int64_t n = 0; n < size; ++n) numbers.push_back(row * stride + n);
      }
      rows = keep(std::move(numbers));
    }
    return {memory, begin, rows, all, writes, !writes};
  }

 private:
  std::deque<std::vector<int64_t>> ranges_, kept_;
  std::map<std::array<int64_t, 3>, const int64_t*> known_;
};

// The operations of a fragment, read once from their objects.
class Operations {
 public:
  struct One {
    Word word;
    int64_t relocation;
    int32_t sequence;  // of micro-ops, or kNone
  };

  // `order` lists the distinct operations as the fragment executes them; `words` are theirs.
  Operations(const nb::list& distinct, nb::ndarray<const uint64_t, nb::ndim<2>, nb::c_contig> words,
             const Column& order)
      : read_(distinct) {
    if (words.shape(0) != distinct.size() || words.shape(1) != 2) {
      throw nb::value_error("columns differ in length");
    }
    std::map<std::vector<int64_t>, int32_t> known;
    std::size_t place = 0;
    for (nb::handle o : distinct) {
      One one{{{words(place, 0), words(place, 1)}}, nb::cast<int64_t>(o.attr("relocation")), kNone};
      const nb::object rows = o.attr("micro_ops");
      if (!rows.is_none()) {
        const auto numbers = nb::cast<nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig>>(rows);
        std::vector<int64_t> own(numbers.data(), numbers.data() + numbers.size());
        const auto found = known.emplace(std::move(own), static_cast<int32_t>(known.size()));
        one.sequence = found.first->second;
      }
      distinct_.push_back(one);
      ++place;
    }
    sequences_.resize(known.size());
    for (const auto& [rows, number] : known) sequences_[static_cast<std::size_t>(number)] = rows;
    for (std::size_t n = 0; n < order.size(); ++n) {
      order_.push_back(checked(order(n), static_cast<int64_t>(distinct_.size())));
    }
  }

  const std::vector<One>& distinct() const { return distinct_; }
  const std::vector<std::size_t>& order() const { return order_; }
  Own accesses(std::size_t number) const { return read_.of(number); }
  const std::vector<std::vector<int64_t>>& sequences() const { return sequences_; }

 private:
  Accesses read_;
  std::vector<One> distinct_;
  std::vector<std::size_t> order_;
  std::vector<std::vector<int64_t>> sequences_;
};

// An operation in a program. Its accesses live elsewhere.
struct Operation {
  Word word;
  int64_t number = 0, relocation = kNone;  // of its operator, and of its buffer
  int32_t sequence = kNone;
  const Access *first = nullptr, *last = nullptr;
  const Access* dram = nullptr;  // or none
};
using Stream = std::vector<Operation>;

// Lists what operations access.
inline Accesses accesses_of(const Stream& operations) {
  Accesses found;
  for (const Operation& o : operations) found.append(o.first, o.last, o.dram);
  return found;
}
