/* The steps of the host: movements of elements, and the integer operators of a graph.
 *
 * docs/quantization.md defines the results. Every operand is checked against its slot before it is
 * touched, so a blob with a right CRC and wrong numbers ends in an error too. Sums are formed
 * modulo 2**32, which is exact for a network that vtaops compiled.
 */
#include "vta_steps.h"

#include <float.h>
#include <string.h>

#include "vta_blob.h"

#if FLT_EVAL_METHOD != 0 || defined(__FAST_MATH__)
#error "results are defined in plain float32 and float64: compile without -ffast-math (or -mfpmath=387)"
#endif

typedef char vta_shifts_are_arithmetic[(-1 >> 1) == -1 ? 1 : -1];

#define REQUIRE(condition)                     \
  do {                                         \
    if (!(condition)) return VTA_ERROR_CONTENT; \
  } while (0)

#define LIMIT 0xffffffffull

static int is_int8(int32_t value) { return value >= -128 && value <= 127; }

/* A product of extents; more than LIMIT if it exceeds that. */
static uint64_t times(uint64_t a, uint64_t b) {
  if (a > LIMIT || b > LIMIT) return LIMIT + 1;
  return a * b;
}

static uint64_t times3(uint64_t a, uint64_t b, uint64_t c) { return times(times(a, b), c); }

/* ------------------------------------------------------------------------- requantisation */

typedef struct scale {
  uint32_t multiplier, shift;
} scale;

/* Returns the pairs of a scaling; NULL if it has not one, or one for each channel. */
static const scale *scales_of(const vta_model *model, const vta_scaling *scaling,
                              uint32_t channels) {
  if (scaling->count != 1 && scaling->count != channels) return NULL;
  return vta_readable(model, scaling->slot, times(scaling->count, sizeof(scale)));
}

static int8_t requantize(int32_t sum, scale by, const vta_scaling *scaling) {
  const uint32_t shift = by.shift & 63u;
  const int64_t half = (int64_t)((1ull << shift) >> 1 & ~(3ull << 62));
  const int64_t more = (int64_t)((int32_t)by.shift >> 8) * 16384; /* by the sign of the sum */
  int64_t value = (int64_t)sum * (int64_t)(by.multiplier & 0x7fffffffu) + half;
  value += sum < 0 ? -more : more;
  value = (value >> shift) + scaling->zero_point;
  if (value < scaling->low) value = scaling->low;
  if (value > scaling->high) value = scaling->high;
  return (int8_t)value;
}

/* ------------------------------------------------------------------------------- movement */

