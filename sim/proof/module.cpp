// The loops of the proof, and their Python binding (vtaops._proof).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "names.hpp"

// Compiles a loop for wider vectors as well; which one runs is decided when the module is loaded.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && __GNUC__ >= 12
#define VECTORS __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define VECTORS
#endif

namespace nb = nanobind;

template <class Number>
using Column = nb::ndarray<const Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class Number>
using Table = nb::ndarray<Number, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class Number>
using Block = nb::ndarray<Number, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
// An array of any shape and strides.
template <class Number>
using Array = nb::ndarray<const Number, nb::device::cpu>;

namespace {

// Refuses columns of indices that do not lie in 0 .. end - 1, or are not `length` long.
void check(const Column<int32_t>& column, std::size_t length, std::size_t end) {
  if (column.size() != length) throw nb::value_error("columns differ in length");
  const bool inside = std::all_of(column.data(), column.data() + length, [&](int32_t index) {
    return index >= 0 && static_cast<std::size_t>(index) < end;
  });
  if (!inside) throw nb::index_error("an index lies outside its table");
}

constexpr double kWhole = 6755399441055744.0;  // 1.5 * 2**52: adding it rounds to an integer

// Reduces an integer below 2**53 in magnitude to half a prime in magnitude.
double centred(double value, double prime, double inverse) {
  return value - ((value * inverse + kWhole) - kWhole) * prime;
}

// Reduces the integers of one plane.
VECTORS void centre_plane(double* own, std::size_t count, double prime) {
  const double inverse = 1.0 / prime;
  for (std::size_t k = 0; k < count; ++k) own[k] = centred(own[k], prime, inverse);
}

// Reduces integers below 2**53 in magnitude, (planes, count), to half a prime in magnitude.
void centre(const Table<double>& value, const nb::ndarray<const double, nb::ndim<1>, nb::c_contig,
                                                          nb::device::cpu>& primes) {
  if (primes.size() != value.shape(0)) throw nb::value_error("not one prime a plane");
  for (std::size_t plane = 0; plane < value.shape(0); ++plane) {
    centre_plane(value.data() + plane * value.shape(1), value.shape(1), primes(plane));
  }
}

// The elements of several arrays of one shape, each with its own strides, in C order.
template <std::size_t kArrays>
class Walk {
 public:
  template <class... Numbers>
  explicit Walk(const Array<Numbers>&... arrays) {
    static_assert(sizeof...(arrays) == kArrays);
    std::size_t number = 0;
    (add(arrays, number++), ...);
    at_.resize(shape_.size());
    if (!shape_.empty()) {
      row_ = shape_.back();
      for (std::size_t k = 0; k < kArrays; ++k) step_[k] = strides_[k].back();
    }
    left_ = row_;
  }

  std::size_t size() const {
    std::size_t count = 1;
    for (const std::size_t extent : shape_) count *= extent;
    return count;
  }

  // Where the current element lies in an array.
  int64_t place(std::size_t array) const { return place_[array]; }

  void next() {
    for (std::size_t k = 0; k < kArrays; ++k) place_[k] += step_[k];
    if (--left_ == 0) next_row();
  }

  // Calls a function for the next `count` elements, in pieces of rows: with the first element of a
  // piece and its length; `at` of it are the places of its elements.
  template <class Function>
  void pieces(std::size_t count, Function function) {
    for (std::size_t first = 0; first < count;) {
      const std::size_t length = std::min(count - first, left_);
      function(first, length);
      for (std::size_t k = 0; k < kArrays; ++k) place_[k] += step_[k] * static_cast<int64_t>(length);
      left_ -= length;
      if (left_ == 0) next_row();
      first += length;
    }
  }

  // Copies a piece of an array.
  template <class Number>
  void copy(std::size_t array, const Number* from, std::size_t length, Number* to) const {
    from += place_[array];
    const int64_t step = step_[array];
    if (step == 0) {
      std::fill_n(to, length, *from);
    } else if (step == 1) {
      std::copy_n(from, length, to);
    } else {
      for (std::size_t k = 0; k < length; ++k) to[k] = from[static_cast<int64_t>(k) * step];
    }
  }

