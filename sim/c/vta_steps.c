/* The steps of the host: movements of elements, and the operators of a graph except sums of products,
 * which are in vta_products.c.
 *
 * docs/quantization.md defines the results. Every operand is checked against its slot before it is
 * accessed, so a blob with a correct CRC and wrong numbers also gives an error. Sums are computed
 * modulo 2**32, which is exact for a network compiled by vtaops.
 */
#include "vta_steps.h"

#include <float.h>
#include <string.h>

#include "vta_blob.h"

#if FLT_EVAL_METHOD != 0 || defined(__FAST_MATH__)
#error "results are defined in plain float32 and float64: compile without -ffast-math (or -mfpmath=387)"
#endif

#define CHUNK 64u /* sums computed at a time, on the stack */
#define SIDE 8u   /* of blocks of bytes transposed in registers */

typedef char vta_shifts_are_arithmetic[(-1 >> 1) == -1 ? 1 : -1];

/* ------------------------------------------------------------------------- requantisation */

const scale *vta_scales(const vta_model *model, const vta_scaling *scaling, uint32_t channels) {
  if (scaling->count != 1 && scaling->count != channels) return NULL;
  return vta_readable(model, scaling->slot, times(scaling->count, sizeof(scale)));
}

static int32_t clipped(int64_t value, const vta_scaling *scaling) {
  value += scaling->zero_point;
  if (value < scaling->low) value = scaling->low;
  return (int32_t)(value > scaling->high ? scaling->high : value);
}

VTA_HOT void vta_requantize(int8_t *result, const uint32_t *sums, uint32_t count, scale by,
                            const vta_scaling *scaling) {
  const int32_t zero = scaling->zero_point, low = scaling->low, high = scaling->high;
  uint32_t multiplier = by.multiplier & 0x7fffffffu, shift = by.shift & 63u, i;
  const int64_t more = (int64_t)((int32_t)by.shift >> 8) * 16384; /* by the sign of the sum */
  while (!more && shift < 32 && multiplier < 1u << 30) multiplier <<= 1, ++shift; /* the same */
  if (shift < 32 || more || !is_int8(zero)) {
    const int64_t half = (int64_t)((1ull << shift) >> 1 & ~(3ull << 62));
    for (i = 0; i < count; ++i) {
      const int64_t sum = (int32_t)sums[i], rounding = sum < 0 ? half - more : half + more;
      result[i] = (int8_t)clipped((sum * (int64_t)multiplier + rounding) >> shift, scaling);
    }
  } else { /* the same with a factor that is not negative, and the upper word of its product */
    const uint64_t less = (uint64_t)multiplier << 31; /* sums are 2**31 greater */
    const uint32_t whole = (uint32_t)((less + (1ull << shift) - 1) >> shift);
    const uint64_t added = ((uint64_t)whole << shift) - less + (1ull << shift >> 1);
    const int32_t behind = zero - (int32_t)whole;
    for (i = 0; i < count; ++i) {
      const uint64_t product = (uint64_t)(sums[i] ^ 1u << 31) * multiplier + added;
      int32_t value = (int32_t)((uint32_t)(product >> 32) >> (shift - 32)) + behind;
      value = value < low ? low : value;
      result[i] = (int8_t)(value > high ? high : value);
    }
  }
}

/* ------------------------------------------------------------------------------- movement */

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8
#define UNROLLED _Pragma("GCC unroll 4")
#else
#define UNROLLED
#endif

/* Copies rows along two axes. Where the compiler knows their size, each is a few instructions. */
static inline void copy_rows(uint8_t *to, const uint8_t *from, vta_axis outer, vta_axis inner,
                             size_t nbytes) {
  for (; outer.extent; --outer.extent, from += outer.from_step, to += outer.to_step) {
    const uint8_t *source = from;
    uint8_t *target = to;
    uint32_t i;
    UNROLLED
    for (i = inner.extent; i; --i, source += inner.from_step, target += inner.to_step)
      memcpy(target, source, nbytes);
  }
}

