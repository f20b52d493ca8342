"""The regions of a model in a bundle: programs, device memory, packing and unpacking."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import groupby

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.graph import Graph
from vtaops.machine.config import MICRO_OP_BYTES, HardwareConfig, Memory
from vtaops.machine.isa import Encoding, Load, Store, rows_of
from vtaops.machine.views import Flat
from vtaops.model.export.blob import Blob, BufferKind, SlotNumber, StepKind
from vtaops.model.export.boxes import Box, StridedView, constant_lanes, joined, packed, strides
from vtaops.model.export.values import Values
from vtaops.program import Buffer, Program, Role
from vtaops.program.program import MICRO_OPS, NO_BUFFER
from vtaops.program.region import Argument, Region, RowSums

_PARTS = ("all", "units", "rest")


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
    pairs = zip(numbers[:-1], program.buffers, strict=True)
    named = {buffer.name: (number, buffer) for number, buffer in pairs}
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
    """Return the lowest bit and the width of the DRAM address in LOAD and STORE.

    Raises
    ------
    UnsupportedError
        If LOAD and STORE differ, or the address is not in the low half.
    """
    encoding = Encoding.of(config)
    places = {
        (slot.offset, slot.width)
        for cls in (Load, Store)
        for slot in encoding.slots[cls]
        if slot.name == "dram_base"
    }
    (offset, width), *others = places
    if others or offset + width > 64:
        raise UnsupportedError(f"DRAM addresses are at the bits {sorted(places)}")
    return offset, width


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
            scalar = np.full(4 // np.dtype(buffer.dtype).itemsize, buffer.fill, buffer.dtype)
            word = int(scalar.view(np.uint32)[0])
            made = blob.buffer(BufferKind.FILLED, buffer.nbytes, word)
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
    relocations = np.array(_relocations(program, numbers), np.uint32).reshape(-1, 2)
    places = blob.add(words), len(words), blob.add(relocations), len(relocations)
    blob.programs.append((buffer, *places))
    return len(blob.programs) - 1


def _relocations(program: Program, numbers: list[int]) -> list[tuple[int, int]]:
    """Return instructions that address DRAM, each with ``buffer << 8 | log2(bytes per unit)``.

    A program calls its micro-ops `MICRO_OPS`; their buffer is last in `numbers`.
    """
    encoding = Encoding.of(program.config)
    units = [program.config.dram_element_bytes(memory) for memory in Memory]
    found = []
    for cls in (Load, Store):
        rows = rows_of(program.instructions, cls)
        rows = rows[program.relocations[rows] != NO_BUFFER]
        memories = encoding.columns(program.instructions[rows], cls)["memory"]
        for row, memory in zip(rows.tolist(), memories.tolist(), strict=True):
            target = int(program.relocations[row])
            number = numbers[-1 if target == MICRO_OPS else target]
            found.append((row, number << 8 | units[memory].bit_length() - 1))
    return sorted(found)


# ------------------------------------------------------------------ packing and unpacking


def _packed(argument: Argument, buffer: Buffer, graph: Graph, values: Values) -> SlotNumber:
    """Return a slot with the DRAM image of an input: `Argument.to_device`, then its layout."""
    array = values.shaped(graph.tensors[argument.tensor], argument.image)
    size = np.dtype(buffer.dtype).itemsize
    if argument.axes:
        array = array.transposed(argument.axes)
    if argument.sums:
        array = _with_sums(array, argument.sums, values)
    if any(argument.border):
        (top, left, bottom, right), zero = argument.border, argument.zero_point
        array = array.padded(2, top, bottom, zero).padded(3, left, right, zero)
    in_order = partial(values.in_order, size=size)
    return in_order(packed(array, buffer.layout, in_order))


def _with_sums(array: StridedView, sums: RowSums, values: Values) -> StridedView:
    """Return a matrix with the columns that `RowSums.added_to` adds."""
    *rows, columns = array.shape
    last = len(rows)
    matrix = values.in_order(array, 1)
    parts = [] if sums.part == "units" else [StridedView.of(matrix, array.shape)]
    parts += constant_lanes(array.shape, last, sums.before)
    if sums.digits:
        count = math.prod(rows)
        digits = values.blob.temporary(count * sums.digits)
        words = sums.digits, _PARTS.index(sums.part), sums.factor, sums.constant
        values.blob.step(StepKind.ROW_SUMS, matrix, digits, count, columns, *words)
        parts.append(StridedView.of(digits, (*rows, sums.digits)))
    return joined([*parts, *constant_lanes(array.shape, last, sums.behind)], last)


def _unpack(
    argument: Argument, buffer: Buffer, image: SlotNumber, graph: Graph, values: Values
) -> None:
    """Copy a result from the DRAM image of its buffer, like unpacking and `from_device`."""
    tensor = graph.tensors[argument.tensor]
    result, size = values.result(tensor), np.dtype(buffer.dtype).itemsize
    array = _lanes(argument, buffer.shape, result)
    if isinstance(buffer.layout.view, Flat) and array.whole is None:
        raise UnsupportedError(f"{tensor.name} is a part of {buffer.name}, which has no channels")
    in_order = partial(values.in_order, size=size)
    values.copy(packed(array, buffer.layout, in_order), image, size, back=True)


def _lanes(argument: Argument, shape: tuple[int, ...], result: SlotNumber) -> StridedView:
    """Return a buffer as the places in a tensor that receive its channels."""
    boxes, lanes = [], argument.lanes
    held = argument.image or (shape[0], 1, len(lanes), *shape[2:])
    order = argument.axes or tuple(range(len(shape)))
    if not argument.image:
        order = 1, *(axis and axis + 1 for axis in order)
    found = dict(zip(order, strides(tuple(held[axis] for axis in order)), strict=True))
    image, outer, *steps = (found[axis] for axis in range(len(held)))
    inner, rest = held[2], (0,) * len(shape[2:])
    pairs = enumerate(lanes)
    for _, run in groupby(pairs, key=lambda pair: (pair[0] // inner, pair[1] - pair[0])):
        (channel, lane), *others = run
        first = channel // inner * outer + channel % inner * steps[0]
        extent = shape[0], 1 + len(others), *shape[2:]
        boxes.append(Box(result, first, (0, lane, *rest), extent, (image, *steps)))
    return StridedView(shape, tuple(boxes))
