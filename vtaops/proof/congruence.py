"""Programs that compute the same because they do the same to the same tiles.

`vtaops.prove` compares a program with its definition scalar by scalar. Two programs for the same
buffers are mostly far more alike: one loads earlier, takes other places, walks its loops in another
order. This file gives each program a *form*: equal forms mean equal results, for every input. A
judge that has proven one program accepts every other one of the same form.

**Theorem.** Let two programs with the same buffers verify, and let their forms be equal. Then,
except with a probability of 2**-56 for each pair of different terms, their outputs are equal for
all contents of the buffers that the host writes.

*Proof.* Execute both on names of tiles (`names`). Let each tile that the host writes be a variable.
A tile of an accumulator is then a sum, with integer coefficients, of variables, of products of an
input tile with a tile of weights, and of results of other operations. Such sums that are equal as
expressions are equal for all inputs, as matrices modulo 2**32, whatever the other operations mean:
they are uninterpreted functions of whole tiles, and so are the casts that make operands of products
out of results. Coefficients count modulo 2**32. Expressions are evaluated at a random point of the
integers modulo 2**64, in two independent planes: variables, operands of products and results of
functions are random numbers, which depend on the operands by a keyed hash. In a product, inputs and
weights are hashed with different keys: monomials of different pairs are therefore different. Let
two expressions differ, with the coefficient ``2**k * odd``, k below 32, of a product. What its
input is multiplied by in the difference is a multiple of ``2**(k + s)`` with a probability of at
most ``2**-s``, and then the input makes the difference 0 with a probability of
``2**-(64 - k - s)``. The sum over s is below ``2**-28``, in two planes ``2**-56``.

No law of integers but those of sums holds here. Unequal forms say nothing.

"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.shapes import Ints
from vtaops.machine.alu import AluOp
from vtaops.program import Program
from vtaops.proof.names import NameMachine, Names, alike

Words = npt.NDArray[np.uint64]
"""Values of tiles, (planes, tiles)."""

PLANES = 2
_MULTIPLIERS = np.array([[0xBF58476D1CE4E5B9], [0x94D049BB133111EB]], np.uint64)


class Forms:
    """Forms of programs, with keys drawn at random: forms of one object can be compared.

    Parameters
    ----------
    key : bytes
        Random bytes that nobody who writes programs knows.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._given: dict[Any, Words] = {}

    def of(self, program: Program) -> bytes:
        """Return the form of a verified program: a digest of what its results are made of."""
        names = NameMachine(program)
        names.run()
        values = self._values(names)
        digest = hashlib.sha256(self._key)
        for number, buffer in enumerate(program.buffers):
            if buffer in program.outputs:
                digest.update(values[:, names.held[number]].tobytes())
        return digest.digest()

    def _values(self, names: NameMachine) -> Words:
        values, steps = np.zeros((PLANES, len(names.step_of)), np.uint64), names.steps
        for numbers in alike(names.levels, steps.what, steps.arity):
            what, made = steps.operations[steps.what[numbers[0]]], steps.names_of(numbers)
            if what == ("sum",):
                self._add_sums(values, names, numbers, made)
            elif what[0] == "given":
                values[:, made] = self._variables(what, len(made))
            elif what[0] != "zeros":
                values[:, made] = self._result(what, values, steps.operands_of(numbers), len(made))
        return values

    def _variables(self, what: tuple[Any, ...], count: int) -> Words:
        known = self._given.get((what, count))
        if known is None:
            index = np.arange(1, count + 1, dtype=np.uint64)
            known = self._given[what, count] = self._hash(what, np.stack([index] * PLANES))
        return known

    def _result(self, what: tuple[Any, ...], values: Words, read: list[Names], count: int) -> Words:
        operands = [values[:, part.reshape(count, -1).T] for part in read]
        if what == ("alu", AluOp.ADD, None):
            total: Words = operands[0][:, 0] + operands[1][:, 0]
            return total
        digest = np.zeros((PLANES, count), np.uint64)
        for number, operand in enumerate(operands):
            for row in range(operand.shape[1]):
                digest = self._hash((what, number, row), operand[:, row] + digest * _ODD)
        return digest if operands else self._variables(what, count)

    def _add_sums(self, values: Words, names: NameMachine, numbers: Ints, made: Ints) -> None:
        values[:, made] = values[:, names.steps.operands_of(numbers)[0]]
        sums, sources, weights = names.products_of(numbers)
        if not len(sums):
            return
        inputs, input_of = self._factors(values, sources << 2, "input")
        tiles, tile_of = self._factors(values, weights, "weight")
        for plane in range(PLANES):
            products = inputs[plane].take(input_of) * tiles[plane].take(tile_of)
            np.add.at(values[plane], made[sums], products)

    def _factors(self, values: Words, codes: Ints, tag: str) -> tuple[Words, Ints]:
        """Return different operands of products, and which of them each code is.

        A code is four times a name, plus the tile of a window.
        """
        least, shift = int(codes.min()), 0 if (codes & 3).any() else 2
        used = np.arange(least, int(codes.max()) + 1, 1 << shift)
        own, part = values[:, used >> 2], (used & 3).astype(np.uint64)
        hashed = self._hash((tag,), own + part * _ODD)
        hashed[:, ~own.any(axis=0)] = 0  # the zero tile
        return hashed, (codes - least) >> shift

    def _hash(self, tag: Any, values: Words) -> Words:
        """Return random numbers that depend on a tag and on both planes of values."""
        seed = hashlib.blake2b(repr(tag).encode(), key=self._key[:64], digest_size=64).digest()
        keys = np.frombuffer(seed, np.uint64).reshape(4, PLANES, 1)
        other = values[::-1]
        mixed = (values ^ keys[0]) * (keys[1] | _ONE) + (other ^ keys[2]) * (keys[3] | _ONE)
        for shift, factor in ((30, _MULTIPLIERS[0]), (27, _MULTIPLIERS[1]), (31, _MULTIPLIERS[0])):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
            mixed += other * keys[1]
        final: Words = mixed ^ (mixed >> np.uint64(32))
        return final


_ONE = np.uint64(1)
_ODD = np.uint64(0x9E3779B97F4A7C15)
