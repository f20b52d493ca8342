/* The steps that are sums of products: convolutions and matrix products.
 *
 * Both operands are widened to int16 and their zero points subtracted, so that the operands of a sum
 * are contiguous: compilers turn such loops into multiply-add instructions. A convolution widens the
 * image rows that one row of results reads, as columns of (kernel rows, channels): the windows of
 * adjacent results overlap there, so elements are not stored once per window. Weights have the same
 * order: (outputs, kernel columns, kernel rows, channels).
 */
#include <string.h>

#include "vta_blob.h"
#include "vta_steps.h"

#define LANES 4u   /* rows of one operand that are processed together */
#define PADDING 16u /* a row is padded with zeros to a multiple of as many elements */
#define BLOCK 32u  /* rows of a matrix widened at a time */
#define SHARED 32u /* results that share widened weights, where rows have fewer */

static uint64_t padded(uint64_t depth) { return (depth + PADDING - 1) / PADDING * PADDING; }

/* Sets sums[l * pitch + n] to the product of row `l` of `left` (LANES rows of `depth`) and row `n` of
 * `right`, whose rows begin `step` elements apart. The pitch is even and at least `count`. */
VTA_HOT static void multiply(uint32_t *sums, uint32_t pitch, const int16_t *left,
                             const int16_t *right, size_t step, uint32_t count, uint32_t depth) {
  const int16_t *const a = left, *const b = a + depth, *const c = b + depth, *const d = c + depth;
  uint32_t n, k;
  for (n = 0; n < count; n += 2, right += 2 * step) {
    const int16_t *const x = right, *const y = n + 1 < count ? x + step : x;
    uint32_t ax = 0, bx = 0, cx = 0, dx = 0, ay = 0, by = 0, cy = 0, dy = 0;
    uint32_t *const at = sums + n;
    for (k = 0; k < depth; ++k) {
      ax += (uint32_t)(a[k] * x[k]);
      bx += (uint32_t)(b[k] * x[k]);
      cx += (uint32_t)(c[k] * x[k]);
      dx += (uint32_t)(d[k] * x[k]);
      ay += (uint32_t)(a[k] * y[k]);
      by += (uint32_t)(b[k] * y[k]);
      cy += (uint32_t)(c[k] * y[k]);
      dy += (uint32_t)(d[k] * y[k]);
    }
    at[0] = ax, at[pitch] = bx, at[2 * pitch] = cx, at[3 * pitch] = dx;
    at[1] = ay, at[pitch + 1] = by, at[2 * pitch + 1] = cy, at[3 * pitch + 1] = dy;
  }
}

/* Widens `count` elements `step` apart, minus a zero point, to elements `to_step` apart. */
VTA_HOT static void widen(int16_t *to, size_t to_step, const int8_t *from, size_t step,
                          uint32_t count, int32_t zero) {
  uint32_t i;
  if (step == 1 && to_step == 1) {
    for (i = 0; i < count; ++i) to[i] = (int16_t)(from[i] - zero);
  } else {
    for (i = 0; i < count; ++i, to += to_step, from += step) *to = (int16_t)(*from - zero);
  }
}

static void clear(int16_t *to, size_t step, uint32_t count) {
  for (; count; --count, to += step) *to = 0;
}

/* ---------------------------------------------------------------------------- convolutions */

/* How to widen the image rows that a row of results reads: for each result its `taps` columns or, if
 * windows overlap, each column once, with `taps` 1. */
typedef struct band {
  uint32_t taps, count, unit; /* columns: tap by tap, `count` each, `unit` pixels apart */
  uint32_t step;              /* columns from one result to the next */
  uint32_t rows;              /* of results that share widened weights */
  uint64_t elements;          /* of the band of one row of results */
  uint64_t depth, nbytes;     /* products per sum, padded; workspace of the step */
  uint32_t pitch;             /* sums of a row, even */
} band;

