"""Random operators whose images are parts of larger ones in DRAM: channels, rows, columns of them.

So a network stores slices, parts of concatenations and images with a border. Every image or matrix
of an operator lies in a larger one, behind some blocks of channels and before others, with a border
of its own; the rest of it is noise that must not matter.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vtaops import HardwareConfig
from vtaops.compiler.driver import emit_operator
from vtaops.errors import ShapeError
from vtaops.lowering import BufferSlice, PlacedFragment, Strides, extents_of, link
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate
from vtaops.program import Buffer, Program, Role
from vtaops.runtime import Device
from vtaops.schedule import Tiling

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Larger:
    """A larger image around that of an operator.

    Attributes
    ----------
    buffer : Buffer
        The larger image.
    part : tuple of slice
        The operator's part of it.
    strides : Strides
        Where the tiles of the part lie.
    offset : int
        First byte of its first block of channels.
    """

    buffer: Buffer
    part: tuple[slice, ...]
    strides: Strides
    offset: int

    @staticmethod
    def around(buffer: Buffer, rng: random.Random, config: HardwareConfig) -> Larger:
        """Draw a larger image.

        Raises
        ------
        ShapeError
            If the buffer holds neither an image nor a matrix.
        """
        if len(buffer.shape) not in (2, 4):
            raise ShapeError(f"{buffer.name} of shape {buffer.shape} is no image and no matrix")
        _, blocks, *_ = extents_of(buffer)
        before, after = rng.randint(0, 2), rng.randint(0, 2)
        n, channels, *size = buffer.shape
        top, left, bottom, right = (rng.randint(0, 2) if size else 0 for _ in range(4))
        first = before * config.block_in
        part = (slice(0, n), slice(first, first + channels))
        lanes = (before + blocks + after) * config.block_in
        if size:
            height, width = size
            part += (slice(top, top + height), slice(left, left + width))
            size = [top + height + bottom, left + width + right]
        larger = replace(buffer, shape=(n, lanes, *size))
        strides = Strides.of(extents_of(larger), top, left)
        return Larger(larger, part, strides, before * strides.block * config.inp.element_bytes)


def placed(
    op: Operator, config: HardwareConfig, tiling: Tiling | None, rng: random.Random
) -> tuple[Program, dict[str, Larger]]:
    """Return the program of an operator all of whose images are parts of larger ones."""
    larger = {}
    for buffer in op.buffers(config):
        if buffer.layout.view is None:
            with suppress(ShapeError):
                larger[buffer.name] = Larger.around(buffer, rng, config)
    strides = {name: found.strides for name, found in larger.items()}
    fragment = emit_operator(op, config, tiling, strides=strides)
    places = [
        BufferSlice(number, larger[buffer.name].offset if buffer.name in larger else 0)
        for number, buffer in enumerate(fragment.buffers)
    ]
    buffers = [
        larger[buffer.name].buffer if buffer.name in larger else buffer
        for buffer in fragment.buffers
    ]
    return link([PlacedFragment(fragment, tuple(places))], buffers), larger


def is_right(
    op: Operator,
    config: HardwareConfig,
    tiling: Tiling | None,
    arrays: list[Array],
    device: Device,
    seed: int,
) -> bool:
    """Whether an operator computes in a part of larger images what it means."""
    program, larger = placed(op, config, tiling, random.Random(seed))
    noise = np.random.default_rng(seed)
    given = []
    asked = [b for b in program.buffers if b.role in (Role.INPUT, Role.PARAMETER)]
    for buffer, array in zip(asked, arrays, strict=True):
        around = larger.get(buffer.name)
        if around is not None:
            whole = noise.integers(-128, 128, around.buffer.shape).astype(np.int8)
            whole[around.part] = array
            array = whole
        given.append(array)
    found = program.run(device, *given)
    assert isinstance(found, np.ndarray)
    around = larger.get("res")
    return np.array_equal(found if around is None else found[around.part], evaluate(op, arrays))