 private:
  template <class Number>
  void add(const Array<Number>& array, std::size_t number) {
    std::vector<std::size_t> shape;
    for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
      shape.push_back(array.shape(axis));
      strides_[number].push_back(array.stride(axis));
    }
    if (number && shape != shape_) throw nb::value_error("arrays differ in shape");
    shape_ = shape;
  }

  void next_row() {
    left_ = row_;
    for (std::size_t axis = shape_.size(); axis-- > 0;) {
      const bool last = axis + 1 == shape_.size();
      const auto extent = static_cast<int64_t>(shape_[axis]);
      for (std::size_t k = 0; k < kArrays; ++k) {
        place_[k] += last ? -strides_[k][axis] * extent : strides_[k][axis];
      }
      if (last) continue;
      if (++at_[axis] < shape_[axis]) return;
      for (std::size_t k = 0; k < kArrays; ++k) place_[k] -= strides_[k][axis] * extent;
      at_[axis] = 0;
    }
  }

  std::vector<std::size_t> shape_, at_;
  std::vector<int64_t> strides_[kArrays];
  int64_t place_[kArrays] = {}, step_[kArrays] = {};
  std::size_t row_ = 1, left_ = 1;
};

// A random permutation of 64 bits for each tag: `terms._permuted`.
uint64_t permuted(uint64_t word, uint64_t tag) {
  uint64_t h = word + tag;
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93;
  h ^= h >> 29;
  h ^= tag;
  h *= 0x9E3779B97F4A7C15;
  return h ^ h >> 32;
}

// Numbers that lie side by side, so that a loop over them is one of vectors.
constexpr std::size_t kAtOnce = 64;
using Row = std::array<double, kAtOnce>;
using Words = std::array<uint64_t, kAtOnce>;
using Shifts = std::array<int64_t, kAtOnce>;

// An integer below 2**51 in magnitude as a number of the other kind; unlike a cast, with vectors of all
// kinds.
inline int64_t integer_of(double value) {
  const double moved = value + kWhole;
  int64_t bits, whole;
  std::memcpy(&bits, &moved, sizeof bits);
  std::memcpy(&whole, &kWhole, sizeof whole);
  return bits - whole;
}
inline double double_of(int64_t value) {
  int64_t bits;
  std::memcpy(&bits, &kWhole, sizeof bits);
  bits += value;
  double moved;
  std::memcpy(&moved, &bits, sizeof moved);
  return moved - kWhole;
}

// Adds numbers to residues, multiplies the sums, adds others, and reduces: one plane of a requantization.
VECTORS void scale_row(const double* from, const Row& plus, const Row& times, const Row& added,
                       double prime, Row& to) {
  const double inverse = 1.0 / prime;
  for (std::size_t k = 0; k < kAtOnce; ++k) {
    to[k] = centred((from[k] + plus[k]) * times[k] + added[k], prime, inverse);
  }
}

// The words of two planes of residues.
VECTORS void make_words(const double* low, const double* high, std::size_t count, double first,
                        double second, uint64_t* made) {
  const auto a = static_cast<int64_t>(first), b = static_cast<int64_t>(second);
  for (std::size_t k = 0; k < count; ++k) {  // no branch: signs cannot be predicted
    const int64_t x = integer_of(low[k]), y = integer_of(high[k]);
    made[k] = static_cast<uint64_t>(x + (x >> 63 & a)) | static_cast<uint64_t>(y + (y >> 63 & b)) << 32;
  }
}

