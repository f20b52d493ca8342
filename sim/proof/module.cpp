// The loops of the proof, and their Python binding (vtaops._proof); vtaops/proof/folds.py says what
// folds are.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <vector>

namespace nb = nanobind;

template <class Number>
using Column = nb::ndarray<const Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class Number>
using Table = nb::ndarray<Number, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class Number>
using Block = nb::ndarray<Number, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

namespace {

// Refuses columns of indices that do not lie in 0 .. end - 1, or are not `length` long.
void check(const Column<int32_t>& column, std::size_t length, std::size_t end) {
  if (column.size() != length) throw nb::value_error("columns differ in length");
  const bool inside = std::all_of(column.data(), column.data() + length, [&](int32_t index) {
    return index >= 0 && static_cast<std::size_t>(index) < end;
  });
  if (!inside) throw nb::index_error("an index lies outside its table");
}

// Adds rows[row] * tiles[tile] to value[sum] for each product, modulo the prime of each plane, and
// the ranges of the tile to those of the sum.
void add_folds(const Column<int32_t>& sum, const Column<int32_t>& row, const Column<int32_t>& tile,
               const Block<const uint32_t>& rows, const Table<const uint32_t>& tiles,
               const Table<const int32_t>& ranges, const Column<uint32_t>& primes,
               const Block<uint64_t>& value, const Table<double>& range) {
  const std::size_t batch = value.shape(1), planes = value.shape(2), width = range.shape(1);
  const bool fits = rows.shape(1) == batch && rows.shape(2) == planes &&
                    tiles.shape(1) == planes && primes.size() == planes &&
                    ranges.shape(0) == tiles.shape(0) && ranges.shape(1) == width &&
                    range.shape(0) == value.shape(0);
  if (!fits) throw nb::value_error("tables differ in shape");
  check(sum, sum.size(), value.shape(0));
  check(row, sum.size(), rows.shape(0));
  check(tile, sum.size(), tiles.shape(0));
  for (std::size_t number = 0; number < sum.size(); ++number) {
    const auto to = static_cast<std::size_t>(sum(number));
    const auto from = static_cast<std::size_t>(tile(number));
    const uint32_t* const x = rows.data() + static_cast<std::size_t>(row(number)) * batch * planes;
    const uint32_t* const y = tiles.data() + from * planes;
    uint64_t* const z = value.data() + to * batch * planes;
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t p = 0; p < planes; ++p) {
        // Sums stay below prime * 2**32, which is a multiple of the prime and above any product.
        const uint64_t bound = uint64_t{primes(p)} << 32;
        const uint64_t next = z[b * planes + p] + uint64_t{x[b * planes + p]} * y[p];
        z[b * planes + p] = next < bound ? next : next - bound;
      }
    }
    const int32_t* const own = ranges.data() + from * width;
    double* const whole = range.data() + to * width;
    for (std::size_t k = 0; k < width; ++k) whole[k] += own[k];
  }
  for (std::size_t k = 0; k < value.size(); ++k) value.data()[k] %= primes(k % planes);
}

// Adds weights[tile, o] * inputs[plane, place, b, lanes[tile, o]] to value[plane, sum, b, o] for each
// product, and the ranges of the tile to those of the sum. The rows of a batch follow each other.
void add_scaled(const Column<int32_t>& sum, const Column<int32_t>& place,
                const Column<int32_t>& tile, std::size_t batch, const Block<const double>& inputs,
                const Table<const int32_t>& lanes, const Table<const double>& weights,
                const Table<const double>& ranges, const Block<double>& value,
                const Table<double>& range) {
  const std::size_t outputs = value.shape(2), tiles = lanes.shape(0), width = range.shape(1);
  const bool fits = lanes.shape(1) == outputs && weights.shape(0) == tiles &&
                    weights.shape(1) == outputs && ranges.shape(0) == tiles &&
                    ranges.shape(1) == width && value.shape(0) == inputs.shape(0) &&
                    range.shape(0) * batch == value.shape(1);
  if (!fits || !batch) throw nb::value_error("tables differ in shape");
  check(sum, sum.size(), range.shape(0));
  check(place, sum.size(), inputs.shape(1) / batch);
  check(tile, sum.size(), tiles);
  for (std::size_t k = 0; k < lanes.size(); ++k) {
    const auto lane = static_cast<std::size_t>(lanes.data()[k]);
    if (lane >= inputs.shape(2)) throw nb::index_error("an index lies outside its table");
  }
  for (std::size_t plane = 0; plane < value.shape(0); ++plane) {
    for (std::size_t number = 0; number < sum.size(); ++number) {
      const auto from = static_cast<std::size_t>(tile(number)) * outputs;
      const auto row = plane * inputs.shape(1) + static_cast<std::size_t>(place(number)) * batch;
      const auto to = plane * value.shape(1) + static_cast<std::size_t>(sum(number)) * batch;
      for (std::size_t b = 0; b < batch; ++b) {
        const double* const x = inputs.data() + (row + b) * inputs.shape(2);
        double* const y = value.data() + (to + b) * outputs;
        for (std::size_t o = 0; o < outputs; ++o) {
          y[o] += weights.data()[from + o] * x[lanes.data()[from + o]];
        }
      }
    }
  }
  for (std::size_t number = 0; number < sum.size(); ++number) {
    const double* const own = ranges.data() + static_cast<std::size_t>(tile(number)) * width;
    double* const whole = range.data() + static_cast<std::size_t>(sum(number)) * width;
    for (std::size_t k = 0; k < width; ++k) whole[k] += own[k];
  }
}