static band band_of(const vta_convolution *s) {
  const vta_window *const w = &s->window;
  const uint64_t column = times(w->kernel_h, s->channels / s->groups);
  const int overlap = w->dilation_w == 1 && w->stride_w < w->kernel_w;
  const uint64_t reach = times(w->out_width - 1, w->stride_w) + w->kernel_w;
  band b;
  b.taps = overlap ? 1 : w->kernel_w;
  b.count = overlap ? (uint32_t)reach : w->out_width;
  b.unit = overlap ? 1 : w->stride_w;
  b.step = overlap ? w->stride_w : w->kernel_w;
  b.depth = padded(times(column, w->kernel_w));
  b.pitch = w->out_width + (w->out_width & 1);
  b.rows = w->out_width < SHARED ? SHARED / w->out_width : 1;
  if (b.rows > w->out_height) b.rows = w->out_height;
  b.elements = times3(w->out_width - 1, b.step, column) + b.depth;
  b.nbytes = times(4 * LANES, b.pitch) + times(2, times(b.rows, b.elements)) + times(2 * LANES, b.depth);
  return b;
}

/* Returns the row of a plane that row `k` of a kernel reads for row `y` of the results; or NULL. */
static const int8_t *pixel_row(const int8_t *plane, const vta_window *w, uint32_t y, uint32_t k) {
  const uint64_t at = (uint64_t)y * w->stride_h + (uint64_t)k * w->dilation_h - w->top;
  return at < w->height ? plane + (size_t)at * w->width : NULL; /* above the image, it wraps */
}

/* Widens the pixels that the windows of row `y` of the results read, with zeros around the image.
 * Rows of the image that the row before reads too come from its band. */
static void widen_band(int16_t *bands, const int8_t *data, const vta_convolution *s, const band *b,
                       uint32_t y) {
  const vta_window *const w = &s->window;
  const uint32_t inside = s->channels / s->groups, shift = w->stride_h * inside;
  const size_t column = (size_t)w->kernel_h * inside, every = column * b->taps;
  const int kept = y > 0 && w->dilation_h == 1 && w->stride_h < w->kernel_h;
  int16_t *to = bands + y % b->rows * b->elements;
  uint32_t tap, k, c;
  if (kept)
    memmove(to, bands + (y - 1) % b->rows * b->elements + shift, 2 * (b->elements - shift));
  for (tap = 0; tap < b->taps; ++tap) {
    const vta_tap t =
        vta_tap_of(tap * w->dilation_w, w->left, b->unit, b->count, w->width);
    k = kept ? w->kernel_h - w->stride_h : 0;
    for (to += (size_t)k * inside; k < w->kernel_h; ++k) {
      const int8_t *const row = pixel_row(data, w, y, k);
      const vta_tap seen = row ? t : (vta_tap){0, 0, 0};
      for (c = 0; c < inside; ++c, ++to) {
        clear(to, every, seen.first);
        if (row)
          widen(to + seen.first * every, every, row + (size_t)c * w->height * w->width + seen.pixel,
                b->unit, seen.end - seen.first, s->data_zero);
        clear(to + seen.end * every, every, b->count - seen.end);
      }
    }
  }
}

/* Parameters of a convolution's outputs, besides their sums. */
typedef struct ends {
  const int32_t *bias, *factors;
  const int8_t *residual;
  const scale *scales;
  int8_t *result;
} ends;

/* Computes rows of results, from `y` on, from rows of sums `pitch` apart. Rows that are longer than
 * their results pass through `values`, which has as many bytes as there are sums. */
VTA_HOT static void finish(uint32_t *sums, uint32_t pitch, uint32_t rows, int8_t *values,
                           const vta_convolution *s, const ends *e, uint32_t image, uint32_t output,
                           uint32_t y) {
  const uint32_t width = s->window.out_width, count = (rows - 1) * pitch + width;
  const uint32_t bias = e->bias ? (uint32_t)e->bias[output] : 0;
  const uint32_t factor = e->residual ? (uint32_t)e->factors[s->factor_count == 1 ? 0 : output] : 0;
  const size_t at = (((size_t)image * s->outputs + output) * s->window.out_height + y) * width;
  const scale by = e->scales[s->scaling.count == 1 ? 0 : output];
  uint32_t r, x;
  for (x = 0; x < count; ++x) sums[x] += bias;
  for (r = 0; e->residual && r < rows; ++r) {
    const int8_t *const residual = e->residual + at + (size_t)r * width;
    for (x = 0; x < width; ++x)
      sums[r * pitch + x] += factor * (uint32_t)(residual[x] - s->residual_zero);
  }
  if (rows == 1 || pitch == width) {
    vta_requantize(e->result + at, sums, count, by, &s->scaling);
    return;
  }
  vta_requantize(values, sums, count, by, &s->scaling);
  for (r = 0; r < rows; ++r)
    memcpy(e->result + at + (size_t)r * width, values + (size_t)r * pitch, width);
}