// Copies rows of several sources, (planes, rows, scalars), to `made`, (planes, count, scalars): for each
// row, its source, and its place there.
void gather(const std::vector<Block<const double>>& sources, const Column<int32_t>& which,
            const Column<int32_t>& rows, const Block<double>& made) {
  const std::size_t planes = made.shape(0), count = made.shape(1), scalars = made.shape(2);
  check(which, count, sources.size());
  check(rows, count, SIZE_MAX);
  for (const auto& source : sources) {
    if (source.shape(0) != planes || source.shape(2) != scalars) throw nb::value_error("tables differ in shape");
  }
  for (std::size_t k = 0; k < count; ++k) {
    const Block<const double>& source = sources[static_cast<std::size_t>(which(k))];
    const auto row = static_cast<std::size_t>(rows(k));
    if (row >= source.shape(1)) throw nb::index_error("an index lies outside its table");
    for (std::size_t p = 0; p < planes; ++p) {
      std::copy_n(source.data() + (p * source.shape(1) + row) * scalars, scalars,
                  made.data() + (p * count + k) * scalars);
    }
  }
}

// Makes words of the residues of two planes each, (planes, count): `terms.Fields.keys`.
void make_keys(const Table<const double>& value, const Column<double>& primes,
               const Table<uint64_t>& made) {
  const std::size_t planes = value.shape(0), count = value.shape(1);
  const bool fits = primes.size() == planes && planes == 2 * made.shape(0) && made.shape(1) == count;
  if (!fits) throw nb::value_error("tables differ in shape");
  for (std::size_t p = 0; p < planes; p += 2) {
    make_words(value.data() + p * count, value.data() + (p + 1) * count, count, primes(p), primes(p + 1),
               made.data() + p / 2 * count);
  }
}

// What `judge_row` finds: whether a sum may not fit int32 or a product never reaches half a step, and
// whether some term stays a polynomial.
struct Judged {
  bool wraps, polynomial;
};

// Judges the requantizations of terms in `middle` + `plus` and `reach`, and marks those that change.
VECTORS Judged judge_row(const Row& middle, const Row& reach, const Row& plus, const Row& times,
                         const Row& half, const Row& added, const Shifts& bits, std::size_t size,
                         double least, double most, Words& changes) {
  constexpr double kInt32 = 2147483648.0;
  uint64_t wraps = 0, polynomial = 0;
  for (std::size_t k = 0; k < kAtOnce; ++k) {
    const double centre = middle[k] + plus[k], number = centre * times[k] + added[k];
    const double spread = reach[k] * std::abs(times[k]);
    const uint64_t counts = k < size;
    const uint64_t over = (centre - reach[k] < -kInt32) | (centre + reach[k] >= kInt32);
    wraps |= counts & (over | (times[k] * kInt32 <= half[k]));
    // Bounds are integers, and the ends round down.
    const uint64_t within = (number - spread >= least) & (number + spread < most + 1);
    changes[k] = (bits[k] > 0) | (within ^ 1);
    polynomial |= counts & (changes[k] ^ 1) & (reach[k] > 0);
  }
  return {wraps != 0, polynomial != 0};
}

// Replaces words by a random permutation of them for each tag and other word.
VECTORS void permute_row(Words& word, const Words& tag, const Words& other) {
  for (std::size_t k = 0; k < kAtOnce; ++k) word[k] = permuted(word[k], tag[k] + other[k]);
}

// The residues of the halves of a hash.
VECTORS void residues_row(const Words& word, double first, double second, Row& low, Row& high) {
  const double inverse = 1.0 / first, other = 1.0 / second;
  for (std::size_t k = 0; k < kAtOnce; ++k) {
    low[k] = centred(double_of(static_cast<int64_t>(word[k] & 0x7FFFFFFF)), first, inverse);
    high[k] = centred(double_of(static_cast<int64_t>(word[k] >> 33)), second, other);
  }
}

// Marks residues that could be those of a small number, or of one of halves: all that are small, or
// whose product with `factor` is.
VECTORS void mark_row(const Row& value, const Shifts& factor, double prime,
                      double small, Words& marks) {
  const double inverse = 1.0 / prime;
  const auto whole = static_cast<int64_t>(prime);
  for (std::size_t k = 0; k < kAtOnce; ++k) {
    const double quotient = (value[k] * double_of(factor[k]) * inverse + kWhole) - kWhole;
    const int64_t rest = integer_of(value[k]) * factor[k] - integer_of(quotient) * whole;
    const double half = centred(double_of(rest), prime, inverse);
    marks[k] = std::abs(value[k]) < small || std::abs(half) < small;
  }
}

