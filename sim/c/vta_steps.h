/* The words of each host step, in the order in which vtaops/model/export/steps.py writes them; and
 * what is shared by the files that execute them. */
#ifndef VTA_STEPS_H
#define VTA_STEPS_H

#include "vta.h"

/* From sums to int8: clip(((sum * multiplier + half) >> shift) + zero_point, low, high). The slot
 * has `count` pairs (multiplier, shift): one, or one per channel. Bits 8..31 of a shift are a signed
 * multiple of 2**14 that is added to half if the sum is not negative, and else subtracted. */
typedef struct vta_scaling {
  uint32_t slot, count;
  int32_t zero_point, low, high;
} vta_scaling;

/* One axis of a box of elements; steps are in elements. */
typedef struct vta_axis {
  uint32_t extent, from_step, to_step;
} vta_axis;

/* Moves a box of elements of `size` bytes; the following words describe the axes, innermost last. */
typedef struct vta_copy {
  uint32_t from, to, size, from_first, to_first;
} vta_copy;

/* A kernel over an image. */
typedef struct vta_window {
  uint32_t height, width, out_height, out_width;
  uint32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, top, left;
} vta_window;

/* Weights are (outputs, kernel_w, kernel_h, channels / groups). */
typedef struct vta_convolution {
  uint32_t data, weight, bias, residual, factors, result, work;
  uint32_t images, channels, outputs, groups;
  int32_t data_zero, residual_zero;
  uint32_t factor_count;
  vta_window window;
  vta_scaling scaling;
} vta_convolution;

/* (batch, rows, depth) by (batch, depth, columns); `shared`: by weights (columns, depth). */
typedef struct vta_matmul {
  uint32_t left, right, bias, result, work;
  uint32_t batch, rows, depth, columns, shared;
  int32_t left_zero, right_zero;
  vta_scaling scaling;
} vta_matmul;

/* Means, or maxima without a scaling slot. Windows with `real` pixels inside the image have their
 * own factor and scaling: `cases` entries (real, factor, multiplier, shift). */
typedef struct vta_pool {
  uint32_t data, result, cases_slot, cases;
  uint32_t planes, channels;
  int32_t data_zero;
  vta_window window;
  vta_scaling scaling;
  int32_t factor;
} vta_pool;

/* Functions of two tensors (outer, channels, inner), or of one and (outer, channels): sums, which
 * have factors, products and extrema, whose zero points are equal. */
typedef struct vta_pair {
  uint32_t first, second, result;
  uint32_t outer, channels, inner, broadcast;
  int32_t first_zero, second_zero, first_factor, second_factor;
  vta_scaling scaling;
} vta_pair;

/* `tables` times 256 results. */
typedef struct vta_table {
  uint32_t data, result, table, tables;
  uint32_t outer, channels, inner;
} vta_table;

typedef struct vta_quantize {
  uint32_t data, result, elements;
  uint32_t scale; /* the bits of a float32 */
  int32_t zero_point;
} vta_quantize;

typedef struct vta_softmax {
  uint32_t data, result, rows, columns;
} vta_softmax;

/* `terms`: exp(-d) as Q0.31 for d = 0..255 steps; those beyond `reach` are zero. */
typedef struct vta_fixed_softmax {
  uint32_t data, result, rows, columns, terms, reach;
} vta_fixed_softmax;

typedef struct vta_layer_norm {
  uint32_t data, result, weight, bias, rows, columns;
  uint32_t epsilon;  /* the bits of a float32 */
  uint32_t centered; /* whether the mean is subtracted */
} vta_layer_norm;

/* Means of float32 (outer, count, inner). */
typedef struct vta_mean {
  uint32_t data, result, outer, count, inner;
} vta_mean;

/* Adds `count` float32 constants periodically. */
typedef struct vta_add_term {
  uint32_t data, result, term, repeats, count;
} vta_add_term;

/* ---------------------------------------------------------- shared by those that execute them */

#ifndef VTA_HOT
#define VTA_HOT /* marks time-critical functions, of which a build may request clones */
#endif

#define REQUIRE(condition)                     \
  do {                                         \
    if (!(condition)) return VTA_ERROR_CONTENT; \
  } while (0)

#define LIMIT 0xffffffffull

static inline int is_int8(int32_t value) { return value >= -128 && value <= 127; }

/* A product of extents; any value above LIMIT if it exceeds LIMIT. */
static inline uint64_t times(uint64_t a, uint64_t b) {
  if (a > LIMIT || b > LIMIT || a * b > LIMIT) return LIMIT + 1;
  return a * b;
}

static inline uint64_t times3(uint64_t a, uint64_t b, uint64_t c) { return times(times(a, b), c); }

typedef struct scale {
  uint32_t multiplier, shift;
} scale;

/* Returns the pairs of a scaling; NULL unless there is one, or one per channel. */
const scale *vta_scales(const vta_model *model, const vta_scaling *scaling, uint32_t channels);

/* Computes int8 values from `count` sums. */
void vta_requantize(int8_t *result, const uint32_t *sums, uint32_t count, scale by,
                    const vta_scaling *scaling);

int vta_window_is_valid(const vta_window *window);

/* The intersection of a window's tap with a row of results: results first..end - 1 read pixels
 * `pixel`, `pixel + stride`, ... */
typedef struct vta_tap {
  uint32_t first, end, pixel;
} vta_tap;

vta_tap vta_tap_of(uint32_t offset, uint32_t before, uint32_t stride, uint32_t results,
                   uint32_t pixels);

int vta_convolve(const vta_model *model, const uint32_t *words);
int vta_multiply(const vta_model *model, const uint32_t *words);

#endif
