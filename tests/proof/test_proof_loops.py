"""The loops of proofs in C++ beside their plain forms in NumPy."""

from __future__ import annotations

import contextlib
from dataclasses import fields as fields_of

import numpy as np
import pytest

import vtaops
from trials.mutations import KINDS, mutate
from trials.plain_proof import PlainFields, PlainNames
from trials.random_graphs import random_graph
from vtaops import VTAError, _proof
from vtaops.board.random_programs import random_program
from vtaops.proof.names import NameMachine, TileSteps
from vtaops.proof.terms import NOTHING, Fields, Scale, Terms


def test_loops_equal_those_of_numpy():
    rng, fields, plain = np.random.default_rng(0), Fields(0, 2), PlainFields(0, 2)
    values = rng.integers(-(1 << 53) + 1, 1 << 53, (4, 500)).astype(np.float64)
    members = fields.keys(fields.symbols((6, 300)).value)
    members[:, 2] = members[:, 4]
    members[:, rng.random((6, 300)) < 0.3] = NOTHING
    members[1, 0, :50], members[0, 1, :50] = members[1, 5, :50], members[0, 0, :50]
    fast, slow = (
        (each.centred(values.copy()), each.sets(members.copy())) for each in (fields, plain)
    )
    assert np.array_equal(fast[0], slow[0])
    assert np.array_equal(np.sort(fast[1][0], axis=0), np.sort(slow[1][0], axis=0))
    assert Terms(fast[0]).shape == (500,)
    part = values.T.copy().T  # in another order
    assert np.array_equal(fields.centred(part), fast[0])
    assert np.array_equal(part, fast[0])


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_keys_equal_those_of_numpy(pairs):
    fields, plain = Fields(pairs, pairs), PlainFields(pairs, pairs)
    for shape in ((1,), (5,), (3, 0), (2, 3, 4)):
        value = np.asarray(fields.symbols(shape).value)
        value.reshape(-1)[:3] = 0
        keys, tag = fields.keys(value), fields.tag("any")
        assert np.array_equal(keys, plain.keys(value))
        assert keys.shape == (pairs, *shape)
        before = keys.copy()
        assert np.array_equal(fields.scramble(keys, tag), plain.scramble(keys, tag))
        assert np.array_equal(keys, before)
    with pytest.raises(ValueError, match="shape"):
        _proof.make_keys(
            value.reshape(2 * pairs, -1), np.ones(pairs), np.empty((pairs, 24), np.uint64)
        )


