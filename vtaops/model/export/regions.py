"""The regions of a model in a bundle: programs, device memory, packing and unpacking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

import numpy as np

from vtaops.base.exact import padded
from vtaops.base.shapes import Array
from vtaops.graph import Graph
from vtaops.machine.config import MICRO_OP_BYTES, HardwareConfig, Memory
from vtaops.machine.isa import Encoding, Load, Store, rows_of
from vtaops.machine.layout import Layout
from vtaops.machine.views import Patches
from vtaops.model.export.blob import Blob, BufferKind, SlotNumber, StepKind
from vtaops.model.export.boxes import Places, places
from vtaops.model.export.values import Values
from vtaops.program import Buffer, Program, Role
from vtaops.program.program import NO_BUFFER
from vtaops.program.region import Argument, Region


def add_region(
    region: Region, graph: Graph, values: Values, arena: int, state: Mapping[str, int]
) -> None:
    """Add a region: its program, its memory, and the steps of its launch.

    Parameters
    ----------
    arena : int
        Device buffer for the images of all regions.
    state : mapping of str to int
        Device buffers of inputs that stay there.
    """
    program, blob = region.program, values.blob
    held = {a.buffer: state[a.tensor] for a in region.inputs if a.tensor in state}
    numbers = _buffers(region, blob, arena, held)
    named = {b.name: (n, b) for n, b in zip(numbers, program.buffers, strict=False)}
    for argument in (a for a in region.inputs if a.buffer not in held):
        number, buffer = named[argument.buffer]
        slot = _packed(argument, buffer, graph, values)
        blob.step(StepKind.WRITE, slot, number, buffer.nbytes)
    blob.step(StepKind.LAUNCH, _program(program, blob, numbers))
    for name, arguments in groupby(region.outputs, key=lambda argument: argument.buffer):
        number, buffer = named[name]
        image = blob.temporary(buffer.nbytes)
        blob.step(StepKind.READ, image, number, buffer.nbytes)
        for argument in arguments:
            _unpack(argument, buffer, image, graph, values)


def dram_field(config: HardwareConfig) -> tuple[int, int]:
    """Return the lowest bit and the width of the DRAM address in LOAD, and so in STORE."""
    slots = Encoding.of(config).slots[Load]
    return next((slot.offset, slot.width) for slot in slots if slot.name == "dram_base")


# ------------------------------------------------------------------- memory of the device


def _buffers(region: Region, blob: Blob, arena: int, held: Mapping[str, int]) -> list[int]:
    """Return the device buffers of a program; the last one holds its micro-ops."""
    found = []
    for buffer in region.program.buffers:
        image = region.parameters.get(buffer.name)
        if buffer.role is Role.CONSTANT:
            image = buffer.constant_image()
        if buffer.name in held:
            made = held[buffer.name]
        elif buffer.offset is not None:
            made = blob.buffer(BufferKind.PART, buffer.nbytes, arena, buffer.offset)
        elif image is not None:
            made = blob.buffer(BufferKind.IMAGE, buffer.nbytes, blob.add(image))
        elif buffer.fill is not None:
            scalars = np.full(4 // np.dtype(buffer.dtype).itemsize, buffer.fill, buffer.dtype)
            made = blob.buffer(BufferKind.FILLED, buffer.nbytes, scalars.view(np.uint32).item())
        else:
            made = blob.buffer(BufferKind.PLAIN, buffer.nbytes)
        found.append(made)
    micro_ops = region.program.micro_ops
    image = micro_ops if len(micro_ops) else np.zeros(1, np.uint32)
    return [*found, blob.buffer(BufferKind.IMAGE, len(image) * MICRO_OP_BYTES, blob.add(image))]


def _program(program: Program, blob: Blob, numbers: list[int]) -> int:
    """Add a program; return its number."""
    words = program.instructions
    buffer = blob.buffer(BufferKind.PLAIN, words.nbytes)
    relocations = _relocations(program, numbers)
    places = blob.add(words), len(words), blob.add(relocations), len(relocations)
    blob.programs.append((buffer, *places))
    return len(blob.programs) - 1


def _relocations(program: Program, numbers: list[int]) -> Array:
    """Return instructions that address DRAM, each with ``buffer << 8 | log2(bytes per unit)``.

    The buffer of the micro-ops, to which the relocations say -2, is last in `numbers`.
    """
    words = program.instructions
    rows = np.sort(np.concatenate([rows_of(words, cls) for cls in (Load, Store)]))
    rows = rows[program.relocations[rows] != NO_BUFFER]
    columns = Encoding.of(program.config).columns(words[rows], Load)
    units = np.array([program.config.dram_element_bytes(memory) for memory in Memory])
    shifts = np.log2(units[columns["memory"]]).astype(np.uint32)
    targets = np.array([*numbers, 0], np.uint32)[program.relocations[rows]]
    return np.stack([rows, targets << 8 | shifts], axis=1).astype(np.uint32)


# ------------------------------------------------------------------ packing and unpacking


def _packed(argument: Argument, buffer: Buffer, graph: Graph, values: Values) -> SlotNumber:
    """Return a slot with the DRAM image of an input: `Argument.to_device`, then its layout."""
    array = values.shaped(graph.tensors[argument.tensor], argument.image)
    array, size = argument.to_device(array), np.dtype(buffer.dtype).itemsize
    return values.in_order(packed(array, buffer.layout, values, size), size)


def packed(array: Places, layout: Layout, values: Values, size: int) -> Places:
    """Return an array in the order of a layout.

    Of an image under windows, channels come last first: then the pixels of a window's row are
    adjacent.
    """
    view = layout.view
    if isinstance(view, Patches):
        array = padded(array, view.window).transpose(0, 2, 3, 1)
        array = places(values.in_order(array, size), array.shape).transpose(0, 3, 1, 2)
        view = replace(view, window=replace(view.window, padding=(0, 0, 0, 0)))
    return replace(layout, view=view).pack(array)


def _unpack(
    argument: Argument, buffer: Buffer, image: SlotNumber, graph: Graph, values: Values
) -> None:
    """Copy a result from the DRAM image of its buffer, like unpacking and `from_device`."""
    tensor = graph.tensors[argument.tensor]
    layout, shape = buffer.layout, buffer.shape
    array = layout.unpack(places(image, layout.packed_shape(shape)), shape)
    size = np.dtype(buffer.dtype).itemsize
    values.copy(argument.from_device(array), values.result(tensor), size)
