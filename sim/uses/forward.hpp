// The extension `forward`: loads from the output memory instead of DRAM if it holds the data, and
// stores without remaining readers removed (vtaops/lowering/linking/ordering.py).
#pragma once

#include "operations.hpp"

// The last writes of elements of DRAM, as a program goes on: the output-memory elements that a load
// would find its data in, or kNone.
class Sources {
 public:
  Sources(const Accesses& accesses, std::size_t acc)
      : acc_(acc),
        written_(accesses.numbers<int32_t>(kNone)),
        copied_(accesses.numbers<int64_t>(kNone)) {}

  // Returns the sources of what an access reads; nothing if there are none.
  std::vector<int64_t> of(const Access& access) const {
    std::vector<int64_t> own;
    own.reserve(access.size);
    bool any = false;
    access.each([&](std::size_t element) {
      const int64_t source = copied_[access.memory][element];
      const bool intact = source != kNone && changed(static_cast<std::size_t>(source)) <
                                                 written_[access.memory][element];
      own.push_back(intact ? source : kNone);
      any |= intact;
    });
    return any ? own : std::vector<int64_t>();
  }

  // Notes what the operation at a place writes: a store copies elements from `source` on.
  void note(const Own& accesses, std::size_t place, int64_t source) {
    for (const Access& access : accesses) {
      if (!access.writes) continue;
      int64_t next = source;
      access.each([&](std::size_t element) {
        written_[access.memory][element] = static_cast<int32_t>(place);
        if (next != kNone) copied_[access.memory][element] = next++;
      });
    }
  }

 private:
  int32_t changed(std::size_t source) const {
    return acc_ < written_.size() && source < written_[acc_].size() ? written_[acc_][source] : kNone;
  }

  std::size_t acc_;
  PerElement<int32_t> written_;  // where each element was last
  PerElement<int64_t> copied_;   // from where, of DRAM
};

// Which elements are read later, as a program goes backwards.
class Live {
 public:
  explicit Live(const Accesses& accesses) : live_(accesses.numbers<char>(false)) {}

  // Returns which elements of an access are read later; nothing if all are.
  std::vector<char> of(const Access& access) const {
    std::vector<char> own;
    own.reserve(access.size);
    bool all = true;
    access.each([&](std::size_t element) {
      own.push_back(live_[access.memory][element]);
      all &= own.back() != 0;
    });
    return all ? std::vector<char>() : own;
  }

  void note(const Own& accesses) {
    for (const bool reads : {false, true}) {  // an operation reads before it writes
      for (const Access& access : accesses) {
        if (access.writes == reads) continue;
        access.each([&](std::size_t element) { live_[access.memory][element] = reads; });
      }
    }
  }

 private:
  PerElement<char> live_;
};

class Forward {
 public:
  // `scratch` says of each buffer whether only the program reads it.
  Forward(const Machine& machine, Shared& shared, std::deque<std::array<Access, 3>>& made,
          const std::vector<bool>& scratch)
      : machine_(machine), shared_(shared), made_(made), scratch_(scratch) {}

  Stream forwarded(const Stream& operations) {
    const Accesses accesses = accesses_of(operations);
    Sources sources(accesses, kAcc);
    Stream loaded;
    for (std::size_t place = 0; place < operations.size(); ++place) {
      const Operation& o = operations[place];
      const bool asked = machine_.loads(o.word, kInp) && o.dram != nullptr;
      const auto found = asked ? sources.of(*o.dram) : std::vector<int64_t>();
      if (found.empty()) loaded.push_back(o);
      else load(o, found, loaded);
      const bool stores = machine_.is(o.word, kOfStore);
      sources.note(accesses.of(place), place, stores ? o.word[machine_.sram_base] : kNone);
    }
    return needed(loaded);
  }

 private:
  // Rows and columns of a load; `source` is its first output-memory element, or kNone for DRAM.
  struct Piece {
    int64_t y, rows, x, columns, source, stride;
  };

