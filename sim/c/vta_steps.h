/* The words of each step of the host; vtaops/export/steps.py writes them in this order. */
#ifndef VTA_STEPS_H
#define VTA_STEPS_H

#include <stdint.h>

/* From sums to int8: clip(((sum * multiplier + half) >> shift) + zero_point, low, high). The slot
 * has `count` pairs (multiplier, shift): one, or one for each channel. Bits 8..31 of a shift are a
 * signed number of 2**14 by which half grows where the sum is not negative, else shrinks. */
typedef struct vta_scaling {
  uint32_t slot, count;
  int32_t zero_point, low, high;
} vta_scaling;

/* One axis of a box of elements; steps are in elements. */
typedef struct vta_axis {
  uint32_t extent, from_step, to_step;
} vta_axis;

/* Moves a box of elements of `size` bytes; as many axes as words follow, the innermost last. */
typedef struct vta_copy {
  uint32_t from, to, size, from_first, to_first;
} vta_copy;

/* A kernel over an image. Transposed: strides are those of the result; weights are (outputs,
 * channels / groups, kernel_h, kernel_w) in both. */
typedef struct vta_window {
  uint32_t height, width, out_height, out_width;
  uint32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, top, left;
} vta_window;

typedef struct vta_convolution {
  uint32_t data, weight, bias, residual, factors, result, row; /* row: int32 sums of a row */
  uint32_t images, channels, outputs, groups, transposed;
  int32_t data_zero, residual_zero;
  uint32_t factor_count;
  vta_window window;
  vta_scaling scaling;
} vta_convolution;

/* (batch, rows, depth) by (batch, depth, columns); `shared`: one right operand for all. */
typedef struct vta_matmul {
  uint32_t left, right, bias, result, row;
  uint32_t batch, rows, depth, columns, shared;
  int32_t left_zero, right_zero;
  uint32_t inner; /* results from one channel of the scaling to the next */
  vta_scaling scaling;
} vta_matmul;

/* Means, or (no scaling slot) maxima. Windows of which `real` pixels lie in the image have a factor
 * and a scaling of their own: `cases` entries (real, factor, multiplier, shift). */
typedef struct vta_pool {
  uint32_t data, result, cases_slot, cases;
  uint32_t planes, channels;
  int32_t data_zero;
  vta_window window;
  vta_scaling scaling;
  int32_t factor;
} vta_pool;

/* Sums and products of two tensors (outer, channels, inner), or of one and (outer, channels). */
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

/* `terms`: exp(-d) as Q0.31 for d = 0..255 steps; those beyond `reach` are nothing. */
typedef struct vta_fixed_softmax {
  uint32_t data, result, rows, columns, terms, reach;
} vta_fixed_softmax;

/* Digits of factor * sum(row) + constant: all of it, or its units of 128, or the rest. */
typedef struct vta_row_sums {
  uint32_t data, result, rows, columns, digits, part;
  int32_t factor, constant;
} vta_row_sums;

enum { VTA_ALL, VTA_UNITS, VTA_REST };

#endif