#define ROWS(n) \
  case n: copy_rows(to, from, outer, inner, n); break;

/* Copies rows of `nbytes` along the last one or two axes; returns how many. */
VTA_HOT static uint32_t copy_axes(uint8_t *to, const uint8_t *from, const vta_axis *axes,
                                  uint32_t rank, uint32_t size, size_t nbytes) {
  vta_axis inner = axes[rank - 1], outer = {1, 0, 0};
  if (rank > 1) outer = axes[rank - 2];
  inner.from_step *= size, inner.to_step *= size;
  outer.from_step *= size, outer.to_step *= size;
  switch (nbytes) {
    ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8)
    ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13) ROWS(14) ROWS(15) ROWS(16)
    default: copy_rows(to, from, outer, inner, nbytes);
  }
  return rank > 1 ? 2 : 1;
}

#if defined(__GNUC__)
typedef uint64_t unit __attribute__((vector_size(16))); /* rows of two blocks side by side */
#else
typedef uint64_t unit;
#endif

/* Exchanges bytes of pairs of rows that are `half` rows apart. */
static inline void exchange(unit *rows, uint32_t half, uint64_t mask) {
  uint32_t i;
  for (i = 0; i < SIDE; ++i) {
    if ((i & half) == 0) {
      const unit both = (rows[i] >> 8 * half ^ rows[i + half]) & mask;
      rows[i + half] ^= both;
      rows[i] ^= both << 8 * half;
    }
  }
}

/* Transposes SIDE rows of a unit each. */
static inline void turn(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step) {
  unit rows[SIDE];
  uint32_t i;
  for (i = 0; i < SIDE; ++i) memcpy(rows + i, from + i * from_step, sizeof *rows);
  exchange(rows, 4, 0x00000000ffffffffu);
  exchange(rows, 2, 0x0000ffff0000ffffu);
  exchange(rows, 1, 0x00ff00ff00ff00ffu);
  for (i = 0; i < sizeof *rows; ++i)
    memcpy(to + i * to_step, (const uint8_t *)(rows + i % SIDE) + i / SIDE * SIDE, SIDE);
}

/* Transposes bytes that are neighbours along `a` where they come from, along `b` where they go. The
 * last blocks begin earlier than the others end. */
VTA_HOT static void turn_all(uint8_t *to, const uint8_t *from, const vta_axis *a, const vta_axis *b) {
  const size_t a_extent = a->extent, b_extent = b->extent, wide = sizeof(unit);
  const size_t to_step = a->to_step, from_step = b->from_step;
  size_t i, j;
  for (i = 0; i < b_extent; i += SIDE) {
    const size_t row = i + SIDE <= b_extent ? i : b_extent - SIDE;
    for (j = 0; j < a_extent; j += wide) {
      const size_t at = j + wide <= a_extent ? j : a_extent - wide;
      turn(to + at * to_step + row, to_step, from + row * from_step + at, from_step);
    }
  }
}

/* Moves the innermost axes of a box, at most three; returns how many. */
static uint32_t copy_inner(uint8_t *to, const uint8_t *from, const vta_axis *axes, uint32_t rank,
                           uint32_t size) {
  const vta_axis *const last = axes + rank - 1, *const before = last - 1;
  const size_t nbytes = (size_t)last->extent * size;
  if (last->from_step == 1 && last->to_step == 1) {
    if (rank > 1) return 1 + copy_axes(to, from, axes, rank - 1, size, nbytes);
    memcpy(to, from, nbytes);
    return 1;
  }
  if (size == 1 && last->from_step == 0 && last->to_step == 1) {
    memset(to, *from, nbytes);
    return 1;
  }
  if (rank > 1 && size == 1) {
    const int turned = before->to_step == 1;
    const vta_axis *const a = turned ? last : before, *const b = turned ? before : last;
    if (a->from_step == 1 && b->to_step == 1 && a->extent >= sizeof(unit) && b->extent >= SIDE) {
      turn_all(to, from, a, b);
      return 2;
    }
  }
  return copy_axes(to, from, axes, rank, size, size);
}