  Stream needed(const Stream& operations) {
    const Accesses accesses = accesses_of(operations);
    Live live(accesses);
    Stream backwards;
    for (std::size_t place = operations.size(); place-- > 0;) {
      const Operation& o = operations[place];
      const bool asked = machine_.is(o.word, kOfStore) && o.dram != nullptr &&
                         scratch_.at(checked(o.relocation, kMost));
      const auto found = asked ? live.of(*o.dram) : std::vector<char>();
      if (found.empty()) backwards.push_back(o);
      else store(o, found, backwards);
      live.note(accesses.of(place));
    }
    std::reverse(backwards.begin(), backwards.end());
    return backwards;
  }

  // Appends what replaces a load: loads from the output memory, and from DRAM for the rest.
  void load(const Operation& o, const std::vector<int64_t>& sources, Stream& result) {
    const Word& i = o.word;
    const int64_t width = i[machine_.x_size];
    const auto pieces = pieces_of(sources, i[machine_.y_size], width);
    const auto held = static_cast<int64_t>(
        std::count_if(sources.begin(), sources.end(), [](int64_t s) { return s != kNone; }));
    const auto count = static_cast<int64_t>(pieces.size());
    // Rows of padding go with the first and the last piece, which must be as wide as the load.
    const bool narrow = (i[machine_.y_pad_top] && pieces.front().columns < width) ||
                        (i[machine_.y_pad_bottom] && pieces.back().columns < width);
    if (narrow || (count > 1 && held < machine_.min_elements_per_load * count)) {
      result.push_back(o);
      return;
    }
    for (const Piece& piece : pieces) result.push_back(part(o, piece));
  }

  // Returns the load of a piece, with its adjacent padding.
  Operation part(const Operation& o, const Piece& p) {
    const Machine& m = machine_;
    const Word& i = o.word;
    const bool leftmost = p.x == 0, rightmost = p.x + p.columns == i[m.x_size];
    const bool first = leftmost && p.y == 0;
    const bool last = rightmost && p.y + p.rows == i[m.y_size];
    const int64_t left = i[m.x_pad_left], right = i[m.x_pad_right], top = i[m.y_pad_top];
    Operation own = o;
    Word& word = own.word;
    int64_t base = i[m.sram_base];
    if (!first) base += (top + p.y) * (left + i[m.x_size] + right) + (leftmost ? 0 : left + p.x);
    word.set(m.sram_base, base);
    word.set(m.y_size, p.rows);
    word.set(m.x_size, p.columns);
    if (!leftmost) word.set(m.x_pad_left, 0);
    if (!rightmost) word.set(m.x_pad_right, 0);
    if (!first) word.set(m.y_pad_top, 0);
    if (!last) word.set(m.y_pad_bottom, 0);
    const int64_t row = word[m.x_pad_left] + p.columns + word[m.x_pad_right];
    const int64_t filled = (word[m.y_pad_top] + p.rows + word[m.y_pad_bottom]) * row;
    std::array<Access, 3>& accesses = made_.emplace_back();
    accesses[0] = shared_.block(kInp, base, 1, 0, filled, true);
    own.first = accesses.data();
    own.last = own.first + 1;
    if (p.source != kNone) {
      word.set(m.dram_base, p.source);
      word.set(m.x_stride, p.stride);
      word.set(m.forward, 1);
      accesses[1] = shared_.block(kAcc, p.source, p.rows, p.stride, p.columns, false);
      ++own.last;
      own.relocation = kNone;
      own.dram = nullptr;
      return own;
    }
    word.set(m.dram_base, i[m.dram_base] + p.y * i[m.x_stride] + p.x);
    accesses[2] = box(*o.dram, i[m.x_size], p.y, p.rows, p.x, p.columns);
    own.dram = &accesses[2];
    return own;
  }

  // Returns some rows and columns of what an access reaches, in rows of `width`.
  Access box(const Access& all, int64_t width, int64_t y, int64_t rows, int64_t x, int64_t columns) {
    std::vector<int64_t> offsets;
    offsets.reserve(static_cast<std::size_t>(rows * columns));
    for (int64_t row = y; row < y + rows; ++row) {
      const int64_t* const begin = all.offsets + row * width + x;
      offsets.insert(offsets.end(), begin, begin + columns);
    }
    const int64_t least = offsets.front();
    for (int64_t& offset : offsets) offset -= least;
    const std::size_t size = offsets.size();
    const std::size_t first = all.first + static_cast<std::size_t>(least);
    return {all.memory, first, shared_.keep(std::move(offsets)), size, all.writes, all.reads};
  }

