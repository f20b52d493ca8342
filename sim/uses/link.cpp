// Joins the operations of fragments to the instructions of a program, and their Python binding;
// vtaops/lowering/linking says what each step means.
#include "link.hpp"

#include <set>
#include <unordered_map>

#include "forward.hpp"
#include "numpy.hpp"
#include "turns.hpp"

namespace {

// A fragment's operations, the number of its operator, the buffer and the first byte of each of its
// buffers, its first element of each memory, and, if they are not its own, the zero point and the
// bounds of its results.
struct Part {
  const Operations* operations;
  int64_t number;
  std::vector<std::pair<int64_t, int64_t>> places;
  std::vector<int64_t> offsets, results;
};

class Link {
 public:
  Link(const Machine& machine, const nb::list& parts, const nb::list& pinned,
       const nb::list& buffers, const nb::list& turns)
      : machine_(machine), parts_(parts_of(parts)), pinned_(parts_of(pinned)) {
    for (nb::handle one : buffers) {  // its space, its offset there, and whether it is scratch
      const auto buffer = nb::cast<nb::tuple>(one);
      spaces_.push_back(checked(nb::cast<int64_t>(buffer[0]), kMemories));
      offsets_.push_back(nb::cast<int64_t>(buffer[1]));
      scratch_.push_back(nb::cast<bool>(buffer[2]));
    }
    for (nb::handle one : turns) {  // operators first .. end - 1, and their lag
      const auto range = nb::cast<nb::tuple>(one);
      const auto first = nb::cast<int64_t>(range[0]), end = nb::cast<int64_t>(range[1]);
      lags_[first] = nb::cast<int64_t>(range[2]);
      for (int64_t number = first; number < end; ++number) leaders_[number] = first;
    }
  }

  nb::tuple linked() {
    Stream operations = bound(parts_);
    find_shared(operations);
    if (!lags_.empty()) operations = in_turns(operations);
    const std::vector<std::size_t> begins = runs(operations);
    if (begins.size() > 1) operations = Prefetch(machine_, operations).ahead(begins);
    if (machine_.forwards) {
      operations = Forward(machine_, shared_, made_, scratch_).forwarded(operations);
    }
    return synchronized(with_micro_ops(operations));
  }

 private:
  static std::vector<Part> parts_of(const nb::list& parts) {
    std::vector<Part> found;
    for (nb::handle one : parts) {
      const auto part = nb::cast<nb::tuple>(one);
      found.push_back({nb::cast<const Operations*>(part[0]), nb::cast<int64_t>(part[1]),
                       nb::cast<std::vector<std::pair<int64_t, int64_t>>>(part[2]),
                       nb::cast<std::vector<int64_t>>(part[3]),
                       nb::cast<std::vector<int64_t>>(part[4])});
      if (found.back().offsets.size() != 8 || found.back().results.size() % 3) {
        throw nb::value_error("a part has numbers of another shape");
      }
    }
    return found;
  }

  // Returns the operations of parts, at their places.
  Stream bound(const std::vector<Part>& parts) {
    Stream operations;
    for (const Part& part : parts) {
      const std::vector<Operations::One>& distinct = part.operations->distinct();
      Stream own;
      for (std::size_t n = 0; n < distinct.size(); ++n) {
        Operation o;
        o.word = distinct[n].word;
        o.number = part.number;
        o.relocation = distinct[n].relocation;
        const Own accesses = part.operations->accesses(n);
        std::vector<Access>& moved = moved_.emplace_back(accesses.begin(), accesses.end());
        bool on_array = false;
        for (Access& access : moved) {
          on_array |= access.memory == kInp;
          access.first += static_cast<std::size_t>(part.offsets.at(access.memory));
        }
        o.first = moved.data();
        o.last = o.first + moved.size();
        if (distinct[n].sequence != kNone) {
          o.sequence = sequence_of(part, distinct[n].sequence, on_array);
        }
        shift(o.word, part);
        if (o.relocation != kNone) move(o, part.places.at(checked(o.relocation, kMost)));
        own.push_back(o);
      }
      for (const std::size_t n : part.operations->order()) operations.push_back(own[n]);
    }
    return operations;
  }

  // Finds what operations access of the DRAM that the program both stores to and loads from.
  void find_shared(Stream& operations) {
    std::set<std::size_t> stored, loaded;
    for (const Operation& o : operations) {
      if (o.relocation >= 0) (machine_.is(o.word, kOfStore) ? stored : loaded).insert(space_of(o));
    }
    for (Operation& o : operations) {
      const bool found = o.relocation >= 0 && stored.count(space_of(o)) && loaded.count(space_of(o));
      if (found && o.word[machine_.y_size]) o.dram = dram_of(o);  // else padding only
    }
  }

  std::size_t space_of(const Operation& o) const { return spaces_.at(checked(o.relocation, kMost)); }