static int copy(const vta_model *model, const uint32_t *words, uint32_t count) {
  const vta_copy *const s = (const void *)words;
  const vta_axis *const axes = (const void *)(s + 1);
  const uint32_t header = sizeof *s / 4, rank = (count - header) / 3;
  uint32_t index[VTA_MAX_RANK] = {0};
  uint64_t read, written, elements = 1;
  const uint8_t *from;
  uint8_t *to;
  uint32_t i;
  REQUIRE(count > header && (count - header) % 3 == 0 && rank <= VTA_MAX_RANK);
  REQUIRE(s->size == 1 || s->size == 4 || s->size == 8);
  read = s->from_first;
  written = s->to_first;
  for (i = 0; i < rank; ++i) {
    REQUIRE(axes[i].extent > 0);
    read += times(axes[i].extent - 1, axes[i].from_step);
    written += times(axes[i].extent - 1, axes[i].to_step);
    elements = times(elements, axes[i].extent);
  }
  REQUIRE(elements <= written + 1);
  from = vta_readable(model, s->from, times(read + 1, s->size));
  to = vta_writable(model, s->to, times(written + 1, s->size));
  REQUIRE(from && to);
  from += (size_t)s->from_first * s->size;
  to += (size_t)s->to_first * s->size;
  for (;;) {
    for (i = rank - copy_inner(to, from, axes, rank, s->size); i-- > 0;) { /* advance to the next row */
      from += (size_t)axes[i].from_step * s->size;
      to += (size_t)axes[i].to_step * s->size;
      if (++index[i] < axes[i].extent) break;
      index[i] = 0;
      from -= (size_t)axes[i].from_step * s->size * axes[i].extent;
      to -= (size_t)axes[i].to_step * s->size * axes[i].extent;
    }
    if (i == (uint32_t)-1) return VTA_OK;
  }
}

/* -------------------------------------------------------------------------------- pooling */

int vta_window_is_valid(const vta_window *w) {
  const uint64_t limit = 1u << 30; /* so that sums of these fit 32 bits */
  return w->stride_h && w->stride_w && w->kernel_w && w->dilation_h && w->dilation_w &&
         w->height < limit && w->width < limit && w->top < limit && w->left < limit &&
         times(w->kernel_h, w->dilation_h) < limit && times(w->kernel_w, w->dilation_w) < limit &&
         times(w->out_width, w->stride_w) < limit && times(w->out_height, w->stride_h) < limit;
}

vta_tap vta_tap_of(uint32_t offset, uint32_t before, uint32_t stride, uint32_t results,
                   uint32_t pixels) {
  vta_tap found = {0, 0, 0};
  uint32_t first = 0, end; /* pixel = result * stride + offset - before */
  if (offset < before) first = (before - offset - 1) / stride + 1;
  if (pixels + before <= offset) return found;
  end = (pixels + before - offset - 1) / stride + 1;
  if (end > results) end = results;
  if (first >= end) return found;
  found.first = first;
  found.end = end;
  found.pixel = first * stride + offset - before;
  return found;
}

/* The pixels of an image within a window, along one axis: a dilation apart. */
typedef struct span {
  uint32_t first, count;
} span;

static span span_of(uint32_t result, uint32_t stride, uint32_t before, uint32_t kernel,
                    uint32_t step, uint32_t pixels) {
  const uint32_t start = result * stride; /* in the padded image */
  span found = {0, 0};
  uint32_t tap = 0, end;
  if (start >= before + pixels) return found;
  if (start < before) tap = (before - start - 1) / step + 1;
  end = (before + pixels - start - 1) / step + 1;
  if (end > kernel) end = kernel;
  if (tap >= end) return found;
  found.first = start + tap * step - before;
  found.count = end - tap;
  return found;
}

