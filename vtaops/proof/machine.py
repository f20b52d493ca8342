"""The machine of the proof: a Program in program order, on terms instead of numbers.

Owns what each instruction does. Products of an instruction are grouped to matrix products: by
accumulators that sum as many products, of the same weights.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.machine.alu import AluOp
from vtaops.machine.config import POST_ROWS, WINDOW_TILES, Memory
from vtaops.machine.isa import (
    Alu,
    Depthwise,
    Encoding,
    Gemm,
    Load,
    LoopInstruction,
    Pool,
    Post,
    Store,
)
from vtaops.program import Program, Role
from vtaops.program.traffic import Ints, elements, joined
from vtaops.proof.terms import (
    BYTE,
    EXACT,
    INT32,
    NOTHING,
    WORD,
    Fields,
    Floats,
    Keys,
    Terms,
    hull,
    plain_range,
)

Image = npt.NDArray[np.generic] | Terms
"""What a buffer holds: numbers, or a term for each scalar, flat."""


class Dram:
    """The buffers: images of numbers, or terms."""

    def __init__(self, program: Program, fields: Fields, images: dict[str, Image]) -> None:
        self.fields = fields
        self._images: list[Image] = []
        self.writers: list[Ints] = []
        arena = np.zeros((2, program.arena_nbytes)), np.full(program.arena_nbytes, -1)
        for buffer in program.buffers:
            size = buffer.nbytes // np.dtype(buffer.dtype).itemsize
            image: Image | None = images.get(buffer.name)
            writers = np.full(size, -1)
            if buffer.role is Role.CONSTANT:
                image = buffer.constant_image()
            elif buffer.fill is not None:
                image = fields.numbers(np.full(size, buffer.fill))
            elif buffer.offset is not None:
                place = slice(buffer.offset, buffer.offset + size)
                image, writers = Terms(arena[0][:, place]), arena[1][place]
            elif image is None:
                image = Terms(np.zeros((2, size)))
            if not isinstance(image, Terms):
                image = np.ascontiguousarray(image).reshape(-1).view(np.uint8)
            self._images.append(image)
            self.writers.append(writers)
        self._scalars = [np.dtype(buffer.dtype).itemsize for buffer in program.buffers]

    def terms_of(self, buffer: int) -> Floats:
        """Return what a buffer holds."""
        image = self._images[buffer]
        assert isinstance(image, Terms)
        return image.value

    def read(self, buffer: int, index: Ints, nbytes: int, scalar: int) -> Any:
        """Return elements of `nbytes` bytes, as scalars of so many bytes: numbers, or values."""
        image, given = self._images[buffer], self._scalars[buffer]
        if not isinstance(image, Terms):
            rows = image[: len(image) // nbytes * nbytes].reshape(-1, nbytes)
            return rows[index].view("<i4" if scalar == 4 else "i1")
        value = image.value
        if given != scalar:
            value = self._as_scalars(value, given)
        count = nbytes // scalar
        return value[:, : value.shape[1] // count * count].reshape(2, -1, count)[:, index]

    def _as_scalars(self, value: Floats, given: int) -> Floats:
        """Return scalars of `given` bytes as those of another size: functions without meaning."""
        fields = self.fields
        if given == 4:
            parts = [fields.of(("byte", k), Terms(value)) for k in range(4)]
            return np.stack(parts, axis=-1).reshape(2, -1)
        whole = value[:, : value.shape[1] // 4 * 4].reshape(2, -1, 4)
        return fields.of(("word",), *(Terms(whole[..., k]) for k in range(4)))

    def write(self, buffer: int, index: Ints, value: Floats, writer: int) -> None:
        """Write elements of int8 terms, (2, elements, lanes)."""
        lanes = value.shape[-1]
        self.terms_of(buffer).reshape(2, -1, lanes)[:, index] = value
        self.writers[buffer].reshape(-1, lanes)[index] = writer


class Accumulators:
    """The accumulator memory: a term for each lane; maxima and minima as sets of members."""

    def __init__(self, fields: Fields, depth: int, shape: tuple[int, ...]) -> None:
        self.fields = fields
        self.value = np.zeros((2, depth, *shape))
        self.middle, self.radius = np.zeros((depth, *shape)), np.zeros((depth, *shape))
        self.shift = np.zeros((depth, 1, 1), np.int64)
        self.low, self.high = np.full((depth, 1, 1), -np.inf), np.full((depth, 1, 1), np.inf)
        self.sign = np.zeros(depth, np.int64)
        """1 where a maximum is held as a set of members, -1 where a minimum."""
        self.members: Keys = np.full((1, depth, *shape), NOTHING)
        self.plain = np.ones(depth, bool)
        """Where nothing waits and no set is held."""
        self.degree = np.ones(depth, np.int64)
        self._greatest = 0.0  # residues are sums that were not reduced yet

    def get(self, index: Ints) -> Terms:
        """Return the terms of elements."""
        value = self.fields.centred(self.value[:, index])
        ranges = self.middle[index], self.radius[index]
        degree = int(self.degree[index].max(initial=1))
        if self.plain[index].all():
            return Terms(value, *ranges, degree=degree)
        for sign in (-1, 1):
            chosen = self.sign[index] == sign
            if chosen.any():
                value[:, chosen] = self.fields.extremum(self.members[:, index[chosen]], sign)
        waits = self.shift[index], self.low[index], self.high[index]
        return Terms(value, *ranges, *waits, degree)

    def put(self, index: Ints, terms: Terms) -> None:
        """Write terms to elements."""
        self.value[:, index] = terms.value
        self.middle[index], self.radius[index] = terms.middle, terms.radius
        self.shift[index], self.low[index] = terms.shift, terms.low
        self.high[index], self.sign[index] = terms.high, 0
        self.degree[index] = terms.degree
        self.plain[index] = not (np.any(terms.shift) or np.any(terms.bounded))

    def clear(self, index: Any) -> None:
        """Write zeros to elements."""
        self.value[:, index], self.middle[index], self.radius[index] = 0, 0, 0
        self.shift[index], self.low[index], self.high[index] = 0, -np.inf, np.inf
        self.sign[index], self.plain[index], self.degree[index] = 0, True, 1

    def add(self, index: Ints, terms: Terms, greatest: float) -> None:
        """Add plain terms, of which no residue exceeds `greatest`, to different elements."""
        if not self.plain[index].all():
            terms = replace(terms, value=self.fields.centred(terms.value))
            self.put(index, self.fields.sum(self.get(index), terms))
            return
        if self._greatest + greatest > EXACT:
            self.fields.centred(self.value)
            self._greatest = 2.0**31
        self._greatest += greatest
        self.value[:, index] += terms.value
        self.degree[index] = np.maximum(self.degree[index], terms.degree)
        self.middle[index] += terms.middle
        self.radius[index] += terms.radius

    def reach(self) -> float:
        """Return the greatest magnitude that a plain term could have."""
        reach = np.abs(self.middle) + self.radius
        return float(reach[self.plain].max(initial=0))

    def members_of(self, index: Ints, sign: int) -> Keys:
        """Return what elements hold as the members of maxima (`sign` 1) or minima."""
        same = self.sign[index] == sign
        if same.all():
            return self.members[:, index]
        keys = self.fields.keys(self.fields.fitting(self.get(index)).value)
        alone = np.full((len(self.members), *keys.shape), NOTHING)
        alone[0] = keys
        return np.where(same[:, None, None], self.members[:, index], alone)

    def put_members(self, index: Ints, members: Keys, sign: int, ranges: Any) -> None:
        """Write maxima or minima to elements."""
        missing = len(members) - len(self.members)
        if missing > 0:
            more = np.full((missing, *self.members.shape[1:]), NOTHING)
            self.members = np.concatenate([self.members, more])
        self.clear(index)
        self.middle[index], self.radius[index] = ranges
        self.members[:, index] = NOTHING
        self.members[: len(members), index] = members
        self.sign[index], self.plain[index] = sign, False


class TermMachine:
    """One VTA that computes on terms.

    Parameters
    ----------
    program : Program
        A program that verifies: nothing that the verifier proves is checked again.
    fields : Fields
        The fields.
    images : dict of str to ndarray or Terms
        What the host writes to the buffers, packed.

    Attributes
    ----------
    dram : Dram
        The buffers.
    products : int
        Multiply-accumulates of lanes.
    overflow : int or None
        The first instruction whose sums or products could leave int32.
    """

    def __init__(self, program: Program, fields: Fields, images: dict[str, Image]) -> None:
        config = program.config
        self.program, self.fields, self.config = program, fields, config
        self.dram = Dram(program, fields, images)
        self.acc = Accumulators(fields, config.acc.depth, config.acc.shape)
        self.inp = np.zeros((2, config.inp.depth, *config.inp.shape))
        self.inp_holds = np.zeros(config.inp.depth)
        """0 for tiles of zeros that a LOAD padded with."""
        depth, (outputs, inputs) = config.wgt.depth, config.wgt.shape
        self.wgt = np.zeros((1, depth, inputs, outputs))
        """Weights, transposed: numbers; or, where some are terms, in two planes."""
        self.wgt_sums, self.wgt_reach = np.zeros((2, depth, outputs))
        self.uop = np.zeros((config.uop.depth, 3), np.int64)
        self.loaded: list[Any] = [None]
        """Rows of parameters and tables, in the order of their LOADs."""
        self.row_versions = np.zeros(config.post.depth, np.int64)
        self.table_versions = np.zeros(config.table.depth, np.int64)
        self.posts = [Post()]
        self.settings = np.zeros((config.acc.depth, 4), np.int64)
        """Of each element of the output memory: POST, the rows of its bias and scale, the table."""
        self.products = 0
        self.overflow: int | None = None
        self._sum_bound = 0.0
        self._plans: dict[tuple[bytes, bytes], Any] = {}
        self._index = -1

    def run(self) -> None:
        """Execute the program."""
        micro_ops = Encoding.of(self.config).decode_micro_ops(self.program.micro_ops)
        relocations = self.program.relocations.tolist()
        for index, instruction in enumerate(self.program.decode()):
            self._index = index
            match instruction:
                case Load(memory=Memory.UOP) if not instruction.is_nop:
                    first, size = instruction.dram_base, instruction.x_size
                    base = instruction.sram_base
                    self.uop[base : base + size] = micro_ops[first : first + size]
                case Load() if not instruction.is_nop:
                    self._load(instruction, relocations[index])
                case Store() if not instruction.is_nop:
                    self._store(instruction, relocations[index])
                case Post():
                    self.posts.append(instruction)
                case Gemm() | Alu() | Pool() if instruction.iterations:
                    self._loop(instruction)

    # ------------------------------------------------------------------------ LOAD, STORE

    def _load(self, i: Load, buffer: int) -> None:
        memory = Memory(i.memory)
        down = i.dram_base + np.arange(i.y_size) * i.x_stride
        index = (down[:, None] + np.arange(i.x_size)).reshape(-1)
        rows = (i.y_pad_top + np.arange(i.y_size))[:, None] * i.sram_row
        places = (i.sram_base + rows + i.x_pad_left + np.arange(i.x_size)).reshape(-1)
        whole = slice(i.sram_base, i.sram_base + i.sram_size)
        if i.forward:
            found: Any = self._outputs(index).value
            found = found.reshape(2, len(index), self.config.out.lanes)
        else:
            nbytes = self.config.dram_element_bytes(memory)
            scalar = 4 if memory in (Memory.ACC, Memory.POST) else 1
            found = self.dram.read(buffer, index, nbytes, scalar)
        shape = self.config.scratchpad(memory).shape
        if memory == Memory.INP:
            self.inp[:, whole], self.inp_holds[whole] = 0, 0
            self.inp[:, places] = found.reshape(*found.shape[:-1], *shape)
            self.inp_holds[places] = 1
        elif memory == Memory.WGT:
            self._load_weights(whole, places, found.reshape(*found.shape[:-1], *shape))
        elif memory == Memory.POST:
            self._load_rows(i, places, found)
        elif memory == Memory.TABLE:
            for place, content in zip(places.tolist(), np.moveaxis(found, -2, 0), strict=True):
                self.table_versions[place] = len(self.loaded)
                self.loaded.append(content)
        else:
            self.acc.clear(whole)
            terms = Terms(found, *map(np.float64, WORD if memory == Memory.ACC else BYTE))
            if found.ndim == 2:
                terms = self.fields.numbers(found)
            terms = terms.moved(lambda part: part.reshape(len(places), *shape))
            self.acc.put(places, terms)
            self._sum_bound = max(self._sum_bound, float(terms.reach.max(initial=0)))

    def _load_weights(self, whole: slice, places: Ints, found: Any) -> None:
        tiles = np.swapaxes(found, -1, -2)
        if found.ndim == 4 and len(self.wgt) == 1:
            self.wgt = np.concatenate([self.wgt, self.wgt])
        for memory in (self.wgt, self.wgt_sums[None], self.wgt_reach[None]):
            memory[:, whole] = 0
        self.wgt[:, places] = tiles
        if found.ndim == 3:
            self.wgt_sums[places] = tiles.sum(axis=-2, dtype=np.int32)
            self.wgt_reach[places] = np.abs(tiles.astype(np.int16)).sum(axis=-2, dtype=np.int32)
        else:
            self.wgt_reach[places] = 128 * (tiles != 0).any(axis=0).sum(axis=-2)
            self.wgt_sums[places] = 0

    def _load_rows(self, i: Load, places: Ints, found: Any) -> None:
        for row in range(i.sram_base, i.sram_base + i.sram_size):
            self.row_versions[row] = len(self.loaded)
            self.loaded.append(np.zeros(self.config.post.shape, np.int32))
        numbers = found.ndim == 2
        for number, place in enumerate(places.tolist()):
            one = found[number] if numbers else Terms(found[:, number], *map(np.float64, WORD))
            self.loaded[self.row_versions[place]] = one

    def _store(self, i: Store, buffer: int) -> None:
        index = i.sram_base + np.arange(i.sram_size)
        terms = self._outputs(index)
        down = i.dram_base + np.arange(i.y_size) * i.x_stride
        places = (down[:, None] + np.arange(i.x_size)).reshape(-1)
        self.dram.write(
            buffer, places, terms.value.reshape(2, len(index), self.config.out.lanes), self._index
        )

    def _outputs(self, index: Ints) -> Terms:
        """Return elements of the output memory."""
        settings = self.settings[index]
        if not settings.any():
            return self.fields.byte(self.acc.get(index))
        value = np.empty((2, len(index), *self.config.out.shape))
        different, which = np.unique(settings, axis=0, return_inverse=True)
        for number, setting in enumerate(different.tolist()):
            chosen = which.reshape(-1) == number
            value[:, chosen] = self._processed(self.acc.get(index[chosen]), *setting).value
        return Terms(value, *map(np.float64, BYTE))

    def _processed(self, x: Terms, post: int, bias: int, scale: int, table: int) -> Terms:
        """Return what a POST makes of accumulators."""
        i, fields = self.posts[post], self.fields
        if not i.enable:
            return fields.byte(x)
        if i.use_bias:
            row = self.loaded[bias]
            x = fields.sum(x, row if isinstance(row, Terms) else fields.numbers(row))
            if self.overflow is None and not np.max(x.reach) <= INT32:
                self.overflow = self._index
        multiplier: Any = i.multiplier
        shift: Any = i.shift
        if i.use_scale:
            row = self.loaded[scale]
            terms = isinstance(row, Terms)
            multiplier, shift = (row, 0) if terms else (row & 0xFFFF, row >> 16 & 0x3F)
            if i.fine:
                multiplier, shift = row if terms else fields.numbers(row), -i.fine
        clip, rounds = (i.low, i.high), bool(i.round_half)
        x = fields.byte(fields.requantized(x, multiplier, shift, i.zero_point, clip, rounds))
        return fields.mapped(x, self.loaded[table]) if i.use_table else x

    # ------------------------------------------------------------------------ GEMM, ALU, POOL

    def _loop(self, i: LoopInstruction) -> None:
        micro_ops = self.uop[i.uop_begin : i.uop_end]
        words = self.program.instructions[self._index] & _WITHOUT_TOKENS
        key = words.tobytes(), micro_ops.tobytes()
        plan = self._plans.get(key)
        if plan is None:
            shares = joined(self.config, i, micro_ops)
            plan = self._plans[key] = Steps(i, micro_ops, shares)
        if i.reset:
            self.acc.clear(plan.written)
            return
        self._set_post(i, plan)
        match i:
            case Gemm():
                self._gemm(i, plan)
            case Alu():
                self._alu(i, plan)
            case Pool():
                self._pool(i, plan)
        reach = self.acc.reach() if self._sum_bound > INT32 else 0
        if not reach <= INT32 and self.overflow is None:
            self.overflow = self._index
        self._sum_bound = reach or self._sum_bound

    def _set_post(self, i: LoopInstruction, plan: Steps) -> None:
        post = self.posts[-1]
        if len(self.posts) == 1:
            return
        table = self.table_versions[post.table_index] if post.use_table else 0
        self.settings[plan.written] = len(self.posts) - 1, 0, 0, table
        if post.reads_row:
            outer = np.arange(i.iter_out) * post.row_factor_out
            rows = post.row + np.add.outer(outer, np.arange(i.iter_in) * post.row_factor_in)
            rows = rows.reshape(-1).repeat(i.uop_end - i.uop_begin)[plan.last]
            if post.use_bias:
                self.settings[plan.written, 1] = self.row_versions[rows]
            if post.use_scale:
                self.settings[plan.written, 2] = self.row_versions[POST_ROWS + rows]

    def _gemm(self, i: Gemm, plan: Steps) -> None:
        if i.overwrite:
            self.acc.clear(plan.written)
        batch, lanes = self.config.inp.shape
        for dst, src, wgt in plan.last_products if i.overwrite else plan.products:
            weights, sums, reach = self._weights(wgt)
            if isinstance(i, Depthwise):
                weights, sums, reach = self._windows(weights)
                src = (src[:, :, None] + np.arange(WINDOW_TILES)).reshape(len(src), -1)
            count, outputs = weights.shape[-4], weights.shape[-3]
            weights = weights.swapaxes(-3, -2).reshape(*weights.shape[:-4], count * lanes, -1)
            value = self.inp[:, src]
            value = value if batch == 1 else value.swapaxes(2, 3)
            value = value.reshape(2, -1, count * lanes)
            if len(weights) == 2:
                value, greatest = self.fields.matmul(value, weights), 2.0**31
            else:
                value, greatest = value @ weights[0], count * lanes * 2.0**37
            value = value.reshape(2, len(src), batch, outputs, -1).swapaxes(2, 3)
            holds, flat = self.inp_holds[src], (count, -1)
            middle, radius = (
                (size * holds @ total.reshape(flat)).reshape(len(src), outputs, 1, -1)
                for size, total in zip(BYTE, (sums, reach), strict=True)
            )
            terms = Terms(value, middle, radius, degree=1 + (len(weights) == 2))
            self.acc.add(dst, terms, greatest)
            self._sum_bound += 128 * float(reach.sum(axis=0).max())
            self.products += len(src) * batch * weights[0].size

    def _weights(self, wgt: Ints) -> tuple[Floats, Floats, Floats]:
        """Return weights (planes, count, outputs, lanes in, out), their sums and magnitudes."""
        return self.wgt[:, wgt.T], self.wgt_sums[wgt.T], self.wgt_reach[wgt.T]

    def _windows(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the weights of windows as those of three products each."""
        channels = self.config.window_channels
        planes, count, outputs, lanes, _ = weights.shape
        dense = np.zeros((planes, count, WINDOW_TILES, outputs, lanes, lanes))
        output = np.arange(lanes)
        for tile in range(WINDOW_TILES):
            for channel in range(channels):
                lane = output // channels * channels + channel
                dense[:, :, tile, :, lane, output] = np.moveaxis(
                    weights[:, :, :, tile * channels + channel], -1, 0
                )
        dense = dense.reshape(planes, -1, outputs, lanes, lanes)
        if planes == 2:
            reach = 128.0 * (dense != 0).any(axis=0).sum(axis=-2)
            return dense, 0 * reach, reach
        return dense, dense[0].sum(axis=-2), np.abs(dense[0]).sum(axis=-2)

    def _alu(self, i: Alu, plan: Steps) -> None:
        acc, op = self.acc, AluOp(i.alu_op)
        for dst, src in plan.batches:
            if op in (AluOp.MIN, AluOp.MAX) and not i.use_imm:
                self._extremum(dst, src, 1 if op == AluOp.MAX else -1)
                continue
            x = acc.get(dst)
            result = (
                self._immediate(op, x, i.imm) if i.use_imm else self._pairs(op, x, acc.get(src))
            )
            acc.put(dst, result)
            if op.wraps and acc.plain[dst].all():
                self._sum_bound = max(self._sum_bound, float(result.reach.max()))

    def _immediate(self, op: AluOp, x: Terms, imm: int) -> Terms:
        fields = self.fields
        match op:
            case AluOp.MIN:
                return fields.clamped(x, -np.inf, imm)
            case AluOp.MAX:
                return fields.clamped(x, imm, np.inf)
            case AluOp.ADD:
                return fields.sum(x, fields.numbers(imm))
            case AluOp.SHR:
                return fields.shifted(x, imm)
            case _:
                return fields.times(fields.settled(x), imm)

    def _pairs(self, op: AluOp, x: Terms, y: Terms) -> Terms:
        fields = self.fields
        match op:
            case AluOp.ADD:
                return fields.sum(x, y)
            case AluOp.MUL:
                return fields.product_of(x, y)
            case _:
                value = fields.of(("shift by",), fields.fitting(x), fields.fitting(y))
                return Terms(value, *map(np.float64, WORD))

    def _extremum(self, dst: Ints, src: Ints, sign: int) -> None:
        acc = self.acc
        members = np.concatenate([acc.members_of(dst, sign), acc.members_of(src, sign)])
        *ranges, inside = hull([plain_range(acc.get(dst)), plain_range(acc.get(src))], sign)
        acc.put_members(dst, self.fields.union(members, inside, sign), sign, ranges)

    def _pool(self, i: Pool, plan: Steps) -> None:
        acc, fields = self.acc, self.fields
        for dst, src in plan.batches:
            tiles = src + np.arange(i.tiles)[:, None]
            members = np.moveaxis(fields.keys(self.inp[:, tiles]), 1, 1)
            pixels = Terms(self.inp[:, src], *map(np.float64, BYTE))
            terms = [pixels]
            if not i.overwrite:
                members = np.concatenate([acc.members_of(dst, 1), members])
                terms.append(acc.get(dst))
            *ranges, inside = hull([plain_range(t) for t in terms], 1)
            acc.put_members(dst, fields.union(members, inside, 1), 1, ranges)