// Replaces keys, (words, count), by a random permutation of them: `terms.Fields.scramble`.
void scramble(const Table<uint64_t>& keys, uint64_t tag) {
  const std::size_t words = keys.shape(0);
  for (std::size_t w = 0; w < words; ++w) {
    for (std::size_t k = 0; k < keys.shape(1); ++k) {
      keys(w, k) = permuted(keys(w, k), tag + (w ? keys(w - 1, k) : 0));
    }
  }
  for (std::size_t w = words; w-- > 1;) {
    for (std::size_t k = 0; k < keys.shape(1); ++k) {
      keys(w - 1, k) = permuted(keys(w - 1, k), tag + keys(w, k));
    }
  }
}

// The prime fields, and hashes of residues into them: `terms.Fields`.
template <std::size_t kPlanes>
class Hashes {
 public:
  using Residues = std::array<double, kPlanes>;

  // `halves` are 2**-k for k from 0 on, of each prime, (planes, k); numbers are below `small`.
  Hashes(const Column<double>& primes, const Table<const int64_t>& halves, double small)
      : halves_(halves.data()), columns_(halves.shape(1)), small_(small) {
    if (halves.shape(0) != kPlanes) throw nb::value_error("tables differ in shape");
    for (std::size_t p = 0; p < kPlanes; ++p) {
      primes_[p] = primes(p);
      wholes_[p] = static_cast<int64_t>(primes(p));
      inverses_[p] = 1.0 / primes(p);
    }
  }

  // The longest shift that can be settled.
  std::size_t longest() const { return columns_; }

  double reduced(double value, std::size_t p) const {
    return centred(value, primes_[p], inverses_[p]);
  }

  // Settles a term whose shift is `bits` and whose bounds are `least` and `most`.
  Residues settled(Residues own, std::size_t bits, double least, double most, uint64_t tag) const {
    double exact = 0;
    if (least == most) {
      own.fill(least);
    } else if (is_number(own, bits, exact)) {
      own.fill(std::min(std::max(exact, least), most));
    } else {
      apply(own, tag);
    }
    return own;
  }

  using Rows = std::array<Row, kPlanes>;

  void scale(const double* from, const Row& plus, const Row& times, const Row& added, std::size_t p,
             Row& to) const {
    scale_row(from, plus, times, added, primes_[p], to);
  }

  // The same as `settled` for `size` terms at once, where `changes` says so.
  void settle(Rows& own, std::size_t size, const Shifts& bits, const Words& changes, double least,
              double most, const Words& tags) const {
    constexpr std::size_t kWords = kPlanes / 2;
    const Rows before = own;
    const Words nothing{};
    std::array<Words, kWords> words;
    for (std::size_t w = 0; w < kWords; ++w) {
      make_words(own[2 * w].data(), own[2 * w + 1].data(), kAtOnce, primes_[2 * w], primes_[2 * w + 1],
                 words[w].data());
    }
    for (std::size_t w = 0; w < kWords; ++w) permute_row(words[w], tags, w ? words[w - 1] : nothing);
    for (std::size_t w = kWords - 1; w-- > 0;) permute_row(words[w], tags, words[w + 1]);
    for (std::size_t w = 0; w < kWords; ++w) {
      residues_row(words[w], primes_[2 * w], primes_[2 * w + 1], own[2 * w], own[2 * w + 1]);
    }
    Shifts factors{};
    for (std::size_t k = 0; k < size; ++k) factors[k] = halves_[bits[k] > 1 ? bits[k] - 1 : 0];
    Words marks;
    mark_row(before[0], factors, primes_[0], small_, marks);
    for (std::size_t k = 0; k < size; ++k) {
      if (changes[k] && !marks[k] && least != most) continue;
      Residues alone;
      for (std::size_t p = 0; p < kPlanes; ++p) alone[p] = before[p][k];
      if (changes[k]) alone = settled(alone, static_cast<std::size_t>(bits[k]), least, most, tags[k]);
      for (std::size_t p = 0; p < kPlanes; ++p) own[p][k] = alone[p];
    }
  }

