"""Random operators on random configurations, and whether any tiling of one fits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product
from unittest.mock import patch

import vtaops
from trials.random_cases import FAMILIES, random_conv2d, random_gemm
from vtaops import HardwareConfig, Tiling, VTAError
from vtaops.base.errors import ConfigError
from vtaops.machine.config import PORT_BYTES, TARGETS, Extension
from vtaops.ops import Operator
from vtaops.schedule import blocked_shape
from vtaops.schedule.blocked import BlockedShape
from vtaops.schedule.candidates import Candidates

SMALL = 24
"""Tilings of an operator that are all tried by lowering them."""


def random_config(rng: random.Random) -> HardwareConfig:
    """Return a configuration with scratchpads of any size, most of them small."""
    while True:
        batch, block = rng.choice([0, 0, 0, 1, 2]), rng.choice([3, 4, 4, 5])
        try:
            return HardwareConfig(
                log_batch=batch,
                log_block=block,
                log_uop_buff_size=2 + rng.randint(3, 13),
                log_inp_buff_size=batch + block + rng.randint(1, 11),
                log_wgt_buff_size=2 * block + rng.randint(1, 10),
                log_acc_buff_size=batch + block + 2 + rng.randint(1, 11),
            )
        except ConfigError:
            continue


def random_hardware(rng: random.Random) -> HardwareConfig:
    """Return a configuration of any target, with any extensions and ports."""
    while True:
        some = [extension for extension in Extension if rng.random() < 0.6]
        try:
            return replace(
                random_config(rng),
                target=rng.choice(sorted(TARGETS)),
                extensions=tuple(some),
                port_bytes=rng.choice((0, 0, *PORT_BYTES)),
                weight_port=int(rng.random() < 0.3),
                split_port=int(rng.random() < 0.2),
            )
        except ConfigError:
            continue


def random_operator(rng: random.Random) -> Operator:
    """Return a random operator of any family."""
    grouped = FAMILIES["grouped_conv2d"]
    return rng.choice([random_conv2d, random_gemm, grouped, grouped, *FAMILIES.values()])(rng)


def random_case(seed: int) -> tuple[random.Random, Operator, HardwareConfig]:
    """Return a random operator, and a random configuration."""
    rng = random.Random(seed)
    config = random_config(rng)
    return rng, random_operator(rng), config


def parts_of(op: Operator, config: HardwareConfig) -> dict[str, BlockedShape]:
    """Return the operator as a whole and, if it can be cut, in parts."""
    whole = blocked_shape(op, config)
    ways = ("all", *whole.cuts)
    return {taps: whole.in_parts(taps) for taps in ways}


def tilings(op: Operator, config: HardwareConfig) -> Iterator[Tiling]:
    """Yield every size of tile, of which one is held at a time."""
    for taps, shape in parts_of(op, config).items():
        extents = shape.oc, shape.ic, shape.rows.extent, shape.columns.extent
        for oc, ic, h, w in product(*(range(1, extent + 1) for extent in extents)):
            yield Tiling(oc * config.block_out, ic * config.block_in, h, w, taps=taps)


def any_tiling_fits(op: Operator, config: HardwareConfig) -> bool:
    """Whether the arithmetic of scratchpads says that some tile fits: it grows with every size."""
    for shape in parts_of(op, config).values():
        used = shape.elements(Candidates(*[1] * 8))
        if all(used[memory] <= getattr(config, memory).depth for memory in used):
            return True
    return False


def lowered(op: Operator, config: HardwareConfig) -> tuple[bool, str]:
    """Whether lowering places some tile, whatever the arithmetic says; and which were tried.

    All if there are few, else the smallest: as a whole and in parts.
    """
    tried, what = list(islice(tilings(op, config), SMALL + 1)), "all tiles"
    if len(tried) > SMALL:
        block = config.block_out, config.block_in
        tried, what = [Tiling(*block, taps=taps) for taps in parts_of(op, config)], "smallest tile"
    with patch("vtaops.schedule.operators.check_tiling"):
        return any(_compiles(op, config, tiling) for tiling in tried), what


def _compiles(op: Operator, config: HardwareConfig, tiling: Tiling) -> bool:
    try:
        vtaops.compile(op, config, tiling)
    except VTAError:
        return False
    return True