_TOKENS = sum(1 << bit for bit in range(3, 7))
_WITHOUT_TOKENS = np.array([(1 << 64) - 1 - _TOKENS, (1 << 64) - 1], np.uint64)


class Steps:
    """The steps of an instruction, in groups that can be computed at once."""

    def __init__(self, i: LoopInstruction, micro_ops: Ints, shares: npt.NDArray[np.bool_]) -> None:
        self.dst = elements(i, "dst", micro_ops[:, 0])
        self.src = self.dst if i.reset or _is_immediate(i) else elements(i, "src", micro_ops[:, 1])
        self.wgt = elements(i, "wgt", micro_ops[:, 2]) if isinstance(i, Gemm) else self.dst
        self.own = isinstance(i, Alu) and not _is_immediate(i)
        """Whether sources are accumulators."""
        self.written, last = np.unique(self.dst[::-1], return_index=True)
        self.last = len(self.dst) - 1 - last
        """The last step that writes each."""
        self._joined = np.tile(shares, i.iter_out * i.iter_in)

    @cached_property
    def products(self) -> list[tuple[Ints, Ints, Ints]]:
        """Matrix products: ``dst[i, j]`` sums the products of ``src[i]`` and ``wgt[j]``."""
        return _products(self.dst, self.src, self.wgt)

    @cached_property
    def last_products(self) -> list[tuple[Ints, Ints, Ints]]:
        """The same of the last step of each accumulator: of one product, or of two."""
        firsts = self.last[self._joined[self.last]] - 1
        kept = np.concatenate([self.last, firsts])
        return _products(self.dst[kept], self.src[kept], self.wgt[kept])

    @cached_property
    def batches(self) -> list[tuple[Ints, Ints]]:
        """Steps (dst, src) that read nothing that others of the batch have written before."""
        if len(self.written) == len(self.dst) and not self.own:
            return [(self.dst, self.src)]
        wrote: dict[int, int] = {}
        read: dict[int, int] = {}
        levels = np.empty(len(self.dst), np.int64)
        for step, (dst, src) in enumerate(zip(self.dst.tolist(), self.src.tolist(), strict=True)):
            level = wrote.get(dst, 0)
            if self.own:
                level = max(level, wrote.get(src, 0), read.get(dst, 0))
                read[src] = max(read.get(src, 0), level)
            wrote[dst] = level + 1
            levels[step] = level
        order = np.argsort(levels, kind="stable")
        cuts = np.flatnonzero(np.diff(levels[order])) + 1
        return [(self.dst[steps], self.src[steps]) for steps in np.split(order, cuts)]