static void copy_row(uint8_t *to, const uint8_t *from, const vta_axis *axis, uint32_t size) {
  const size_t from_step = (size_t)axis->from_step * size, to_step = (size_t)axis->to_step * size;
  uint32_t i;
  if (axis->from_step == 1 && axis->to_step == 1) {
    memcpy(to, from, (size_t)axis->extent * size);
  } else if (size == 1 && from_step == 0 && to_step == 1) {
    memset(to, *from, axis->extent);
  } else if (size == 1) {
    for (i = 0; i < axis->extent; ++i, from += from_step, to += to_step) *to = *from;
  } else {
    for (i = 0; i < axis->extent; ++i, from += from_step, to += to_step) memcpy(to, from, size);
  }
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
    copy_row(to, from, axes + rank - 1, s->size);
    for (i = rank - 1; i-- > 0;) { /* the next row: count like a clock */
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

/* ------------------------------------------------------------------------ sums of products */

/* Where one tap of a window meets a row or column of results: results first..end - 1 read pixels
 * `pixel`, `pixel + step`, ... */
typedef struct tap {
  uint32_t first, end, pixel, step;
} tap;

static tap tap_of(uint32_t offset, uint32_t before, uint32_t stride, uint32_t results,
                  uint32_t pixels) {
  tap found = {0, 0, 0, 0};
  const uint64_t shift = offset; /* pixel = result * stride + shift - before */
  uint64_t first = 0, end;
  if (shift < before) first = (before - shift + stride - 1) / stride;
  if ((uint64_t)pixels + before <= shift) return found;
  end = ((uint64_t)pixels + before - shift + stride - 1) / stride;
  if (end > results) end = results;
  if (first >= end) return found;
  found.first = (uint32_t)first;
  found.end = (uint32_t)end;
  found.pixel = (uint32_t)(first * stride + shift - before);
  found.step = stride;
  return found;
}

static void add_products(uint32_t *sums, const int8_t *data, uint32_t count, uint32_t step,
                         int32_t weight, int32_t zero) {
  uint32_t i;
  if (step == 1) {
    for (i = 0; i < count; ++i) sums[i] += (uint32_t)(weight * (data[i] - zero));
  } else {
    for (i = 0; i < count; ++i) sums[i] += (uint32_t)(weight * (data[(size_t)i * step] - zero));
  }
}

/* Adds the taps of one row of a kernel to a row of results. */
static void add_kernel_row(uint32_t *sums, const int8_t *pixels, const int8_t *weight,
                           const vta_convolution *s) {
  const vta_window *const w = &s->window;
  uint32_t k, x;
  for (k = 0; k < w->kernel_w; ++k) {
    if (weight[k] == 0) continue;
    if (!s->transposed) {
      const tap t = tap_of(k * w->dilation_w, w->left, w->stride_w, w->out_width, w->width);
      if (t.end > t.first)
        add_products(sums + t.first, pixels + t.pixel, t.end - t.first, t.step, weight[k],
                     s->data_zero);
      continue;
    }
    for (x = 0; x < w->width; ++x) {
      const uint64_t to = (uint64_t)x * w->stride_w + k;
      if (to >= w->left && to - w->left < w->out_width)
        sums[to - w->left] += (uint32_t)(weight[k] * (pixels[x] - s->data_zero));
    }
  }
}

/* Finds the row of pixels that row `k` of a kernel meets for row `y` of the results. */
static int pixel_row(const vta_convolution *s, uint32_t y, uint32_t k, uint32_t *row) {
  const vta_window *const w = &s->window;
  uint64_t at;
  if (s->transposed) {
    if ((uint64_t)y + w->top < k) return 0;
    at = (uint64_t)y + w->top - k;
    if (at % w->stride_h) return 0;
    at /= w->stride_h;
  } else {
    at = (uint64_t)y * w->stride_h + (uint64_t)k * w->dilation_h;
    if (at < w->top) return 0;
    at -= w->top;
  }
  *row = (uint32_t)at;
  return at < w->height;
}

/* Forms the sums of one row of one output channel. */
static void convolve_row(uint32_t *sums, const int8_t *image, const int8_t *weight,
                         const vta_convolution *s, uint32_t output, uint32_t y) {
  const vta_window *const w = &s->window;
  const uint32_t inside = s->channels / s->groups;
  const uint32_t first = output / (s->outputs / s->groups) * inside;
  uint32_t c, k, row;
  for (k = 0; k < w->kernel_h; ++k) {
    if (!pixel_row(s, y, k, &row)) continue;
    for (c = 0; c < inside; ++c) {
      const int8_t *const pixels = image + ((size_t)(first + c) * w->height + row) * w->width;
      const size_t taps = ((size_t)output * inside + c) * w->kernel_h + k;
      add_kernel_row(sums, pixels, weight + taps * w->kernel_w, s);
    }
  }
}

static int window_is_valid(const vta_window *w) {
  return w->stride_h && w->stride_w && times3(w->kernel_h, w->dilation_h, 1) < (1u << 31) &&
         times3(w->kernel_w, w->dilation_w, 1) < (1u << 31) && w->top < (1u << 31) &&
         w->left < (1u << 31);
}

static int convolution(const vta_model *model, const uint32_t *words) {
  const vta_convolution *const s = (const void *)words;
  const vta_window *const w = &s->window;
  const uint64_t results = times3(s->images, s->outputs, times(w->out_height, w->out_width));
  const uint64_t pixels = times3(s->images, s->channels, times(w->height, w->width));
  const int8_t *data, *weight, *residual;
  const int32_t *bias, *factors;
  const scale *scales;
  uint32_t *sums;
  int8_t *result;
  uint32_t n, o, y, x;
  REQUIRE(window_is_valid(w) && s->groups && s->outputs && s->outputs % s->groups == 0 &&
          s->channels % s->groups == 0);
  REQUIRE(is_int8(s->data_zero) && is_int8(s->residual_zero));
  REQUIRE(s->factor_count == 1 || s->factor_count == s->outputs);
  data = vta_readable(model, s->data, pixels);
  weight = vta_readable(model, s->weight, times3(s->outputs, s->channels / s->groups,
                                                 times(w->kernel_h, w->kernel_w)));
  bias = vta_readable(model, s->bias, times(s->outputs, 4));
  residual = vta_readable(model, s->residual, results);
  factors = vta_readable(model, s->factors, times(s->factor_count, 4));
  result = vta_writable(model, s->result, results);
  sums = vta_writable(model, s->row, times(w->out_width, 4));
  scales = scales_of(model, &s->scaling, s->outputs);
  REQUIRE(data && weight && result && sums && scales);
  REQUIRE((bias || s->bias == VTA_NONE) && (!residual || factors) &&
          (residual || s->residual == VTA_NONE));
  for (n = 0; n < s->images; ++n) {
    const int8_t *const image = data + (size_t)n * s->channels * w->height * w->width;
    for (o = 0; o < s->outputs; ++o) {
      const scale by = scales[s->scaling.count == 1 ? 0 : o];
      const uint32_t start = bias ? (uint32_t)bias[o] : 0;
      const int32_t factor = residual ? factors[s->factor_count == 1 ? 0 : o] : 0;
      for (y = 0; y < w->out_height; ++y) {
        for (x = 0; x < w->out_width; ++x) sums[x] = start;
        convolve_row(sums, image, weight, s, o, y);
        for (x = 0; residual && x < w->out_width; ++x)
          sums[x] += (uint32_t)factor * (uint32_t)(*residual++ - s->residual_zero);
        for (x = 0; x < w->out_width; ++x) *result++ = requantize((int32_t)sums[x], by, &s->scaling);
      }
    }
  }
  return VTA_OK;
}

static int matmul(const vta_model *model, const uint32_t *words) {
  const vta_matmul *const s = (const void *)words;
  const uint64_t rights = times3(s->shared ? 1 : s->batch, s->depth, s->columns);
  const uint64_t results = times3(s->batch, s->rows, s->columns);
  const int8_t *const left = vta_readable(model, s->left, times3(s->batch, s->rows, s->depth));
  const int8_t *right = vta_readable(model, s->right, rights);
  const int32_t *const bias = vta_readable(model, s->bias, times(s->columns, 4));
  int8_t *const result = vta_writable(model, s->result, results);
  uint32_t *const sums = vta_writable(model, s->row, times(s->columns, 4));
  const scale *const scales = scales_of(model, &s->scaling, s->scaling.count);
  uint32_t b, m, n, k;
  size_t at = 0;
  REQUIRE(left && right && result && sums && scales && s->scaling.count && s->inner);
  REQUIRE((bias || s->bias == VTA_NONE) && is_int8(s->left_zero) && is_int8(s->right_zero));
  for (b = 0; b < s->batch; ++b, right += s->shared ? 0 : (size_t)s->depth * s->columns) {
    for (m = 0; m < s->rows; ++m) {
      const int8_t *const row = left + ((size_t)b * s->rows + m) * s->depth;
      for (n = 0; n < s->columns; ++n) sums[n] = bias ? (uint32_t)bias[n] : 0;
      for (k = 0; k < s->depth; ++k) {
        const int32_t value = row[k] - s->left_zero;
        if (value)
          add_products(sums, right + (size_t)k * s->columns, s->columns, 1, value, s->right_zero);
      }
      for (n = 0; n < s->columns; ++n, ++at) {
        const size_t channel = s->scaling.count == 1 ? 0 : at / s->inner % s->scaling.count;
        result[at] = requantize((int32_t)sums[n], scales[channel], &s->scaling);
      }
    }
  }
  return VTA_OK;
}

/* -------------------------------------------------------------------------------- pooling */

/* The pixels of an image under a window, along one axis. */
typedef struct span {
  uint32_t first, end;
} span;

static span span_of(uint32_t result, uint32_t stride, uint32_t before, uint32_t kernel,
                    uint32_t pixels) {
  const uint64_t first = (uint64_t)result * stride, end = first + kernel;
  span found = {0, 0};
  if (end <= before || first >= (uint64_t)before + pixels) return found;
  found.first = first < before ? 0 : (uint32_t)(first - before);
  found.end = end - before > pixels ? pixels : (uint32_t)(end - before);
  return found;
}

static int8_t maximum(const int8_t *plane, span rows, span columns, uint32_t width) {
  int8_t best = -128;
  uint32_t y, x;
  for (y = rows.first; y < rows.end; ++y) {
    for (x = columns.first; x < columns.end; ++x) {
      const int8_t value = plane[(size_t)y * width + x];
      if (value > best) best = value;
    }
  }
  return best;
}

static uint32_t total(const int8_t *plane, span rows, span columns, uint32_t width, int32_t zero) {
  uint32_t sum = 0, y, x;
  for (y = rows.first; y < rows.end; ++y) {
    for (x = columns.first; x < columns.end; ++x)
      sum += (uint32_t)(plane[(size_t)y * width + x] - zero);
  }
  return sum;
}

/* Returns the mean of a window: with the factor and scale of its number of real pixels. */
static int8_t mean(uint32_t sum, uint32_t real, const uint32_t *cases, scale by,
                   const vta_pool *s) {
  uint32_t factor = (uint32_t)s->factor, i;
  for (i = 0; i < s->cases; ++i, cases += 4) {
    if (cases[0] != real) continue;
    factor = cases[1];
    by.multiplier = cases[2];
    by.shift = cases[3];
  }
  return requantize((int32_t)(sum * factor), by, &s->scaling);
}

static int pool(const vta_model *model, const uint32_t *words) {
  const vta_pool *const s = (const void *)words;
  const vta_window *const w = &s->window;
  const int is_mean = s->scaling.slot != VTA_NONE;
  const int8_t *plane = vta_readable(model, s->data, times3(s->planes, w->height, w->width));
  int8_t *result = vta_writable(model, s->result, times3(s->planes, w->out_height, w->out_width));
  const uint32_t *const cases = vta_readable(model, s->cases_slot, times(s->cases, 16));
  const scale *const scales = is_mean ? scales_of(model, &s->scaling, s->channels) : NULL;
  uint32_t p, y, x;
  REQUIRE(plane && result && (scales || !is_mean) && (cases || !s->cases));
  REQUIRE(s->channels && is_int8(s->data_zero));
  for (p = 0; p < s->planes; ++p, plane += (size_t)w->height * w->width) {
    for (y = 0; y < w->out_height; ++y) {
      const span rows = span_of(y, w->stride_h, w->top, w->kernel_h, w->height);
      for (x = 0; x < w->out_width; ++x) {
        const span columns = span_of(x, w->stride_w, w->left, w->kernel_w, w->width);
        const uint32_t real = (rows.end - rows.first) * (columns.end - columns.first);
        *result++ = !is_mean ? maximum(plane, rows, columns, w->width)
                             : mean(total(plane, rows, columns, w->width, s->data_zero), real,
                                    cases, scales[s->scaling.count == 1 ? 0 : p % s->channels], s);
      }
    }
  }
  return VTA_OK;
}

/* ----------------------------------------------------------------------------- elementwise */

static int pair(const vta_model *model, const uint32_t *words, int is_product) {
  const vta_pair *const s = (const void *)words;
  const uint64_t elements = times3(s->outer, s->channels, s->inner);
  const uint64_t seconds = s->broadcast ? times(s->outer, s->channels) : elements;
  const int8_t *first = vta_readable(model, s->first, elements);
  const int8_t *second = vta_readable(model, s->second, seconds);
  int8_t *result = vta_writable(model, s->result, elements);
  const scale *const scales = scales_of(model, &s->scaling, s->channels);
  const uint32_t step = s->broadcast ? 0 : 1;
  uint32_t o, c, i;
  REQUIRE(first && second && result && scales && is_int8(s->first_zero) && is_int8(s->second_zero));
  for (o = 0; o < s->outer; ++o) {
    for (c = 0; c < s->channels; ++c) {
      const scale by = scales[s->scaling.count == 1 ? 0 : c];
      for (i = 0; i < s->inner; ++i, second += step) {
        const uint32_t a = (uint32_t)(*first++ - s->first_zero);
        const uint32_t b = (uint32_t)(*second - s->second_zero);
        const uint32_t sum =
            is_product ? a * b : a * (uint32_t)s->first_factor + b * (uint32_t)s->second_factor;
        *result++ = requantize((int32_t)sum, by, &s->scaling);
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
  uint32_t o, c, i;
  REQUIRE(data && tables && result && (s->tables == 1 || s->tables == s->channels));
  for (o = 0; o < s->outer; ++o) {
    for (c = 0; c < s->channels; ++c) {
      const int8_t *const mapped = tables + (s->tables == 1 ? 0 : (size_t)c * 256) + 128;
      for (i = 0; i < s->inner; ++i) *result++ = mapped[*data++];
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
  const float big = 12582912.0f; /* 1.5 * 2**23: the last bit of the sum counts ones */
  return value + big - big;
}

static int quantize(const vta_model *model, const uint32_t *words) {
  const vta_quantize *const s = (const void *)words;
  const float *const data = vta_readable(model, s->data, times(s->elements, 4));
  int8_t *const result = vta_writable(model, s->result, s->elements);
  const float scale = float_of(s->scale);
  uint32_t i;
  REQUIRE(data && result && is_int8(s->zero_point));
  for (i = 0; i < s->elements; ++i) {
    float steps = data[i] / scale;
    if (!(steps >= -1024.0f)) steps = steps < 0.0f ? -1024.0f : 0.0f; /* or not a number */
    if (steps > 1024.0f) steps = 1024.0f;
    steps = nearest(steps) + (float)s->zero_point;
    result[i] = (int8_t)(steps < -128.0f ? -128.0f : steps > 127.0f ? 127.0f : steps);
  }
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

/* exp(x) for -700 <= x <= 0 in additions and products of float64 alone, in the order that
 * vtaops/graph/operators.py has: equal on every processor. Compile without contraction to FMA. */
static double exponential(double x) {
  static const double terms[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
                                 1.0 / 3628800.0,    1.0 / 362880.0,    1.0 / 40320.0,
                                 1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,
                                 1.0 / 24.0,         1.0 / 6.0,         0.5,
                                 1.0,                1.0};
  const int32_t power = (int32_t)(x * 1.4426950408889634 - 0.5); /* towards 0: to the nearest */
  const double rest = x - power * 0.6931471805599453;
  double sum = 0.0, scale;
  uint64_t bits = (uint64_t)(1023 + power) << 52;
  size_t i;
  for (i = 0; i < sizeof terms / sizeof *terms; ++i) sum = sum * rest + terms[i];
  memcpy(&scale, &bits, sizeof scale);
  return sum * scale;
}

static int softmax(const vta_model *model, const uint32_t *words) {
  const vta_softmax *const s = (const void *)words;
  const uint64_t nbytes = times3(s->rows, s->columns, 4);
  const float *data = vta_readable(model, s->data, nbytes);
  float *result = vta_writable(model, s->result, nbytes);
  uint32_t r, c;
  REQUIRE(data && result && s->columns);
  for (r = 0; r < s->rows; ++r, data += s->columns, result += s->columns) {
    float greatest = data[0];
    double sum = 0.0;
    int pass;
    for (c = 1; c < s->columns; ++c) greatest = data[c] > greatest ? data[c] : greatest;
    for (pass = 0; pass < 2; ++pass) { /* twice, so that no row of float64 is kept */
      for (c = 0; c < s->columns; ++c) {
        const double x = (double)data[c] - (double)greatest;
        const double value = x >= -700.0 ? exponential(x) : 0.0;
        if (pass) result[c] = (float)(value / sum);
        else sum += value;
      }
    }
  }
  return VTA_OK;
}

/* The nearest of a * b / 2**31: halves up, where the product is negative too. */
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

/* As vtaops/graph/fixed_softmax.py. */
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

/* Writes a number as digits whose products with (-128, ..., -128, 1) sum to it. */
static void write_digits(int8_t *digits, uint32_t count, int64_t number) {
  const int64_t units = (number + 63) >> 7;
  int64_t left = -units;
  uint32_t i;
  for (i = 0; i + 1 < count; ++i) {
    const int64_t digit = left < -128 ? -128 : left > 127 ? 127 : left;
    digits[i] = (int8_t)digit;
    left -= digit;
  }
  digits[count - 1] = (int8_t)(number - 128 * units);
}

static int row_sums(const vta_model *model, const uint32_t *words) {
  const vta_row_sums *const s = (const void *)words;
  const int8_t *data = vta_readable(model, s->data, times(s->rows, s->columns));
  int8_t *digits = vta_writable(model, s->result, times(s->rows, s->digits));
  uint32_t r, c;
  REQUIRE(data && digits && s->digits && s->columns < (1u << 24) && s->part <= VTA_REST);
  for (r = 0; r < s->rows; ++r, digits += s->digits) {
    int32_t sum = 0;
    int64_t number, units;
    for (c = 0; c < s->columns; ++c) sum += *data++;
    number = (int64_t)s->factor * sum + s->constant;
    units = (number + 63) >> 7;
    if (s->part == VTA_UNITS) number = units;
    if (s->part == VTA_REST) number -= 128 * units;
    write_digits(digits, s->digits, number);
  }
  return VTA_OK;
}

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
      sizeof(vta_row_sums) / 4,
      sizeof(vta_fixed_softmax) / 4,
  };
  REQUIRE(kind < VTA_STEPS && (!lengths[kind] || lengths[kind] == count));
  switch (kind) {
    case VTA_STEP_COPY: return copy(model, words, count);
    case VTA_STEP_CONVOLUTION: return convolution(model, words);
    case VTA_STEP_MATMUL: return matmul(model, words);
    case VTA_STEP_POOL: return pool(model, words);
    case VTA_STEP_ADD: return pair(model, words, 0);
    case VTA_STEP_MULTIPLY: return pair(model, words, 1);
    case VTA_STEP_TABLE: return table(model, words);
    case VTA_STEP_QUANTIZE: return quantize(model, words);
    case VTA_STEP_DEQUANTIZE: return dequantize(model, words);
    case VTA_STEP_SOFTMAX: return softmax(model, words);
    case VTA_STEP_ROW_SUMS: return row_sums(model, words);
    case VTA_STEP_FIXED_SOFTMAX: return fixed_softmax(model, words);
    default: return VTA_ERROR_CONTENT;
  }
}