/* Sets a row of results to the maximum of rows of pixels. */
VTA_HOT static void maxima(int8_t *result, const int8_t *plane, span rows, const vta_window *w) {
  uint32_t row, k, i;
  memset(result, -128, w->out_width);
  for (row = 0; row < rows.count; ++row) {
    const int8_t *const line = plane + (size_t)(rows.first + row * w->dilation_h) * w->width;
    for (k = 0; k < w->kernel_w; ++k) {
      const uint32_t offset = k * w->dilation_w;
      const vta_tap t = vta_tap_of(offset, w->left, w->stride_w, w->out_width, w->width);
      const int8_t *const pixels = line + t.pixel;
      int8_t *const to = result + t.first;
      if (w->stride_w == 1) {
        for (i = 0; i < t.end - t.first; ++i) to[i] = to[i] < pixels[i] ? pixels[i] : to[i];
      } else {
        for (i = 0; i < t.end - t.first; ++i) {
          const int8_t pixel = pixels[(size_t)i * w->stride_w];
          to[i] = to[i] < pixel ? pixel : to[i];
        }
      }
    }
  }
}

static uint32_t total(const int8_t *plane, span rows, span columns, const vta_window *w,
                      int32_t zero) {
  uint32_t sum = 0, row, k;
  for (row = 0; row < rows.count; ++row) {
    const size_t line = (size_t)(rows.first + row * w->dilation_h) * w->width;
    for (k = 0; k < columns.count; ++k)
      sum += (uint32_t)(plane[line + columns.first + k * w->dilation_w] - zero);
  }
  return sum;
}

/* Returns the mean of a window: with the factor and scale of its number of real pixels. */
static int8_t mean(uint32_t sum, uint32_t real, const uint32_t *cases, scale by,
                   const vta_pool *s) {
  uint32_t factor = (uint32_t)s->factor, i;
  int8_t result;
  for (i = 0; i < s->cases; ++i, cases += 4) {
    if (cases[0] != real) continue;
    factor = cases[1];
    by.multiplier = cases[2];
    by.shift = cases[3];
  }
  sum *= factor;
  vta_requantize(&result, &sum, 1, by, &s->scaling);
  return result;
}

static int pool(const vta_model *model, const uint32_t *words) {
  const vta_pool *const s = (const void *)words;
  const vta_window *const w = &s->window;
  const int is_mean = s->scaling.slot != VTA_NONE;
  const int8_t *plane = vta_readable(model, s->data, times3(s->planes, w->height, w->width));
  int8_t *result = vta_writable(model, s->result, times3(s->planes, w->out_height, w->out_width));
  const uint32_t *const cases = vta_readable(model, s->cases_slot, times(s->cases, 16));
  const scale *const scales = is_mean ? vta_scales(model, &s->scaling, s->channels) : NULL;
  uint32_t p, y, x;
  REQUIRE(plane && result && (scales || !is_mean) && (cases || !s->cases));
  REQUIRE(s->channels && is_int8(s->data_zero) && vta_window_is_valid(w));
  for (p = 0; p < s->planes; ++p, plane += (size_t)w->height * w->width) {
    for (y = 0; y < w->out_height; ++y) {
      const span rows =
          span_of(y, w->stride_h, w->top, w->kernel_h, w->dilation_h, w->height);
      if (!is_mean) {
        maxima(result, plane, rows, w);
        result += w->out_width;
      }
      for (x = 0; is_mean && x < w->out_width; ++x) {
        const span columns =
            span_of(x, w->stride_w, w->left, w->kernel_w, w->dilation_w, w->width);
        const uint32_t real = rows.count * columns.count;
        const scale by = scales[s->scaling.count == 1 ? 0 : p % s->channels];
        *result++ = mean(total(plane, rows, columns, w, s->data_zero), real, cases, by, s);
      }
    }
  }
  return VTA_OK;
}

/* ----------------------------------------------------------------------------- elementwise */

