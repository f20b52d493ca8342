// The loops of the def-use index, and their Python binding (vtaops._uses): operations in, places
// out; vtaops/lowering/passes/uses.py says what they mean.
#include <memory>

#include "conflicts.hpp"
#include "link.hpp"
#include "numpy.hpp"

namespace {

// Refuses a column that has not one entry an operation.
void check_length(const Column& column, const Accesses& accesses) {
  if (column.size() != accesses.operations()) throw nb::value_error("columns differ in length");
}

nb::object tokens(const nb::list& operations, const Column& units) {
  const Accesses accesses(operations);
  check_length(units, accesses);
  std::vector<std::size_t> own;
  for (std::size_t n = 0; n < units.size(); ++n) own.push_back(checked(units(n), kUnits));
  const std::vector<Tokens::Row> found = synchronize(accesses, own);
  constexpr std::size_t width = sizeof(Tokens::Row) / sizeof(int64_t);
  return numpy_of(reinterpret_cast<const int64_t*>(found.data()), {found.size(), width});
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
  nb::set_leak_warnings(false);  // fragments may live until the interpreter exits
  const auto operations = nb::arg("operations");
  m.def("tokens", &tokens, operations, nb::arg("units"));
  m.def("read_later", &read_later, operations, nb::arg("followed"));
  m.def("last_writers", &last_writers, operations, nb::arg("asked"));
  bind_link(m);
}
