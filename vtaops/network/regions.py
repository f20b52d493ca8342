"""From the steps of a region to one Program: fragments, buffers, arena, packed weights."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count

from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.lowering import BufferSlice, Fragment, PlacedFragment, link
from vtaops.lowering.operation import Operation
from vtaops.model.memory import Lifetime, place
from vtaops.network.fragments import Fragments, Groups, find_groups, finished, narrowed
from vtaops.network.pinned import choose_staying, staying, weights_of
from vtaops.network.placement import ping_pong
from vtaops.network.places import MappedOperator
from vtaops.network.plan import Lowered
from vtaops.network.target import Target
from vtaops.program import Buffer, Program, Role
from vtaops.program.region import Region


def compile_region(region: Lowered, fragments: Fragments) -> Region:
    """Return the program of nodes that VTA executes in sequence."""
    steps = region.steps = [narrowed(step, fragments.target.config) for step in region.steps]
    ways = [find_groups(steps, fragments)]
    if fragments.pin_weights:
        ways.append(find_groups(steps, fragments, resident=True))
    found = [way for groups in ways for way in _programs(region, fragments, groups)]
    # To simulate a program takes long.
    best = min(found, key=lambda way: way[0].steady.cycles()) if len(found) > 1 else found[0]
    (program, buffers), (inputs, outputs) = best, region.arguments
    return Region(
        nodes=region.names,
        program=program,
        parameters=buffers.parameters,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


def _programs(
    region: Lowered, fragments: Fragments, groups: Groups
) -> Iterator[tuple[Program, _Buffers]]:
    """Yield the program in which some steps run together, and the one whose weights may stay."""
    buffers = _Buffers(region, fragments.target, groups)
    shared = {
        number: fragment
        for numbers, turns in groups.items()
        for number, fragment in zip(numbers, turns.fragments, strict=True)
    }
    told = enumerate(tracked("compile layer", region.steps, lambda step: step.node))
    found = [shared.get(number) or fragments.of(step) for number, step in told]
    metadata = {"network": region.graph.name, "capabilities": fragments.target.capabilities.name}
    lags = {numbers: turns.lag for numbers, turns in groups.items()}
    stays: list[list[int]] = [[]]
    if fragments.pin_weights:
        stays.append(choose_staying(found, fragments.target.config.wgt.depth))
    for numbers in stays:
        placed, loads = _placed(found, groups, numbers)
        steps = zip(region.steps, placed, strict=True)
        parts = [buffers.part(step, finished(fragment, step.op)) for step, fragment in steps]
        yield link(parts, buffers.all, metadata, interleave=lags, pinned=loads), buffers


def _placed(
    fragments: Sequence[Fragment], groups: Collection[range], numbers: Sequence[int]
) -> tuple[list[Fragment], dict[int, Operation]]:
    """Place fragments one after the other, the weights of some for good; return their loads."""
    weights = {number: w for number in numbers if (w := weights_of(fragments[number]))}
    reserved = sum(w.size for w in weights.values())
    placed = ping_pong(fragments, groups, weights, reserved)
    base = placed[0].config.wgt.depth - reserved
    loads = {}
    for number, its in weights.items():
        moved = staying(placed[number], its, base)
        if moved is None:
            return _placed(fragments, groups, [n for n in numbers if n != number])
        placed[number], loads[number] = moved
        base += its.size
    return placed, loads


class _Buffers:
    """The buffers of a region's program."""

    def __init__(self, region: Lowered, target: Target, groups: Collection[range]) -> None:
        self.all: list[Buffer] = []
        self.parameters: dict[str, Array] = {}
        self._index: dict[str, int] = {}
        self._known: dict[tuple[Buffer, bytes], int] = {}
        self._config = target.config
        made = [memory.buffer(target.config) for memory in region.memories.values()]
        alignment = max(
            memory.element_bytes
            for memory in (target.config.inp, target.config.wgt, target.config.acc)
        )
        arena = [b.name for b in made if b.role is Role.SCRATCH and b.fill is None]
        lifetimes = _lifetimes(region.steps, made, groups)
        offsets = place({name: lifetimes[name] for name in arena}, alignment)
        for buffer in made:
            self._add(replace(buffer, offset=offsets.get(buffer.name)))

    def _add(self, buffer: Buffer) -> int:
        self._index[buffer.name] = len(self.all)
        self.all.append(buffer)
        return len(self.all) - 1

    def part(self, step: MappedOperator, fragment: Fragment) -> PlacedFragment:
        """Return a fragment with the places of its buffers."""
        places: list[BufferSlice | int] = []
        for buffer in fragment.buffers:
            if buffer.name in step.uses:
                use = step.uses[buffer.name]
                first = use.seen(self._config)[1] * self._config.inp.element_bytes
                places.append(BufferSlice(self._index[use.memory.name], first))
            else:
                places.append(self._shared(step, buffer))
        return PlacedFragment(fragment, tuple(places), step.node)

    def _shared(self, step: MappedOperator, buffer: Buffer) -> int:
        """Return the buffer shared by equal constants, or by parameters of equal images."""
        name, image = f"constant:{len(self._known) - len(self.parameters)}", None
        if buffer.role is not Role.CONSTANT:
            image, base = buffer.pack(step.weights[buffer.name]), f"{step.node}:{buffer.name}"
            buffer = replace(buffer, role=Role.PARAMETER)  # also data, where it is a constant
            again = (f"{base}:{number}" for number in count(2))
            name = next(n for n in chain([base], again) if n not in self._index)
        content = b"" if image is None else hashlib.sha256(image.tobytes()).digest()
        key = replace(buffer, name=""), content
        if key not in self._known:
            if image is not None:
                self.parameters[name] = image
            self._known[key] = self._add(replace(buffer, name=name))
        return self._known[key]


def _lifetimes(
    steps: Sequence[MappedOperator], buffers: Sequence[Buffer], groups: Collection[range]
) -> dict[str, Lifetime]:
    """Return the lifetime of each image; the steps of a group run at the same time."""
    sizes = {buffer.name: buffer.nbytes for buffer in buffers}
    spans = {number: group for group in groups for number in group}
    touched: dict[str, list[int]] = {}
    for number, step in enumerate(steps):
        for use in step.uses.values():
            found = touched.setdefault(use.memory.name, [])
            found += spans.get(number, [number])
    return {
        name: Lifetime(min(numbers), max(numbers), sizes[name]) for name, numbers in touched.items()
    }
