"""One GEMM, ALU, DEPTHWISE or POOL instruction."""

from __future__ import annotations

from vtaops.lowering.emission.microcode import MicroKernel
from vtaops.lowering.operation import Operation
from vtaops.lowering.tree.nodes import CallNest, TileOperand
from vtaops.machine.accesses import OFF
from vtaops.machine.isa import Alu, AluOp, Depthwise, Gemm, LoopInstruction, Pool, Post
from vtaops.schedule.calls import (
    GEMM_CALL,
    POOL_CALL,
    REQUANTIZE_CALL,
    RESET_CALL,
    WINDOW_CALL,
)

PRODUCTS = {GEMM_CALL: Gemm, WINDOW_CALL: Depthwise}
"""The instruction of each product."""


def roles(leaf: CallNest) -> tuple[TileOperand | None, TileOperand | None, TileOperand | None]:
    """Return the operands of the micro-op fields dst, src and wgt."""
    if leaf.call in PRODUCTS:
        acc, inp, wgt = leaf.operands
        return acc, inp, wgt
    if leaf.call == POOL_CALL:
        acc, inp = leaf.operands
        return acc, inp, None
    if leaf.call == REQUANTIZE_CALL:
        acc, _, *bias, scales = leaf.operands
        return acc, scales, bias[0] if bias else None
    # In place: an immediate operation and a reset read their destination.
    dst = leaf.operands[0]
    return dst, (leaf.operands[2] if len(leaf.operands) == 3 else dst), None


def operation_of(leaf: CallNest, kernel: MicroKernel, tiles: int = 1) -> Operation:
    """Return the instruction of a kernel; a maximum reads `tiles` neighbouring inputs."""
    post = _post(leaf) if leaf.call == REQUANTIZE_CALL else OFF
    instruction: LoopInstruction
    if leaf.call in PRODUCTS:
        instruction = PRODUCTS[leaf.call](**loop_fields(kernel, 3))
    elif leaf.call == POOL_CALL:
        instruction = Pool(**loop_fields(kernel, 2), tiles=tiles)
    elif leaf.call == RESET_CALL:
        instruction = Gemm(**loop_fields(kernel, 1), reset=1)
    else:
        in_place = int(post.enable or leaf.imm is not None)
        alu_op = AluOp.ADD if leaf.alu_op is None else leaf.alu_op
        instruction = Alu(
            **loop_fields(kernel, 2), alu_op=alu_op, use_imm=in_place, imm=leaf.imm or 0
        )
    return Operation(instruction, kernel.micro_ops, post)


def _post(leaf: CallNest) -> Post:
    """Return the POST of a requantization; its rows are the sources of the micro-ops."""
    scaling = dict(zip(("zero_point", "low", "high", "fine"), leaf.scaling, strict=True))
    use_bias = int(len(leaf.operands) > 3)
    return Post(enable=1, use_bias=use_bias, use_scale=1, round_half=1, **scaling)


def loop_fields(kernel: MicroKernel, operands: int) -> dict[str, int]:
    """Return the hardware-loop fields, with the strides of the first `operands` operands."""
    fields = {
        "uop_end": len(kernel.micro_ops),
        "iter_out": kernel.outer.extent,
        "iter_in": kernel.inner.extent,
    }
    for column, operand in enumerate(("dst", "src", "wgt")[:operands]):
        fields[f"{operand}_factor_out"] = kernel.outer.strides[column]
        fields[f"{operand}_factor_in"] = kernel.inner.strides[column]
    return fields
