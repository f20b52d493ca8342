"""Random operators and legal tilings for the tests; deterministic for each seed."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vtaops import (
    AvgPool2d,
    BatchMatmul,
    Conv2d,
    Conv2dTranspose,
    Elementwise,
    Gemm,
    HardwareConfig,
    MaxPool2d,
    Tiling,
)
from vtaops.base.errors import ScheduleError, ShapeError
from vtaops.base.fixed_point import TWO_DIGITS
from vtaops.machine.config import Extension
from vtaops.ops import Operator, reference
from vtaops.program import Role
from vtaops.schedule import blocked_shape, check_tiling, default_tiling

CONFIGS = ("pynq", "tiny", "4x8_i8w8a32_15_16_16_18", "1x32_i8w8a32_15_15_20_17")


def random_clip(rng: random.Random) -> tuple[int, int] | None:
    low, high = sorted((rng.randint(-128, 127), rng.randint(-128, 127)))
    return rng.choice([None, (0, 127), (-128, 127), (low, high), (low, low)])


def random_extensions(rng: random.Random, share: float, *given: str) -> tuple[str, ...]:
    """Return given extensions and some others, each with a probability, with what these need."""
    drawn = {*given, *(name for name in Extension if rng.random() < share)}
    return with_needs(*drawn)


def with_needs(*names: str) -> tuple[str, ...]:
    """Return extensions with those that they need."""
    return tuple(sorted({*names, *(["post"] if {"table", "exact"} & {*names} else [])}))


def random_conv2d(rng: random.Random) -> Conv2d:
    while True:
        try:
            return Conv2d(
                batch=rng.randint(1, 4),
                in_channels=rng.choice([rng.randint(1, 20), rng.randint(1, 100)]),
                out_channels=rng.choice([rng.randint(1, 20), rng.randint(1, 100)]),
                height=rng.randint(1, 16),
                width=rng.randint(1, 16),
                kernel=(rng.randint(1, 7), rng.randint(1, 7)),
                strides=(rng.randint(1, 3), rng.randint(1, 3)),
                padding=(
                    rng.randint(0, 4),
                    rng.randint(0, 4),
                    rng.randint(0, 4),
                    rng.randint(0, 4),
                ),
                dilation=(rng.choice([1, 1, 2]), rng.choice([1, 1, 3])),
                bias=rng.random() < 0.5,
                shift=rng.choice([0, 8, 15, rng.randint(0, 31)]),
                clip=random_clip(rng),
                rounding=random_rounding(rng),
            )
        except ShapeError:
            continue  # the kernel exceeds the padded input


def random_gemm(rng: random.Random) -> Gemm:
    return Gemm(
        m=rng.randint(1, 40),
        n=rng.randint(1, 150),
        k=rng.choice([rng.randint(1, 40), rng.randint(1, 300)]),
        bias=rng.random() < 0.5,
        shift=rng.choice([0, 8, 15, rng.randint(0, 31)]),
        clip=random_clip(rng),
        rounding=random_rounding(rng),
    )


def random_tiling(
    rng: random.Random, op: Operator, config: HardwareConfig, taps: str | None = None
) -> Tiling:
    """Draw tilings until one is legal; the default one if that takes long."""
    whole = blocked_shape(op, config)
    for _ in range(1000):
        parts = taps or (rng.choice(["all", *whole.cuts]) if whole.cuts else "all")
        shape = whole.in_parts(parts)
        tiling = Tiling(
            oc=rng.randint(1, shape.oc) * config.block_out,
            ic=rng.randint(1, shape.ic) * config.block_in,
            h=rng.randint(1, shape.rows.extent),
            w=rng.randint(1, shape.columns.extent),
            oc_threads=rng.choice([1, 2]),
            h_threads=rng.choice([1, 2]),
            inp_tiles=rng.choice([1, 1, 2, 3]),
            wgt_tiles=rng.choice([1, 1, 2, 4]),
            acc_tiles=rng.choice([1, 1, 2]),
            keep=rng.choice(["wgt", "inp"]),
            padding=rng.choice(["multiply", "skip"]),
            taps=parts,
        )
        try:
            check_tiling(op, config, tiling)
        except ScheduleError:
            continue
        return tiling
    return default_tiling(op, config)


# ------------------------------------------------------------------- the other operators


def random_shift(rng: random.Random) -> int:
    return rng.choice([0, 4, 8, 15, rng.randint(0, 31)])


def random_rounding(rng: random.Random) -> str:
    return rng.choice(["truncate", "half_up"])


def random_scale(rng: random.Random) -> int:
    return rng.choice([1, 1, -1, rng.randint(1, 127), rng.randint(-127, -1)])


def random_elementwise(rng: random.Random) -> Elementwise:
    """A function of one tensor or two; some sums have factors of two digits and a constant."""
    rank = rng.randint(1, 5)
    op = Elementwise(
        function=rng.choice(["identity", "add", "sub", "multiply", "minimum", "maximum"]),
        shape=tuple(rng.choice([1, rng.randint(1, 9), rng.randint(1, 40)]) for _ in range(rank)),
        scale=random_scale(rng),
        other_scale=random_scale(rng),
        shift=rng.choice([0, 1, -3, 15, rng.randint(-15, 31)]),
        clip=random_clip(rng),
        rounding=random_rounding(rng),
    )
    wide = random.Random(f"wide {op.shape} {op.scale} {op.shift}")
    if op.function not in ("identity", "add", "sub") or wide.random() < 0.5:
        return op
    most = 1 << 14 + min(op.shift, 14) if op.shift >= 0 else 0  # what two immediates hold
    constant = wide.choice([0, 1, -most, wide.randint(-most, most)]) if most else 0
    factors = {"scale": random_factor(wide), "other_scale": random_factor(wide)}
    return replace(op, **factors, constant=constant)


def random_grouped_conv2d(rng: random.Random) -> Conv2d:
    """Grouped convolutions of any size, among them depthwise ones, some with a residual."""
    while True:
        groups = rng.choice([1, 2, 3, rng.randint(1, 40)])
        inputs, outputs = rng.choice([(1, 1), (1, 2), (1, 3), (4, 4), (rng.randint(1, 20),) * 2])
        try:
            op = Conv2d(
                batch=rng.randint(1, 4),
                in_channels=groups * inputs,
                out_channels=groups * outputs,
                height=rng.randint(1, 12),
                width=rng.randint(1, 12),
                kernel=(rng.randint(1, 4), rng.randint(1, 4)),
                strides=(rng.randint(1, 3), rng.randint(1, 3)),
                padding=tuple(rng.randint(0, 2) for _ in range(4)),
                dilation=(1, rng.choice([1, 2])),
                groups=groups,
                bias=rng.random() < 0.5,
                shift=random_shift(rng),
                clip=random_clip(rng),
                rounding=random_rounding(rng),
                residual=rng.random() < 0.5,
                residual_scale=random_scale(rng),
                residual_shift=rng.choice([0, 2, rng.randint(0, 31)]),
                residual_clip=random_clip(rng),
                fold_columns=groups == 1 and rng.random() < 0.5,
            )
        except ShapeError:
            continue
        return op


def random_wide_conv2d(rng: random.Random) -> Conv2d:
    """Convolutions whose weights have two digits, and factors of a residual three."""
    op = rng.choice([random_conv2d, random_grouped_conv2d])(rng)
    residual = {"residual_scale": 1, "residual_shift": 0, "residual_clip": None}
    return replace(op, wide=True, **residual)


def random_pool2d(rng: random.Random, kind: type[MaxPool2d] | type[AvgPool2d]) -> Operator:
    while True:
        try:
            pool = {
                "batch": rng.randint(1, 4),
                "channels": rng.randint(1, 50),
                "height": rng.randint(1, 14),
                "width": rng.randint(1, 14),
                "kernel": (rng.randint(1, 4), rng.randint(1, 4)),
                "strides": (rng.randint(1, 4), rng.randint(1, 4)),
                "padding": tuple(rng.randint(0, 3) for _ in range(4)),
            }
            if kind is MaxPool2d:
                return MaxPool2d(**pool)
            division = rng.choice([None, (rng.randint(1, 127), rng.randint(0, 31))])
            offset = rng.choice([0, rng.randint(-99, 99), rng.randint(-(1 << 20), 1 << 20)])
            ending = {"rounding": random_rounding(rng), "clip": random_clip(rng)}
            return AvgPool2d(**pool, **ending, division=division, offset=offset)
        except ShapeError:
            continue


def random_conv2d_transpose(rng: random.Random) -> Conv2dTranspose:
    while True:
        strides = (rng.randint(1, 4), rng.randint(1, 4))
        try:
            return Conv2dTranspose(
                batch=rng.randint(1, 4),
                in_channels=rng.randint(1, 40),
                out_channels=rng.randint(1, 40),
                height=rng.randint(1, 8),
                width=rng.randint(1, 8),
                kernel=(rng.randint(1, 6), rng.randint(1, 6)),
                strides=strides,
                padding=tuple(rng.randint(0, 3) for _ in range(4)),
                output_padding=(rng.randrange(strides[0]), rng.randrange(strides[1])),
                bias=rng.random() < 0.5,
                shift=random_shift(rng),
                clip=random_clip(rng),
                rounding=random_rounding(rng),
            )
        except ShapeError:
            continue


def random_batch_matmul(rng: random.Random) -> BatchMatmul:
    return BatchMatmul(
        batch=rng.randint(1, 4),
        m=rng.randint(1, 30),
        n=rng.randint(1, 60),
        k=rng.randint(1, 100),
        shift=random_shift(rng),
        clip=random_clip(rng),
        rounding=random_rounding(rng),
    )


def random_scaled(rng: random.Random) -> Operator:
    """An operator with fixed-point scales: for each channel, or one for all; limits included."""
    kind = rng.choice(
        ["conv2d", "grouped", "gemm", "transposed", "elementwise", "average", "batch"]
    )
    ending = {"zero_point": rng.choice([0, rng.randint(-128, 127)]), "clip": random_clip(rng)}
    ending["clip"] = ending["clip"] or (-128, 127)
    if kind in ("conv2d", "gemm", "transposed"):
        draw = {"conv2d": random_conv2d, "gemm": random_gemm, "transposed": random_conv2d_transpose}
        return replace(draw[kind](rng), scales=True, shift=0, **ending)
    if kind == "grouped":
        op = random_grouped_conv2d(rng)
        residual = {"residual_scale": 1, "residual_shift": 0, "residual_clip": None}
        return replace(op, scales=True, shift=0, **residual, **ending)
    ending["multiplier"] = rng.choice([1, 65535, rng.randint(1, 65535)])
    ending["shift"] = rng.choice([0, 47, rng.randint(0, 47), rng.randint(16, 30)])
    if kind == "batch":
        zeros = [rng.choice([0, 0, -128, 127, rng.randint(-128, 127)]) for _ in "ab"]
        own = {"data_zero_point": zeros[0], "other_zero_point": zeros[1]}
        return replace(random_batch_matmul(rng), **ending, **(own if any(zeros) else {}))
    limit = (1 << 31) - 1
    ending["constant"] = rng.choice([0, limit, -limit, rng.randint(-9999, 9999)])
    if kind == "average":
        pool = random_pool2d(rng, AvgPool2d)
        return replace(pool, division=None, offset=0, **ending)
    op = random_elementwise(rng)
    if op.function in ("identity", "add", "sub"):
        ending["scale"], ending["other_scale"] = random_factor(rng), random_factor(rng)
    return replace(op, **ending)


def random_fine(rng: random.Random) -> Operator:
    """An operator with fine scales."""
    op = random_scaled(rng)
    while isinstance(op, BatchMatmul):
        op = random_scaled(rng)
    if isinstance(op, Elementwise | AvgPool2d):
        multiplier = rng.randint(1 << 23, (1 << 24) - 1)
        shift = rng.choice([20, 51, rng.randint(24, 40)])
        return replace(
            op, multiplier=multiplier, shift=shift, fine=rng.randint(1, 3), nudge=rng.randint(-8, 7)
        )
    return replace(op, fine=rng.randint(1, 3))


def random_factor(rng: random.Random) -> int:
    """A factor of one int8 digit or two."""
    size = rng.choice([1, 127, 128, 255, 256, TWO_DIGITS, rng.randint(1, TWO_DIGITS)])
    return rng.choice([1, -1]) * size


def random_arguments(op: Operator, rng: np.random.Generator) -> list[npt.NDArray[np.generic]]:
    """Return arguments, of two in three cases at the ends of their types, where sums wrap.

    int8 at -128 and 127; vectors of int32 within 300 of its ends. A bias that half a step of the
    result would bring out of int32 is refused, so the upper end of one that is rounded is lower.
    """
    arrays = reference.random_arguments(op, rng)
    share = rng.choice([0.0, 0.5, 1.0])
    rounded = getattr(op, "rounding", "truncate") == "half_up"
    names = [b.name for b in op.buffers(HardwareConfig()) if b.role in _GIVEN]
    found = {
        name: array
        if name == "scales"
        else at_the_ends(array, share, rng, 1 << 14 if rounded else 0)
        for name, array in zip(names, arrays, strict=True)
    }
    if getattr(op, "weight_bits", 8) == 4:
        (name,) = {"weight", "kernel"} & {*names}
        found[name] = found[name].clip(-8, 7)
    return [*found.values()]


_GIVEN = (Role.INPUT, Role.PARAMETER)


def at_the_ends(
    array: npt.NDArray[np.generic], share: float, rng: np.random.Generator, margin: int = 0
) -> npt.NDArray[np.generic]:
    """Return an array a share of whose elements are near the ends of its type, or `margin` below.

    Elements of int8 are at the ends, those of wider types within 300 of them.
    """
    ends = np.iinfo(array.dtype)
    near, upper = (0, ends.max) if array.dtype.itemsize == 1 else (300, ends.max - margin)
    low = rng.integers(ends.min, ends.min + near, array.shape, endpoint=True)
    high = rng.integers(upper - near, upper, array.shape, endpoint=True)
    extreme = np.where(rng.random(array.shape) < rng.choice([0.0, 0.5, 1.0]), low, high)
    found: npt.NDArray[np.generic] = np.where(rng.random(array.shape) < share, extreme, array)
    return found.astype(array.dtype)


# Every family of operators beyond plain convolution and matrix product.
FAMILIES = {
    "elementwise": random_elementwise,
    "grouped_conv2d": random_grouped_conv2d,
    "wide_conv2d": random_wide_conv2d,
    "max_pool2d": lambda rng: random_pool2d(rng, MaxPool2d),
    "avg_pool2d": lambda rng: random_pool2d(rng, AvgPool2d),
    "conv2d_transpose": random_conv2d_transpose,
    "batch_matmul": random_batch_matmul,
}
