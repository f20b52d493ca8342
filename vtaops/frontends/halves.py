"""Sums of two tensors that lose one bit, with halves to even.

Hardware rounds halves up. With powers of two, a sum on a grid twice as coarse as one operand's has
a half in every second result: all of these would move up, a quarter of a step on average, and a
chain of residuals adds the quarters up. Two roundings of a quarter of the sum, one with halves up,
one with halves down, add up to half of the sum with halves to even::

    v/2, halves to even = ((v + 2) >> 2) + ((v + 1) >> 2) = up(v/4) - up(-v/4)
"""

from __future__ import annotations

from vtaops.frontends.steps import Source, step
from vtaops.graph.operators import Add
from vtaops.graph.requantization import Requantization


def total(op: Add, *operands: Source, scale: float) -> Source:
    """Return a sum; as three if it loses one bit and its quarters fit int8."""
    plain = step(op, *operands, scale=scale)
    if op.requantization.right_shift != 1:
        return plain
    reaches = [
        sorted(factor * (end - source.tensor.zero_point) for end in (-128, 127))
        for factor, source in zip(op.factors, operands, strict=True)
    ]
    low, high = (sum(ends) for ends in zip(*reaches, strict=True))
    zero = -((low + high) // 8)
    if (high + 2) // 4 + zero > 127 or (low + 1) // 4 + zero < -127:
        return plain
    quarters = [
        step(
            Add((sign * op.factors[0], sign * op.factors[1]), Requantization(1, 2, sign * zero)),
            *operands,
            scale=scale,
        )
        for sign in (1, -1)
    ]
    whole = Requantization(1, 0, op.requantization.zero_point, op.requantization.clip)
    return step(Add((1, -1), whole), *quarters, scale=scale)
