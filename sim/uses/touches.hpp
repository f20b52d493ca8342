// The touches of operations, read from the objects of vtaops/lowering/operation.py.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <vector>

namespace nb = nanobind;
using Column = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr int32_t kNone = -1;
constexpr int64_t kMost = int64_t{1} << 31;

// Returns a number if it is in 0 .. end - 1, and refuses it otherwise.
inline std::size_t checked(int64_t number, int64_t end) {
  if (number < 0 || number >= end) throw nb::value_error("a number is negative or too large");
  return static_cast<std::size_t>(number);
}

struct Touch {
  std::size_t memory;
  bool write;
  std::size_t begin, end;   // of a run of elements;
  const int64_t* elements;  // or these
  std::size_t count;

  std::size_t size() const { return end - begin + count; }

  // Calls `visit` with each element.
  template <class Visit>
  void each(const Visit& visit) const {
    for (std::size_t element = begin; element < end; ++element) visit(element);
    for (std::size_t n = 0; n < count; ++n) visit(static_cast<std::size_t>(elements[n]));
  }
};

// The touches of one operation.
struct Own {
  const Touch *first, *last;

  const Touch* begin() const { return first; }
  const Touch* end() const { return last; }

  // The second one: of LOAD and STORE, that of DRAM.
  const Touch& second() const {
    if (last - first < 2) throw nb::value_error("an operation has no second touch");
    return first[1];
  }
};

// A number for each element of each memory.
template <class Number>
using PerElement = std::vector<std::vector<Number>>;

class Touches {
 public:
  // Reads all but the touches of the space `ignored`.
  explicit Touches(const nb::list& operations, nb::handle ignored = nb::handle()) {
    for (nb::handle operation : operations) {
      for (nb::handle touch : nb::cast<nb::tuple>(nb::getattr(operation, name_.touches))) {
        const nb::object space = nb::getattr(touch, name_.space);
        if (!ignored.is_valid() || !space.equal(ignored)) add(touch, space);
      }
      ends_.push_back(touches_.size());
    }
  }

  std::size_t operations() const { return ends_.size(); }

  // Returns the touches of the operation at a place.
  Own of(std::size_t place) const {
    const std::size_t begin = place ? ends_[place - 1] : 0;
    return {touches_.data() + begin, touches_.data() + ends_[place]};
  }

  // Returns the number of a space, which some operation touches; else that of none.
  std::size_t memory(const char* space) const {
    return numbers_.contains(space) ? nb::cast<std::size_t>(numbers_[space]) : sizes_.size();
  }

  // Returns `fill` for each element.
  template <class Number>
  PerElement<Number> numbers(Number fill) const {
    PerElement<Number> numbers;
    for (const std::size_t size : sizes_) numbers.emplace_back(size, fill);
    return numbers;
  }

 private:
  void add(nb::handle touch, const nb::object& space) {
    nb::handle number = PyDict_GetItemWithError(numbers_.ptr(), space.ptr());
    if (!number.is_valid()) {
      if (PyErr_Occurred()) throw nb::python_error();
      numbers_[space] = sizes_.size();
      sizes_.push_back(0);
      number = PyDict_GetItemWithError(numbers_.ptr(), space.ptr());
    }
    const auto memory = nb::cast<std::size_t>(number);
    std::size_t& end = sizes_[memory];
    const std::size_t size = checked(integer(touch, name_.size), kMost);
    const int64_t begin = integer(touch, name_.begin);
    const bool write = nb::cast<bool>(nb::bool_(nb::getattr(touch, name_.write)));
    if (begin >= 0) {
      const std::size_t first = checked(begin, kMost);
      touches_.push_back({memory, write, first, first + size, nullptr, 0});
      end = std::max(end, first + size);
    } else {
      const Column& own = kept_.emplace_back(nb::cast<Column>(nb::getattr(touch, name_.elements)));
      if (own.size() != size) throw nb::value_error("a touch has another number of elements");
      for (std::size_t n = 0; n < size; ++n) end = std::max(end, checked(own(n), kMost) + 1);
      touches_.push_back({memory, write, 0, 0, own.data(), size});
    }
  }

  static int64_t integer(nb::handle object, const nb::object& name) {
    return nb::cast<int64_t>(nb::getattr(object, name));
  }

  struct Names {
    nb::str touches{"touches"}, space{"space"}, size{"size"}, begin{"begin"}, write{"write"},
        elements{"elements"};
  } name_;  // made once: each lookup would make its own
  nb::dict numbers_;                // of the spaces
  std::vector<std::size_t> sizes_;  // of the memories
  std::vector<Touch> touches_;
  std::vector<std::size_t> ends_;  // of each operation's touches
  std::vector<Column> kept_;       // what touches point to
};