 private:
  // Whether residues are those of a small number, or of a small number of halves of the last step
  // that is shifted out; and the number after its shift. Two planes cannot tell.
  bool is_number(const Residues& own, std::size_t bits, double& exact) const {
    if (kPlanes <= 2) return false;
    if (std::abs(own[0]) < small_) {
      const bool same = std::all_of(own.begin() + 1, own.end(),
                                    [&](double other) { return other == own[0]; });
      exact = std::floor(own[0] * std::ldexp(1.0, -static_cast<int>(bits)));
      if (same) return true;
    }
    if (bits <= 1) return false;
    const double number = half(own, bits - 1, 0);
    if (!(std::abs(number) < small_)) return false;
    for (std::size_t p = 1; p < kPlanes; ++p) {
      if (half(own, bits - 1, p) != number) return false;
    }
    exact = std::floor(number / 2);
    return true;
  }

  // A residue divided by 2**bits in its field.
  double half(const Residues& own, std::size_t bits, std::size_t p) const {
    const auto x = static_cast<int64_t>(own[p]), prime = static_cast<int64_t>(primes_[p]);
    const int64_t y = halves_[p * columns_ + bits];
    const auto quotient =
        static_cast<int64_t>(own[p] * static_cast<double>(y) * inverses_[p]);  // or one off
    return reduced(static_cast<double>(x * y - quotient * prime), p);
  }

  // Replaces residues by the value of the uninterpreted function of this tag.
  void apply(Residues& own, uint64_t tag) const {
    constexpr std::size_t kWords = kPlanes / 2;
    std::array<uint64_t, kWords> words;
    for (std::size_t w = 0; w < kWords; ++w) words[w] = key(own, 2 * w) | key(own, 2 * w + 1) << 32;
    for (std::size_t w = 0; w < kWords; ++w) {
      words[w] = permuted(words[w], tag + (w ? words[w - 1] : 0));
    }
    for (std::size_t w = kWords - 1; w-- > 0;) words[w] = permuted(words[w], tag + words[w + 1]);
    for (std::size_t w = 0; w < kWords; ++w) {
      own[2 * w] = reduced(static_cast<double>(static_cast<int64_t>(words[w] & 0x7FFFFFFF)), 2 * w);
      own[2 * w + 1] = reduced(static_cast<double>(static_cast<int64_t>(words[w] >> 33)), 2 * w + 1);
    }
  }

  uint64_t key(const Residues& own, std::size_t p) const {
    const auto centred = static_cast<int64_t>(own[p]);  // no branch: signs cannot be predicted
    return static_cast<uint64_t>(centred + (centred >> 63 & wholes_[p]));
  }

  Residues primes_, inverses_;
  std::array<int64_t, kPlanes> wholes_;
  const int64_t* halves_;
  std::size_t columns_;
  double small_;
};

// Calls a function with the hashes of one, two or three pairs of planes.
template <class Function>
auto with_hashes(const Column<double>& primes, const Table<const int64_t>& halves, double small,
                 Function function) {
  if (primes.size() == 2) return function(Hashes<2>(primes, halves, small));
  if (primes.size() == 4) return function(Hashes<4>(primes, halves, small));
  if (primes.size() == 6) return function(Hashes<6>(primes, halves, small));
  throw nb::value_error("there must be two, four or six planes");
}

// Multiplies residues with residues, (planes, ...), modulo the prime of each plane. They are below
// 2**31 in magnitude, so that the quotient of their product is at most one off.
void multiply(const Array<double>& x, const Array<double>& y,
              const nb::ndarray<double, nb::c_contig, nb::device::cpu>& made,
              const Column<double>& primes) {
  Walk<2> walk(x, y);
  const std::size_t planes = primes.size(), count = planes ? walk.size() / planes : 0;
  if (planes * count != walk.size() || made.size() != walk.size()) {
    throw nb::value_error("tables differ in shape");
  }
  double* to = made.data();
  for (std::size_t p = 0; p < planes; ++p) {
    const double prime = primes(p), inverse = 1.0 / prime;
    const auto whole = static_cast<int64_t>(prime);
    for (std::size_t k = 0; k < count; ++k, walk.next()) {
      const double a = x.data()[walk.place(0)], b = y.data()[walk.place(1)];
      const auto quotient = static_cast<int64_t>(a * b * inverse);
      const int64_t rest = static_cast<int64_t>(a) * static_cast<int64_t>(b) - quotient * whole;
      *to++ = centred(static_cast<double>(rest), prime, inverse);
    }
  }
}

