"""Convolution and pooling windows in plain NumPy: the reference of the CPU and CUDA kernels."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def random(shape, dtype="float32", at=0):
    generator = np.random.default_rng(at)
    if dtype in ("float32", "float64"):
        return generator.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max + 1, shape).astype(dtype)


def windows(data, kernel, strides, padding, dilation, value=0):
    """Return (N, C, rows, columns, KH, KW): the pixels under each position of a window."""
    top, left, bottom, right = padding
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    view = sliding_window_view(padded, span, axis=(2, 3))
    return view[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]


def conv2d_reference(data, kernel, strides, padding, dilation, groups=1):
    kind = np.float64 if data.dtype.kind in "fV" else np.int64
    view = windows(data.astype(kind), kernel.shape[2:], strides, padding, dilation)
    split = np.split(view, groups, axis=1)
    weights = np.split(kernel.astype(kind), groups, axis=0)
    parts = [
        np.einsum("nchwab,ocab->nohw", x, w, optimize=True)
        for x, w in zip(split, weights, strict=True)
    ]
    return np.concatenate(parts, axis=1)


def depthwise_reference(data, kernel, strides, padding, dilation):
    kind = np.float64 if data.dtype.kind in "fV" else np.int64
    view = windows(data.astype(kind), kernel.shape[2:], strides, padding, dilation)
    n, _, rows, columns = view.shape[:4]
    return np.einsum("nchwab,cqab->ncqhw", view, kernel.astype(kind)).reshape(n, -1, rows, columns)
