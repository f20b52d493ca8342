// The loop of the def-use index, and its Python binding (vtaops._uses): a table in, places out;
// vtaops/lowering/passes/uses.py makes and interprets them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <vector>

namespace nb = nanobind;
using Column = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const int64_t, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;
using Places = nb::ndarray<int64_t, nb::numpy, nb::ndim<2>, nb::c_contig>;

namespace {

constexpr int32_t kNone = -1;
constexpr int64_t kMost = int64_t{1} << 31;

struct Touch {
  std::size_t memory;
  bool write;
  std::size_t begin, end;   // of a run of elements;
  const int64_t* elements;  // or these
  std::size_t count;

  // Calls `visit` with each element.
  template <class Visit>
  void each(const Visit& visit) const {
    for (std::size_t element = begin; element < end; ++element) visit(element);
    for (std::size_t n = 0; n < count; ++n) visit(static_cast<std::size_t>(elements[n]));
  }
};

// For each element of a memory, the place of the last touch of one kind.
using Last = std::vector<int32_t>;

int64_t latest(const Last& last, const Touch& touch) {
  int32_t found = kNone;
  touch.each([&](std::size_t element) { found = std::max(found, last[element]); });
  return found;
}

void note(Last& last, const Touch& touch, int32_t place) {
  touch.each([&](std::size_t element) { last[element] = place; });
}

struct Memory {
  std::size_t size = 0;
  std::vector<Last> writes, reads;  // for each kind of operation
};

// Refuses a number out of 0 .. end - 1.
void check(int64_t number, int64_t end) {
  if (number < 0 || number >= end) throw nb::value_error("a number is negative or too large");
}

// Returns the touches of a table: memory, whether it is written, number of elements, and the first
// one, or -1, if they are the next ones of `elements`.
std::vector<Touch> touches_of(const Table& table, const Column& elements) {
  std::vector<Touch> touches;
  std::size_t taken = 0;
  for (std::size_t n = 0; n < table.shape(0); ++n) {
    for (const int64_t number : {table(n, 0), table(n, 2), table(n, 3) + 1}) check(number, kMost);
    const auto count = static_cast<std::size_t>(table(n, 2));
    const bool is_run = table(n, 3) >= 0;
    const auto begin = static_cast<std::size_t>(is_run ? table(n, 3) : 0);
    if (!is_run && count > elements.size() - taken) throw nb::value_error("too few elements");
    touches.push_back({static_cast<std::size_t>(table(n, 0)), table(n, 1) != 0, begin,
                       is_run ? begin + count : 0, elements.data() + taken, is_run ? 0 : count});
    taken += touches.back().count;
  }
  for (std::size_t n = 0; n < elements.size(); ++n) check(elements(n), kMost);
  return touches;
}

// Returns the memories that touches need, without any place.
std::vector<Memory> memories_of(const std::vector<Touch>& touches, std::size_t kinds) {
  std::vector<Memory> memories;
  for (const Touch& touch : touches) {
    if (memories.size() <= touch.memory) memories.resize(touch.memory + 1);
    std::size_t& size = memories[touch.memory].size;
    touch.each([&](std::size_t element) { size = std::max(size, element + 1); });
  }
  for (Memory& m : memories) m.writes = m.reads = {kinds, Last(m.size, kNone)};
  return memories;
}

nb::object last_conflicts(int64_t kinds, const Column& kind, const Column& counts,
                          const Table& table, const Column& elements) {
  if (counts.size() != kind.size()) throw nb::value_error("columns differ in length");
  const std::vector<Touch> touches = touches_of(table, elements);
  const auto width = static_cast<std::size_t>(kinds);
  std::vector<Memory> memories = memories_of(touches, width);
  auto* const found = new int64_t[kind.size() * width];
  const nb::capsule owner(found, [](void* p) noexcept { delete[] static_cast<int64_t*>(p); });
  std::fill_n(found, kind.size() * width, kNone);

  const Touch* next = touches.data();
  for (std::size_t place = 0; place < kind.size(); ++place) {
    const Touch* const own = next;
    check(kind(place), kinds);
    check(counts(place), touches.data() + touches.size() - own + 1);
    next += counts(place);
    for (const Touch* t = own; t != next; ++t) {
      const Memory& m = memories[t->memory];
      for (std::size_t k = 0; k < width; ++k) {
        int64_t& last = found[place * width + k];
        last = std::max(last, latest(m.writes[k], *t));
        if (t->write) last = std::max(last, latest(m.reads[k], *t));
      }
    }
    for (const Touch* t = own; t != next; ++t) {
      Memory& m = memories[t->memory];
      const auto k = static_cast<std::size_t>(kind(place));
      note(t->write ? m.writes[k] : m.reads[k], *t, static_cast<int32_t>(place));
    }
  }
  return nb::cast(Places(found, {kind.size(), width}, owner));
}

}  // namespace

NB_MODULE(_uses, m) {
  m.def("last_conflicts", &last_conflicts, nb::arg("kinds"), nb::arg("kind"), nb::arg("counts"),
        nb::arg("touches"), nb::arg("elements"));
}
