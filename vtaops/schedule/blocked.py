"""BlockedShape: an operator in units of tiles, and the tilings that suit it and fit.

Owns the arithmetic that relates a `Tiling` to scratchpad space. Independent of TVM and of timing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, singledispatch
from typing import Any

import numpy as np

from vtaops import ops
from vtaops.base.errors import ScheduleError
from vtaops.base.names import checked_call
from vtaops.base.shapes import Ints, ceil_div
from vtaops.machine.config import WINDOW_TILES, Extension, HardwareConfig
from vtaops.ops.conv2d_transpose import Phases
from vtaops.ops.families import WindowOperator
from vtaops.ops.maxima import SeparateMaxima
from vtaops.ops.rows import RowOperator
from vtaops.schedule.tiling import Taps, Tiling

Count = Any
"""An integer, or an array of integers with one per tiling."""

_REAL = b"\1"  # a pixel of the image


@dataclass(frozen=True)
class Axis:
    """One spatial axis: the mapping of output pixels to input pixels.

    Attributes
    ----------
    extent : int
        Output pixels.
    step, window : int
        ``n`` neighbouring output pixels read ``(n - 1) * step + window`` input pixels.
    real : bytes
        For each input pixel, padding included, 1 if it lies in the image, else 0.
    taps : tuple of int
        Offsets in the window of the taps of a kernel that is or can be cut; empty: it cannot.
    cut : bool
        Whether a step reads the pixels of one tap; `window` then spans one tap.
    """

    extent: int
    step: int
    window: int
    real: bytes
    taps: tuple[int, ...] = ()
    cut: bool = False

    @property
    def by_taps(self) -> Axis:
        """The axis if every step reads the pixels of one tap."""
        return replace(self, window=self.window - self.taps[-1], cut=True)

    def span(self, pixels: Count) -> Count:
        """Return the number of input pixels, padding included, that an output tile reads."""
        return (pixels - 1) * self.step + self.window

    def loaded(self, tile: int) -> int:
        """Return the number of input pixels that all tiles of a size load, excluding padding."""
        first = np.arange(0, self.extent, tile)
        parts = self.taps if self.cut else (0,)
        begin = first * self.step + np.array(parts)[:, None]
        end = begin + self.span(np.minimum(tile, self.extent - first))
        return int((self._real_before(end) - self._real_before(begin)).sum())

    @cached_property
    def real_products(self) -> float:
        """Fraction of all outputs' taps that read pixels inside the image."""
        first = np.arange(self.extent) * self.step
        read = first[:, None] + np.array(self.taps)
        return float((self._real_before(read + 1) - self._real_before(read)).mean())

    @property
    def inside(self) -> int:
        """Number of output pixels whose whole window lies in the image."""
        first = np.arange(self.extent) * self.step
        real = self._real_before(first + self.window) - self._real_before(first)
        return int((real == self.window).sum())

    def _real_before(self, pixels: Count) -> Count:
        return self._counts[np.minimum(pixels, len(self.real))]

    @cached_property
    def _counts(self) -> Ints:
        """Number of image pixels among the first 0, 1, 2, ... input pixels."""
        return np.cumsum(np.frombuffer(b"\0" + self.real, np.uint8), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class BlockedShape:
    """Extents of an operator that accumulates tile products, counted in tiles.

    Attributes
    ----------
    batch : int
        Independent images.
    oc, ic : int
        Output and input channel blocks.
    rows, columns : Axis
        The image (for a matrix product: its rows, and one column).
    taps : int
        Weight tiles per pair of channel blocks: kernel height times width, or windows of it.
    alu_passes : int
        Vector ALU passes over the accumulators.
    bias : int
        Accumulators that each channel block needs for its bias and other per-channel vectors.
    groups : int
        Groups of channel blocks; `ic` counts the input blocks of one group.
    group_oc : int
        Output channel blocks of one group; 0: all.
    phases : int
        Output pixels per pixel of `rows` and `columns`, which share their input pixels.
    column_sums : int
        Whether each tile holds the sums of its columns, an accumulator for each channel block.
    addends : int
        Further inputs of the output's shape that accumulate onto it, each with a weight tile.
    constants : int
        Constants that accumulate onto the output, each with a weight tile per channel block.
    digits : int
        Weight tiles per channel block that multiply an addend, instead of one.
    sweeps : int
        Sums over all input channels: one for each digit of the weights.
    operands : int
        Number of these addends that need their own accumulators.
    staged : bool
        Whether the input is copied to accumulators.
    shared_weights : int
        Weight tiles that all channels share, instead of `taps` per pair of channel blocks.
    scaled : int
        Whether each channel block has a row of post-processing parameters.
    parts : int
        Parts of the kernel that are loaded and multiplied one after the other, each of `taps`.
    maxima : int
        POOL steps per output tile.
    separate : SeparateMaxima, optional
        The maxima separated by axis, if they are.
    whole : bool
        Whether its kernel cannot be cut, although axes have taps.
    nibbles : int
        1 if two weights share a byte in DRAM: loads take pairs of weight tiles.
    """

    rows: Axis
    columns: Axis = Axis(1, 1, 1, _REAL)
    batch: int = 1
    oc: int = 1
    ic: int = 1
    taps: int = 1
    alu_passes: int
    bias: int = 0
    column_sums: int = 0
    groups: int = 1
    group_oc: int = 0
    phases: int = 1
    addends: int = 0
    constants: int = 0
    digits: int = 0
    sweeps: int = 1
    operands: int = 0
    staged: bool = False
    shared_weights: int = 0
    scaled: int = 0
    parts: int = 1
    maxima: int = 0
    whole: bool = False
    nibbles: int = 0
    separate: SeparateMaxima | None = None

    @property
    def cuts(self) -> tuple[Taps, ...]:
        """The ways to cut the kernel, besides taking it whole, coarsest first."""
        if self.whole or not self.rows.taps or self.rows.cut or self.nibbles:
            return ()
        return ("row", "one") if self.columns.taps else ("row",)

    def in_parts(self, taps: Taps) -> BlockedShape:
        """Return the shape with its kernel cut into rows or single taps (see `Tiling.taps`).

        Raises
        ------
        ScheduleError
            If it has no kernel that can be cut.
        """
        if taps == "all":
            return self
        if taps not in self.cuts:
            raise ScheduleError(
                f"tiling taps is {taps!r}; this operator takes {', '.join(('all', *self.cuts))}, "
                f"for only kernels of convolutions can be cut, and windows are whole rows"
            )
        columns = self.columns if taps == "row" else self.columns.by_taps
        parts = len(self.rows.taps) * (1 if taps == "row" else len(self.columns.taps))
        return replace(
            self,
            rows=self.rows.by_taps,
            columns=columns,
            taps=self.taps // parts,
            parts=parts,
        )

    @property
    def outputs(self) -> int:
        """Output tiles."""
        return self.batch * self.oc * self.rows.extent * self.columns.extent * self.phases

    @property
    def products(self) -> int:
        """Tile products per output tile."""
        return self.sweeps * self.ic * self.taps * self.parts // self.phases

    @property
    def gemm_cycles(self) -> int:
        """Tile products and POOL steps, which read input tiles: one per cycle."""
        others = max(self.addends, self.digits) + self.constants + self.maxima
        return self.outputs * (self.products + others)

    @property
    def weights(self) -> int:
        """Weight tiles of the operator."""
        return self.shared_weights or self.sweeps * self.oc * self.ic * self.taps * self.parts

    def elements(self, c: Any) -> dict[str, Any]:
        """Return the elements of each scratchpad that one thread occupies.

        `c` has channel blocks, pixels, and tiles held at once, by the names of a `Tiling`:
        integers, or arrays of equal shape with one element per tiling.
        """
        window = self.rows.span(c.h) * self.columns.span(c.w)
        pixels = c.h * c.w * self.phases
        weights = self.shared_weights or self.sweeps * c.oc * c.ic * self.taps
        accumulated = pixels * (1 + self.operands) + window * self.staged
        if self.separate:
            accumulated = self.separate.tiles(c.h, c.w)
        inputs = self.input_blocks(c.oc, c.ic) * window + pixels * c.oc * self.addends
        tiles = self.constants + self.digits
        return {
            "inp": c.inp_tiles * (inputs + self.constants),
            "wgt": c.wgt_tiles * (weights + self.addends + c.oc * tiles),
            "acc": c.oc * (c.acc_tiles * (accumulated + self.column_sums) + self.bias),
            "post": 2 * c.oc * self.scaled,
        }

    def input_blocks(self, oc: Count, ic: Count) -> Count:
        """Return the input channel blocks that a tile of `oc` and `ic` blocks reads.

        Of several groups, TVM allocates the bounding box: all blocks of all but the last group.
        """
        return (np.maximum(1, oc // (self.group_oc or self.oc)) - 1) * self.ic + ic

    def admits(self, oc: Count) -> Count:
        """Whether a tile of `oc` output blocks is part of one group, or whole groups."""
        group = self.group_oc or self.oc
        part = np.minimum(oc, group)
        return (self.groups == 1) | ((group % part == 0) & (oc % part == 0))

    def pairs(self, oc: Count, ic: Count) -> Count:
        """Whether a tile of so many blocks loads pairs of weight tiles, if it has to."""
        whole = (ic == self.ic) & (oc * ic * self.taps % 2 == 0)
        rows = (ic * self.taps % 2 == 0) & (self.ic * self.taps % 2 == 0)
        return (not self.nibbles) | whole | rows

    def weight_nbytes(self, config: HardwareConfig) -> float:
        """Return the bytes of a weight tile in DRAM."""
        return config.wgt.element_bytes / (1 + self.nibbles)

    def footprint(self, tiling: Tiling, config: HardwareConfig) -> dict[str, int]:
        """Return the elements of each scratchpad that `tiling` occupies."""
        oc, ic = tiling.oc // config.block_out, tiling.ic // config.block_in
        used = self.in_parts(tiling.taps).elements(replace(tiling, oc=oc, ic=ic))
        return {memory: int(tiling.threads * elements) for memory, elements in used.items()}


@checked_call
@lru_cache(maxsize=1024)
def blocked_shape(op: ops.Operator, config: HardwareConfig) -> BlockedShape:
    """Return the extents of `op` in tiles of `config`.

    Raises
    ------
    ScheduleError
        If the operator has no VTA schedule.
    """
    return _shape_of(op, config)


@singledispatch
def _shape_of(op: ops.Operator, config: HardwareConfig) -> BlockedShape:
    raise ScheduleError(f"there is no VTA schedule for {type(op).__name__}")


@_shape_of.register
def _shape_of_conv2d(op: ops.Conv2d, config: HardwareConfig) -> BlockedShape:
    op = op.unfolded
    blocks = op.blocks(config)
    (kh, kw), (sh, _), (dh, dw) = op.window.kernel, op.window.strides, op.window.dilation
    rows, columns = _sliding(op)
    rows = replace(rows, taps=tuple(range(0, kh * dh, dh)))
    if op.gathers_rows:  # only rows in use are loaded, one after the other
        read = [rows.real[y * sh + tap * dh] for y in range(rows.extent) for tap in range(kh)]
        rows = Axis(rows.extent, kh, kh, bytes(read), tuple(range(kh)))
    windows = op.windows(config)
    steps = kw if windows is None else (kw - WINDOW_TILES) // windows.step + 1
    return BlockedShape(
        batch=ceil_div(op.batch, config.batch),
        oc=ceil_div(op.out_channels, config.block_out),
        ic=blocks.ic,
        rows=rows,
        columns=columns if windows else replace(columns, taps=tuple(range(0, kw * dw, dw))),
        taps=kh * steps,
        **_ended(op, config),
        groups=blocks.count,
        group_oc=blocks.oc,
        addends=int(op.residual),
        digits=len(op.residual_digits) * int(op.residual and op.has_factors),
        sweeps=1 + op.wide,
        constants=int(op.bias_tiles),
    )


@_shape_of.register
def _shape_of_gemm(op: ops.Gemm, config: HardwareConfig) -> BlockedShape:
    return BlockedShape(
        oc=ceil_div(op.n, config.block_out),
        ic=ceil_div(op.k, config.block_in),
        rows=_line(ceil_div(op.m, config.batch)),
        **_ended(op, config),
    )


def _ended(op: ops.Operator, config: HardwareConfig) -> dict[str, Any]:
    """Return what the epilogue of sums takes, and their start, and the bits of their weights."""
    end = op.epilogue
    assert end is not None
    return {
        "alu_passes": _passes(op, config),
        "bias": 0 if end.scaled else len(end.vectors),
        "scaled": int(end.scaled),
        "nibbles": int(any(buffer.layout.nibbles for buffer in op.buffers(config))),
    }


@_shape_of.register
def _shape_of_batch_matmul(op: ops.BatchMatmul, config: HardwareConfig) -> BlockedShape:
    return BlockedShape(
        batch=op.batch,
        oc=ceil_div(op.n, config.block_out),
        ic=ceil_div(op.k, config.block_in),
        rows=_line(ceil_div(op.m, config.batch)),
        **_ended(op, config),
        column_sums=int(op.data_zero_point != 0),
        operands=int(op.other_zero_point != 0),
        constants=ceil_div(op.k, config.block_in) * bool(op.zero_terms),
    )


@_shape_of.register
def _shape_of_rows(op: RowOperator, config: HardwareConfig) -> BlockedShape:
    return BlockedShape(rows=_line(1), alu_passes=0)  # its operations have no tiling


@_shape_of.register
def _shape_of_conv2d_transpose(op: ops.Conv2dTranspose, config: HardwareConfig) -> BlockedShape:
    rows, columns = op.rows, op.columns
    return BlockedShape(
        batch=ceil_div(op.batch, config.batch),
        oc=ceil_div(op.out_channels, config.block_out),
        ic=ceil_div(op.in_channels, config.block_in),
        rows=_phases(rows),
        columns=_phases(columns),
        taps=rows.taps * rows.stride * columns.taps * columns.stride,
        **_ended(op, config),
        phases=rows.phases * columns.phases,
        whole=True,
    )


@_shape_of.register
def _shape_of_elementwise(op: ops.Elementwise, config: HardwareConfig) -> BlockedShape:
    blocks = op.tiles(config, "other") if op.by_channel else 1
    ended = _ended(op, config)
    ended["alu_passes"] += len(op.offset_stages)
    return BlockedShape(
        batch=blocks,
        rows=_line(op.tiles(config) // blocks),
        **ended,
        addends=len(op.products) - 1,
        operands=int(op.function in ("multiply", "minimum", "maximum")),
        shared_weights=1,
    )


@_shape_of.register
def _shape_of_max_pool2d(op: ops.MaxPool2d, config: HardwareConfig) -> BlockedShape:
    if not op.reads_inputs(config):
        separate = op.separate(config)
        passes = separate.passes if separate else op.window.count
        return replace(_pooled(op, config, passes, staged=True), separate=separate)
    height, width = op.window.kernel
    shape = _pooled(op, config, alu_passes=0, staged=False)
    steps = height * ceil_div(width, WINDOW_TILES)
    return replace(shape, taps=0, maxima=steps, shared_weights=0)


@_shape_of.register
def _shape_of_avg_pool2d(op: ops.AvgPool2d, config: HardwareConfig) -> BlockedShape:
    shape = _pooled(op, config, alu_passes=_passes(op, config), staged=False)
    height, width = op.window.kernel
    if height * width <= config.inp.depth:
        return shape
    # A window larger than its scratchpad is summed row by row.
    return replace(shape, rows=replace(shape.rows, taps=tuple(range(height))))


def _pooled(
    op: ops.MaxPool2d | ops.AvgPool2d, config: HardwareConfig, alu_passes: int, staged: bool
) -> BlockedShape:
    """Return the blocked shape of a pool: every channel block reads only itself."""
    rows, columns = _sliding(op)
    blocks = ceil_div(op.channels, config.block_out)
    return BlockedShape(
        batch=ceil_div(op.batch, config.batch),
        oc=blocks,
        rows=rows,
        columns=columns,
        taps=1 if staged else op.window.count,
        alu_passes=alu_passes,
        groups=blocks,
        group_oc=1,
        staged=staged,
        shared_weights=1,
    )


def _passes(op: ops.Operator, config: HardwareConfig) -> int:
    """Return the number of ALU passes over the results that post-processing does not replace.

    An addition of products is not a pass (`vtaops.lowering.tree.builder`).
    """
    stages = [*op.stages]
    if config.has(Extension.POST) and op.epilogue and op.epilogue.clip:
        while stages and stages[-1].spared:
            stages.pop()
    return sum(not stage.sums for stage in stages)


def _line(extent: int) -> Axis:
    """Return an axis on which every output reads one input."""
    return Axis(extent, 1, 1, _REAL * extent)


def _sliding(op: WindowOperator) -> tuple[Axis, Axis]:
    """Return the axes (rows, columns) of a sliding window, without taps."""
    rows, columns = (
        Axis(
            op.out_size[axis],
            op.window.strides[axis],
            op.window.extent[axis],
            (bytes(before) + _REAL * size).ljust(op.padded_size[axis], b"\0"),
        )
        for axis, (size, before) in enumerate(zip((op.height, op.width), op.pads[:2], strict=True))
    )
    return rows, columns


def _phases(axis: Phases) -> Axis:
    """Return an axis of a transposed convolution, in pixels of one phase."""
    real = bytes(0 <= axis.lowest + pixel < axis.extent for pixel in range(axis.span))
    return Axis(axis.steps, 1, axis.window, real, tuple(range(axis.taps)))