// Reduces integers below 2**53 in magnitude, (planes, count), to half a prime in magnitude.
void centre(const Table<double>& value, const nb::ndarray<const double, nb::ndim<1>, nb::c_contig,
                                                          nb::device::cpu>& primes) {
  if (primes.size() != value.shape(0)) throw nb::value_error("not one prime a plane");
  constexpr double kWhole = 6755399441055744.0;  // 1.5 * 2**52: adding it rounds to an integer
  for (std::size_t plane = 0; plane < value.shape(0); ++plane) {
    const double prime = primes(plane), inverse = 1.0 / prime;
    double* const own = value.data() + plane * value.shape(1);
    for (std::size_t k = 0; k < value.shape(1); ++k) {
      const double quotient = own[k] * inverse + kWhole;
      own[k] -= (quotient - kWhole) * prime;
    }
  }
}

// Sorts each set, (words, members, sets), by its words and replaces members that come again by
// `nothing`, which comes last.
void sort_sets(const Block<uint64_t>& members, uint64_t nothing) {
  const std::size_t words = members.shape(0), most = members.shape(1), sets = members.shape(2);
  std::vector<uint64_t> own(words * most);
  const auto at = [&](std::size_t word, std::size_t member, std::size_t set) -> uint64_t& {
    return members.data()[(word * most + member) * sets + set];
  };
  for (std::size_t set = 0; set < sets; ++set) {
    std::size_t found = 0;
    for (std::size_t m = 0; m < most; ++m) {
      if (at(0, m, set) == nothing) continue;
      // The place of this member among those found: the first that is not less.
      std::size_t place = 0;
      int order = 1;
      for (; place < found; ++place) {
        order = 0;
        for (std::size_t w = 0; w < words && order == 0; ++w) {
          const uint64_t x = at(w, m, set), y = own[place * words + w];
          order = x < y ? -1 : x > y;
        }
        if (order <= 0) break;
      }
      if (place < found && order == 0) continue;
      const auto begin = own.begin() + static_cast<std::ptrdiff_t>(place * words);
      const auto end = own.begin() + static_cast<std::ptrdiff_t>(found * words);
      std::copy_backward(begin, end, end + static_cast<std::ptrdiff_t>(words));
      for (std::size_t w = 0; w < words; ++w) own[place * words + w] = at(w, m, set);
      ++found;
    }
    for (std::size_t m = 0; m < most; ++m) {
      for (std::size_t w = 0; w < words; ++w) {
        at(w, m, set) = m < found ? own[m * words + w] : nothing;
      }
    }
  }
}

}  // namespace

NB_MODULE(_proof, m) {
  m.def("add_scaled", &add_scaled, nb::arg("sum"), nb::arg("place"), nb::arg("tile"),
        nb::arg("batch"), nb::arg("inputs"), nb::arg("lanes"), nb::arg("weights"),
        nb::arg("ranges"), nb::arg("value").noconvert(), nb::arg("range").noconvert());
  m.def("centre", &centre, nb::arg("value").noconvert(), nb::arg("primes"));
  m.def("sort_sets", &sort_sets, nb::arg("members").noconvert(), nb::arg("nothing"));
  m.def("add_folds", &add_folds, nb::arg("sum"), nb::arg("row"), nb::arg("tile"), nb::arg("rows"),
        nb::arg("tiles"), nb::arg("ranges"), nb::arg("primes"), nb::arg("value").noconvert(),
        nb::arg("range").noconvert());
}