  // Splits rows of sources into pieces of DRAM, and regular ones of the output memory. A run is a
  // part of a row in DRAM, or of consecutive output-memory elements.
  static std::vector<Piece> pieces_of(const std::vector<int64_t>& sources, int64_t height,
                                      int64_t width) {
    if (static_cast<int64_t>(sources.size()) != height * width) {
      throw std::logic_error("a load of inputs does not read one granule an element");
    }
    const auto at = [&](int64_t y, int64_t x) { return sources[static_cast<std::size_t>(y * width + x)]; };
    const auto joined = [&](int64_t y, int64_t x) {
      return at(y, x) == (at(y, x - 1) >= 0 ? at(y, x - 1) + 1 : kNone);
    };
    const auto broken = [&](int64_t y) {
      for (int64_t x = 1; x < width; ++x) {
        if (!joined(y, x)) return true;
      }
      return false;
    };
    std::vector<Piece> pieces;
    for (int64_t y = 0; y < height;) {
      if (broken(y)) {
        for (int64_t x = 0, end = 1; x < width; x = end++) {
          while (end < width && joined(y, end)) ++end;
          pieces.push_back({y, 1, x, end - x, at(y, x), end - x});
        }
        ++y;
        continue;
      }
      const int64_t first = at(y, 0);
      int64_t next = y + 1, stride = width;
      if (first >= 0 && next < height && !broken(next)) {
        const int64_t step = at(next, 0) - first;
        if (at(next, 0) >= 0 && 0 <= step && step <= kMostSize) stride = step;
      }
      for (; next < height && !broken(next); ++next) {
        const int64_t found = at(next, 0);
        if (first < 0 ? found >= 0 : found != first + (next - y) * stride) break;
      }
      pieces.push_back({y, next - y, 0, width, first, stride});
      y = next;
    }
    return pieces;
  }

  // Appends, last one first, the stores of the elements that are needed: of each row the part
  // between its ends.
  void store(const Operation& o, const std::vector<char>& needed, Stream& result) {
    const Machine& m = machine_;
    const int64_t height = o.word[m.y_size], width = o.word[m.x_size];
    if (static_cast<int64_t>(needed.size()) != height * width) {
      result.push_back(o);
      return;
    }
    Stream parts;
    for (int64_t y = 0; y < height; ++y) {
      const auto row = needed.begin() + y * width;
      const auto is_needed = [](char live) { return live != 0; };
      const int64_t x = std::find_if(row, row + width, is_needed) - row;
      if (x == width) continue;
      int64_t end = width;
      while (!row[end - 1]) --end;
      Operation own = o;
      const int64_t base = o.word[m.sram_base] + y * width + x;
      own.word.set(m.sram_base, base);
      own.word.set(m.dram_base, o.word[m.dram_base] + y * o.word[m.x_stride] + x);
      own.word.set(m.y_size, 1);
      own.word.set(m.x_size, end - x);
      own.word.set(m.x_stride, end - x);
      std::array<Access, 3>& accesses = made_.emplace_back();
      accesses[0] = shared_.block(kAcc, base, 1, 0, end - x, false);
      accesses[1] = box(*o.dram, width, y, 1, x, end - x);
      own.first = accesses.data();
      own.last = own.first + 1;
      own.dram = &accesses[1];
      parts.push_back(own);
    }
    if (static_cast<int64_t>(parts.size()) > m.most_parts) parts.assign(1, o);
    result.insert(result.end(), parts.rbegin(), parts.rend());
  }

  static constexpr int64_t kMostSize = (1 << 16) - 1;  // of a row or a stride

  const Machine& machine_;
  Shared& shared_;
  std::deque<std::array<Access, 3>>& made_;
  const std::vector<bool>& scratch_;
};
