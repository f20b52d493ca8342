"""Random valid instruction streams, executed by the reference while they are built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import vtaops._uses as _uses

from trials.reference_isa import launch, place, serialise
from vtaops import HardwareConfig
from vtaops.base.fixed_point import FINE_BITS, fine_scale
from vtaops.lowering.operation import Elements, Operation
from vtaops.machine.accesses import DRAM, Access, accesses, listed, parameters, run
from vtaops.machine.config import POST_ROWS, TABLES, WINDOW_TILES, Extension, Memory
from vtaops.machine.isa import (
    Alu,
    AluOp,
    Depthwise,
    Encoding,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemoryInstruction,
    Pool,
    Post,
    Store,
)
from vtaops.machine.text import TOKENS
from vtaops.program.interpreter import Interpreter
from vtaops.runtime.tsim import Tsim

CONFIGS = {
    name: HardwareConfig.load(name)
    for name in ("pynq", "tiny", "4x8_i8w8a32_15_16_16_18", "1x32_i8w8a32_15_15_20_17")
} | {
    # The least and the largest tiles, and batches that are done in other groups of rows.
    "2x4": HardwareConfig(log_batch=1, log_block=2, log_wgt_buff_size=12, log_acc_buff_size=15),
    "2x16": HardwareConfig(log_batch=1, log_inp_buff_size=16, log_acc_buff_size=18),
    "8x64": HardwareConfig(log_batch=3, log_block=6, log_acc_buff_size=20, log_inp_buff_size=17),
    "extended": replace(HardwareConfig.load("tiny"), extensions=tuple(Extension)),
}
REGION = 4096
"""Device address of the first buffer of a device."""
POST_WIDTHS = (8, 12, 13)
"""Bits of the values in post-processing: of a result, scaled, and with a zero point."""


class RandomProgram:
    """A random valid program, built while the reference executes it.

    DRAM is one region: micro-ops, then random bytes that LOADs read and STOREs overwrite, then room
    for a dump of all accumulators. Some bytes are all of the least value, some of the greatest.
    All extensions of the configuration are used. A program begins with the least and the greatest
    sum of two products and, with POST, with values at both ends of every width of post-processing.
    """

    uops = 64
    data_nbytes = 1 << 15

    def __init__(self, config: HardwareConfig, seed: int, *, separate_out: bool = False) -> None:
        self.config = config
        self.rng = np.random.default_rng([seed, config.batch, config.block_in])
        self.instructions: list[Instruction] = []
        self.data = REGION + 4096
        self.dump = self.data + self.data_nbytes
        depth = config.acc.depth
        dram_nbytes = self.dump + 4 * depth * config.out.element_bytes
        self.reference = Interpreter(config, dram_nbytes, separate_out=separate_out)
        data = self.rng.integers(0, 256, (self.data_nbytes // 64, 64), np.uint8)
        data[::5], data[1::7] = 0x80, 0x7F
        self.reference.dram[self.data : self.dump] = data.reshape(-1)
        if config.has(Extension.EXACT):
            sums, *rows = self._boundaries().astype("<i4").reshape(3, self._boundary_tiles, -1)
            tiles = np.repeat(sums[:, None], config.batch, axis=1)
            words = np.concatenate([part.view(np.uint8).ravel() for part in (tiles, *rows)])
            self.reference.dram[self.data : self.data + words.size] = words
        self.half = self.data + self.data_nbytes // 2
        for number, value in enumerate((0x80, 0x7F)):
            first = self.half + number * self._extreme_nbytes
            self.reference.dram[first : first + self._extreme_nbytes] = value
        if config.has(Extension.POST):
            posts = [self._end_post(zero_point) for zero_point in (-128, 127)]
            self.ends = [(post, self._end_tiles(post)) for post in posts]
            words = np.concatenate([tiles for _, tiles in self.ends]).view(np.uint8)
            self.reference.dram[self.dump - words.size : self.dump] = words.ravel()
        # What STORE and `forward` may read: accumulators last written by a step, with `post`.
        self.current = np.full(depth, not config.has(Extension.POST))
        words = Encoding.of(config).encode_micro_ops(self._micro_ops()).view(np.uint8)
        self.reference.dram[REGION : REGION + words.size] = words
        self.image = self.reference.dram[REGION:].copy()

    def _micro_ops(self) -> npt.NDArray[np.int64]:
        """Return micro-ops of random indices, and those of a convolution."""
        table = self.rng.integers(0, 6, (self.uops, 3))
        table[0] = 0  # used by the dump
        # Neighbours differ in a single bit of one index.
        depths = self.config.acc.depth, self._source_depth, self.config.wgt.depth
        for row in range(1, 32, 2):
            operand = int(self.rng.choice([0, 0, 1, 2]))
            table[row] = table[row - 1]
            table[row, operand] ^= 1 << self.rng.integers(depths[operand].bit_length() - 1)
        # Two output blocks, four taps, four columns: groups of equal weight, as in convolutions.
        block, tap, column = np.unravel_index(np.arange(32), (2, 4, 4))
        table[32:] = np.stack([4 * block + column, column + tap, 4 * block + tap], axis=1)
        return table

    @property
    def _source_depth(self) -> int:
        """The elements that a ``src`` may name: inputs, or accumulators."""
        return min(self.config.inp.depth, self.config.acc.depth)

    @property
    def _extreme_nbytes(self) -> int:
        """Bytes of one value, of which a tile of inputs or weights is made."""
        return max(self.config.inp.element_bytes, self.config.wgt.element_bytes)

    @property
    def _boundary_tiles(self) -> int:
        """Tiles of sums that lie where a result changes: with their scales, half of the data."""
        memories = Memory.ACC, Memory.POST, Memory.POST
        return self.data_nbytes // 2 // sum(map(self.config.dram_element_bytes, memories))

    def _boundaries(self) -> npt.NDArray[np.int64]:
        """Return sums, biases and fine scales, at most one apart from where a result changes.

        A sum of more than 24 bits tells every bit of its multiplier there. Every eighth sum is the
        smallest, times a power of two: what is added before the shift decides its result.
        """
        count = self._boundary_tiles * self.config.block_out
        multiplier = self.rng.integers(1 << (FINE_BITS - 1), 1 << FINE_BITS, count)
        shift = self.rng.integers(42, 48, count)
        result = self.rng.integers(1, 127, count) << shift
        near = result - (1 << (shift - 1)) * self.rng.integers(0, 2, count)
        least = -(-near // multiplier) - self.rng.integers(0, 2, count)
        sums = np.where(least < 1 << 31, least, self.rng.integers(0, 1 << 31, count))
        sums *= self.rng.choice([-1, 1], count)
        biases = np.zeros(count, np.int64)
        sums[::8] = biases[::8] = -(1 << 31)
        multiplier[::8], shift[::8] = 1 << (FINE_BITS - 1), 49
        nudges = self.rng.integers(-8, 8, count)
        return np.stack([sums, biases, fine_scale(multiplier, shift, nudges)])

    def _end_post(self, zero_point: int) -> Post:
        """Return a scale by which 32-bit sums reach every scaled value of `POST_WIDTHS`."""
        scale = {"multiplier": self.integer(1 << 15, 0xFFFF), "shift": self.integer(16, 32)}
        return Post(enable=1, zero_point=zero_point, low=-128, high=127, **scale)

    def _end_tiles(self, post: Post) -> npt.NDArray[np.int32]:
        """Return tiles of the sums on both sides of where a value leaves a width.

        The value before the zero point, and after it; rounded down, and to the nearest. Also the
        ends of a sum, and of its lower part, which has a multiplier of its own.
        """
        sums = [-(1 << 31), (1 << 31) - 1]
        for width in POST_WIDTHS:
            for left in (-1 << (width - 1), 1 << (width - 1)):
                for twice in (2 * value - half for value in (left, left - post.zero_point)
                              for half in (0, 1)):  # fmt: skip
                    least = -(-(twice << (post.shift - 1)) // post.multiplier)
                    sums += [least - 1, least]
        for part in (-1 << 17, 1 << 17):
            sums += [part - 1, part]
        tiles = -(-len(sums) // self.config.acc.lanes)
        return np.resize(np.array(sums, "<i4"), (tiles, self.config.acc.lanes))

    def emit(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)
        self._follow(instruction)
        self.reference.execute(instruction)

    def has(self, extension: Extension) -> bool:
        return self.config.has(extension)

    def _follow(self, insn: Instruction) -> None:
        """Keep in mind which accumulators the output memory holds too."""
        if not self.has(Extension.POST):
            return
        if isinstance(insn, Load) and insn.memory in (Memory.ACC, Memory.ACC_8BIT):
            self.current[insn.sram_base : insn.sram_base + insn.sram_size] = False
        elif isinstance(insn, Gemm | Alu | Pool):
            written = [dst for dst, _, _ in self.reference.steps(insn)]
            self.current[written] = not insn.reset

    def integer(self, low: int, high: int) -> int:
        """Return a random integer of low..high, both included; often one of them."""
        return int(self.rng.choice([low, high, *self.rng.integers(low, high + 1, 3)]))

    def fill_scratchpads(self) -> None:
        """Load every element of every scratchpad, by repeating rows with stride 0."""
        self.emit(Load(memory=Memory.UOP, dram_base=REGION // 4, x_size=self.uops, y_size=1))
        for memory in (Memory.INP, Memory.WGT, Memory.ACC):
            depth = self.config.scratchpad(memory).depth
            unit = self.config.dram_element_bytes(memory)
            columns = min(depth, self.data_nbytes // unit)
            self.emit(
                Load(
                    memory=memory,
                    dram_base=self.data // unit,
                    x_size=columns - 1,
                    x_pad_right=1,
                    y_size=depth // columns,
                )
            )
        if self.has(Extension.POST):
            unit, rows = self.config.dram_element_bytes(Memory.POST), 2 * POST_ROWS
            first = self.data // unit
            self.emit(Load(memory=Memory.POST, dram_base=first, x_size=rows, y_size=1))
        if self.has(Extension.TABLE):
            first = self.data // self.config.dram_element_bytes(Memory.TABLE)
            self.emit(Load(memory=Memory.TABLE, dram_base=first, x_size=TABLES, y_size=1))

    def _write_all(self) -> None:
        """Let the output memory hold all accumulators."""
        self.emit(Load(memory=Memory.UOP, dram_base=REGION // 4, x_size=1, y_size=1))
        if self.reference.post.enable:
            self.emit(Post())  # its rows would be too few
        depth = self.config.acc.depth
        step = Alu(uop_end=1, iter_out=1, iter_in=depth, dst_factor_in=1, use_imm=1, imm=3)
        self.emit(replace(step, alu_op=AluOp.ADD))

    def random_load(self) -> None:
        memory = Memory(self.rng.choice([Memory.INP, Memory.WGT, Memory.ACC, Memory.ACC_8BIT]))
        depth = self.config.scratchpad(memory).depth
        unit = self.config.dram_element_bytes(memory)
        low, high = self.data // unit, self.dump // unit
        most = 15 if self.rng.random() < 0.1 else 3
        sides = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")
        pads = {side: self.integer(0, most) for side in sides}
        x_size, y_size = self.integer(0, 5), self.integer(0, 4)
        stride = self._stride(x_size, y_size, high - low)
        insn = Load(memory=memory, x_size=x_size, y_size=y_size, x_stride=stride, **pads)
        if memory == Memory.WGT and self.has(Extension.NIBBLES):
            insn = replace(insn, nibbles=self.integer(0, 1))
        if insn.sram_size > depth:
            return
        reach = max(y_size - 1, 0) * stride + x_size
        if reach > high - low:
            return
        base = self.integer(0, depth - insn.sram_size)
        self.emit(replace(insn, sram_base=base, dram_base=self.integer(low, high - reach)))

    def _stride(self, x_size: int, y_size: int, room: int) -> int:
        """Return a small stride, or one up to where the rows still lie in so many elements."""
        if self.rng.random() < 0.7:
            return self.integer(0, 7)
        return self.integer(0, min(0xFFFF, (room - x_size) // max(y_size - 1, 1)))

    def random_forward(self) -> None:
        x_size, y_size = self.integer(1, 2 if self.rng.random() < 0.5 else 9), self.integer(1, 3)
        insn = Load(memory=Memory.INP, forward=1, x_size=x_size, y_size=y_size)
        pads = {side: self.integer(0, 4) for side in ("x_pad_left", "x_pad_right", "y_pad_top")}
        insn = replace(insn, x_stride=self.integer(0, 9), **pads)
        reach = (y_size - 1) * insn.x_stride + x_size
        source = self._written(reach)
        room = self.config.inp.depth - insn.sram_size
        if source is not None and room >= 0:
            base = self.integer(0, room)
            self.emit(replace(insn, sram_base=base, dram_base=source))

    def _written(self, count: int) -> int | None:
        """Return the first of so many elements that the output memory holds; None if none do."""
        missing = np.concatenate([[0], np.cumsum(~self.current)])
        starts = np.flatnonzero(missing[count:] == missing[: max(0, len(missing) - count)])
        return int(starts[self.integer(0, len(starts) - 1)]) if starts.size else None

    def random_post_load(self) -> None:
        unit = self.config.dram_element_bytes(Memory.POST)
        x_size, y_size, pad = self.integer(1, 5), self.integer(1, 3), self.integer(0, 2)
        insn = Load(memory=Memory.POST, x_size=x_size, y_size=y_size, x_pad_right=pad)
        insn = replace(insn, x_stride=self.integer(0, 9))
        low, high = self.data // unit, self.dump // unit
        base = self.integer(0, 2 * POST_ROWS - insn.sram_size)
        first = self.integer(low, high - (y_size - 1) * insn.x_stride - x_size)
        self.emit(replace(insn, sram_base=base, dram_base=first))

    def random_post(self) -> None:
        """Post-processing of what follows; its rows stay in bounds, results mostly too."""
        if self.rng.random() < 0.15:
            self.emit(Post())
            return
        low, high = sorted(self.integer(-128, 127) for _ in range(2))
        if self.rng.random() < 0.6:
            low, high = -128, 127
        multiplier, shift = self.integer(0, 65535), self.integer(0, 47)
        if self.rng.random() < 0.7:  # eight of the 32 bits of a sum stay
            shift = multiplier.bit_length() + self.integer(20, 25)
        own = int(self.rng.integers(2))
        mapped = int(self.has(Extension.TABLE) and self.rng.random() < 0.4)
        fine = int(self.rng.integers(4)) if own and self.has(Extension.EXACT) else 0
        self.emit(
            Post(
                enable=1,
                use_bias=int(self.rng.integers(2)),
                use_scale=own,
                round_half=int(self.rng.integers(2)),
                multiplier=0 if own else multiplier,
                shift=0 if own else shift,
                zero_point=self.integer(-128, 127),
                low=low,
                high=high,
                row=self.integer(0, POST_ROWS - 1 - 10),
                row_factor_out=self.integer(0, 1),
                row_factor_in=self.integer(0, 1),
                use_table=mapped,
                table_index=self.integer(0, TABLES - 1) if mapped else 0,
                fine=fine,
            )
        )

    def random_boundary(self) -> None:
        """Sums just where a result changes, and their scales; others may lie there by now."""
        count = self._boundary_tiles
        number, row = self.integer(0, count - 1), self.integer(0, POST_ROWS - 1)
        tile, words = (self.config.dram_element_bytes(m) for m in (Memory.ACC, Memory.POST))
        rows = (self.data + count * tile) // words + number
        one = Load(memory=Memory.ACC, x_size=1, y_size=1)
        self.emit(Load(memory=Memory.UOP, dram_base=REGION // 4, x_size=1, y_size=1))
        for first, base in ((row, rows), (POST_ROWS + row, rows + count)):
            self.emit(replace(one, memory=Memory.POST, sram_base=first, dram_base=base))
        self.emit(replace(one, dram_base=self.data // tile + number))
        own = Post(enable=1, use_bias=1, use_scale=1, row=row, low=-128, high=127)
        own = replace(own, zero_point=self.integer(-128, 127))
        self.emit(replace(own, fine=self.integer(1, 3), round_half=self.integer(0, 1)))
        self.emit(Alu(alu_op=AluOp.ADD, uop_end=1, iter_out=1, iter_in=1, use_imm=1))
        out = self.config.out.element_bytes
        place = self.integer(self.half // out, self.dump // out - 1)
        self.emit(Store(memory=Memory.OUT, x_size=1, y_size=1, dram_base=place))

    def product_ends(self) -> None:
        """Add the greatest products, two at once, and the least."""
        one = Load(memory=Memory.UOP, dram_base=REGION // 4, x_size=1, y_size=1)
        self.emit(replace(one, y_size=2))  # the same micro-op twice
        for memory, index in ((Memory.INP, 0), (Memory.WGT, 0), (Memory.WGT, 1)):
            first = self.half + index * self._extreme_nbytes
            base = first // self.config.dram_element_bytes(memory)
            self.emit(replace(one, memory=memory, sram_base=index, dram_base=base))
        loops = {"iter_out": 2, "iter_in": 1, "dst_factor_out": 1}
        self.emit(Gemm(reset=1, uop_end=1, **loops))
        self.emit(Gemm(uop_end=2, wgt_factor_out=1, **loops))
        shift = 8 + self.config.block_in.bit_length()  # the sign of a sum stays in a byte
        self.emit(Alu(alu_op=AluOp.SHR, use_imm=1, imm=shift, uop_end=1, **loops))
        target = (self.half + self.data_nbytes // 4) // self.config.out.element_bytes
        self.emit(Store(memory=Memory.OUT, dram_base=target, x_size=2, y_size=1))

    def width_ends(self) -> None:
        """Post-process the values at the ends of all widths, with either greatest zero point."""
        tile, out = self.config.acc.element_bytes, self.config.out.element_bytes
        first = self.dump // tile - sum(len(tiles) for _, tiles in self.ends)
        target = self.half // out
        step = Alu(alu_op=AluOp.ADD, use_imm=1, uop_end=1, iter_out=1, dst_factor_in=1)
        self.emit(Load(memory=Memory.UOP, dram_base=REGION // 4, x_size=1, y_size=1))
        for post, tiles in self.ends:
            count = len(tiles)
            self.emit(Load(memory=Memory.ACC, dram_base=first, x_size=count, y_size=1))
            for half in (0, 1):
                self.emit(replace(post, round_half=half))
                self.emit(replace(step, iter_in=count))
                store = Store(memory=Memory.OUT, dram_base=target, x_size=count, y_size=1)
                self.emit(store)
                target += count
            first += count
        self.emit(Post())

    def random_table_load(self) -> None:
        count = self.integer(1, TABLES)
        insn = Load(memory=Memory.TABLE, sram_base=self.integer(0, TABLES - count))
        if self.rng.random() < 0.5:
            insn = replace(insn, x_size=count, y_size=1)
        else:
            insn = replace(insn, x_size=1, y_size=count, x_stride=self.integer(0, 9))
        unit = self.config.dram_element_bytes(Memory.TABLE)
        low, high = self.data // unit, self.dump // unit
        reach = (insn.y_size - 1) * insn.x_stride + insn.x_size
        self.emit(replace(insn, dram_base=self.integer(low, high - reach)))

    def random_pool(self) -> None:
        tiles = self.integer(1, WINDOW_TILES)
        loops = self._loops(self.config.inp.depth - tiles + 1, with_weights=False)
        self.emit(Pool(tiles=tiles, overwrite=int(self.rng.integers(2)), **loops))

    def random_depthwise(self) -> None:
        loops = self._loops(self.config.inp.depth - WINDOW_TILES + 1, with_weights=True)
        self.emit(Depthwise(overwrite=self._overwrites(), **loops))

    def _overwrites(self) -> int:
        return int(self.has(Extension.OVERWRITE) and self.rng.random() < 0.3)

    def random_uop_load(self) -> None:
        depth = self.config.uop.depth
        x_size, y_size, stride = self.integer(1, 8), self.integer(1, 3), self.integer(0, 9)
        insn = Load(
            memory=Memory.UOP,
            x_size=x_size,
            y_size=y_size,
            x_stride=stride,
            x_pad_left=self.integer(0, 1),
            y_pad_bottom=self.integer(0, 1),
        )
        first = self.integer(0, self.uops - (y_size - 1) * stride - x_size)
        base = self.integer(0, min(depth, 64) - insn.sram_size)
        self.emit(replace(insn, sram_base=base, dram_base=REGION // 4 + first))
        if self.rng.random() < 0.5:  # all of them in their places again
            whole = Load(memory=Memory.UOP, dram_base=REGION // 4, x_size=self.uops, y_size=1)
            self.emit(whole)

    def random_store(self) -> None:
        unit = self.config.out.element_bytes
        low, high = self.data // unit, self.dump // unit
        x_size, y_size = self.integer(0, 5), self.integer(0, 4)
        stride = self._stride(x_size, y_size, high - low)
        reach = max(y_size - 1, 0) * stride + x_size
        first = self._written(x_size * y_size)
        if first is None:
            return
        self.emit(
            Store(
                memory=Memory.OUT,
                x_size=x_size,
                y_size=y_size,
                x_stride=stride,
                sram_base=first,
                dram_base=self.integer(low, high - reach),
            )
        )

    def _loops(self, source_depth: int, *, with_weights: bool) -> dict[str, int]:
        """Return micro-op range, extents and factors whose indices are all in bounds."""
        depths = {"dst": self.config.acc.depth, "src": source_depth}
        if with_weights:
            depths["wgt"] = self.config.wgt.depth
        if self.rng.random() < 0.3:
            begin, end = 32, self.integer(32, 64)
        else:
            begin = self.integer(0, 56)
            end = begin + self.integer(0, 8)
        iter_out, iter_in = self.integer(0, 6), self.integer(0, 6)
        values = {"uop_begin": begin, "uop_end": end, "iter_out": iter_out, "iter_in": iter_in}
        for column, (name, depth) in enumerate(depths.items()):
            room = depth - 1 - int(self.reference.uop[begin:end, column].max(initial=0))
            for loop, extent in (("out", iter_out), ("in", iter_in)):
                steps = max(extent - 1, 0)
                limit = min(room // steps if steps else 3, depth - 1)
                factor = self.integer(0, limit) if self.rng.random() < 0.7 else 0
                values[f"{name}_factor_{loop}"] = factor
                room -= factor * steps
        return values

    def random_gemm(self) -> None:
        loops = self._loops(self.config.inp.depth, with_weights=True)
        reset = int(self.rng.random() < 0.2)
        self.emit(Gemm(reset=reset, overwrite=0 if reset else self._overwrites(), **loops))

    def random_alu(self) -> None:
        loops = self._loops(self.config.acc.depth, with_weights=False)
        imm = int(self.rng.choice([*self.rng.integers(-40, 40, 3), -32768, 32767]))
        op = int(self.rng.integers(0, len(AluOp)))
        self.emit(Alu(alu_op=op, use_imm=int(self.rng.integers(0, 2)), imm=imm, **loops))

    def random_instructions(self, count: int) -> None:
        choices = [self.random_load, self.random_uop_load, self.random_store]
        choices += [self.random_gemm] * 3 + [self.random_alu] * 3
        own = {
            "post": [self.random_post_load] + [self.random_post, self.random_store] * 2,
            "table": [self.random_table_load],
            "exact": [self.random_boundary] * 2,
            "depthwise": [self.random_depthwise],
            "pool": [self.random_pool],
            "forward": [self.random_forward],
        }
        choices += [choice for name in own if self.has(name) for choice in own[name]]
        if self.has(Extension.POST):
            self._write_all()
        self.product_ends()
        if self.has(Extension.POST):
            self.width_ends()
        for _ in range(count):
            choices[self.rng.integers(len(choices))]()

    def stream(self) -> list[Instruction]:
        """Return the serialised stream, which ends by storing all bytes of all accumulators."""
        depth, unit = self.config.acc.depth, self.config.out.element_bytes
        tail: list[Instruction] = [
            Load(memory=Memory.UOP, dram_base=REGION // 4, x_size=1, y_size=1)
        ]
        shift = Alu(uop_end=1, iter_out=1, iter_in=depth, dst_factor_in=1, use_imm=1, imm=8)
        if self.has(Extension.POST):
            tail += [Post(), replace(shift, alu_op=AluOp.ADD, imm=0)]
        for byte in range(4):
            first = self.dump // unit + byte * depth
            tail += [replace(shift, alu_op=AluOp.SHR)] if byte else []
            tail += [Store(memory=Memory.OUT, dram_base=first, x_size=depth, y_size=1)]
        return serialise([*self.instructions, *tail])

    def expected_image(self) -> npt.NDArray[np.uint8]:
        """Return the region after the stream."""
        planes = [(self.reference.acc >> 8 * byte & 0xFF).reshape(-1) for byte in range(4)]
        if self.reference.separate_out and not self.has(
            "post"
        ):  # each shift of the tail writes it anew
            planes[0] = (self.reference.out & 0xFF).reshape(-1)
        image = self.reference.dram.copy()
        image[self.dump :] = np.concatenate(planes)
        return image[REGION:]

    def expected_counters(self) -> dict[str, int]:
        depth, unit = self.config.acc.depth, self.config.out.element_bytes
        tail = {
            "uop_load_nbytes": 4,
            "alu_counter": (4 if self.has(Extension.POST) else 3) * depth,
            "out_store_nbytes": 4 * depth * unit,
        }
        return {name: value + tail.get(name, 0) for name, value in self.reference.counters.items()}


class ConcurrentProgram(RandomProgram):
    """A random program whose units wait for each other only where they must."""

    def __init__(self, config: HardwareConfig, seed: int) -> None:
        self.operations: list[Operation] = []
        super().__init__(config, seed)

    def emit(self, instruction: Instruction) -> None:
        self.operations.append(self._operation(instruction))
        super().emit(instruction)

    def _operation(self, insn: Instruction) -> Operation:
        """Return the operation of an instruction, with the micro-ops that lie there now."""
        begin, end = getattr(insn, "uop_begin", 0), getattr(insn, "uop_end", 0)
        micro_ops = np.array(self.reference.uop[begin:end], np.int64)
        own = *accesses(insn, micro_ops), *parameters(insn, self.reference.post)
        dram = self._dram(insn) if isinstance(insn, MemoryInstruction) else ()
        return Operation(insn).having(operands=own + dram)

    def _dram(self, insn: MemoryInstruction) -> tuple[Access, ...]:
        """Return the words of DRAM that an instruction moves."""
        unit = self.config.dram_element_bytes(Memory(insn.memory))
        rows = [insn.dram_base + y * insn.x_stride for y in range(insn.y_size)]
        words = {word for row in rows for word in _words(row * unit, (row + insn.x_size) * unit)}
        if not words or (isinstance(insn, Load) and insn.forward):
            return ()
        return (listed(DRAM, np.array(sorted(words)), writes=isinstance(insn, Store)),)

    def concurrent_stream(self) -> list[Instruction]:
        depth, unit = self.config.acc.depth, self.config.out.element_bytes
        uop = Load(memory=Memory.UOP, dram_base=REGION // 4, x_size=1, y_size=1)
        shift = Alu(uop_end=1, iter_out=1, iter_in=depth, dst_factor_in=1, use_imm=1, imm=8)
        shift = replace(shift, alu_op=AluOp.SHR)
        own = run(Memory.ACC, 0, depth, writes=True)
        written = Operation(shift).having(operands=(own,))
        tail = [Operation(uop)]
        if self.has(Extension.POST):
            same = replace(shift, alu_op=AluOp.ADD, imm=0)
            tail += [Operation(Post()), written.having(instruction=same)]
        for byte in range(4):
            first = self.dump // unit + byte * depth
            tail += [written] if byte else []
            store = Store(memory=Memory.OUT, dram_base=first, x_size=depth, y_size=1)
            tail.append(self._operation(store))
        return [operation.instruction for operation in with_tokens([*self.operations, *tail])]


class HazardousProgram(RandomProgram):
    """Short GEMM and ALU instructions, one straight behind the other, on few accumulators."""

    def __init__(self, config: HardwareConfig, seed: int) -> None:
        super().__init__(config, seed)
        self.fill_scratchpads()
        for number in range(150):
            self.emit(self._instruction())
            if number % 10 == 0:
                self._multiply_and_read()
            if self.has(Extension.POST) and number % 3 == 0:
                self.random_post()
            if self.has(Extension.POST) and number % 5 == 0:
                self.random_store()

    def _multiply_and_read(self) -> None:
        """A product waits for a MUL, and then leaves in two steps if it has two accumulators."""
        first = 2 * self.integer(0, 15)
        loops = {"uop_begin": first, "iter_out": 1, "iter_in": self.integer(1, 2)}
        self.emit(Alu(alu_op=AluOp.MUL, uop_end=first + 1, use_imm=1, imm=3, **loops))
        self.emit(Gemm(uop_end=first + 2, **loops))

    def _instruction(self) -> Instruction:
        first = self.integer(0, 60)
        loops = {
            "uop_begin": first,
            "uop_end": first + self.integer(1, 4),
            "iter_out": self.integer(1, 3),
            "iter_in": self.integer(1, 3),
            "dst_factor_in": self.integer(0, 2),
            "dst_factor_out": self.integer(0, 2),
            "src_factor_in": self.integer(0, 2),
        }
        if self.has(Extension.POOL) and self.rng.random() < 0.1:
            return Pool(tiles=self.integer(1, 3), overwrite=self.integer(0, 1), **loops)
        if self.rng.random() < 0.2:
            return Gemm(reset=int(self.rng.random() < 0.3), **loops)
        op = AluOp(int(self.rng.choice([*AluOp, AluOp.MUL, AluOp.MUL])))
        return Alu(alu_op=op, use_imm=self.integer(0, 1), imm=self.integer(-40, 40), **loops)


class SummingProgram(RandomProgram):
    """Products in runs of one accumulator; the next run's differs in a single bit of the index.

    It is often the lowest bit or the highest, and most sums overwrite: a run that takes the next
    one for its own is seen.
    """

    def __init__(self, config: HardwareConfig, seed: int) -> None:
        super().__init__(config, seed)
        self.fill_scratchpads()
        for number in range(150):
            self.emit(self._products())
            if self.has(Extension.POST) and number % 5 == 0:
                self.random_post()
                self.random_store()

    def _micro_ops(self) -> npt.NDArray[np.int64]:
        table = super()._micro_ops()
        dst, bits = 0, self.config.acc.depth.bit_length() - 1
        for row in range(1, self.uops):
            if self.rng.random() < 0.45:
                dst ^= 1 << int(self.rng.choice([0, bits - 1, self.rng.integers(bits)]))
            table[row, 0] = dst
        return table

    def _products(self) -> Instruction:
        first = self.integer(0, self.uops - 10)
        loops = {"uop_begin": first, "uop_end": first + self.integer(1, 9)}
        loops |= {"iter_out": self.integer(1, 2), "iter_in": self.integer(1, 2)}
        kind, fields = self.rng.random(), {**loops, "wgt_factor_in": self.integer(0, 1)}
        fields["overwrite"] = int(self.has(Extension.OVERWRITE) and self.rng.random() < 0.6)
        if kind < 0.1:
            return Gemm(reset=1, **loops)
        if self.has(Extension.DEPTHWISE) and kind < 0.4:
            return Depthwise(**fields)
        return Gemm(**fields)


class ReloadingProgram(ConcurrentProgram):
    """Products that read few tiles, each several times, and LOADs that replace these in between.

    An index of a tile is 0 or a power of two, so many differ from the one before in a single bit.
    """

    def __init__(self, config: HardwareConfig, seed: int) -> None:
        super().__init__(config, seed)
        self.fill_scratchpads()
        for _ in range(400):
            self.emit(self._load() if self.rng.random() < 0.4 else self._loop())

    def _micro_ops(self) -> npt.NDArray[np.int64]:
        table = np.zeros((self.uops, 3), np.int64)
        for column, depth in enumerate((2, self.config.inp.depth, self.config.wgt.depth)):
            powers = 1 << np.arange(depth.bit_length() - 1)
            likely = np.repeat([0, 0, 0, powers[-1]], len(powers))
            table[:, column] = self.rng.choice([*powers, *likely], self.uops)
        table[0] = 0
        return table

    def _load(self) -> Load:
        memory = Memory.INP if self.rng.random() < 0.75 else Memory.WGT
        unit, count = self.config.dram_element_bytes(memory), self.integer(1, 2)
        index = self.rng.choice(self.reference.uop[:, 1 if memory == Memory.INP else 2])
        first = self.integer(self.data // unit, self.dump // unit - count)
        return Load(memory=memory, sram_base=int(index), dram_base=first, x_size=count, y_size=1)

    def _loop(self) -> Instruction:
        first, kind = int(self.rng.integers(0, self.uops - 1)), self.rng.random()
        loops = {"uop_begin": first, "uop_end": first + self.integer(1, 2)}
        loops |= {"iter_out": self.integer(1, 3), "iter_in": self.integer(1, 3)}
        loops["src_factor_out"] = self.integer(0, 1)
        if kind < 0.15:
            return Alu(alu_op=AluOp.ADD, use_imm=1, imm=1, **loops)
        if self.has(Extension.POOL) and kind < 0.25:
            return Pool(tiles=self.integer(1, WINDOW_TILES), **loops)
        loops["wgt_factor_out"] = self.integer(0, 1)
        if self.has(Extension.DEPTHWISE) and kind < 0.4:
            return Depthwise(**loops)
        return Gemm(**loops)


class RacingProgram(ReloadingProgram):
    """The same without tokens between products and LOADs, whose order is that of the cycles."""

    def _operation(self, insn: Instruction) -> Operation:
        operation = super()._operation(insn)
        kept = (a for a in operation.scratchpads if a.memory not in (Memory.INP, Memory.WGT))
        return operation.having(operands=tuple(kept))


def insert_tokens(operations: Sequence[Operation]) -> tuple[list[Operation], Elements, Elements]:
    """Add relays and a final FINISH, and find the tokens of all; `operations` do not change.

    Returns
    -------
    ordered : list of Operation
        The operations, each behind the relay that it needs, and FINISH.
    places : ndarray of int64
        Place of each in `operations`; FINISH is behind them, a relay is at the place of the
        operation that waits for it.
    flags : ndarray of int64, shape (ordered, 4)
        The values of `TOKENS`.
    """
    every = [*operations, Operation(Finish())]
    units = np.array([operation.instruction.unit for operation in every], np.int64)
    tokens: Elements = _uses.Uses(every).tokens(units)
    relay = Operation(Load(memory=Memory.UOP))  # a no-operation
    ordered = [relay if relays else every[place] for place, relays in tokens[:, :2].tolist()]
    return ordered, tokens[:, 0], tokens[:, 2:]


def with_tokens(operations: list[Operation]) -> list[Operation]:
    """Return the operations with relays, FINISH and the flags of their tokens."""
    ordered, _, flags = insert_tokens(operations)
    return [
        o.having(instruction=replace(o.instruction, **dict(zip(TOKENS, own, strict=True))))
        for o, own in zip(ordered, flags.tolist(), strict=True)
    ]


def _words(first: int, end: int) -> range:
    return range(first // 4, -(-end // 4))


def run_random(program: RandomProgram, stream: list[Instruction], device: Tsim) -> int:
    """Run, compare all of DRAM and the counters; return the cycles."""
    device.reset_stats()
    region = place(device, program.image)
    assert region.address == REGION
    launch(device, stream)
    image = device.read(region, region.nbytes)
    device.free(region)
    np.testing.assert_array_equal(image, program.expected_image())
    assert device.stats().as_dict() == program.expected_counters()
    return device.performance().cycles