  // Moves an operation to a buffer of the program, and to a byte in it.
  void move(Operation& o, const std::pair<int64_t, int64_t>& place) const {
    o.relocation = place.first;
    if (!place.second) return;
    const int64_t element = machine_.bytes_of(o.word);
    if (place.second % element) {
      throw nb::value_error(("offset " + std::to_string(place.second) + " is not a multiple of " +
                             std::to_string(element) + "-byte elements")
                                .c_str());
    }
    o.word.set(machine_.dram_base, o.word[machine_.dram_base] + place.second / element);
  }

  // Returns the granules that an operation accesses of its buffer.
  const Access* dram_of(const Operation& o) {
    const Machine& m = machine_;
    const int64_t scale = m.bytes_of(o.word) / m.granule;
    const int64_t offset = offsets_[static_cast<std::size_t>(o.relocation)] / m.granule;
    std::array<Access, 3>& own = made_.emplace_back();
    own[0] = shared_.block(space_of(o), o.word[m.dram_base] * scale + offset, o.word[m.y_size],
                           o.word[m.x_stride] * scale, o.word[m.x_size] * scale,
                           m.is(o.word, kOfStore));
    return own.data();
  }

  // Moves an instruction in the scratchpads, and sets the numbers of its results.
  void shift(Word& word, const Part& part) const {
    const Machine& m = machine_;
    if (m.moves(word)) {
      const int64_t memory = word[m.memory];
      const bool in_acc = memory == kOut || memory == kAcc8Bit;
      const int64_t by = part.offsets[static_cast<std::size_t>(in_acc ? kAcc : memory)];
      if (by) word.set(m.sram_base, word[m.sram_base] + by);
    }
    if (!m.is(word, kOfPost) || !word[m.enable]) return;
    if (word[m.use_bias] || word[m.use_scale]) word.set(m.row, word[m.row] + part.offsets[kRows]);
    if (word[m.use_table]) word.set(m.table_index, word[m.table_index] + part.offsets[kTable]);
    if (part.results.empty()) return;
    const Slot* const slots[] = {&m.zero_point, &m.low, &m.high};
    for (std::size_t n = 0; n < 3; ++n) {
      word.set(*slots[n], part.results[n] & static_cast<int64_t>(slots[n]->mask()));
    }
  }

  // Returns the number of a part's micro-ops, moved to its elements.
  int32_t sequence_of(const Part& part, int32_t number, bool on_array) {
    std::vector<int64_t> rows = part.operations->sequences()[static_cast<std::size_t>(number)];
    const int64_t acc = part.offsets[kAcc];
    const std::array<int64_t, 3> by = {acc, on_array ? part.offsets[kInp] : acc,
                                       on_array ? part.offsets[kWgt] : 0};
    for (std::size_t n = 0; n < rows.size(); ++n) rows[n] += by[n % 3];
    const auto found = known_.emplace(std::move(rows), static_cast<int32_t>(sequences_.size()));
    if (found.second) sequences_.push_back(&found.first->first);
    return found.first->second;
  }

  // The first of the operators that take turns with that of an operation, or its own.
  int64_t leader(const Operation& o) const {
    const auto found = leaders_.find(o.number);
    return found == leaders_.end() ? o.number : found->second;
  }

  // Returns the places at which operators, or those that take turns, begin.
  std::vector<std::size_t> runs(const Stream& operations) const {
    std::vector<std::size_t> begins;
    for (std::size_t n = 0; n < operations.size(); ++n) {
      if (n == 0 || leader(operations[n]) != leader(operations[n - 1])) begins.push_back(n);
    }
    return begins;
  }

  Stream in_turns(const Stream& operations) const {
    Stream result;
    std::vector<std::size_t> begins = runs(operations);
    begins.push_back(operations.size());
    for (std::size_t run = 0; run + 1 < begins.size(); ++run) {
      const auto begin = operations.begin() + static_cast<std::ptrdiff_t>(begins[run]);
      const auto end = operations.begin() + static_cast<std::ptrdiff_t>(begins[run + 1]);
      const auto lag = lags_.find(leader(*begin));
      if (lag == lags_.end()) {
        result.insert(result.end(), begin, end);
        continue;
      }
      std::vector<Stream> streams;
      for (auto o = begin; o != end; ++o) {
        if (o == begin || o->number != (o - 1)->number) streams.emplace_back();
        streams.back().push_back(*o);
      }
      const Stream taken = Turns(machine_, lag->second).interleaved(streams);
      result.insert(result.end(), taken.begin(), taken.end());
    }
    return result;
  }