// The bounds of terms after their shift, before their clamp.
struct Ends {
  double bottom, top;

  Ends(double middle, double radius, double scale)
      : bottom(std::floor((middle - radius) * scale)), top(std::floor((middle + radius) * scale)) {}

  bool within(double least, double most) const { return least <= bottom && most >= top; }
};

// Scales of one epilogue, by shift: what is added to the product, as a number and in each field,
// (planes, shifts), half a step of the result, and the tag of shift and clamp.
struct Scales {
  const Column<double>&added, &half;
  const Table<const double>& offsets;
  const Column<uint64_t>& tags;
  double least, most;
};

// Requantizes terms as `terms.Fields.requantized` does: `made` are the residues of the results for
// residues `value`, (planes, ...); the other arrays have their shape without planes. Returns 0, with
// `made` unfinished, if a sum may not fit int32 or a product never reaches half a step; else 1, or 2
// if some result is a polynomial still.
template <class Fields>
int requantized(const Fields& fields, const Array<double>& middle, const Array<double>& radius,
                const Array<double>& bias, const Array<double>& factor,
                const Array<int64_t>& shift, const Scales& scales, std::size_t count,
                const double* value, double* made) {
  Walk<5> walk(middle, radius, bias, factor, shift);
  typename Fields::Rows own;
  const std::size_t shifts = scales.added.size();
  Row centre{}, reach{}, plus{}, times{}, half{}, sum{}, last{};
  Words tags{}, changes{};
  Shifts bits{};
  std::array<Row, std::tuple_size_v<decltype(own)>> added{};
  bool polynomial = false;
  int64_t known = -1;  // the shift of all terms before, if it is one
  for (std::size_t first = 0; first < count; first += kAtOnce) {
    const std::size_t size = std::min(kAtOnce, count - first);
    walk.pieces(size, [&](std::size_t piece, std::size_t length) {
      walk.copy(0, middle.data(), length, centre.data() + piece);
      walk.copy(1, radius.data(), length, reach.data() + piece);
      walk.copy(2, bias.data(), length, plus.data() + piece);
      walk.copy(3, factor.data(), length, times.data() + piece);
      walk.copy(4, shift.data(), length, bits.data() + piece);
    });
    // What is left of a row before is as good as any other, but must not count.
    for (std::size_t k = size; k < kAtOnce; ++k) centre[k] = reach[k] = plus[k] = 0, times[k] = 1, bits[k] = bits[0];
    const auto [least, most] = std::minmax_element(bits.begin(), bits.end());
    if (*least < 0 || static_cast<std::size_t>(*most) >= shifts) {
      throw nb::index_error("a shift lies outside its table");
    }
    if (*least != *most || *least != known) {
      known = *least == *most ? *least : -1;
      for (std::size_t k = 0; k < kAtOnce; ++k) {
        const auto own_bits = static_cast<std::size_t>(bits[k]);
        half[k] = scales.half(own_bits);
        sum[k] = scales.added(own_bits);
        tags[k] = scales.tags(own_bits);
        for (std::size_t p = 0; p < own.size(); ++p) added[p][k] = scales.offsets(p, own_bits);
      }
    }
    const Judged judged = judge_row(centre, reach, plus, times, half, sum, bits, size, scales.least, scales.most, changes);
    if (judged.wraps) return 0;
    polynomial |= judged.polynomial;
    for (std::size_t p = 0; p < own.size(); ++p) {
      const double* from = value + p * count + first;
      if (size < kAtOnce) from = std::copy_n(from, size, last.begin()) - size;
      fields.scale(from, plus, times, added[p], p, own[p]);
    }
    fields.settle(own, size, bits, changes, scales.least, scales.most, tags);
    for (std::size_t p = 0; p < own.size(); ++p) {
      std::copy_n(own[p].begin(), size, made + p * count + first);
    }
  }
  return polynomial ? 2 : 1;
}

