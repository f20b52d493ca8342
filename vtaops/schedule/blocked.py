"""BlockedShape: an operator in units of tiles, and which tilings suit it and fit the scratchpads.

Owns the arithmetic that relates a `Tiling` to scratchpad space. Knows nothing of TVM or of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from vtaops.config import HardwareConfig, Scratchpad
from vtaops.errors import ScheduleError
from vtaops.ops import Conv2d, Gemm, Operator
from vtaops.schedule.tiling import Tiling


@dataclass(frozen=True)
class Axis:
    """One spatial axis: how output pixels read input pixels.

    Attributes
    ----------
    extent : int
        Output pixels.
    step, window : int
        ``n`` neighbouring output pixels read ``(n - 1) * step + window`` input pixels.
    real : tuple of bool
        For each input pixel, padding included, whether it lies in the image.
    """

    extent: int
    step: int
    window: int
    real: tuple[bool, ...]

    def span(self, pixels: int) -> int:
        """Return how many input pixels, padding included, a tile of output pixels reads."""
        return (pixels - 1) * self.step + self.window

    def loaded(self, tile: int) -> int:
        """Return how many input pixels all tiles of a size load together; padding is not loaded."""
        total = 0
        for first in range(0, self.extent, tile):
            begin = first * self.step
            total += sum(self.real[begin : begin + self.span(min(tile, self.extent - first))])
        return total


@dataclass(frozen=True)
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
        Weight tiles for each pair of channel blocks (kernel height times width).
    alu_passes : int
        Vector ALU passes over the accumulators.
    bias : bool
        Whether each channel block needs one accumulator for its bias.
    """

    batch: int
    oc: int
    ic: int
    rows: Axis
    columns: Axis
    taps: int
    alu_passes: int
    bias: bool

    @property
    def outputs(self) -> int:
        """Output tiles."""
        return self.batch * self.oc * self.rows.extent * self.columns.extent

    @property
    def gemm_cycles(self) -> int:
        """Tile products: the cycles that the GEMM array needs at one a cycle."""
        return self.outputs * self.ic * self.taps

    @property
    def compute_cycles(self) -> int:
        """Cycles of the compute unit at one tile a cycle: products, resets and ALU passes."""
        return self.gemm_cycles + self.outputs * (1 + self.alu_passes)

    def footprint(self, tiling: Tiling, config: HardwareConfig) -> dict[str, int]:
        """Return how many elements of each scratchpad `tiling` occupies."""
        oc, ic = tiling.oc // config.block_out, tiling.ic // config.block_in
        pixels = self.rows.span(tiling.h) * self.columns.span(tiling.w)
        return {
            "inp": tiling.threads * tiling.inp_tiles * ic * pixels,
            "wgt": tiling.threads * tiling.wgt_tiles * oc * ic * self.taps,
            "acc": tiling.threads * oc * (tiling.acc_tiles * tiling.h * tiling.w + self.bias),
        }

    def divided_by(self, tiling: Tiling, config: HardwareConfig) -> bool:
        """Whether all tiles have full size and all virtual threads the same number of them."""
        return not (
            self.oc % (tiling.oc // config.block_out * tiling.oc_threads)
            or self.ic % (tiling.ic // config.block_in)
            or self.rows.extent % (tiling.h * tiling.h_threads)
            or self.columns.extent % tiling.w
        )


@singledispatch
def blocked_shape(op: Operator, config: HardwareConfig) -> BlockedShape:
    """Return the extents of `op` in tiles of `config`.

    Raises
    ------
    ScheduleError
        If there is no VTA schedule for the operator.
    """
    raise ScheduleError(f"there is no VTA schedule for {type(op).__name__}")


@blocked_shape.register
def _(op: Conv2d, config: HardwareConfig) -> BlockedShape:
    top, left, _, _ = op.pads
    (kh, kw), (sh, sw), (dh, _) = op.kernel_size, op.stride, op.dilations
    (padded_h, padded_w), (out_h, out_w) = op.padded_size, op.out_size
    inside_h = [top <= y < top + op.height for y in range(padded_h)]
    inside_w = [left <= x < left + op.width for x in range(padded_w)]
    rows = Axis(out_h, sh, op.kernel_extent[0], tuple(inside_h))
    if op.gathers_rows:  # only the rows that are read are loaded, one after the other
        read = [inside_h[y * sh + tap * dh] for y in range(out_h) for tap in range(kh)]
        rows = Axis(out_h, kh, kh, tuple(read))
    return BlockedShape(
        batch=_blocks(op.batch, config.batch),
        oc=_blocks(op.out_channels, config.block_out),
        ic=_blocks(op.in_channels, config.block_in),
        rows=rows,
        columns=Axis(out_w, sw, op.kernel_extent[1], tuple(inside_w)),
        taps=kh * kw,
        alu_passes=len(op.stages),
        bias=op.bias,
    )


@blocked_shape.register
def _(op: Gemm, config: HardwareConfig) -> BlockedShape:
    rows = _blocks(op.m, config.batch)
    return BlockedShape(
        batch=1,
        oc=_blocks(op.n, config.block_out),
        ic=_blocks(op.k, config.block_in),
        rows=Axis(rows, 1, 1, (True,) * rows),
        columns=Axis(1, 1, 1, (True,)),
        taps=1,
        alu_passes=len(op.stages),
        bias=op.bias,
    )


def check_tiling(op: Operator, config: HardwareConfig, tiling: Tiling) -> None:
    """Refuse a tiling that does not suit the operator or overflows a scratchpad.

    Raises
    ------
    ScheduleError
        Naming the parameter or the scratchpad, by how much it overflows, and a tiling that fits.
    """
    shape = blocked_shape(op, config)
    for name, value, block, blocks in (
        ("oc", tiling.oc, config.block_out, shape.oc),
        ("ic", tiling.ic, config.block_in, shape.ic),
        ("h", tiling.h, 1, shape.rows.extent),
        ("w", tiling.w, 1, shape.columns.extent),
    ):
        if value % block or value > block * blocks:
            rule = f"a multiple of {block}, " if block > 1 else ""
            raise ScheduleError(
                f"tiling {name} is {value}; for this operator it must be {rule}at most "
                f"{block * blocks}"
            )
    for name, threads, tiles in (
        ("oc_threads", tiling.oc_threads, _blocks(shape.oc * config.block_out, tiling.oc)),
        ("h_threads", tiling.h_threads, _blocks(shape.rows.extent, tiling.h)),
    ):
        if threads > tiles:
            raise ScheduleError(
                f"tiling {name} is {threads}, but there are only {tiles} tiles along this axis; "
                f"use fewer threads or smaller tiles"
            )
    for memory, used in shape.footprint(tiling, config).items():
        scratchpad: Scratchpad = getattr(config, memory)
        if used > scratchpad.depth:
            from vtaops.schedule.default import default_tiling

            raise ScheduleError(
                f"{tiling} needs {used} elements of the {memory} scratchpad, which has "
                f"{scratchpad.depth}: {used - scratchpad.depth} too many; "
                f"{default_tiling(op, config)} fits"
            )


def _blocks(extent: int, block: int) -> int:
    return -(-extent // block)