  // Gives every sequence of micro-ops an address in the micro-op memory. Programs are split into
  // batches whose distinct sequences fit together; each begins with one LOAD UOP of all of them.
  Stream with_micro_ops(const Stream& operations) {
    Stream result;
    std::unordered_map<int32_t, int64_t> places;  // of the batch
    std::size_t begin = 0;
    int64_t size = 0, loaded = 0;
    const auto close = [&] {
      if (size) {
        Operation load;
        load.word.set(machine_.dram_base, loaded);
        load.word.set(machine_.y_size, 1);
        load.word.set(machine_.x_size, size);
        load.word.set(machine_.x_stride, size);
        load.number = result[begin].number;
        load.relocation = kMicroOps;
        result.insert(result.begin() + static_cast<std::ptrdiff_t>(begin), load);
      }
      loaded += size;
      begin = result.size(), size = 0;
      places.clear();
    };
    for (Operation o : operations) {
      if (o.sequence != kNone) {
        const std::vector<int64_t>& rows = *sequences_[static_cast<std::size_t>(o.sequence)];
        const auto count = static_cast<int64_t>(rows.size() / 3);
        if (!places.count(o.sequence)) {
          if (size + count > machine_.uop_depth) close();
          places[o.sequence] = size;
          size += count;
          table_.insert(table_.end(), rows.begin(), rows.end());
        }
        if (machine_.loops(o.word)) {
          const int64_t first = places[o.sequence];
          o.word.set(machine_.uop_begin, o.word[machine_.uop_begin] + first);
          o.word.set(machine_.uop_end, o.word[machine_.uop_end] + first);
        }
      }
      result.push_back(o);
    }
    close();
    return result;
  }

  // Returns the words with tokens, relays and FINISH, and for each its relocation and operator; and
  // the table of micro-ops.
  nb::tuple synchronized(Stream operations) {
    Operation finish;
    finish.word.set(machine_.opcode, kOfFinish);
    if (!operations.empty()) finish.number = operations.back().number;
    operations.push_back(finish);
    const Accesses accesses = accesses_of(operations);
    std::vector<std::size_t> units;
    for (const Operation& o : operations) units.push_back(machine_.unit(o.word));
    std::vector<uint64_t> words;
    std::vector<int32_t> relocations;
    std::vector<int64_t> numbers;
    const auto append = [&](const Word& word, int64_t relocation, int64_t number) {
      words.insert(words.end(), word.halves.begin(), word.halves.end());
      relocations.push_back(static_cast<int32_t>(relocation));
      numbers.push_back(number);
    };
    // What reads pinned weights also waits for later loads, and the load unit is in order.
    for (const Operation& o : bound(pinned_)) append(o.word, o.relocation, o.number);
    for (const Tokens::Row& row : synchronize(accesses, units)) {
      const Operation& o = operations[static_cast<std::size_t>(row.place)];
      Word word;  // of a relay, a LOAD of no micro-ops
      if (!row.relays) word = o.word;
      word.set(machine_.pop_prev, row.pop_prev);
      word.set(machine_.pop_next, row.pop_next);
      word.set(machine_.push_prev, row.push_prev);
      word.set(machine_.push_next, row.push_next);
      append(word, row.relays ? kNone : o.relocation, o.number);
    }
    return nb::make_tuple(numpy_of(words.data(), {numbers.size(), 2}),
                          numpy_of(relocations.data(), {numbers.size()}),
                          numpy_of(numbers.data(), {numbers.size()}),
                          numpy_of(table_.data(), {table_.size() / 3, 3}));
  }

  static constexpr int64_t kMicroOps = -2;  // as MICRO_OPS of the program

  const Machine& machine_;
  std::vector<Part> parts_, pinned_;
  std::vector<std::size_t> spaces_;
  std::vector<int64_t> offsets_;
  std::vector<bool> scratch_;
  std::map<int64_t, int64_t> lags_, leaders_;
  Shared shared_;
  std::deque<std::array<Access, 3>> made_;
  std::deque<std::vector<Access>> moved_;
  std::map<std::vector<int64_t>, int32_t> known_;
  std::vector<const std::vector<int64_t>*> sequences_;
  std::vector<int64_t> table_;
};

}  // namespace

void bind_link(nb::module_& m) {
  nb::class_<Machine>(m, "Machine")
      .def(nb::init<const nb::dict&, const nb::dict&, const std::vector<int64_t>&>(),
           nb::arg("slots"), nb::arg("numbers"), nb::arg("element_bytes"));
  nb::class_<Operations>(m, "Operations")
      .def(nb::init<const nb::list&, nb::ndarray<const uint64_t, nb::ndim<2>, nb::c_contig>,
                    const Column&>(),
           nb::arg("distinct"), nb::arg("words"), nb::arg("order"));
  m.def(
      "link",
      [](const Machine& machine, const nb::list& parts, const nb::list& pinned,
         const nb::list& buffers, const nb::list& turns) {
        return Link(machine, parts, pinned, buffers, turns).linked();
      },
      nb::arg("machine"), nb::arg("parts"), nb::arg("pinned"), nb::arg("buffers"),
      nb::arg("turns"));
}
