"""Fallback: VTA operators on the host, by CPU or GPU kernels that TVM compiles.

Convolutions and matrix products become those of `vtaops.cpu` or `vtaops.cuda`, with the ALU passes
as epilogue, and use dot-product instructions and tensor cores. All other operators are declared on
plain arrays (`PlainOp`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array, Int8Array, as_pair
from vtaops.kernels import cpu, cuda
from vtaops.kernels.calls.backend import RunnableKernel
from vtaops.kernels.ops import Conv2dOp, DepthwiseOp, MatmulOp, TensorOp
from vtaops.machine.config import HardwareConfig
from vtaops.machine.views import Plus
from vtaops.ops import Conv2d, Conv2dTranspose, Gemm, Operator
from vtaops.program import Buffer, Role
from vtaops.session.plain import AluEpilogue, PlainOp, schedule_on_cpu, schedule_on_cuda

_SOURCES = ("session", "ops")
"""Source folders of the operators and their schedules."""


def run(op: Operator, arrays: Sequence[npt.ArrayLike], host: str = "cpu") -> Int8Array:
    """Run an operator on the host; its kernel is compiled at the first call and cached.

    Parameters
    ----------
    op : Operator
        The operator.
    arrays : sequence of array_like
        Its arguments, as for VTA.
    host : "cpu" or "cuda"
        The processor.

    Raises
    ------
    ShapeError
        If number, shapes or dtypes of the arguments do not match the operator.
    DeviceError
        If no GPU is available.
    """
    if isinstance(op, Conv2d) and op.fold_columns:
        op = replace(op, fold_columns=False)
    buffers = _buffers(op)
    images = _images(buffers, arrays)
    if isinstance(op, Conv2dTranspose):
        (top, left, *_), (height, width) = op.pads, op.out_size
        whole = _run(*_as_convolution(op, images), host)
        return np.ascontiguousarray(whole[:, :, top : top + height, left : left + width])
    return _run(op, images, host).reshape(buffers[-1].shape)


def _run(op: Operator, images: Sequence[Array], host: str) -> Int8Array:
    host_kernel = kernel(op, host)
    specs = host_kernel.op.inputs
    inputs = [image.reshape(spec.shape) for image, spec in zip(images, specs, strict=True)]
    return cast(Int8Array, host_kernel(*inputs))


@lru_cache(maxsize=1024)
def kernel(op: Operator, host: str = "cpu") -> RunnableKernel:
    """Return an operator's kernel for the host."""
    operator = host_op(op)
    plain = isinstance(operator, PlainOp)
    if host == "cuda":
        return cuda.kernel(operator, schedule_on_cuda if plain else None, _SOURCES)
    return cpu.kernel(operator, schedule_on_cpu if plain else None, _SOURCES)


def host_op(op: Operator) -> TensorOp:
    """Return the CPU or GPU operator equivalent to a VTA operator."""
    end = AluEpilogue(end=op.epilogue)
    match op:
        case Gemm():
            return MatmulOp(op.m, op.n, op.k, "int8", "int8", True, end)
        case Conv2d() if not (op.wide or op.bias_tiles or (op.residual and op.scales)):
            image = op.batch, op.in_channels, op.height, op.width
            if op.groups == op.in_channels > 1:
                multiplier = op.out_channels // op.groups
                return DepthwiseOp(*image, op.window, multiplier, "int8", end)
            return Conv2dOp(*image, op.out_channels, op.window, op.groups, "int8", end)
    return PlainOp(op)


@lru_cache(maxsize=1024)
def _buffers(op: Operator) -> tuple[Buffer, ...]:
    """Return an operator's buffers, whose logical shapes are those on any configuration."""
    return op.buffers(HardwareConfig())


def _images(buffers: tuple[Buffer, ...], arrays: Sequence[npt.ArrayLike]) -> list[Array]:
    """Return the arguments, checked; a bias with half a step for rounding, as VTA's."""
    inputs = [b for b in buffers if b.role in (Role.INPUT, Role.PARAMETER)]
    if len(arrays) != len(inputs):
        names = ", ".join(buffer.name for buffer in inputs)
        raise ShapeError(f"{len(arrays)} arrays given; the operator takes {len(inputs)}: {names}")
    images = []
    for buffer, array in zip(inputs, arrays, strict=True):
        image, view = buffer.checked(array), buffer.layout.view
        images.append(np.ascontiguousarray(view.apply(image) if isinstance(view, Plus) else image))
    return images


def _as_convolution(op: Conv2dTranspose, images: list[Array]) -> tuple[Conv2d, list[Array]]:
    """Rewrite a transposed convolution as one over the image with zeros between its pixels.

    Its result is not cropped. VTA multiplies no such zeros; on a CPU, dot products with them are
    faster than loops over the phases without.
    """
    data, kernel, *rest = images
    (kh, kw), (sh, sw), added = op.window.kernel, op.window.strides, as_pair("", op.output_padding)
    height, width = (op.height - 1) * sh + 1, (op.width - 1) * sw + 1
    stretched = np.zeros((*data.shape[:2], height, width), np.int8)
    stretched[:, :, ::sh, ::sw] = data
    shared = {f.name for f in fields(Conv2d)} & {f.name for f in fields(op)}
    parameters = {name: getattr(op, name) for name in shared - {"strides"}}
    parameters |= {"height": height, "width": width}
    parameters["padding"] = kh - 1, kw - 1, kh - 1 + added[0], kw - 1 + added[1]
    flipped = np.ascontiguousarray(kernel[:, :, ::-1, ::-1].swapaxes(0, 1))
    return Conv2d(**parameters), [stretched, flipped, *rest]
