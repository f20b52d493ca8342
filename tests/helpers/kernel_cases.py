"""Inputs and results of any operator of the kernels, by NumPy and SciPy."""

import numpy as np
from scipy import special

from examples.kernels.conv1d import Conv1dOp
from examples.kernels.separable import SeparableOp
from trials.kernel_reference import conv2d_reference, depthwise_reference, windows
from vtaops.kernels.ops import (
    BroadcastOp,
    Conv2dOp,
    DepthwiseOp,
    GlobalPoolOp,
    MatmulOp,
    NormalizeOp,
    PackedConv2dOp,
    PoolOp,
    SoftmaxOp,
    UnaryOp,
)


def inputs_of(op):
    """Return random inputs by name; variances are positive."""
    generator = np.random.default_rng(0)
    arrays = {}
    for spec in op.inputs:
        if spec.dtype.startswith("float"):
            values = generator.standard_normal(spec.shape).astype(spec.dtype)
            arrays[spec.name] = np.abs(values) + 0.5 if spec.name == "variance" else values
        else:
            arrays[spec.name] = generator.integers(-99, 99, spec.shape).astype(spec.dtype)
    return arrays


def finish(op, total, arrays):
    """Apply the epilogue of an operator to (N, C, ...) or (M, N) sums."""
    end, at = op.epilogue, (1, -1) + (1,) * (total.ndim - 2)
    if end.bias:
        total = total + arrays["bias"].reshape(at)
    if end.batch_norm is not None:
        scale = arrays["gamma"] / np.sqrt(arrays["variance"] + end.batch_norm)
        shift = arrays["beta"] - arrays["mean"] * scale
        total = total * scale.reshape(at) + shift.reshape(at)
    if end.residual:
        total = total + arrays["residual"]
    if end.shift is not None:
        total = total.astype(np.int64) >> end.shift
    if end.clip is not None:
        total = np.clip(total, *end.clip)
    return np.maximum(total, 0) if end.activation == "relu" else total


def unpacked(op, array):
    """Return NCHW[b]c data as NCHW."""
    n, c, height, width, block = array.shape
    return array.transpose(0, 1, 4, 2, 3).reshape(n, c * block, height, width)


def packed(op, array):
    n, c, height, width = array.shape
    return array.reshape(n, c // op.block, op.block, height, width).transpose(0, 1, 3, 4, 2)


def unpacked_kernel(op, array):
    """Return a kernel of `PackedConv2dOp` as OIHW."""
    order = (0, 5, 1, 4, 2, 3) if array.ndim == 6 else (0, 5, 1, 4, 6, 2, 3)
    shape = (op.out_blocks * op.block, op.in_blocks * op.block, *op.window.kernel)
    return array.transpose(order).reshape(shape)


def reference(op, arrays):
    """Return the result of an operator by NumPy or SciPy."""
    values = list(arrays.values())
    match op:
        case MatmulOp():
            a, b = (values[i].astype(np.float64) for i in (0, 1))
            return finish(op, a @ (b.T if op.transposed_b else b), arrays)
        case Conv2dOp(window=w):
            total = conv2d_reference(
                values[0], values[1], w.strides, w.padding, w.dilation, op.groups
            )
            return finish(op, total, arrays)
        case PackedConv2dOp(window=w):
            plain, weights = unpacked(op, values[0]), unpacked_kernel(op, values[1])
            total = conv2d_reference(plain, weights, w.strides, w.padding, w.dilation)
            if op.epilogue.residual:
                arrays = {**arrays, "residual": unpacked(op, arrays["residual"])}
            return packed(op, finish(op, total, arrays))
        case DepthwiseOp(window=w):
            total = depthwise_reference(values[0], values[1], w.strides, w.padding, w.dilation)
            return finish(op, total, arrays)
        case SeparableOp(window=w):
            middle = depthwise_reference(values[0], values[1], w.strides, w.padding, w.dilation)
            if op.between.activation == "relu":
                middle = np.maximum(middle, 0)
            return finish(op, np.einsum("nchw,oc->nohw", middle, values[2]), arrays)
        case PoolOp(window=w):
            outside = -np.inf if op.kind == "max" else 0
            view = windows(values[0], w.kernel, w.strides, w.padding, w.dilation, outside)
            return view.max(axis=(4, 5)) if op.kind == "max" else view.mean(axis=(4, 5))
        case GlobalPoolOp():
            return values[0].max(axis=1) if op.kind == "max" else values[0].mean(axis=1)
        case Conv1dOp():
            return np.correlate(np.pad(values[0], op.padding), values[1], "valid")
        case SoftmaxOp():
            return special.softmax(values[0].astype(np.float64), -1)
        case BroadcastOp():
            return getattr(np, op.name)(*values)
        case UnaryOp():
            return np.maximum(values[0], 0)
        case NormalizeOp():
            return finish(op, values[0], arrays)
    raise AssertionError(op)


def matches(result, expected):
    return np.allclose(result, expected, rtol=1e-3, atol=1e-3)
