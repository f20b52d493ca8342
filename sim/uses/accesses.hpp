// What operations access, read from the objects of vtaops/lowering/operation.py.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

namespace nb = nanobind;
using Column = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr int32_t kNone = -1;
constexpr int64_t kMost = int64_t{1} << 31;
constexpr int64_t kMemories = int64_t{1} << 20;

constexpr std::size_t kUnits = 3;
enum Unit : std::size_t { kLoad, kCompute, kStore };

// Returns a number if it is in 0 .. end - 1, and refuses it otherwise.
inline std::size_t checked(int64_t number, int64_t end) {
  if (number < 0 || number >= end) throw nb::value_error("a number is negative or too large");
  return static_cast<std::size_t>(number);
}

// Elements of one memory: `offsets` count from the first one.
struct Access {
  std::size_t memory, first;
  const int64_t* offsets;
  std::size_t size;
  bool writes, reads;

  // Calls `visit` with each element; without their offsets, which ascend, if they are contiguous.
  template <class Visit>
  void each(const Visit& visit) const {
    if (size != 0 && static_cast<std::size_t>(offsets[size - 1]) == size - 1) {
      for (std::size_t element = first; element < first + size; ++element) visit(element);
      return;
    }
    for (std::size_t n = 0; n < size; ++n) visit(first + static_cast<std::size_t>(offsets[n]));
  }
};

// What one operation accesses on chip, as `Operation.scratchpads` in Python says.
class Reach {
 public:
  explicit Reach(const nb::tuple& accesses) : kept_(std::make_shared<std::vector<nb::object>>()) {
    for (nb::handle one : accesses) {
      const auto access = nb::cast<nb::tuple>(one);
      const std::size_t memory = checked(nb::cast<int64_t>(access[0]), kMemories);
      const std::size_t first = checked(nb::cast<int64_t>(access[1]), kMost);
      const auto offsets = nb::cast<Column>(access[2]);
      const bool writes = nb::cast<bool>(access[3]), reads = nb::cast<bool>(access[4]);
      std::size_t extent = 0;
      for (std::size_t n = 0; n < offsets.size(); ++n) {
        extent = std::max(extent, checked(offsets(n), kMost) + 1);
      }
      accesses_.push_back({memory, first, offsets.data(), offsets.size(), writes, reads});
      extents_.push_back(extent);
      kept_->push_back(nb::borrow(access[2]));
    }
  }

  // Returns it with its first accesses so many elements further behind.
  Reach moved(const std::vector<int64_t>& by) const {
    Reach other = *this;
    for (std::size_t n = 0; n < std::min(by.size(), accesses_.size()); ++n) {
      std::size_t& first = other.accesses_[n].first;
      first = checked(static_cast<int64_t>(first) + by[n], kMost);
    }
    return other;
  }

  const std::vector<Access>& accesses() const { return accesses_; }
  std::size_t end(std::size_t n) const { return accesses_[n].first + extents_[n]; }

 private:
  std::vector<Access> accesses_;
  std::vector<std::size_t> extents_;  // of each: one past the largest offset
  std::shared_ptr<std::vector<nb::object>> kept_;  // what has the offsets
};

// The accesses of one operation.
struct Own {
  const Access *first, *last;

  const Access* begin() const { return first; }
  const Access* end() const { return last; }
};

// A number for each element of each memory.
template <class Number>
using PerElement = std::vector<std::vector<Number>>;

class Accesses {
 public:
  Accesses() = default;

  explicit Accesses(const nb::list& operations) {
    const nb::str reach("reach");  // each lookup would make its own
    for (nb::handle operation : operations) {
      kept_.push_back(nb::getattr(operation, reach));
      const auto& own = nb::cast<const Reach&>(kept_.back());
      const std::size_t begin = accesses_.size();
      for (std::size_t n = 0; n < own.accesses().size(); ++n) {
        const Access& access = own.accesses()[n];
        if (access.memory >= sizes_.size()) sizes_.resize(access.memory + 1, 0);
        sizes_[access.memory] = std::max(sizes_[access.memory], own.end(n));
        accesses_.push_back(access);
      }
      bounds_.push_back({begin, accesses_.size()});
    }
  }

  // Appends an operation: its accesses on chip, and the one of DRAM or null. They ascend.
  void append(const Access* first, const Access* last, const Access* dram) {
    const std::size_t begin = accesses_.size();
    accesses_.insert(accesses_.end(), first, last);
    if (dram != nullptr) accesses_.push_back(*dram);
    for (std::size_t n = begin; n < accesses_.size(); ++n) {
      const Access& own = accesses_[n];
      if (own.memory >= sizes_.size()) sizes_.resize(own.memory + 1, 0);
      if (own.size == 0) continue;
      const auto last_offset = static_cast<std::size_t>(own.offsets[own.size - 1]);
      sizes_[own.memory] = std::max(sizes_[own.memory], own.first + last_offset + 1);
    }
    bounds_.push_back({begin, accesses_.size()});
  }

  std::size_t operations() const { return bounds_.size(); }

  // Returns the accesses of the operation at a place.
  Own of(std::size_t place) const {
    const Bounds& b = bounds_[place];
    return {accesses_.data() + b.begin, accesses_.data() + b.end};
  }

  // Returns `fill` for each element.
  template <class Number>
  PerElement<Number> numbers(Number fill) const {
    PerElement<Number> numbers;
    for (const std::size_t size : sizes_) numbers.emplace_back(size, fill);
    return numbers;
  }

 private:
  struct Bounds {
    std::size_t begin, end;
  };

  std::vector<std::size_t> sizes_;  // of the memories
  std::vector<Access> accesses_;
  std::vector<Bounds> bounds_;  // of each operation's accesses
  std::vector<nb::object> kept_;  // the reach of each operation, which has the offsets
};