/* Computes rows of the results of one group, from `y` on. */
static void convolve_rows(uint8_t *work, const int8_t *data, const int8_t *weight,
                          const vta_convolution *s, const band *b, const ends *e, uint32_t image,
                          uint32_t group, uint32_t y) {
  const vta_window *const w = &s->window;
  const uint32_t inside = s->channels / s->groups, each = s->outputs / s->groups;
  const size_t column = (size_t)w->kernel_h * inside, products = column * w->kernel_w;
  uint32_t *const sums = (uint32_t *)(void *)work;
  int16_t *const weights = (int16_t *)(void *)(sums + LANES * b->pitch);
  int16_t *const bands = weights + LANES * b->depth;
  const uint32_t end = w->out_height - y < b->rows ? w->out_height : y + b->rows;
  uint32_t o, l, row;
  data += ((size_t)image * s->channels + (size_t)group * inside) * w->height * w->width;
  for (row = y; row < end; ++row) widen_band(bands, data, s, b, row);
  for (o = 0; o < each; o += LANES) {
    const uint32_t first = group * each + o, lanes = each - o < LANES ? each - o : LANES;
    for (l = 0; l < lanes; ++l)
      widen(weights + l * b->depth, 1, weight + (first + l) * products, 1, (uint32_t)products, 0);
    for (row = y; row < end; ++row) {
      multiply(sums, b->pitch, weights, bands + row % b->rows * b->elements, b->step * column,
               w->out_width, (uint32_t)b->depth);
      for (l = 0; l < lanes; ++l)
        finish(sums + l * b->pitch, b->pitch, 1, NULL, s, e, image, first + l, row);
    }
  }
}

/* Depthwise convolutions have too few products per sum, so they process the rows of a whole channel,
 * which is widened with its border. Its columns are split into `stride` parts, so that a tap reads
 * adjacent elements; without strides, all rows are one run, with results to skip between them. */
typedef struct channel {
  uint32_t part, rows;    /* columns of a part, rows with the border */
  uint32_t pitch, length; /* sums from one row of results to the next; sums of a run */
  uint32_t runs;
  uint64_t sums, nbytes; /* all sums; workspace of the step */
} channel;

static channel channel_of(const vta_window *w) {
  const int one_run = w->stride_h == 1 && w->stride_w == 1;
  const uint32_t across = (w->kernel_w - 1) * w->dilation_w;
  const uint32_t reach = (w->out_width - 1) * w->stride_w + across + 1;
  channel c;
  c.part = (reach - 1) / w->stride_w + 1;
  c.rows = (w->out_height - 1) * w->stride_h + (w->kernel_h - 1) * w->dilation_h + 1;
  c.pitch = one_run ? c.part : w->out_width;
  c.sums = times(w->out_height, c.pitch);
  c.runs = one_run ? 1 : w->out_height;
  c.length = one_run ? (uint32_t)c.sums - across : w->out_width;
  c.nbytes = times(5, c.sums + (c.sums & 1)) + times(2, times3(c.rows, w->stride_w, c.part));
  return c;
}

/* Widens a channel with zeros around it. */
static void widen_channel(int16_t *to, const int8_t *plane, const vta_convolution *s,
                          const channel *c) {
  const vta_window *const w = &s->window;
  uint32_t y, i;
  for (i = 0; i < w->stride_w; ++i) {
    const vta_tap t = vta_tap_of(i, w->left, w->stride_w, c->part, w->width);
    for (y = 0; y < c->rows; ++y) {
      int16_t *const part = to + ((size_t)y * w->stride_w + i) * c->part;
      const vta_tap seen = y - w->top < w->height ? t : (vta_tap){0, 0, 0}; /* above, it wraps */
      clear(part, 1, seen.first);
      if (seen.end)
        widen(part + seen.first, 1, plane + (size_t)(y - w->top) * w->width + seen.pixel,
              w->stride_w, seen.end - seen.first, s->data_zero);
      clear(part + seen.end, 1, c->part - seen.end);
    }
  }
}

