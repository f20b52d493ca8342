// Arrays of NumPy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>

namespace nb = nanobind;

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
