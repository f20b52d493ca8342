// The loops of the def-use index, and their Python binding (vtaops._uses): operations in, places
// out; vtaops/lowering/passes/uses.py says what they mean.
#include <memory>

#include "conflicts.hpp"

namespace {

// Returns a new array of NumPy with these numbers.
template <class Number>
nb::object numpy_of(const Number* numbers, std::initializer_list<std::size_t> shape) {
  std::size_t count = 1;
  for (const std::size_t extent : shape) count *= extent;
  auto* const own = new Number[count];
  const nb::capsule owner(own, [](void* p) noexcept { delete[] static_cast<Number*>(p); });
  std::copy_n(numbers, count, own);
  return nb::cast(nb::ndarray<Number, nb::numpy, nb::c_contig>(own, shape, owner));
}

// Refuses a column that has not one entry an operation.
void check_length(const Column& column, const Accesses& accesses) {
  if (column.size() != accesses.operations()) throw nb::value_error("columns differ in length");
}

nb::object last_conflicts(const nb::list& operations, const Column& kinds, int64_t count) {
  const Accesses accesses(operations);
  check_length(kinds, accesses);
  const std::size_t width = checked(count, kMost);
  Conflicts conflicts(accesses, width);
  std::vector<int64_t> found(kinds.size() * width);
  for (std::size_t place = 0; place < kinds.size(); ++place) {
    conflicts.follow(place, checked(kinds(place), count), found.data() + place * width);
  }
  return numpy_of(found.data(), {kinds.size(), width});
}

nb::object tokens(const nb::list& operations, const Column& units) {
  const Accesses accesses(operations);
  check_length(units, accesses);
  Conflicts conflicts(accesses, kUnits);
  Tokens tokens;
  std::vector<int64_t> positions;  // of the operations, behind relays
  for (std::size_t place = 0; place < units.size(); ++place) {
    const std::size_t unit = checked(units(place), kUnits);
    Tokens::Clock need;
    conflicts.follow(place, unit, need.data());
    for (int64_t& n : need) n = n == kNone ? n : positions[static_cast<std::size_t>(n)];
    const bool is_last = place + 1 == units.size();
    positions.push_back(tokens.append(place, unit, is_last ? tokens.last() : need));
  }
  constexpr std::size_t width = sizeof(Tokens::Row) / sizeof(int64_t);
  const auto* const rows = reinterpret_cast<const int64_t*>(tokens.rows().data());
  return numpy_of(rows, {tokens.rows().size(), width});
}

nb::dict sources(const nb::list& operations, const Column& stored, const Column& asked,
                 std::size_t acc) {
  const Accesses accesses(operations);
  check_length(stored, accesses);
  check_length(asked, accesses);
  PerElement<int32_t> written = accesses.numbers<int32_t>(kNone);  // where each element was last
  PerElement<int64_t> copied = accesses.numbers<int64_t>(kNone);   // from where, of DRAM
  const auto changed = [&](std::size_t source) {
    return acc < written.size() && source < written[acc].size() ? written[acc][source] : kNone;
  };
  nb::dict found;
  for (std::size_t place = 0; place < accesses.operations(); ++place) {
    if (asked(place)) {
      const Access& access = accesses.of(place).of_dram();
      std::vector<int64_t> own;
      access.each([&](std::size_t element) {
        const int64_t source = copied[access.memory][element];
        const bool intact = source != kNone && changed(static_cast<std::size_t>(source)) <
                                                   written[access.memory][element];
        own.push_back(intact ? source : kNone);
      });
      if (std::any_of(own.begin(), own.end(), [](int64_t source) { return source != kNone; })) {
        found[nb::int_(place)] = numpy_of(own.data(), {own.size()});
      }
    }
    for (const Access& access : accesses.of(place)) {
      if (!access.writes) continue;
      int64_t source = stored(place);
      access.each([&](std::size_t element) {
        written[access.memory][element] = static_cast<int32_t>(place);
        if (source != kNone) copied[access.memory][element] = source++;
      });
    }
  }
  return found;
}

nb::dict needed(const nb::list& operations, const Column& asked) {
  const Accesses accesses(operations);
  check_length(asked, accesses);
  PerElement<char> live = accesses.numbers<char>(false);
  nb::dict found;
  for (std::size_t place = accesses.operations(); place-- > 0;) {
    if (asked(place)) {
      const Access& access = accesses.of(place).of_dram();
      const auto own = std::make_unique<bool[]>(access.size);
      std::size_t next = 0;
      access.each([&](std::size_t element) { own[next++] = live[access.memory][element]; });
      if (!std::all_of(own.get(), own.get() + next, [](bool read) { return read; })) {
        found[nb::int_(place)] = numpy_of(own.get(), {next});
      }
    }
    for (const bool reads : {false, true}) {  // an operation reads before it writes
      for (const Access& access : accesses.of(place)) {
        if (access.writes == reads) continue;
        access.each([&](std::size_t element) { live[access.memory][element] = reads; });
      }
    }
  }
  return found;
}

// When `read_later` follows what an operation does.
enum Followed : int64_t { kNever, kAlways, kIfRead, kWays };

nb::object read_later(const nb::list& operations, const Column& followed) {
  const Accesses accesses(operations);
  check_length(followed, accesses);
  PerElement<char> live = accesses.numbers<char>(false);
  const auto found = std::make_unique<bool[]>(followed.size());
  for (std::size_t place = followed.size(); place-- > 0;) {
    bool& read = found[place];
    for (const Access& access : accesses.of(place)) {
      if (!access.writes) continue;
      access.each([&](std::size_t element) { read |= live[access.memory][element] != 0; });
    }
    const std::size_t way = checked(followed(place), kWays);
    if (way == kNever || (way == kIfRead && !read)) continue;
    for (const Access& access : accesses.of(place)) {
      if (!access.writes) continue;
      access.each([&](std::size_t element) { live[access.memory][element] = false; });
    }
    for (const Access& access : accesses.of(place)) {
      if (!access.reads) continue;
      access.each([&](std::size_t element) { live[access.memory][element] = true; });
    }
  }
  return numpy_of(found.get(), {followed.size()});
}

nb::object last_writers(const nb::list& operations, const Column& asked) {
  const Accesses accesses(operations);
  check_length(asked, accesses);
  PerElement<int32_t> written = accesses.numbers<int32_t>(kNone);
  const auto found = std::make_unique<bool[]>(asked.size());
  for (std::size_t place = 0; place < asked.size(); ++place) {
    for (const Access& access : accesses.of(place)) {
      if (!asked(place) || !access.reads) continue;
      access.each([&](std::size_t element) {
        const int32_t writer = written[access.memory][element];
        if (writer != kNone) found[static_cast<std::size_t>(writer)] = true;
      });
    }
    for (const Access& access : accesses.of(place)) {
      if (!access.writes) continue;
      access.each([&](std::size_t element) {
        written[access.memory][element] = static_cast<int32_t>(place);
      });
    }
  }
  return numpy_of(found.get(), {asked.size()});
}

}  // namespace

NB_MODULE(_uses, m) {
  const auto operations = nb::arg("operations");
  m.def("last_conflicts", &last_conflicts, operations, nb::arg("kinds"), nb::arg("count"));
  m.def("tokens", &tokens, operations, nb::arg("units"));
  m.def("sources", &sources, operations, nb::arg("stored"), nb::arg("asked"), nb::arg("acc"));
  m.def("needed", &needed, operations, nb::arg("asked"));
  m.def("read_later", &read_later, operations, nb::arg("followed"));
  m.def("last_writers", &last_writers, operations, nb::arg("asked"));
}