/* Computes the function of up to CHUNK elements; a second operand of step 0 is one number. */
VTA_HOT static void combine(uint32_t *sums, const int8_t *first, const int8_t *second,
                            uint32_t step, uint32_t count, const vta_pair *s, uint32_t kind) {
  const int32_t a = s->first_zero, b = s->second_zero;
  int8_t repeated[CHUNK];
  uint32_t i;
  if (!step) second = memset(repeated, *second, count);
  if (kind == VTA_STEP_MULTIPLY) {
    for (i = 0; i < count; ++i)
      sums[i] = (uint32_t)((int16_t)(first[i] - a) * (int16_t)(second[i] - b));
  } else if (kind == VTA_STEP_MAXIMUM) {
    for (i = 0; i < count; ++i) sums[i] = (uint32_t)((first[i] > second[i] ? first : second)[i] - a);
  } else if (kind == VTA_STEP_MINIMUM) {
    for (i = 0; i < count; ++i) sums[i] = (uint32_t)((first[i] < second[i] ? first : second)[i] - a);
  } else {
    const uint32_t by = (uint32_t)s->first_factor, second_by = (uint32_t)s->second_factor;
    for (i = 0; i < count; ++i)
      sums[i] = (uint32_t)(first[i] - a) * by + (uint32_t)(second[i] - b) * second_by;
  }
}

static int pair(const vta_model *model, const uint32_t *words, uint32_t kind) {
  const vta_pair *const s = (const void *)words;
  const uint64_t elements = times3(s->outer, s->channels, s->inner);
  const uint64_t seconds = s->broadcast ? times(s->outer, s->channels) : elements;
  const int8_t *first = vta_readable(model, s->first, elements);
  const int8_t *second = vta_readable(model, s->second, seconds);
  int8_t *result = vta_writable(model, s->result, elements);
  const scale *const scales = vta_scales(model, &s->scaling, s->channels);
  const uint32_t step = s->broadcast ? 0 : 1;
  uint32_t o, c, i;
  REQUIRE(first && second && result && scales && s->broadcast <= 1);
  REQUIRE(is_int8(s->first_zero) && is_int8(s->second_zero));
  for (o = 0; o < s->outer; ++o) {
    for (c = 0; c < s->channels; ++c) {
      const scale by = scales[s->scaling.count == 1 ? 0 : c];
      for (i = 0; i < s->inner; i += CHUNK) {
        const uint32_t count = s->inner - i < CHUNK ? s->inner - i : CHUNK;
        uint32_t sums[CHUNK];
        combine(sums, first, second, step, count, s, kind);
        vta_requantize(result, sums, count, by, &s->scaling);
        first += count;
        second += step * count;
        result += count;
      }
      second += s->broadcast;
    }
  }
  return VTA_OK;
}

static int table(const vta_model *model, const uint32_t *words) {
  const vta_table *const s = (const void *)words;
  const uint64_t elements = times3(s->outer, s->channels, s->inner);
  const int8_t *data = vta_readable(model, s->data, elements);
  const int8_t *const tables = vta_readable(model, s->table, times(s->tables, 256));
  int8_t *result = vta_writable(model, s->result, elements);
  const uint32_t inner = s->inner; /* results could lie where it does */
  uint32_t o, c, i;
  REQUIRE(data && tables && result && (s->tables == 1 || s->tables == s->channels));
  for (o = 0; o < s->outer; ++o) {
    for (c = 0; c < s->channels; ++c) {
      const int8_t *const mapped = tables + (s->tables == 1 ? 0 : (size_t)c * 256) + 128;
      for (i = 0; i < inner; ++i) *result++ = mapped[*data++];
    }
  }
  return VTA_OK;
}

/* ------------------------------------------------------------------------- the world outside */

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Returns the nearest integer, halves to even, of a value of at most 2**21 in magnitude. */
static float nearest(float value) {
  const float big = 12582912.0f; /* 1.5 * 2**23: the last bit of the sum has the value one */
  return value + big - big;
}

/* Quantizes without branches, for which compilers find vector instructions. */
VTA_HOT static void steps_of(int8_t *result, const float *data, uint32_t count, float scale,
                             float zero) {
  const float low = -128.0f - zero, high = 127.0f - zero;
  uint32_t i;
  for (i = 0; i < count; ++i) {
    const float steps = data[i] / scale;
    const float above = steps > low ? steps : low; /* or not a number */
    result[i] = (int8_t)(int32_t)(nearest(above > high ? high : above) + zero);
  }
}