def _is_immediate(i: LoopInstruction) -> bool:
    return isinstance(i, Alu) and bool(i.use_imm)


def _products(dst: Ints, src: Ints, wgt: Ints) -> list[tuple[Ints, Ints, Ints]]:
    """Return products, one for each accumulator and source, as matrix products."""
    order = np.argsort(dst, kind="stable")
    written, first, counts = np.unique(dst[order], return_index=True, return_counts=True)
    found = []
    for count in np.unique(counts).tolist():
        chosen = counts == count
        steps = order[first[chosen, None] + np.arange(count)]
        sources, source = _unique_rows(src[steps])
        weights, weight = _unique_rows(wgt[steps])
        targets = np.full((len(sources), len(weights)), -1)
        targets[source, weight] = written[chosen]
        if len(steps) == targets.size and (targets >= 0).all():
            groups = [(targets, sources, weights)]
        else:
            groups = [
                (
                    written[chosen][weight == number][:, None],
                    src[steps[weight == number]],
                    row[None],
                )
                for number, row in enumerate(weights)
            ]
        found += [
            (targets, rows[:, cut : cut + _LONGEST], row[:, cut : cut + _LONGEST])
            for targets, rows, row in groups
            for cut in range(0, count, _LONGEST)
        ]
    return found


_LONGEST = 256
"""Tiles of a matrix product: sums of more residues may not be exact."""


def _unique_rows(rows: Ints) -> tuple[Ints, Ints]:
    """Return different rows, and which of them each row is."""
    factors = np.random.default_rng(0).integers(1, 1 << 40, rows.shape[1])
    _, first, inverse = np.unique(rows @ factors, return_index=True, return_inverse=True)
    unique: Ints = rows[first]
    if (unique[inverse] != rows).any():  # two rows had one number
        unique, inverse = np.unique(rows, axis=0, return_inverse=True)
    return unique, inverse.reshape(-1)
