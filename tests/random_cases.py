"""Random operators and legal tilings for the tests; deterministic for each seed."""

from __future__ import annotations

import random

from vtaops import Conv2d, Gemm, HardwareConfig, Tiling
from vtaops.errors import ScheduleError, ShapeError
from vtaops.ops import Operator
from vtaops.schedule import blocked_shape, check_tiling

CONFIGS = ("pynq", "tiny", "4x8_i8w8a32_15_16_16_18", "1x32_i8w8a32_15_15_20_17")


def random_clip(rng: random.Random) -> tuple[int, int] | None:
    low, high = sorted((rng.randint(-128, 127), rng.randint(-128, 127)))
    return rng.choice([None, (0, 127), (-128, 127), (low, high)])


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
    )


def random_tiling(rng: random.Random, op: Operator, config: HardwareConfig) -> Tiling:
    """Draw tilings until one is legal."""
    shape = blocked_shape(op, config)
    while True:
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
        )
        try:
            check_tiling(op, config, tiling)
        except ScheduleError:
            continue
        return tiling