static int quantize(const vta_model *model, const uint32_t *words) {
  const vta_quantize *const s = (const void *)words;
  const float *const data = vta_readable(model, s->data, times(s->elements, 4));
  int8_t *const result = vta_writable(model, s->result, s->elements);
  const float scale = float_of(s->scale);
  REQUIRE(data && result && is_int8(s->zero_point));
  steps_of(result, data, s->elements, scale, (float)s->zero_point);
  return VTA_OK;
}

static int dequantize(const vta_model *model, const uint32_t *words) {
  const vta_quantize *const s = (const void *)words;
  const int8_t *const data = vta_readable(model, s->data, s->elements);
  float *const result = vta_writable(model, s->result, times(s->elements, 4));
  const float scale = float_of(s->scale);
  uint32_t i;
  REQUIRE(data && result && is_int8(s->zero_point));
  for (i = 0; i < s->elements; ++i) result[i] = (float)(data[i] - s->zero_point) * scale;
  return VTA_OK;
}

/* exp(x) for -700 <= x <= 0, using only float64 additions and products, in the order of
 * vtaops/graph/operators.py: equal on every processor. Compile without contraction to FMA. */
static double exponential(double x) {
  static const double terms[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
                                 1.0 / 3628800.0,    1.0 / 362880.0,    1.0 / 40320.0,
                                 1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,
                                 1.0 / 24.0,         1.0 / 6.0,         0.5,
                                 1.0,                1.0};
  const int32_t power = (int32_t)(x * 1.4426950408889634 - 0.5); /* truncates to the nearest */
  const double rest = x - power * 0.6931471805599453;
  double sum = 0.0, scale;
  uint64_t bits = (uint64_t)(1023 + power) << 52;
  size_t i;
  for (i = 0; i < sizeof terms / sizeof *terms; ++i) sum = sum * rest + terms[i];
  memcpy(&scale, &bits, sizeof scale);
  return sum * scale;
}

/* Computes exp(x - greatest); 0 below -700, and of what is not a number. Loops without branches
 * become vector instructions. */
VTA_HOT static void exponentials(double *values, const float *data, float greatest,
                                 uint32_t count) {
  uint32_t i;
  for (i = 0; i < count; ++i) {
    const double x = (double)data[i] - (double)greatest;
    values[i] = x >= -700.0 ? x : -701.0;
  }
  for (i = 0; i < count; ++i) {
    const double value = exponential(values[i]);
    values[i] = value < 5e-305 ? 0.0 : value; /* between those of -700 and of -701 */
  }
}

static int softmax(const vta_model *model, const uint32_t *words) {
  const vta_softmax *const s = (const void *)words;
  const uint64_t nbytes = times3(s->rows, s->columns, 4);
  const float *data = vta_readable(model, s->data, nbytes);
  float *result = vta_writable(model, s->result, nbytes);
  double values[CHUNK / 2];
  uint32_t r, c, i;
  REQUIRE(data && result && s->columns);
  for (r = 0; r < s->rows; ++r, data += s->columns, result += s->columns) {
    float greatest = data[0];
    double sum = 0.0;
    int pass;
    for (c = 1; c < s->columns; ++c) /* or not a number */
      greatest = data[c] > greatest || data[c] != data[c] ? data[c] : greatest;
    for (pass = 0; pass < 2; ++pass) { /* two passes avoid storing a row of float64 */
      for (c = 0; c < s->columns; c += CHUNK / 2) {
        const uint32_t count = s->columns - c < CHUNK / 2 ? s->columns - c : CHUNK / 2;
        exponentials(values, data + c, greatest, count);
        for (i = 0; i < count; ++i) {
          if (pass) result[c + i] = (float)(values[i] / sum);
          else sum += values[i];
        }
      }
    }
  }
  return VTA_OK;
}

