"""Products in lanes: float32 by multiply-adds, bytes by the dot-product instruction u8 x s8 -> s32.

The instruction is vpdpbusd (VNNI) on x86-64 and usdot (i8mm) on aarch64. Other x86-64 processors
widen bytes to 16 bits and multiply by pmaddwd, which is exact; their byte instruction is not.

It multiplies four unsigned by four signed bytes per int32 lane. Signed data are shifted by 128 when
packed, and 128 times the sum of the weights is subtracted at the end. Without any of these, LLVM
compiles the same loops: slower, equal results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial, reduce
from operator import add
from typing import Any

from tvm import tirx

from vtaops.kernels.build import register_intrinsic
from vtaops.kernels.cpu.schedule.rewrites import Prologue
from vtaops.kernels.cpu.schedule.tiles import WIDEST
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, largest_divisor

_OFFSET = 128

_ADDENDS = 8
"""Maximum weights that are added in 16 bits, which takes half of the instructions."""

_HEAD = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def dot(A: T.Buffer((4,), "uint8", offset_factor=1, align=1),
        B: T.Buffer(({lanes}, 4), "int8", offset_factor=1, align=1),
        C: T.Buffer(({lanes},), "int32", offset_factor=1, align=4)) -> None:
    with T.sblock("root"):
        T.reads(C[0:{lanes}], A[0:4], B[0:{lanes}, 0:4])
        T.writes(C[0:{lanes}])
"""
"""Signature, reads and writes of the product: shared by description and implementation."""

_LOOPS = """        for i in T.serial({lanes}):
            for k in T.serial(4):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")
"""

_VECTOR = "        C[T.ramp(T.int32(0), 1, {lanes})] = vector(A, B, C)"

_INSTRUCTIONS = {
    ("vpdpbusd", 16): "llvm.x86.avx512.vpdpbusd.512",
    ("vpdpbusd", 8): "llvm.x86.avx512.vpdpbusd.256",
    ("usdot", 4): "llvm.aarch64.neon.usdot.v4i32.v16i8",
    ("pmaddwd", 16): "llvm.x86.avx512.pmaddw.d.512",
    ("pmaddwd", 8): "llvm.x86.avx2.pmadd.wd",
}
"""LLVM's names of the instructions, by int32 lanes."""


@cache
def dot_intrinsic(instruction: str, lanes: int) -> str:
    """Register the dot product for `lanes` int32 sums; return its name."""
    name = f"vtaops_dot_u8s8_{instruction}_{lanes}"
    meaning, code = ((_HEAD + body).format(lanes=lanes) for body in (_LOOPS, _VECTOR))
    return register_intrinsic(name, meaning, code, vector=partial(_vector, instruction, lanes))


def _vector(instruction: str, lanes: int, data: Any, weights: Any, sums: Any) -> Expr:
    """Return a vector of sums with its products added.

    A named variable in TVMScript would be a memory location, for which LLVM spilled sums.
    """
    total = sums.vload([0], f"int32x{lanes}")
    four = tirx.Broadcast(tirx.reinterpret("int32", data.vload([0], "uint8x4")), lanes)
    weight = weights.vload([0, 0], f"int8x{4 * lanes}")
    name = _INSTRUCTIONS[instruction, lanes]
    product = partial(tirx.call_llvm_pure_intrin, f"int32x{lanes}", name)
    if instruction != "pmaddwd":
        return product(total, tirx.reinterpret(f"uint8x{4 * lanes}", four), weight)
    # Bytes 0 and 2 of each four, then bytes 1 and 3: nothing crosses lanes.
    pairs = 2 * lanes
    low = tirx.reinterpret(f"uint16x{pairs}", four) & _all(255, "uint16", pairs)
    high = tirx.reinterpret(f"uint16x{pairs}", four) >> _all(8, "uint16", pairs)
    low, high = (tirx.reinterpret(f"int16x{pairs}", half) for half in (low, high))
    weight, eight = tirx.reinterpret(f"int16x{pairs}", weight), _all(8, "int16", pairs)
    return total + product(low, weight << eight >> eight) + product(high, weight >> eight)


def _all(value: int, dtype: str, lanes: int) -> Expr:
    return tirx.Broadcast(tirx.const(value, dtype), lanes)


@dataclass(frozen=True)
class Products:
    """A processor's method to multiply data of a dtype by weights and accumulate.

    Attributes
    ----------
    group : int
        Neighbouring products added to a sum at once: 1, for bytes 4.
    lanes : int
        Sums per vector.
    sums : int
        Vector registers available for a tile of sums.
    intrinsic : str
        Intrinsic for a vector of sums, a group each; empty: LLVM vectorizes.
    widest : int
        Maximum vectors of sums that share an element of data.
    """

    group: int
    lanes: int
    sums: int
    intrinsic: str = ""
    widest: int = WIDEST

    @classmethod
    def of(cls, dtype: str, target: CpuTarget) -> Products:
        """Return the products for data of a dtype."""
        if dtype not in ("int8", "uint8"):
            widest = 1 if target.narrow_tiles else WIDEST
            return cls(1, target.lanes, target.accumulators, widest=widest)
        instruction, lanes = target.dot_instruction, target.dot_lanes
        halves = 4 if instruction == "pmaddwd" else 0  # registers for the operands' halves
        name = dot_intrinsic(instruction, lanes) if lanes else ""
        return cls(4, lanes or target.lanes, target.accumulators - halves, name)


def unsigned(value: Expr, dtype: str) -> Expr:
    """Shift int8 to uint8 by 128; return data of other dtypes unchanged."""
    if dtype != "int8":
        return value
    return value.astype("uint8") ^ tirx.const(_OFFSET, "uint8")  # in bytes, 64 to a vector


def unshifted(
    ahead: Prologue,
    dtype: str,
    channels: int,
    weight: Callable[..., Expr],
    over: tuple[int, ...],
    along: bool,
) -> Callable[..., Expr]:
    """Return the epilogue for sums of data that `unsigned` may have shifted.

    ``weight(vectors, channel, *steps)`` returns a channel's weight; see `Prologue.vector`.
    """
    epilogue: Callable[..., Expr] = ahead.epilogue()
    if dtype != "int8":
        return epilogue
    parts = largest_divisor(over[0], _ADDENDS)
    length = over[0] // parts

    def added(v: Any, channel: Expr, first: Expr, *steps: Expr) -> Expr:
        at = (part * length + first for part in range(parts))
        weights = (weight(v, channel, step, *steps).astype("int16") for step in at)
        return reduce(add, weights).astype("int32")

    summed = (length, *over[1:])
    sums = ahead.vector("correction", channels, "int32", added, summed, along=along)
    offset = tirx.const(_OFFSET, "int32")
    return lambda value, channel, *index: epilogue(value - sums[channel] * offset, channel, *index)