def test_products_of_residues_equal_those_of_python():
    fields = Fields(0, 2)
    x, y = fields.symbols((2, 1, 7)).value, fields.symbols((3, 1)).value
    x[:, 0, 0, 0] = [prime // 2 for prime in fields.primes]
    y = y[:, None]
    made = fields.product(x, y)
    assert made.shape == (4, 2, 3, 7)
    assert np.array_equal(made, PlainFields(0, 2).product(x, y))
    for prime, plane, a, b in zip(fields.primes, made, *np.broadcast_arrays(x, y), strict=True):
        flat = zip(plane.flat, a.flat, b.flat, strict=True)
        assert all((int(c) - int(a) * int(b)) % prime == 0 for c, a, b in flat)
        assert np.abs(plane).max() <= prime / 2
    with pytest.raises(ValueError, match="shape"):
        _proof.multiply(x, x, np.empty((4, 2)), np.array(fields.primes, np.float64))


def delayed(rng, fields):
    """Return terms that delay shifts and clamps; some are numbers, or halves of a shift's unit."""
    shape = tuple(rng.integers(1, 6, size=3).tolist())
    parts = [shape[:k] + (1,) * (3 - k) for k in range(4)]

    def drawn(*values):
        return rng.choice(np.array(values), size=parts[rng.integers(4)])

    symbols = fields.symbols(shape).value
    shift, low, high = drawn(0, 0, 1, 2, 9, 40, 62), drawn(-np.inf, -128.0, 0.0), drawn(0.0, 127.0)
    numbers = fields.numbers(rng.integers(-300, 300, shape)).value
    halves = fields.power(numbers, np.maximum(shift - 1, 0))
    kind = rng.integers(3, size=shape)
    value = np.where(kind == 0, symbols, np.where(kind == 1, numbers, halves))
    middle, radius = (rng.integers(2**k, size=parts[2]).astype(np.float64) for k in (9, 12))
    return Terms(value, middle, radius, shift, low, high)


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_settled_terms_equal_those_of_numpy(pairs):
    rng, fields = np.random.default_rng(pairs), Fields(pairs, pairs)
    plain_fields = PlainFields(pairs, pairs)
    cases = [delayed(rng, fields) for _ in range(60)]
    chosen = [rng.random(x.shape) < 0.7 if k % 3 else True for k, x in enumerate(cases)]
    fast = [fields.forced(x, where) for x, where in zip(cases, chosen, strict=True)]
    plain = [plain_fields.forced(x, where) for x, where in zip(cases, chosen, strict=True)]
    assert plain_fields.hashed == fields.hashed > 0
    for x, one, other in zip(cases, fast, plain, strict=True):
        for name in vars(x):
            own, wanted = getattr(one, name), getattr(other, name)
            assert np.array_equal(own, wanted), name


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_requantized_terms_equal_those_of_numpy(pairs):
    rng, fields = np.random.default_rng(pairs), Fields(pairs, pairs)
    plain_fields = PlainFields(pairs, pairs)
    native = 0
    for _ in range(80):
        shape = tuple(rng.integers(1, 6, size=3).tolist())
        part = shape[:1] + (1,) * 2 if rng.random() < 0.5 else (1, *shape[1:])
        numbers = fields.numbers(rng.integers(-300, 300, shape)).value
        value = np.where(rng.random(shape) < 0.5, fields.symbols(shape).value, numbers)
        reach = rng.choice([0.0, 1000.0, 2.0**31])  # the last may wrap
        x = Terms(value, rng.integers(-99, 99, part).astype(float), reach, degree=3)
        bias = fields.numbers(rng.integers(-(1 << 20), 1 << 20, part)) if rng.integers(2) else None
        factors = rng.integers(rng.choice([2, 1 << 16]), size=part)  # 0 reaches no half a step
        shifts = rng.integers(rng.choice([1, 48]), size=part)
        zero_point, rounds = int(rng.integers(-128, 128)), bool(rng.integers(2))
        clip = (-128, 127) if rng.integers(2) else (int(rng.integers(-128, 1)), 0)
        about = x, factors, shifts, zero_point, clip, rounds, bias
        fast = fields.requantized(*about)
        plain = plain_fields.requantized(*about)
        scale = Scale(factors.astype(float), shifts, zero_point, rounds)
        native += fields._requantized_at_once(x, scale, clip, bias) is not None
        assert np.array_equal(fields.keys(fast.value), fields.keys(plain.value))
        assert (fast.middle, fast.radius, fast.degree) == (plain.middle, plain.radius, plain.degree)
        assert not np.any(fast.shift)
        assert not np.any(fast.bounded)
    assert native > 10


def test_terms_that_do_not_fit_their_loop_are_refused():
    fields = Fields(0, 2)
    value, ones = fields.symbols((3,)).value, np.ones(3)
    flags, tags, bits = ones > 0, ones.astype(np.uint64), ones.astype(np.int64)
    about = np.array(fields.primes, np.float64), fields._halves, 1.0
    with pytest.raises(IndexError):
        _proof.settle(value, value.copy(), flags, tags, bits * 63, -ones, ones, *about)
    parts, table = (ones, ones, ones, ones, bits), np.ones((4, 1))
    scale = table[0], table[0], table, tags[:1], -1.0, 1.0
    with pytest.raises(IndexError):
        _proof.requantize(value, value.copy(), *parts, *scale, *about)
    with pytest.raises(ValueError, match="shape"):
        _proof.requantize(value, value.copy(), ones, ones[:2], *parts[2:], *scale, *about)
    with pytest.raises(ValueError, match="shape"):
        _proof.requantize(value, value[:, :2].copy(), *parts, *scale, *about)
    first, alone = value[:1], (about[0][:1], *about[1:])
    with pytest.raises(ValueError, match="planes"):
        _proof.settle(first, first.copy(), flags, tags, bits, -ones, ones, *alone)
    with pytest.raises(ValueError, match="shape"):
        _proof.settle(value, value.copy(), flags[:2], tags, bits, -ones, ones, *about)
    with pytest.raises(ValueError, match="shape"):
        _proof.settle(value, value[:, :2].copy(), flags, tags, bits, -ones, ones, *about)


def names_of(machine):
    """Return everything that the walk of a program on names finds."""
    machine.run()
    steps = machine.steps
    what = [steps.operations[number] for number in steps.what]
    arrays = [getattr(steps, f.name) for f in fields_of(TileSteps)[2:]]
    arrays += [machine.levels, machine.step_of, machine.last_levels()]
    for written in (machine.held, machine.writers):
        arrays += [written[number] for number in sorted(written)]
    sums = np.flatnonzero([one == ("sum",) for one in what])
    for numbers in np.array_split(sums, 5):
        arrays += machine.products_of(numbers)
    return what, arrays


@pytest.mark.parametrize("seed", range(12))
def test_names_equal_those_of_numpy(seed):
    """Of networks, programs of random instructions, and mutants of them."""
    rng = np.random.default_rng(seed)
    config = vtaops.HardwareConfig.of(("tiny", "pynq", "pynq_ext")[seed % 3])
    model = vtaops.compile_model(random_graph(seed, free=seed % 2 == 1), config, prove=False)
    programs = [*model.programs, random_program(config, rng)]
    for kind in rng.choice(KINDS, 8):
        mutant = mutate(programs[int(rng.integers(len(programs)))], str(kind), rng)
        with contextlib.suppress(AttributeError, VTAError):  # no such mutant, or none that is safe
            mutant.program.verify()
            programs.append(mutant.program)
    for program in programs:
        what, arrays = names_of(NameMachine(program))
        wanted, plain = names_of(PlainNames(program))
        assert what == wanted
        assert all(np.array_equal(a, b) for a, b in zip(arrays, plain, strict=True))