int requantize(const nb::ndarray<const double, nb::c_contig, nb::device::cpu>& value,
               const nb::ndarray<double, nb::c_contig, nb::device::cpu>& made,
               const Array<double>& middle, const Array<double>& radius,
               const Array<double>& bias, const Array<double>& factor,
               const Array<int64_t>& shift, const Column<double>& added,
               const Column<double>& half, const Table<const double>& offsets,
               const Column<uint64_t>& tags, double low, double high,
               const Column<double>& primes, const Table<const int64_t>& halves, double small) {
  const std::size_t count = middle.size(), shifts = added.size();
  const bool fits = value.size() == primes.size() * count && made.size() == value.size() &&
                    half.size() == shifts && tags.size() == shifts &&
                    offsets.shape(0) == primes.size() && offsets.shape(1) == shifts &&
                    shifts <= halves.shape(1);
  if (!fits) throw nb::value_error("tables differ in shape");
  const Scales scales{added, half, offsets, tags, low, high};
  return with_hashes(primes, halves, small, [&](const auto& fields) {
    return requantized(fields, middle, radius, bias, factor, shift, scales, count, value.data(),
                       made.data());
  });
}

// Settles the terms of `changed`, as `terms.Fields._hashed` does: `made` are the results for the
// residues `value`, (planes, ...); the other arrays have their shape without planes.
void settle(const nb::ndarray<const double, nb::c_contig, nb::device::cpu>& value,
            const nb::ndarray<double, nb::c_contig, nb::device::cpu>& made,
            const Array<bool>& changed, const Array<uint64_t>& tag, const Array<int64_t>& shift,
            const Array<double>& low, const Array<double>& high, const Column<double>& primes,
            const Table<const int64_t>& halves, double small) {
  Walk<5> walk(changed, tag, shift, low, high);
  const std::size_t count = walk.size();
  if (value.size() != primes.size() * count || made.size() != value.size()) {
    throw nb::value_error("tables differ in shape");
  }
  with_hashes(primes, halves, small, [&](const auto& fields) {
    typename std::decay_t<decltype(fields)>::Residues own;
    for (std::size_t k = 0; k < count; ++k, walk.next()) {
      for (std::size_t p = 0; p < own.size(); ++p) own[p] = value.data()[p * count + k];
      if (changed.data()[walk.place(0)]) {
        const auto bits = static_cast<std::size_t>(shift.data()[walk.place(2)]);
        if (bits > fields.longest()) throw nb::index_error("a shift lies outside its table");
        own = fields.settled(own, bits, low.data()[walk.place(3)], high.data()[walk.place(4)],
                             tag.data()[walk.place(1)]);
      }
      for (std::size_t p = 0; p < own.size(); ++p) made.data()[p * count + k] = own[p];
    }
  });
}

// The ranges of settled terms, as `terms.Fields._ranges` has them: `changed`, `middle` and `radius`
// are results of the shape of all other arrays.
void settle_ranges(const Array<bool>& where, const Array<double>& middle,
                   const Array<double>& radius, const Array<int64_t>& shift,
                   const Array<double>& low, const Array<double>& high,
                   const nb::ndarray<bool, nb::c_contig, nb::device::cpu>& changed,
                   const nb::ndarray<double, nb::c_contig, nb::device::cpu>& new_middle,
                   const nb::ndarray<double, nb::c_contig, nb::device::cpu>& new_radius) {
  Walk<6> walk(where, middle, radius, shift, low, high);
  const std::size_t count = walk.size();
  if (changed.size() != count || new_middle.size() != count || new_radius.size() != count) {
    throw nb::value_error("tables differ in shape");
  }
  for (std::size_t k = 0; k < count; ++k, walk.next()) {
    const double centre = middle.data()[walk.place(1)], reach = radius.data()[walk.place(2)];
    const int64_t bits = shift.data()[walk.place(3)];
    const double least = low.data()[walk.place(4)], most = high.data()[walk.place(5)];
    const Ends ends(centre, reach, std::ldexp(1.0, static_cast<int>(-bits)));
    const bool other = where.data()[walk.place(0)] && (bits > 0 || !ends.within(least, most));
    changed.data()[k] = other;
    const double first = std::min(std::max(ends.bottom, least), most);
    const double last = std::min(std::max(ends.top, least), most);
    new_middle.data()[k] = other ? (first + last) / 2 : centre;
    new_radius.data()[k] = other ? (last - first) / 2 : reach;
  }
}