/* 1 / sqrt(x) by Newton's method, as in vtaops/graph/operators.py. */
static double inverse_root(double x) {
  uint64_t bits;
  double found;
  int step;
  memcpy(&bits, &x, sizeof bits);
  bits = 0x5fe6eb50c7b537a9u - (bits >> 1);
  memcpy(&found, &bits, sizeof found);
  for (step = 0; step < 4; ++step) found = found * (1.5 - 0.5 * x * found * found);
  return found;
}

static int layer_norm(const vta_model *model, const uint32_t *words) {
  const vta_layer_norm *const s = (const void *)words;
  const uint64_t nbytes = times3(s->rows, s->columns, 4);
  const float *data = vta_readable(model, s->data, nbytes);
  float *result = vta_writable(model, s->result, nbytes);
  const float *const weight = vta_readable(model, s->weight, times(s->columns, 4));
  const float *const bias = vta_readable(model, s->bias, times(s->columns, 4));
  uint32_t r, c;
  REQUIRE(data && result && weight && bias && s->columns);
  for (r = 0; r < s->rows; ++r, data += s->columns, result += s->columns) {
    double mean = 0.0, squares = 0.0, factor;
    for (c = 0; s->centered && c < s->columns; ++c) mean += (double)data[c];
    mean /= (double)s->columns;
    for (c = 0; c < s->columns; ++c) squares += ((double)data[c] - mean) * ((double)data[c] - mean);
    factor = inverse_root(squares / (double)s->columns + (double)float_of(s->epsilon));
    for (c = 0; c < s->columns; ++c) {
      const double x = ((double)data[c] - mean) * factor;
      result[c] = (float)(x * (double)weight[c] + (double)bias[c]);
    }
  }
  return VTA_OK;
}

static int mean_of_floats(const vta_model *model, const uint32_t *words) {
  const vta_mean *const s = (const void *)words;
  const float *data = vta_readable(model, s->data, times(times3(s->outer, s->count, s->inner), 4));
  float *result = vta_writable(model, s->result, times3(s->outer, s->inner, 4));
  uint32_t o, c, i;
  REQUIRE(data && result && s->count);
  for (o = 0; o < s->outer; ++o, data += (size_t)s->count * s->inner) {
    for (i = 0; i < s->inner; ++i) {
      double sum = 0.0;
      for (c = 0; c < s->count; ++c) sum += (double)data[(size_t)c * s->inner + i];
      *result++ = (float)(sum / (double)s->count);
    }
  }
  return VTA_OK;
}

static int add_term(const vta_model *model, const uint32_t *words) {
  const vta_add_term *const s = (const void *)words;
  const uint64_t nbytes = times3(s->repeats, s->count, 4);
  const float *data = vta_readable(model, s->data, nbytes);
  float *result = vta_writable(model, s->result, nbytes);
  const float *const term = vta_readable(model, s->term, times(s->count, 4));
  uint32_t r, i;
  REQUIRE(data && result && term);
  for (r = 0; r < s->repeats; ++r) {
    for (i = 0; i < s->count; ++i) *result++ = *data++ + term[i];
  }
  return VTA_OK;
}

/* a * b / 2**31 rounded to nearest, halves up, also if the product is negative. */
static int64_t high_product(int64_t a, int64_t b) {
  const int64_t product = a * b, half = (int64_t)1 << 30;
  return (product + (product >= 0 ? half : 1 - half)) / ((int64_t)1 << 31);
}

static int64_t within_int32(int64_t x) {
  return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x;
}

/* 1 / (1 + x) for 0 <= x < 1, both Q0.31: three steps of Newton's method in Q2.29. */
static int64_t one_over_one_plus(int64_t x) {
  const int64_t half = (x + INT32_MAX + 1) >> 1;
  int64_t found = 1515870810 + high_product(half, -1010580540);
  int step;
  for (step = 0; step < 3; ++step) {
    const int64_t rest = ((int64_t)1 << 29) - high_product(half, found);
    found += within_int32(high_product(found, rest) * 4);
  }
  return within_int32(found * 2);
}

