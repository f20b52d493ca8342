"""Stacked matrix products: the kernel of one product in a loop over the stack."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_mutate

from vtaops.kernels.cpu.schedule.prologue import loop, rebuilt, redirected
from vtaops.kernels.cpu.schedule.tiles import PARALLEL_FLOPS
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.matmul import StackedMatmulOp


def of_stack(schedule: Callable[..., Any]) -> Callable[..., Any]:
    """Return the schedule of a `StackedMatmulOp` from that of its product."""

    @wraps(schedule)
    def around(op: StackedMatmulOp, target: CpuTarget) -> Any:
        main = schedule(op.op, target).mod["main"]
        at = tirx.Var("matrix", "int32")
        arguments, stacks = [], {}
        for spec, buffer in zip(op.arguments, main.params, strict=True):
            arguments.append(buffer)
            if len(spec.shape) > len(buffer.shape):
                arguments[-1] = stacks[buffer] = tirx.decl_buffer(
                    spec.shape, buffer.dtype, spec.name, data_alignment=buffer.data_alignment
                )
        worth, alone = op.flops >= PARALLEL_FLOPS, op.op.flops < PARALLEL_FLOPS
        across = worth and (alone or op.count >= target.cores)
        body = redirected(main.body.block.body, stacks, at=lambda index: [at, *index])
        body = _on_one_thread(body) if across else body
        return rebuilt(main, arguments, [_each(at, op.count, body, across)], [])

    return around


def _each(at: Any, count: int, body: Any, across: bool) -> Any:
    """Return the loop over the matrices, a block for each: blocks see no loop around them."""
    axis = tirx.IterVar(ir.Range(0, count), at, tirx.IterVar.DataPar)
    block = SBlock([axis], reads=[], writes=[], name_hint="matrix", body=body)
    index = tirx.Var("index", "int32")
    realize = SBlockRealize([index], tirx.const(True, "bool"), block)
    return loop(index, count, realize, "PARALLEL" if across else "SERIAL")


def _on_one_thread(body: Any) -> Any:
    """Replace parallel loops by serial ones."""

    def serial(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if node.kind != tirx.ForKind.PARALLEL:
            return node
        return tirx.For(node.loop_var, node.min, node.extent, tirx.ForKind.SERIAL, node.body)

    return structural_mutate(body, ((tirx.For, serial),))