// Sorts each set, (words, members, sets), by its words and replaces members that come again by
// `nothing`, which comes last.
void sort_sets(const Block<uint64_t>& members, uint64_t nothing) {
  const std::size_t words = members.shape(0), most = members.shape(1), sets = members.shape(2);
  std::vector<uint64_t> own(words * most);
  std::vector<const uint64_t*> order;
  const auto less = [words](const uint64_t* x, const uint64_t* y) {
    return std::lexicographical_compare(x, x + words, y, y + words);
  };
  const auto same = [words](const uint64_t* x, const uint64_t* y) { return std::equal(x, x + words, y); };
  for (std::size_t set = 0; set < sets; ++set) {
    order.clear();
    for (std::size_t m = 0; m < most; ++m) {
      uint64_t* const member = own.data() + m * words;
      for (std::size_t w = 0; w < words; ++w) member[w] = members.data()[(w * most + m) * sets + set];
      if (member[0] != nothing) order.push_back(member);
    }
    std::sort(order.begin(), order.end(), less);
    order.erase(std::unique(order.begin(), order.end(), same), order.end());
    for (std::size_t m = 0; m < most; ++m) {
      for (std::size_t w = 0; w < words; ++w) {
        members.data()[(w * most + m) * sets + set] = m < order.size() ? order[m][w] : nothing;
      }
    }
  }
}

}  // namespace

NB_MODULE(_proof, m) {
  bind_names(m);
  m.def("centre", &centre, nb::arg("value").noconvert(), nb::arg("primes"));
  m.def("gather", &gather, nb::arg("sources"), nb::arg("which"), nb::arg("rows"),
        nb::arg("made").noconvert());
  m.def("make_keys", &make_keys, nb::arg("value"), nb::arg("primes"),
        nb::arg("made").noconvert());
  m.def("multiply", &multiply, nb::arg("x"), nb::arg("y"), nb::arg("made").noconvert(),
        nb::arg("primes"));
  m.def("requantize", &requantize, nb::arg("value"), nb::arg("made").noconvert(),
        nb::arg("middle"), nb::arg("radius"), nb::arg("bias"), nb::arg("factor"),
        nb::arg("shift"), nb::arg("added"), nb::arg("half"), nb::arg("offsets"), nb::arg("tags"),
        nb::arg("low"), nb::arg("high"), nb::arg("primes"), nb::arg("halves"), nb::arg("small"));
  m.def("scramble", &scramble, nb::arg("keys").noconvert(), nb::arg("tag"));
  m.def("settle", &settle, nb::arg("value"), nb::arg("made").noconvert(), nb::arg("changed"),
        nb::arg("tag"), nb::arg("shift"), nb::arg("low"), nb::arg("high"), nb::arg("primes"),
        nb::arg("halves"), nb::arg("small"));
  m.def("settle_ranges", &settle_ranges, nb::arg("where"), nb::arg("middle"), nb::arg("radius"),
        nb::arg("shift"), nb::arg("low"), nb::arg("high"), nb::arg("changed").noconvert(),
        nb::arg("middle_after").noconvert(), nb::arg("radius_after").noconvert());
  m.def("sort_sets", &sort_sets, nb::arg("members").noconvert(), nb::arg("nothing"));
}