/* The same as vtaops/graph/fixed_softmax.py. */
static int fixed_softmax(const vta_model *model, const uint32_t *words) {
  const vta_fixed_softmax *const s = (const void *)words;
  const uint64_t nbytes = times(s->rows, s->columns);
  const int8_t *data = vta_readable(model, s->data, nbytes);
  int8_t *result = vta_writable(model, s->result, nbytes);
  const int32_t *const terms = vta_readable(model, s->terms, 256 * 4);
  uint32_t r, c;
  REQUIRE(data && result && terms && s->columns && s->columns < 4096 && s->reach < 256);
  REQUIRE(terms[0] == INT32_MAX);
  for (r = 0; r < s->rows; ++r, data += s->columns, result += s->columns) {
    int greatest = data[0];
    uint32_t sum = 0, zeros = 0;
    int64_t inverse;
    for (c = 1; c < s->columns; ++c) greatest = data[c] > greatest ? data[c] : greatest;
    for (c = 0; c < s->columns; ++c) {
      const uint32_t below = (uint32_t)(greatest - data[c]);
      if (below <= s->reach) sum += (uint32_t)(((int64_t)terms[below] + 2048) >> 12) & 0xFFFFF;
    }
    while (!(sum >> (31 - zeros))) ++zeros;
    inverse = one_over_one_plus(((int64_t)sum << zeros) - ((int64_t)1 << 31));
    for (c = 0; c < s->columns; ++c) {
      const uint32_t below = (uint32_t)(greatest - data[c]), bits = 35 - zeros;
      int64_t value = 0;
      if (below <= s->reach) value = high_product(inverse, terms[below]);
      value = (value + ((int64_t)1 << (bits - 1))) >> bits;
      result[c] = (int8_t)(value > 255 ? 127 : value - 128);
    }
  }
  return VTA_OK;
}

/* ---------------------------------------------------------------------- products of tensors */

int vta_host_step(const vta_model *model, uint32_t kind, const uint32_t *words, uint32_t count) {
  static const uint8_t lengths[VTA_STEPS] = {
      0, /* COPY: any */
      0, /* WRITE, READ, LAUNCH: not of the host */
      0,
      0,
      sizeof(vta_convolution) / 4,
      sizeof(vta_matmul) / 4,
      sizeof(vta_pool) / 4,
      sizeof(vta_pair) / 4,
      sizeof(vta_pair) / 4,
      sizeof(vta_table) / 4,
      sizeof(vta_quantize) / 4,
      sizeof(vta_quantize) / 4,
      sizeof(vta_softmax) / 4,
      sizeof(vta_fixed_softmax) / 4,
      sizeof(vta_layer_norm) / 4,
      sizeof(vta_mean) / 4,
      sizeof(vta_add_term) / 4,
      sizeof(vta_pair) / 4,
      sizeof(vta_pair) / 4,
  };
  REQUIRE(kind < VTA_STEPS && (!lengths[kind] || lengths[kind] == count));
  switch (kind) {
    case VTA_STEP_COPY: return copy(model, words, count);
    case VTA_STEP_CONVOLUTION: return vta_convolve(model, words);
    case VTA_STEP_MATMUL: return vta_multiply(model, words);
    case VTA_STEP_POOL: return pool(model, words);
    case VTA_STEP_ADD:
    case VTA_STEP_MULTIPLY:
    case VTA_STEP_MAXIMUM:
    case VTA_STEP_MINIMUM: return pair(model, words, kind);
    case VTA_STEP_TABLE: return table(model, words);
    case VTA_STEP_QUANTIZE: return quantize(model, words);
    case VTA_STEP_DEQUANTIZE: return dequantize(model, words);
    case VTA_STEP_SOFTMAX: return softmax(model, words);
    case VTA_STEP_FIXED_SOFTMAX: return fixed_softmax(model, words);
    case VTA_STEP_LAYER_NORM: return layer_norm(model, words);
    case VTA_STEP_MEAN: return mean_of_floats(model, words);
    case VTA_STEP_ADD_TERM: return add_term(model, words);
    default: return VTA_ERROR_CONTENT;
  }
}