/* Adds three taps, of which the last ones may be missing: their weight is 0. */
VTA_HOT static void add_taps(uint32_t *sums, const int16_t *const *pixels, const int8_t *weights,
                             uint32_t step, uint32_t taps, uint32_t count) {
  const int16_t *const a = pixels[0], *const b = pixels[taps > 1], *const c = pixels[taps > 2 ? 2 : 0];
  const int16_t p = weights[0], q = taps > 1 ? weights[step] : 0, r = taps > 2 ? weights[2 * step] : 0;
  uint32_t x;
  for (x = 0; x < count; ++x) sums[x] += (uint32_t)(a[x] * p + b[x] * q + c[x] * r);
}

/* Computes one channel of a depthwise convolution. */
static void convolve_channel(uint8_t *work, const int8_t *plane, const int8_t *weight,
                             const vta_convolution *s, const channel *c, const ends *e,
                             uint32_t image, uint32_t output) {
  const vta_window *const w = &s->window;
  uint32_t *const sums = (uint32_t *)(void *)work;
  int8_t *const values = (int8_t *)(sums + c->sums);
  int16_t *const rows = (int16_t *)(void *)(values + c->sums + (c->sums & 1));
  uint32_t run, k, i, j;
  widen_channel(rows, plane, s, c);
  memset(sums, 0, (size_t)c->sums * 4);
  for (run = 0; run < c->runs; ++run) {
    for (k = 0; k < w->kernel_h; ++k) {
      const size_t y = (size_t)run * w->stride_h + (size_t)k * w->dilation_h;
      const int16_t *taps[3];
      for (j = 0; j < w->kernel_w; j += 3) {
        for (i = 0; i < 3 && j + i < w->kernel_w; ++i) {
          const uint32_t x = (j + i) * w->dilation_w;
          taps[i] = rows + (y * w->stride_w + x % w->stride_w) * c->part + x / w->stride_w;
        }
        add_taps(sums + (size_t)run * c->pitch, taps, weight + (size_t)j * w->kernel_h + k,
                 w->kernel_h, i, c->length);
      }
    }
  }
  finish(sums, c->pitch, w->out_height, values, s, e, image, output, 0);
}

int vta_convolve(const vta_model *model, const uint32_t *words) {
  const vta_convolution *const s = (const void *)words;
  const vta_window *const w = &s->window;
  const uint64_t results = times3(s->images, s->outputs, times(w->out_height, w->out_width));
  const uint64_t pixels = times3(s->images, s->channels, times(w->height, w->width));
  const int8_t *data, *weight;
  uint8_t *work;
  ends e;
  band b;
  channel c;
  int depthwise;
  uint32_t n, g, y;
  REQUIRE(vta_window_is_valid(w) && w->out_width && w->out_height && w->kernel_h && w->dilation_h &&
          s->groups && s->outputs && s->outputs % s->groups == 0 &&
          s->channels && s->channels % s->groups == 0);
  REQUIRE(is_int8(s->data_zero) && is_int8(s->residual_zero));
  REQUIRE(s->factor_count == 1 || s->factor_count == s->outputs);
  depthwise = s->groups > 1 && s->groups == s->channels && s->groups == s->outputs;
  b = band_of(s);
  c = channel_of(w);
  REQUIRE(depthwise || b.depth <= UINT32_MAX);
  data = vta_readable(model, s->data, pixels);
  weight = vta_readable(model, s->weight, times3(s->outputs, s->channels / s->groups,
                                                 times(w->kernel_h, w->kernel_w)));
  work = vta_writable(model, s->work, depthwise ? c.nbytes : b.nbytes);
  e.bias = vta_readable(model, s->bias, times(s->outputs, 4));
  e.residual = vta_readable(model, s->residual, results);
  e.factors = vta_readable(model, s->factors, times(s->factor_count, 4));
  e.result = vta_writable(model, s->result, results);
  e.scales = vta_scales(model, &s->scaling, s->outputs);
  REQUIRE(data && weight && work && e.result && e.scales);
  REQUIRE((e.bias || s->bias == VTA_NONE) && (!e.residual || e.factors) &&
          (e.residual || s->residual == VTA_NONE));
  if (!depthwise) memset(work, 0, (size_t)b.nbytes); /* the padding of rows */
  for (n = 0; n < s->images; ++n) {
    for (g = 0; g < s->groups; ++g) {
      const size_t plane = ((size_t)n * s->channels + g) * w->height * w->width;
      const int8_t *const kernel = weight + (size_t)g * w->kernel_h * w->kernel_w;
      if (depthwise) convolve_channel(work, data + plane, kernel, s, &c, &e, n, g);
      for (y = 0; !depthwise && y < w->out_height; y += b.rows)
        convolve_rows(work, data, weight, s, &b, &e, n, g, y);
    }
  }
  return VTA_OK;
}

