// The loops of the def-use index, and their Python binding (vtaops._uses): operations in, places
// out; vtaops/lowering/passes/uses.py says what they mean.
#include <memory>

#include "conflicts.hpp"
#include "link.hpp"
#include "numpy.hpp"

namespace {

// When `read_later` follows what an operation does.
enum Followed : int64_t { kNever, kAlways, kIfRead, kWays };

using Flags = nb::ndarray<const bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The def-use index of a list of operations.
class Uses {
 public:
  explicit Uses(const nb::list& operations) : accesses_(operations) {}

  nb::object tokens(const Column& units) const {
    check_length(units);
    std::vector<std::size_t> own;
    for (std::size_t n = 0; n < units.size(); ++n) own.push_back(checked(units(n), kUnits));
    const std::vector<Tokens::Row> found = synchronize(accesses_, own);
    constexpr std::size_t width = sizeof(Tokens::Row) / sizeof(int64_t);
    return numpy_of(reinterpret_cast<const int64_t*>(found.data()), {found.size(), width});
  }

  nb::object read_later(const Column& followed) const {
    check_length(followed);
    PerElement<char> live = accesses_.numbers<char>(false);
    const auto found = std::make_unique<bool[]>(followed.size());
    for (std::size_t place = followed.size(); place-- > 0;) {
      bool& read = found[place];
      for (const Access& access : accesses_.of(place)) {
        if (!access.writes) continue;
        const std::vector<char>& own = live[access.memory];
        char any = 0;
        access.each([&](std::size_t element) { any |= own[element]; });
        read |= any != 0;
      }
      const std::size_t way = checked(followed(place), kWays);
      if (way == kNever || (way == kIfRead && !read)) continue;
      for (const bool reads : {false, true}) {  // an operation reads before it writes
        for (const Access& access : accesses_.of(place)) {
          if (!(reads ? access.reads : access.writes)) continue;
          char* own = live[access.memory].data();
          access.each([=](std::size_t element) { own[element] = reads; });
        }
      }
    }
    return numpy_of(found.get(), {followed.size()});
  }

  nb::object last_writers(const Column& asked) const {
    check_length(asked);
    PerElement<int32_t> written = accesses_.numbers<int32_t>(kNone);
    const auto found = std::make_unique<bool[]>(asked.size());
    for (std::size_t place = 0; place < asked.size(); ++place) {
      for (const Access& access : accesses_.of(place)) {
        if (!asked(place) || !access.reads) continue;
        access.each([&](std::size_t element) {
          const int32_t writer = written[access.memory][element];
          if (writer != kNone) found[static_cast<std::size_t>(writer)] = true;
        });
      }
      for (const Access& access : accesses_.of(place)) {
        if (!access.writes) continue;
        access.each([&](std::size_t element) {
          written[access.memory][element] = static_cast<int32_t>(place);
        });
      }
    }
    return numpy_of(found.get(), {asked.size()});
  }

  // Returns the first place in begin .. end - 1 that touches flagged elements of a memory, or `end`.
  std::size_t touching(int64_t memory, const Flags& flags, int64_t begin, int64_t end) const {
    const std::size_t last = checked(end, static_cast<int64_t>(accesses_.operations()) + 1);
    std::size_t place = checked(begin, kMost);
    while (place < last && !touches(memory, flags, place)) ++place;
    return std::min(place, last);
  }

  // Returns the first and the last of the places before `end` that wrote flagged elements of a memory
  // last, without dropped operations; kNone if one was never written.
  std::pair<int64_t, int64_t> writers(int64_t memory, const Flags& flags, int64_t end,
                                      const Flags& dropped) const {
    if (dropped.size() != accesses_.operations()) throw nb::value_error("columns differ in length");
    std::vector<char> left(flags.data(), flags.data() + flags.size());
    auto count = std::count(left.begin(), left.end(), 1);
    int64_t first = kNone, last = kNone;
    for (std::size_t place = checked(end, static_cast<int64_t>(dropped.size()) + 1); count && place-- > 0;) {
      if (dropped(place)) continue;
      for (const Access& access : accesses_.of(place)) {
        if (static_cast<int64_t>(access.memory) != memory || !access.writes) continue;
        access.each([&](std::size_t element) {
          if (element >= left.size() || !left[element]) return;
          left[element] = 0, --count;
          first = static_cast<int64_t>(place);
          if (last == kNone) last = first;
        });
      }
    }
    return {count ? kNone : first, count ? kNone : last};
  }

 private:
  // Refuses a column that has not one entry an operation.
  void check_length(const Column& column) const {
    if (column.size() != accesses_.operations()) throw nb::value_error("columns differ in length");
  }

  bool touches(int64_t memory, const Flags& flags, std::size_t place) const {
    for (const Access& access : accesses_.of(place)) {
      if (static_cast<int64_t>(access.memory) != memory) continue;
      for (std::size_t n = 0; n < access.size; ++n) {
        const std::size_t element = access.first + static_cast<std::size_t>(access.offsets[n]);
        if (element < flags.size() && flags.data()[element]) return true;
      }
    }
    return false;
  }

  Accesses accesses_;
};

}  // namespace

NB_MODULE(_uses, m) {
  nb::set_leak_warnings(false);  // fragments may live until the interpreter exits
  nb::class_<Reach>(m, "Reach")
      .def(nb::init<const nb::tuple&>(), nb::arg("accesses"))
      .def("moved", &Reach::moved, nb::arg("by"));
  nb::class_<Uses>(m, "Uses")
      .def(nb::init<const nb::list&>(), nb::arg("operations"))
      .def("tokens", &Uses::tokens, nb::arg("units"))
      .def("read_later", &Uses::read_later, nb::arg("followed"))
      .def("last_writers", &Uses::last_writers, nb::arg("asked"))
      .def("touching", &Uses::touching, nb::arg("memory"), nb::arg("flags"), nb::arg("begin"),
           nb::arg("end"))
      .def("writers", &Uses::writers, nb::arg("memory"), nb::arg("flags"), nb::arg("end"),
           nb::arg("dropped"));
  bind_link(m);
}
