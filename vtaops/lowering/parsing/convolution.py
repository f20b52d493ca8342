"""The tree of a convolution, written down: what TVM makes of its schedule, fifty times as fast.

A search asks for thousands of tilings of a few convolutions, and a third of the time of a verdict
was TVM's: it derives the same loops, bounds and indices for each again. For the convolutions that
networks consist of they are written down here. The schedule (`vtaops.schedule.conv2d`) remains what
says how a convolution runs; a test compares the programs of both over random operators and tilings.
All others go through TVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from vtaops.lowering.parsing.expressions import Expression
from vtaops.lowering.parsing.nests import (
    SCRATCHPAD_OF_SCOPE,
    CallNest,
    CopyNest,
    Loop,
    LoopNode,
    Node,
    TileBuffer,
    TileOperand,
    Tree,
)
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import kernel_layout
from vtaops.ops import Conv2d, Operator
from vtaops.ops.groups import grouped_view
from vtaops.ops.postprocess import VECTORS, AluStage
from vtaops.schedule import Tiling
from vtaops.schedule.intrinsics import (
    ACC_SCOPE,
    ALU_CALL,
    GEMM_CALL,
    INP_SCOPE,
    RESET_CALL,
    WGT_SCOPE,
)

Linear = dict[str, int]
"""A sum of multiples of loop variables; that of the empty name is a constant."""


def convolution_tree(op: Operator, config: HardwareConfig, tiling: Tiling) -> Tree | None:
    """Return what `parse` returns for the flat function of an operator.

    None where it is not written down here: no convolution, more than vectors and constants in its
    stages, groups that share tiles, rows that are gathered for a kernel of several, virtual
    threads, kernels in parts, tiles larger than the operator.
    """
    if type(op) is not Conv2d:
        return None
    op = op.unfolded
    blocks = op.blocks(config)
    grouped = blocks.count > 1
    plain = all(
        isinstance(stage, AluStage) and VECTORS.issuperset(stage.operands) for stage in op.stages
    )
    if (
        not plain
        or op.residual
        or (grouped and (blocks.ic, blocks.oc) != (1, 1))
        or (op.gathers_rows and op.window.kernel[0] > 1)
        or tiling.threads > 1
        or tiling.taps != "all"
    ):
        return None
    written = _Convolution.of(op, config, tiling, grouped)
    if any(axis.size > axis.extent for axis in (*written.tile, written.reduction)):
        return None
    return written.tree()


@dataclass(frozen=True)
class _Axis:
    """An axis of the operator that is cut into tiles: loops over the tiles, and in one of them."""

    name: str
    extent: int
    size: int

    @property
    def tiles(self) -> Loop:
        return Loop(f"{self.name}_tile", -(-self.extent // self.size))

    @property
    def inside(self) -> Loop:
        return Loop(self.name, self.size)

    def at(self, scale: int = 1) -> Linear:
        """Return the position along the axis, times `scale`."""
        return _over({self.tiles: self.size * scale, self.inside: scale})

    @property
    def guards(self) -> list[Expression]:
        """That it lies in the operator, where the last tile overhangs."""
        return _below(self.at(), self.extent) if self.extent % self.size else []


@dataclass(frozen=True)
class _Span:
    """The pixels along one axis of the image that a tile reads, padding included.

    Attributes
    ----------
    name : str
        Of the loop over them.
    axis : _Axis
        Of the pixels of the result.
    step, tap : int
        Pixels of the padded image from one pixel of the result to the next, and from tap to tap.
    taps : int
        Extent of the kernel.
    padded, image, before : int
        Size with padding and without, padding before the first pixel of the image.
    gathered : int
        Image pixels for each of the padded image: more than one where only some are loaded.
    """

    name: str
    axis: _Axis
    step: int
    tap: int
    taps: int
    padded: int
    image: int
    before: int
    gathered: int = 1

    @property
    def inside(self) -> Loop:
        return Loop(self.name, (self.axis.size - 1) * self.step + (self.taps - 1) * self.tap + 1)

    @property
    def begin(self) -> Linear:
        """The first pixel of a tile in the padded image."""
        return _over({self.axis.tiles: self.axis.size * self.step})

    @property
    def guards(self) -> list[Expression]:
        """That a pixel lies in the padded image, where the last tile overhangs."""
        begin = (self.axis.tiles.extent - 1) * self.axis.size * self.step
        overhangs = begin + self.inside.extent > self.padded
        return _below(self._position, self.padded) if overhangs else []

    @property
    def pixel(self) -> Linear:
        """The pixel of the image, without padding."""
        return _times(self._position, self.gathered) | {"": -self.before}

    @property
    def _position(self) -> Linear:
        """The pixel of the padded image."""
        return self.begin | _over({self.inside: 1})

    @property
    def in_image(self) -> list[str]:
        """The conditions that a pixel is none of the padding, where some are."""
        text = _text(self.pixel)
        last = (self.padded - 1) * self.gathered - self.before
        return [f"(0 <= {text})"] * (self.before > 0) + [f"({text} < {self.image})"] * (
            last >= self.image
        )


@dataclass(frozen=True)
class _Convolution:
    """A convolution with a tiling, in blocks of channels."""

    op: Conv2d
    config: HardwareConfig
    keep: str
    batch: Loop
    tile: tuple[_Axis, _Axis, _Axis]  # channel blocks, rows and columns of the result
    reduction: _Axis
    rows: _Span
    columns: _Span
    grouped: bool

    @staticmethod
    def of(op: Conv2d, config: HardwareConfig, tiling: Tiling, grouped: bool) -> _Convolution:
        blocks = op.blocks(config)
        (height, width), (sh, sw), (dh, dw) = op.out_size, op.window.strides, op.window.dilation
        (kh, kw), (top, left, *_) = op.window.kernel, op.pads
        padded = op.padded_size
        channels = _Axis("oc", blocks.count * blocks.oc, tiling.oc // config.block_out)
        y, x = _Axis("y", height, tiling.h), _Axis("x", width, tiling.w)
        if op.gathers_rows:  # of a kernel of one row
            rows = _Span("row", y, 1, 1, 1, height, op.height, top, gathered=sh)
        else:
            rows = _Span("row", y, sh, dh, kh, padded[0], op.height, top)
        return _Convolution(
            op=op,
            config=config,
            keep=tiling.keep,
            batch=Loop("image", -(-op.batch // config.batch)),
            tile=(channels, y, x),
            reduction=_Axis("ic", blocks.ic, tiling.ic // config.block_in),
            rows=rows,
            columns=_Span("column", x, sw, dw, kw, padded[1], op.width, left),
            grouped=grouped,
        )

    def tree(self) -> Tree:
        """Return the whole function."""
        vectors = [name for stage in self.op.stages for name in stage.operands]
        outside = self.keep == "wgt"  # where the loop over channels is the outermost
        first: list[Node] = [self._vector(name) for name in vectors] if outside else []
        body: list[Node] = [self._reset, *self._steps()]
        value = self._accumulators("res_conv")
        for stage in self.op.stages:
            body += [] if outside else [self._vector(name) for name in stage.operands]
            assert isinstance(stage, AluStage)
            body.append(self._stage(stage, value))
            value = self._accumulators(stage.name)
        body.append(self._result(value))

        channels, y, x = (axis.tiles for axis in self.tile)
        pixels = [self.batch, y, x]
        if outside:
            body = _looped([channels], [*first, *_looped(pixels, body)])
        else:
            body = _looped([*pixels, channels], body)
        return Tree(body, self._allocations(vectors))

    def _allocations(self, vectors: Sequence[str]) -> list[TileBuffer]:
        """Return the buffers on chip, in the order of their first use."""
        found = [self._on_chip(name) for name in vectors] if self.keep == "wgt" else []
        found.append(self._accumulators("res_conv"))
        for stage in self.op.stages:
            found += [] if self.keep == "wgt" else [self._on_chip(n) for n in stage.operands]
            found.append(self._accumulators(stage.name))
        return [*found, self._data, self._kernel]

    # ------------------------------------------------------------------------- buffers

    @property
    def _lanes(self) -> tuple[int, int, int]:
        """Scalars of an element of inputs, weights, results."""
        c = self.config
        return c.batch * c.block_in, c.block_out * c.block_in, c.batch * c.block_out

    def _accumulators(self, stage: str) -> TileBuffer:
        oc, y, x = (axis.size for axis in self.tile)
        return _tile(stage, ACC_SCOPE, oc * y * x * self._lanes[2], "int32")

    def _on_chip(self, vector: str) -> TileBuffer:
        return _tile(f"{vector}_buf", ACC_SCOPE, self.tile[0].size * self._lanes[2], "int32")

    @property
    def _data(self) -> TileBuffer:
        pixels = self.rows.inside.extent * self.columns.inside.extent
        return _tile("data_buf", INP_SCOPE, self._inputs.size * pixels * self._lanes[0], "int8")

    @property
    def _inputs(self) -> _Axis:
        """The blocks of input channels: of groups, each output block has its own."""
        return self.tile[0] if self.grouped else self.reduction

    @property
    def _taps(self) -> int:
        return self.op.window.count

    @property
    def _kernel(self) -> TileBuffer:
        elements = self.tile[0].size * self.reduction.size * self._taps
        return _tile("kernel_buf", WGT_SCOPE, elements * self._lanes[1], "int8")

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The packed shapes of the tensors in DRAM, as the operator declares them."""
        op = self.op
        shapes = {buffer.name: buffer.packed_shape for buffer in op.buffers(self.config)}
        view = grouped_view(op.groups, op.in_channels, op.out_channels, self.config)
        filters = (op.out_channels, op.in_channels // op.groups, *op.window.kernel)
        # Tap by tap, also where windows are packed.
        return shapes | {"kernel": kernel_layout(self.config, view).packed_shape(filters)}

    def _dram(self, name: str) -> TileBuffer:
        dtype = "int32" if name in VECTORS else "int8"
        return TileBuffer(name, "", prod(self._shapes[name]), dtype)

    # -------------------------------------------------------------------------- leaves

    @property
    def _inside(self) -> list[Loop]:
        return [axis.inside for axis in self.tile]

    @property
    def _guards(self) -> list[Expression]:
        return [guard for axis in self.tile for guard in axis.guards]

    @property
    def _place(self) -> Linear:
        """The first scalar of an element of accumulators."""
        (oc, y, x), size = self.tile, self._lanes[2]
        row = x.size * size
        return _over({oc.inside: y.size * row, y.inside: row, x.inside: size})

    @property
    def _reset(self) -> CallNest:
        operand = TileOperand(self._accumulators("res_conv"), _linear(self._place))
        return CallNest(_long(self._inside), self._guards, call=RESET_CALL, operands=[operand])

    def _steps(self) -> list[Node]:
        """Return the loads of both operands and the products, for each part of the reduction."""
        return _looped(
            [self.reduction.tiles], [self._load_data(), self._load_kernel(), self._gemm()]
        )

    def _load_data(self) -> CopyNest:
        (n_lanes, *_), rows, columns = self._lanes, self.rows, self.columns
        channels, (_, blocks, height, width, *_) = self._inputs, self._shapes["data"]
        lane, image = Loop("lane", n_lanes), height * width * n_lanes
        source = _sum(
            _over({self.batch: blocks * image, lane: 1}),
            channels.at(image),
            _times(rows.pixel, width * n_lanes),
            _times(columns.pixel, n_lanes),
        )
        row = columns.inside.extent * n_lanes
        place = {channels.inside: rows.inside.extent * row, rows.inside: row}
        place |= {columns.inside: n_lanes, lane: 1}
        inside = rows.in_image + columns.in_image
        names = [name for span in (rows, columns) if span.in_image for name in span.pixel if name]
        return CopyNest(
            loops=_long([channels.inside, rows.inside, columns.inside, lane]),
            guards=[*channels.guards, *rows.guards, *columns.guards],
            dst=self._data,
            dst_index=_linear(_over(place)),
            src=self._dram("data"),
            src_index=_linear(source),
            inside=Expression.written(" & ".join(inside), names, False) if inside else None,
        )

    def _load_kernel(self) -> CopyNest:
        (oc, _, _), ic, (_, lanes, _) = self.tile, self.reduction, self._lanes
        lane, kernel = Loop("lane", lanes), self._taps * lanes
        last = _over({**self._kernel_taps, lane: 1})
        source = _sum(oc.at(ic.extent * kernel), ic.at(kernel), last)
        return CopyNest(
            loops=_long([oc.inside, ic.inside, *self._kernel_taps, lane]),
            guards=[*oc.guards, *ic.guards],
            dst=self._kernel,
            dst_index=_linear(_over({oc.inside: ic.size * kernel, ic.inside: kernel}) | last),
            src=self._dram("kernel"),
            src_index=_linear(source),
            inside=None,
        )

    def _gemm(self) -> CallNest:
        (oc, y, x), ic, (inputs, weights, _) = self.tile, self.reduction, self._lanes
        rows, columns = self.rows, self.columns
        row = columns.inside.extent * inputs
        dy, dx = self._kernel_taps
        data = {
            self._inputs.inside: rows.inside.extent * row,
            y.inside: rows.step * row,
            dy: rows.tap * row,
            x.inside: columns.step * inputs,
            dx: columns.tap * inputs,
        }
        kernel = {oc.inside: ic.size * self._taps * weights, ic.inside: self._taps * weights}
        return CallNest(
            loops=_long([oc.inside, y.inside, ic.inside, dy, dx, x.inside]),
            guards=[*self._guards, *ic.guards],
            call=GEMM_CALL,
            operands=[
                TileOperand(self._accumulators("res_conv"), _linear(self._place)),
                TileOperand(self._data, _linear(_over(data))),
                TileOperand(self._kernel, _linear(_over({**kernel, **self._kernel_taps}))),
            ],
        )

    @property
    def _kernel_taps(self) -> dict[Loop, int]:
        """The loops over the rows and columns of the kernel, each with its step in the weights."""
        (kh, kw), lanes = self.op.window.kernel, self._lanes[1]
        return {Loop("dy", kh): kw * lanes, Loop("dx", kw): lanes}

    def _vector(self, name: str) -> CopyNest:
        oc, lanes = self.tile[0], self._lanes[2]
        lane = Loop("lane", lanes)
        return CopyNest(
            loops=_long([oc.inside, lane]),
            guards=oc.guards,
            dst=self._on_chip(name),
            dst_index=_linear(_over({oc.inside: lanes, lane: 1})),
            src=self._dram(name),
            src_index=_linear(oc.at(lanes) | _over({lane: 1})),
            inside=None,
        )

    def _stage(self, stage: AluStage, value: TileBuffer) -> CallNest:
        place = _linear(self._place)
        operands = [TileOperand(self._accumulators(stage.name), place), TileOperand(value, place)]
        for name in stage.operands:
            vector = _linear(_over({self.tile[0].inside: self._lanes[2]}))
            operands.append(TileOperand(self._on_chip(name), vector))
        return CallNest(
            loops=_long(self._inside),
            guards=self._guards,
            call=ALU_CALL,
            operands=operands,
            alu_op=int(stage.op),
            imm=stage.imm,
        )

    def _result(self, value: TileBuffer) -> CopyNest:
        oc, y, x = self.tile
        lanes = self._lanes[2]
        lane = Loop("lane", lanes)
        _, blocks, height, width, *_ = self._shapes["res"]
        target = _sum(
            _over({self.batch: blocks * height * width * lanes, lane: 1}),
            oc.at(height * width * lanes),
            y.at(width * lanes),
            x.at(lanes),
        )
        return CopyNest(
            loops=_long([*self._inside, lane]),
            guards=self._guards,
            dst=self._dram("res"),
            dst_index=_linear(target),
            src=value,
            src_index=_linear(self._place | _over({lane: 1})),
            inside=None,
        )


# ----------------------------------------------------------------------- loops, expressions


def _looped(loops: Sequence[Loop], body: list[Node]) -> list[Node]:
    """Return `body` inside the loops that have more than one iteration."""
    for loop in reversed(_long(loops)):
        body = [LoopNode(loop, body)]
    return body


def _long(loops: Sequence[Loop]) -> list[Loop]:
    return [loop for loop in loops if loop.extent > 1]


def _tile(name: str, scope: str, scalars: int, dtype: str) -> TileBuffer:
    return TileBuffer(name, SCRATCHPAD_OF_SCOPE[scope], scalars, dtype)


def _over(steps: Mapping[Loop, int]) -> Linear:
    """Return a sum of steps along loops; those of one iteration have none."""
    return {loop.name: step for loop, step in steps.items() if loop.extent > 1}


def _times(linear: Linear, factor: int) -> Linear:
    return {name: step * factor for name, step in linear.items()}


def _sum(*parts: Linear) -> Linear:
    """Return the sum of parts; several may have a constant."""
    found: Linear = {}
    for part in parts:
        for name, step in part.items():
            found[name] = found.get(name, 0) + step
    return found


def _text(linear: Linear) -> str:
    terms = [f"{name} * {step}" if name else str(step) for name, step in linear.items()]
    return " + ".join(terms) or "0"


def _linear(linear: Linear) -> Expression:
    return Expression.written(_text(linear), [name for name in linear if name], True)


def _below(linear: Linear, limit: int) -> list[Expression]:
    return [Expression.written(f"{_text(linear)} < {limit}", linear, False)]