/* -------------------------------------------------------------------------- matrix products */

/* Widens rows of `depth` elements, `step` apart, to rows padded with zeros. */
static void widen_rows(int16_t *to, const int8_t *from, size_t next, size_t step, uint32_t count,
                       uint32_t depth, int32_t zero) {
  const uint32_t whole = (uint32_t)padded(depth);
  for (; count; --count, to += whole, from += next) {
    widen(to, 1, from, step, depth, zero);
    clear(to + depth, 1, whole - depth);
  }
}

/* Computes `count` rows of results from widened left operands, with LANES columns of the right one
 * at a time. */
static void multiply_rows(uint8_t *work, const int8_t *left, const int8_t *right, uint32_t count,
                          const vta_matmul *s, const int32_t *bias, const scale *scales,
                          int8_t *result) {
  const uint32_t depth = (uint32_t)padded(s->depth);
  const size_t next = s->shared ? s->depth : 1, step = s->shared ? 1 : s->columns;
  uint32_t *const sums = (uint32_t *)(void *)work;
  int16_t *const columns = (int16_t *)(void *)(sums + LANES * BLOCK);
  int16_t *const matrix = columns + (size_t)LANES * depth;
  uint32_t n, l, m;
  widen_rows(matrix, left, s->depth, 1, count, s->depth, s->left_zero);
  for (n = 0; n < s->columns; n += LANES) {
    const uint32_t lanes = s->columns - n < LANES ? s->columns - n : LANES;
    widen_rows(columns, right + n * next, next, step, lanes, s->depth, s->right_zero);
    multiply(sums, BLOCK, columns, matrix, depth, count, depth);
    for (l = 0; l < lanes; ++l) {
      uint32_t *const found = sums + l * BLOCK;
      int8_t values[BLOCK];
      for (m = 0; m < count; ++m) found[m] += bias ? (uint32_t)bias[n + l] : 0;
      vta_requantize(values, found, count, scales[s->scaling.count == 1 ? 0 : n + l], &s->scaling);
      for (m = 0; m < count; ++m) result[(size_t)m * s->columns + n + l] = values[m];
    }
  }
}

int vta_multiply(const vta_model *model, const uint32_t *words) {
  const vta_matmul *const s = (const void *)words;
  const uint64_t rights = times3(s->shared ? 1 : s->batch, s->depth, s->columns);
  const uint64_t results = times3(s->batch, s->rows, s->columns), depth = padded(s->depth);
  const int8_t *left = vta_readable(model, s->left, times3(s->batch, s->rows, s->depth));
  const int8_t *right = vta_readable(model, s->right, rights);
  const int32_t *const bias = vta_readable(model, s->bias, times(s->columns, 4));
  int8_t *result = vta_writable(model, s->result, results);
  const uint32_t block = s->rows < BLOCK ? s->rows : BLOCK;
  uint8_t *const work = vta_writable(
      model, s->work, 4 * LANES * BLOCK + times(2 * (LANES + (uint64_t)block), depth));
  const scale *const scales = vta_scales(model, &s->scaling, s->columns);
  uint32_t b, m;
  REQUIRE(left && right && result && work && scales);
  REQUIRE((bias || s->bias == VTA_NONE) && is_int8(s->left_zero) && is_int8(s->right_zero));
  REQUIRE(depth <= UINT32_MAX);
  for (b = 0; b < s->batch; ++b, right += s->shared ? 0 : (size_t)s->depth * s->columns) {
    for (m = 0; m < s->rows; m += BLOCK) {
      const uint32_t count = s->rows - m < BLOCK ? s->rows - m : BLOCK;
      multiply_rows(work, left, right, count, s, bias, scales, result);
      left += (size_t)count * s->depth;
      result += (size_t)count * s->columns;
    }
  }
  return VTA_OK;
}
