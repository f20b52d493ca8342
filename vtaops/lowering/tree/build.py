"""Build the tree of each operator: its loops, loads and calls, for a tiling.

`vtaops.schedule.operators` schedules matrix products and convolutions with TVM's primitives to the
same trees; tests compare the programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from types import MappingProxyType

from vtaops import ops
from vtaops.base.errors import ScheduleError
from vtaops.base.shapes import ceil_div
from vtaops.lowering.tree.builder import Computed, TreeBuilder, call, nested, reset
from vtaops.lowering.tree.indices import ZERO, Index, Span, TiledAxis, TileTensor, within
from vtaops.lowering.tree.nodes import CopyNest, Loop, Node, TileOperand, Tree
from vtaops.machine.alu import AluOp
from vtaops.machine.config import LEAST, HardwareConfig
from vtaops.ops import Operator
from vtaops.ops.conv2d_transpose import Phases
from vtaops.ops.epilogue import AluStage
from vtaops.ops.families import WindowOperator
from vtaops.ops.maxima import AxisTaps, SeparateMaxima
from vtaops.schedule import Tiling
from vtaops.schedule.calls import ALU_CALL, GEMM_CALL, POOL_CALL, WINDOW_CALL


@singledispatch
def build_tree(op: Operator, config: HardwareConfig, tiling: Tiling) -> Tree:
    """Return the tree of an operator, for a tiling that suits it (`vtaops.schedule.check_tiling`).

    Raises
    ------
    ScheduleError
        If operators of its kind have no schedule.
    """
    raise ScheduleError(f"VTA has no schedule for {type(op).__name__}")


# ---------------------------------------------------------------------- matrix products


@build_tree.register
def _tree_of_gemm(op: ops.Gemm, config: HardwareConfig, tiling: Tiling) -> Tree:
    tiles = _Matrix(op, config, tiling, op.m, op.n)
    sums = tiles.sums("weight", op.k)
    return tiles.tree(sums, {}, late=tiles.loaded)


@build_tree.register
def _tree_of_batch_matmul(op: ops.BatchMatmul, config: HardwareConfig, tiling: Tiling) -> Tree:
    tiles = _Matrix(op, config, tiling, op.m, op.n, batch=op.batch)
    sums = tiles.sums("other", op.k, op.zero_terms)
    return tiles.tree(sums, tiles.zero_terms, late=tiles.loaded)


class _Matrix(TreeBuilder):
    """The product of two matrices, or of pairs of them."""

    def __init__(
        self, op: Operator, config: HardwareConfig, tiling: Tiling, m: int, n: int, batch: int = 0
    ) -> None:
        super().__init__(op, config, tiling)
        self.m = self.cut_rows("m", ceil_div(m, config.batch), tiling.h)
        self.n = self.channels = self.cut_channels("n", ceil_div(n, config.block_out))
        pair = Loop("pair", batch or 1)
        self._pair = [Index.of(pair)] if batch else []
        self.outer, self.pixels = [pair], [self.m.tiles]
        self.zero_terms: dict[str, Computed] = {}
        self.spans = self.m, self.n
        self.place = [*self._pair, self.m.position, self.n.position]

    def sums(
        self, other: str, depth: int, zeros: Mapping[str, int] = MappingProxyType({})
    ) -> Computed:
        """Return the products step by step; each step loads both operands.

        The same steps sum the terms of zero points, which become `zero_terms`.
        """
        k = self.cut_sum("k", ceil_div(depth, self.config.block_in))
        rows, columns = ([*self._pair, axis.position, k.position] for axis in (self.m, self.n))
        left = self.load("data", "inp", [self.m, k], rows)
        right = self.load(other, "wgt", [self.n, k], columns)
        self.loaded = [left[1], right[1]]
        result = self.accumulators("res_gem")
        gemm = call(GEMM_CALL, [self.m, k, self.n], result, left[1], right[1])
        first: list[Node] = [reset(result)]
        step: list[Node] = [left[0], right[0], gemm]
        last: list[Node] = []
        for name, value in zeros.items():
            axis, scratchpad = (self.n, "inp") if name == "column" else (self.m, "wgt")
            load, constant = self.load(name, scratchpad, [k], [ZERO, k.position])
            read = (constant, right[1]) if name == "column" else (left[1], constant)
            total = self.accumulators(f"res_{name}_sum", [axis])
            first.append(reset(total))
            step += [load, call(GEMM_CALL, [axis, k], total, *read)]
            if value == 128:  # the constant is half of it
                half, total = total, self.accumulators(f"res_{name}_twice", [axis])
                last.append(self.stage(AluStage(total.name, AluOp.SHR, -1), total, half))
            self.zero_terms[name] = [], total
        return [*first, *nested([k.tiles], step), *last], result


# ------------------------------------------------------------------------------- images


class _Image(TreeBuilder):
    """An image, in tiles of channel blocks, rows and columns."""

    def __init__(
        self,
        op: WindowOperator,
        config: HardwareConfig,
        tiling: Tiling,
        blocks: int,
        phases: tuple[int, int] = (1, 1),
    ) -> None:
        super().__init__(op, config, tiling)
        height, width = op.out_size
        self.oc = self.channels = self.cut_channels("oc", blocks)
        self.y = self.cut_rows("y", height, tiling.h * phases[0])
        self.x = TiledAxis.cut("x", width, tiling.w * phases[1])
        self.batch = Loop("image", ceil_div(op.batch, config.batch))
        self.pixels = [self.batch, self.y.tiles, self.x.tiles]
        self.apart = tiling.taps != "all", tiling.taps == "one"
        self.spans = self.oc, self.y, self.x
        self.place = [Index.of(self.batch), self.oc.position, self.y.position, self.x.position]

    def load_image(
        self, channels: Span, rows: _Pixels, columns: _Pixels, padding: int = 0
    ) -> tuple[CopyNest, TileTensor]:
        """Load the pixels that a step reads, with the padding around the image."""
        *_, blocks, height, width = (span.extent for span in self.dram("data").spans)
        place = [channels.position, rows.pixel, columns.pixel]
        return self.load(
            "data",
            "inp",
            [channels, rows.span, columns.span],
            [Index.of(self.batch), *place],
            inside=within(zip(place, (blocks, height, width), strict=True)),
            padding=padding,
        )


@dataclass(frozen=True)
class _Pixels:
    """The pixels along one axis that a step reads, with the padding around the image.

    Attributes
    ----------
    span : Span
        Their positions in the padded image.
    pixel : Index
        The pixel of the image at the position of `span`.
    read : Index
        What a product reads, counted from the first.
    """

    span: Span
    pixel: Index
    read: Index


def _sliding(op: WindowOperator, number: int, axis: TiledAxis, tap: Loop, apart: bool) -> _Pixels:
    """Return the pixels under a sliding window; `apart`, a step reads those of one tap."""
    window, before = op.window, op.pads[number]
    step, distance = window.strides[number], window.dilation[number]
    limit = op.padded_size[number]
    skips = number == 0 and isinstance(op, ops.Conv2d) and op.gathers_rows
    if skips:  # the rows of each window, without those between them
        step, distance, limit = tap.extent, 1, axis.limit * tap.extent
    begin, inside = axis.begin * step, Index.of(tap) * distance
    window_extent = 1 if apart else (tap.extent - 1) * distance + 1
    span = Span(
        ("row", "column")[number],
        (axis.extent - 1) * step + window_extent,
        begin + inside if apart else begin,
        limit,
    )
    pixel = span.position
    if skips:
        rows, taps = pixel // tap.extent, pixel % tap.extent
        pixel = rows * window.strides[0] + taps * window.dilation[0]
    read = axis.inside * step
    return _Pixels(span, pixel - before, read if apart else read + inside)


# ------------------------------------------------------------------------- convolutions


@build_tree.register
def _tree_of_conv2d(op: ops.Conv2d, config: HardwareConfig, tiling: Tiling) -> Tree:
    tiles = _Convolution(op.unfolded, config, tiling)
    operands = tiles.sums(wide=op.wide)
    if op.bias_tiles:
        operands |= tiles.scaled("constant", {"constant": "constant_scale"}, each=True)
    if op.residual:
        scales = {digit: digit for digit in op.residual_digits}
        if not op.has_factors:
            scales = {"residual": "residual_scale"}
        place = tiles.spans, tiles.place
        operands |= tiles.scaled("residual", scales, *place, each=op.has_factors)
    return tiles.tree(operands[op.digits[0][0]], operands, late=tiles.loaded)


class _Convolution(_Image):
    """A convolution, in groups of channel blocks."""

    def __init__(self, op: ops.Conv2d, config: HardwareConfig, tiling: Tiling) -> None:
        self._blocks = blocks = op.blocks(config)
        super().__init__(op, config, tiling, ceil_div(op.out_channels, config.block_out))
        self._ic = self.cut_sum("ic", blocks.ic)
        kh, kw = op.window.kernel
        self._taps = Span("dy", kh), Span("dx", kw)
        self._rows, self._columns = (
            _sliding(op, number, axis, tap.loop, apart)
            for number, (axis, tap, apart) in enumerate(
                zip((self.y, self.x), self._taps, self.apart, strict=True)
            )
        )
        self._product = GEMM_CALL
        if windows := op.windows(config):  # one weight tile for neighbouring taps of a row
            dx = Span("dx", self.dram("kernel").spans[3].extent)
            self._taps, self._product = (self._taps[0], dx), WINDOW_CALL
            read = self.x.inside * op.window.strides[1] + dx.inside * windows.step
            self._columns = replace(self._columns, read=read)

    def _channels(self) -> tuple[Span, Index]:
        """Return the input blocks that a step reads, and which of them a product reads."""
        blocks, ic = self._blocks, self._ic
        if blocks.count == 1:
            return ic, ic.inside
        limit = blocks.count * blocks.ic
        if self.oc.extent < blocks.oc:  # a part of one group
            group = self.oc.tile // (blocks.oc // self.oc.extent)
            return Span("ic", ic.extent, group * blocks.ic + ic.begin, limit), ic.inside
        groups = self.oc.extent // blocks.oc
        begin = self.oc.begin // blocks.oc * blocks.ic + ic.begin
        span = Span("channel", (groups - 1) * blocks.ic + ic.extent, begin, limit)
        return span, self.oc.inside // blocks.oc * blocks.ic + ic.inside

    def sums(self, *, wide: bool) -> dict[str, Computed]:
        """Return the convolution, step by step, with each digit of the weights."""
        channels, read = self._channels()
        load_data, data = self.load_image(channels, self._rows, self._columns)
        dy, dx = self._taps
        each = [*zip(self._taps, self.apart, strict=True)]
        inner = [tap for tap, apart in each if not apart]
        outside = [tap.loop for tap, apart in each if apart]
        pixel = data.at(read, self._rows.read, self._columns.read)
        order = [self.oc, self.y, self._ic, *inner, self.x]
        self.loaded, found = [data], {}
        for digit in ("_high", "") if wide else ("",):
            load_kernel, kernel = self.load(
                f"kernel{digit}",
                "wgt",
                [self.oc, self._ic, *inner],
                [self.oc.position, self._ic.position, dy.inside, dx.inside],
            )
            self.loaded.append(kernel)
            result = self.accumulators(f"res_conv{digit}")
            gemm = call(self._product, order, result, pixel, kernel)
            steps = nested([self._ic.tiles, *outside], [load_data, load_kernel, gemm])
            found[f"conv{digit}"] = [reset(result), *steps], result
        return found

    def scaled(
        self,
        tensor: str,
        scales: Mapping[str, str],
        spans: Sequence[Span] = (),
        place: Sequence[Index] = (),
        *,
        each: bool,
    ) -> dict[str, Computed]:
        """Return the products of a tensor with diagonals, by the operands that they are."""
        load, tile = self.load(tensor, "inp", spans, place)
        found: dict[str, Computed] = {}
        for operand, name in scales.items():
            load_scale, scale = self.diagonal(name, each=each)
            result = self.accumulators(f"res_{operand}")
            first = [] if found else [load]
            found[operand] = [load_scale, *first, *self.product(result, scale, tile)], result
        return found


@build_tree.register
def _tree_of_conv2d_transpose(
    op: ops.Conv2dTranspose, config: HardwareConfig, tiling: Tiling
) -> Tree:
    tiles = _Transposed(op, config, tiling)
    return tiles.tree(tiles.sums(), {}, late=tiles.loaded)


class _Phased:
    """One axis of a transposed convolution.

    Parameters
    ----------
    name : str
        Prefix of its loops.
    axis : TiledAxis
        The pixels of the result.
    phases : Phases
        How they read those of the image.

    Attributes
    ----------
    phase, tap, step : Span
        The loops of a product: over phases, taps, and pixels of one phase.
    result : Index
        The pixel of the tile.
    guards : list of Expression
        The condition that it exists.
    pixels, weights : _Pixels
        What a step loads of the image, and of the kernel.
    """

    def __init__(self, name: str, axis: TiledAxis, phases: Phases) -> None:
        count, stride, before = phases.phases, phases.stride, phases.before
        self.phase, self.tap = Span(f"{name}_phase", count), Span(f"{name}_tap", phases.taps)
        self.step = Span(f"{name}_step", ceil_div(axis.extent, count))
        self.result = self.step.inside * count + self.phase.inside
        position, tap = axis.begin + self.result, self.tap.inside
        whole = axis.limit % count == 0  # the last pixel has all phases
        self.guards = (
            (position // count).below(axis.limit // count) if whole else position.below(axis.limit)
        )
        earlier = phases.taps - 1  # pixels before that of the first tap
        first = (axis.begin + before) // stride - phases.lowest - earlier
        extent = (axis.extent - 1 + before) // stride - before // stride + 1 + earlier
        span = Span(name, extent, first, phases.span)
        read = (position + before) // stride - phases.lowest - tap
        self.pixels = _Pixels(span, span.position + phases.lowest, read - first)

        crosses = before % stride + count > stride
        first = ZERO if crosses else (axis.begin + before) % stride
        extent = (stride if crosses else count) + earlier * stride
        read = (position + before) % stride + tap * stride
        span = Span(f"{name}_weight", extent, first)
        self.weights = _Pixels(span, span.position, read - first)


class _Transposed(_Image):
    """A transposed convolution: all phases of some pixels are one tile."""

    def __init__(self, op: ops.Conv2dTranspose, config: HardwareConfig, tiling: Tiling) -> None:
        counts = op.rows.phases, op.columns.phases
        blocks = (ceil_div(n, config.block_in) for n in (op.out_channels, op.in_channels))
        super().__init__(op, config, tiling, next(blocks), counts)
        self._ic = self.cut_sum("ic", next(blocks))
        self._kernel = op.window.kernel
        self._rows = _Phased("row", self.y, op.rows)
        self._columns = _Phased("column", self.x, op.columns)

    def sums(self) -> Computed:
        """Return the convolution, step by step."""
        rows, columns, oc, ic = self._rows, self._columns, self.oc, self._ic
        load_data, data = self.load_image(ic, rows.pixels, columns.pixels)
        weights = [rows.weights.pixel, columns.weights.pixel]
        load_kernel, kernel = self.load(
            "kernel",
            "wgt",
            [oc, ic, rows.weights.span, columns.weights.span],
            [oc.position, ic.position, *weights],
            inside=within(zip(weights, self._kernel, strict=True)),
        )
        self.loaded = [data, kernel]
        result = self.accumulators("res_conv")
        order = [rows.phase, columns.phase, oc, ic, rows.tap, columns.tap, rows.step, columns.step]
        gemm = call(
            GEMM_CALL,
            order,
            result.at(oc.inside, rows.result, columns.result),
            data.at(ic.inside, rows.pixels.read, columns.pixels.read),
            kernel.at(oc.inside, ic.inside, rows.weights.read, columns.weights.read),
        )
        gemm = replace(gemm, guards=(*gemm.guards, *rows.guards, *columns.guards))
        steps = nested([ic.tiles], [load_data, load_kernel, gemm])
        return [reset(result), *steps], result


# -------------------------------------------------------------------------- elementwise


@build_tree.register
def _tree_of_elementwise(op: ops.Elementwise, config: HardwareConfig, tiling: Tiling) -> Tree:
    tiles = _Elementwise(op, config, tiling)
    found = {name: tiles.product_of(name, tensor) for name, tensor, _ in op.products}
    first = next(iter(found))
    return tiles.tree(found[first], found, late=tiles.buffers)


class _Elementwise(TreeBuilder):
    """Pieces of a row of tiles, or of each block of channels."""

    def __init__(self, op: ops.Elementwise, config: HardwareConfig, tiling: Tiling) -> None:
        super().__init__(op, config, tiling)
        blocks = op.tiles(config, "other") if op.by_channel else 1
        block = Loop("block", blocks)
        piece = self.cut_rows("piece", op.tiles(config) // blocks, tiling.h)
        block_place = [Index.of(block)] if op.by_channel else []
        self.outer, self.pixels = [block], [piece.tiles]
        self.spans, self.place = (piece,), [*block_place, piece.position]
        self._other = ((), block_place) if op.by_channel else (self.spans, self.place)
        self._offsets = op.offset_stages
        self._loaded: dict[str, TileTensor] = {}
        self.buffers: list[TileTensor] = []

    def product_of(self, name: str, operand: str) -> Computed:
        """Return the scaled tiles of a tensor, with its offset."""
        load_scale, scale = self.diagonal(f"{name}_scale")
        nodes: list[Node] = [load_scale]
        spans, place = self._other if operand == "other" else (self.spans, self.place)
        if operand not in self._loaded:
            load, self._loaded[operand] = self.load(operand, "inp", spans, place)
            nodes.append(load)
            self.buffers.append(self._loaded[operand])
        result = self.accumulators(f"res_{name}", spans)
        nodes += self.product(result, scale, self._loaded[operand])
        self.buffers += [scale, result]
        if stage := self._offsets.get(name):
            added = self.accumulators(stage.name, spans)
            nodes.append(self.stage(stage, added, result))
            return nodes, added
        return nodes, result


# ------------------------------------------------------------------------------ pooling


@build_tree.register
def _tree_of_avg_pool2d(op: ops.AvgPool2d, config: HardwareConfig, tiling: Tiling) -> Tree:
    tiles = _Pool(op, config, tiling)
    return tiles.tree(tiles.sums(tiling.taps != "all"), {})


@build_tree.register
def _tree_of_max_pool2d(op: ops.MaxPool2d, config: HardwareConfig, tiling: Tiling) -> Tree:
    tiles = _Pool(op, config, tiling)
    if separate := op.separate(config):
        return tiles.separate_maxima(separate)
    return tiles.maxima(op.reads_inputs(config))


class _Pool(_Image):
    """A pool: every channel block reads only itself."""

    def __init__(
        self, op: ops.MaxPool2d | ops.AvgPool2d, config: HardwareConfig, tiling: Tiling
    ) -> None:
        super().__init__(op, config, tiling, ceil_div(op.channels, config.block_out))
        kh, kw = op.window.kernel
        self._dy, self._dx = Span("dy", kh), Span("dx", kw)
        self._window = op

    def _windows(self, apart: bool = False) -> tuple[_Pixels, _Pixels]:
        rows = _sliding(self._window, 0, self.y, self._dy.loop, apart)
        return rows, _sliding(self._window, 1, self.x, self._dx.loop, apart=False)

    def sums(self, apart: bool) -> Computed:
        """Return the sums; `apart`, rows of the windows are loaded one after the other."""
        rows, columns = self._windows(apart)
        load, data = self.load_image(self.oc, rows, columns)
        load_scale, scale = self.diagonal("data_scale")
        result = self.accumulators("res_sum")
        taps = [self._dx] if apart else [self._dy, self._dx]
        gemm = call(
            GEMM_CALL,
            [self.oc, *taps, self.y, self.x],
            result,
            data.at(self.oc.inside, rows.read, columns.read),
            scale,
        )
        if apart:
            return [reset(result), *nested([self._dy.loop], [load, load_scale, gemm])], result
        return [load, load_scale, reset(result), gemm], result

    def maxima(self, reads_inputs: bool) -> Tree:
        """Return the tree of maxima over whole windows."""
        rows, columns = self._windows()
        load, data = self.load_image(self.oc, rows, columns, padding=LEAST)
        result = self.accumulators("res_max")
        least = reset(result, imm=LEAST)
        if reads_inputs:  # one instruction per window row
            pixel = data.at(self.oc.inside, rows.read, columns.read)
            order = [self._dy, *self.spans, self._dx]
            pool = call(POOL_CALL, order, result, pixel)
            return self.finished([], [load, least, pool, self.store(result)])
        # One per pixel: its real pixels form a rectangle.
        load_scale, scale = self.diagonal("data_scale")
        staged = self.accumulators("res_data", data.spans)
        pixel = staged.at(self.oc.inside, rows.read, columns.read)
        order = [self._dy, self._dx, *self.spans]
        maximum = call(ALU_CALL, order, result, result, pixel, alu_op=int(AluOp.MAX))
        entered = self.product(staged, scale, data)
        return self.finished([], [load_scale, load, *entered, least, maximum, self.store(result)])

    def separate_maxima(self, maxima: SeparateMaxima) -> Tree:
        """Return the tree of maxima along the columns, then along the rows."""
        load, data = self.load_image(self.oc, *self._windows(), padding=LEAST)
        load_scale, scale = self.diagonal("data_scale")
        nodes: list[Node] = [load, load_scale]
        rows = _Taps("above", self.y, maxima.rows, maxima.stride[0])
        columns = _Taps("beside", self.x, maxima.columns, maxima.stride[1])
        oc = self.oc.inside

        def entered(*sides: bool) -> TileTensor:
            """Enter the results, or the pixels to the sides of rows and columns."""
            spans = self.oc, rows.span(sides[0]), columns.span(sides[1])
            result = self.accumulators(f"res_{sides}", spans)
            pixel = data.at(oc, rows.pixel(sides[0]), columns.pixel(sides[1]))
            nodes.extend(self.product(result, scale, pixel))
            return result

        def larger(value: TileTensor, other: TileOperand) -> TileTensor:
            """Compute the maximum of accumulators and others."""
            result = self.accumulators(f"{value.name}_{len(nodes)}", value.spans)
            nodes.append(call(ALU_CALL, value.spans, result, value, other, alu_op=int(AluOp.MAX)))
            return result

        def widened(above: bool) -> TileTensor:
            """Compute the maxima of rows along the columns."""
            value, taps = entered(above, False), maxima.columns.other_taps
            beside = entered(above, True) if taps else value
            for tap in taps:
                column = maxima.columns.side(tap, self.x.inside)
                value = larger(value, beside.at(oc, value.spans[1].inside, column))
            return value

        value, taps = widened(above=False), maxima.rows.other_taps
        sides_of_rows = widened(above=True) if taps else value
        for tap in taps:
            row = maxima.rows.side(tap, self.y.inside)
            value = larger(value, sides_of_rows.at(oc, row, self.x.inside))
        return self.finished([], [*nodes, self.store(value)])


@dataclass(frozen=True)
class _Taps:
    """The pixels along one axis that separated maxima read: in place, and to the sides."""

    name: str
    axis: TiledAxis
    taps: AxisTaps
    stride: int

    def span(self, side: bool) -> Span:
        """Return the results, or the side pixels, of a tile."""
        if not side:
            return self.axis
        pixels, begin = self.taps.pixels, self.axis.begin * self.taps.stride
        return Span(self.name, pixels(self.axis.extent), begin, pixels(self.axis.limit))

    def pixel(self, side: bool) -> Index:
        """Return the loaded pixel of a result, or of a side pixel."""
        if not side:
            return self.axis.inside * self.stride + self.taps.anchor
        return self.span(side).inside * self.taps.step + self.taps.start
