"""Proofs with folds and in C++ beside their plain forms: NumPy, and all products expanded."""

from __future__ import annotations

import contextlib
from dataclasses import fields as fields_of
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import vtaops
from trials.mutations import KINDS, mutate
from trials.plain_proof import PlainFields, PlainFolds, PlainNames
from trials.random_graphs import random_graph
from vtaops import VTAError, _proof
from vtaops.board.random_programs import random_program
from vtaops.errors import ProgramError
from vtaops.graph import (
    Convolution,
    Dense,
    Graph,
    Requantization,
    Reshape,
    TransposedConvolution,
)
from vtaops.proof.folds import Folds, folded_sums
from vtaops.proof.names import NameMachine, TileSteps
from vtaops.proof.prover import _differences, _executed, proven
from vtaops.proof.sums import convolve
from vtaops.proof.tasks import launch_task
from vtaops.proof.terms import NOTHING, Fields, Scale, Terms


def differing(task, *, folds):
    """Return which elements of each result differ from the definition, and what is folded."""
    fields = Fields(1, 2)
    machine, wanted = _executed(task, fields, folds)
    return {
        name: _differences(task, name, value, machine) for name, value in wanted.items()
    }, fields.folds


def tasks_of(model):
    return [launch_task(model.graph, region) for region in model.regions]


def drawn_weights(rng, *shape):
    return rng.integers(-128, 128, shape).astype(np.int8)


def layers(zero_point=3, batch=2):
    """Layers with channels that fill no tile, groups, borders, strides and a transposed one."""
    rng = np.random.default_rng(zero_point)
    graph = Graph("layers")
    x = graph.input("x", (batch, 24, 7, 6), zero_point=zero_point)
    rounding = partial(Requantization, 1, 10)
    own = partial(drawn_weights, rng)
    x = graph.add(Convolution(own(40, 24, 3, 3), None, rounding(), padding=(1, 0, 1, 2)), x)
    x = graph.add(Convolution(own(36, 20, 1, 1), None, rounding(-4), groups=2), x)
    x = graph.add(Convolution(own(17, 36, 3, 2), None, rounding(), strides=(2, 1)), x)
    x = graph.add(TransposedConvolution(own(17, 18, 2, 2), None, rounding(), strides=(2, 2)), x)
    graph.output(x)
    return graph


@pytest.mark.parametrize("zero_point", [0, 3])
@pytest.mark.parametrize("config", ["pynq", "pynq_ext", "tiny"])
def test_layers_are_proven_with_folds(config, zero_point):
    """The first attempt suffices: program and definition fold the same products."""
    model = vtaops.compile_model(layers(zero_point), config)
    folded = [differing(task, folds=True) for task in tasks_of(model)]
    assert not any(d.any() for found, _ in folded for d in found.values())
    assert any(folds is not None and folds.are_folded().any() for _, folds in folded)
    assert all(proven(task, None, None, folds=False).complete for task in tasks_of(model))
    for about in ({"against": object()}, {"capabilities": "fsim"}):
        with pytest.raises(ProgramError, match="its own graph"):
            vtaops.prove(model, **about)


@pytest.mark.parametrize("seed", range(6))
def test_what_folds_prove_of_mutants_is_proven_without(seed):
    rng = np.random.default_rng(seed)
    graph = layers(seed) if seed < 2 else random_graph(seed, free=seed % 2 == 1)
    model = vtaops.compile_model(graph, "pynq_ext" if seed % 2 else "pynq")
    compared = 0
    for task in tasks_of(model):
        for _ in range(12):
            mutant = mutate(task.program, str(rng.choice(KINDS)), rng)
            try:
                mutant.program.verify()
            except (AttributeError, VTAError):  # no such mutant, or none that is safe
                continue
            other = replace(task, program=mutant.program)
            found, _ = differing(other, folds=True)
            plain, _ = differing(other, folds=False)
            assert all((found[name] | ~plain[name]).all() for name in plain), mutant.change
            compared += 1
    assert compared or not model.regions


@pytest.mark.parametrize("seed", range(4))
def test_any_changed_weight_changes_folds(seed):
    rng = np.random.default_rng(seed)
    fields = Fields(seed, 2)
    weights = drawn_weights(rng, 20, 18, 2, 2)
    other = weights.copy()
    place = tuple(rng.integers(weights.shape))
    other[place] ^= 1
    window = vtaops.base.window.Window.of((2, 2), (1, 1), (1, 0, 1, 0))
    x = fields.symbols((1, 18, 4, 4))
    fields.folds = _AllFolds(fields)
    own, changed = (convolve(fields, x, w, window).value for w in (weights, other))
    differs = (own != changed).any(axis=0)[0]
    assert differs[place[0] // 16 * 16 : place[0] // 16 * 16 + 16][:4].any()
    plain = Fields(seed, 2)
    a, b = (convolve(plain, x, w, window).value for w in (weights, other))
    assert (differs | ~(a != b).any(axis=0)[0]).all()


class _AllFolds(Folds):
    """Folds every tile."""

    def __init__(self, fields):
        super().__init__(fields, (16, 16), np.zeros((1, 16, 16), np.int8))

    def fold(self, tiles):
        return True


def test_layers_of_other_tiles_are_not_folded():
    fields = Fields(0, 2)
    folds = Folds(fields, (16, 16), np.ones((1, 16, 16), np.int8))
    image, taps = fields.symbols((1, 16, 1, 1)).value, [(..., slice(0, 1), slice(0, 1))]
    weights = np.full((16, 16, 1, 1), 2, np.int8)
    assert folded_sums(folds, image, weights, 1, taps, 0, 1) is None
    found = folded_sums(folds, image, weights // 2, 1, taps, 0, 1)
    assert found.shape == (4, 1, 16, 1, 1)
    assert fields.degree == 4


def test_sums_of_the_program_equal_those_of_numpy():
    rng, fields = np.random.default_rng(0), Fields(0, 2)
    tiles = rng.integers(-128, 128, (9, 16, 16)).astype(np.int8)
    tiles[::2, :, 11:] = 0
    folds = Folds(fields, (16, 16), tiles)
    x = fields.symbols((5, 2, 16))
    sums, places, which = (rng.integers(most, size=400) for most in (3, 5, 9))
    sums, places, which = (part.astype(np.int32) for part in (sums, places, which))
    kinds = rng.integers(8, size=400).astype(np.int32)  # parts of tiles, and names without folds
    codes = 4 * np.where(kinds == 1, 9, which) + (kinds == 2)
    row = np.where(kinds == 3, 5, places)
    folded = np.flatnonzero((kinds < 1) | (kinds > 3))
    names = (
        np.append(np.arange(5), -1).astype(np.int32),
        np.append(np.arange(9), -1).astype(np.int32),
    )
    value, total, reach, rest = folds.sums((sums, row, codes), *names, x, 4)
    assert np.array_equal(np.flatnonzero(~rest), folded)
    sums, places, which = sums[folded], places[folded], which[folded]
    wanted = np.zeros((4, 4, 2), object)
    for number, place, tile in zip(sums, places, which, strict=True):
        rows = folds.rows(x.value, folds.held.columns[[tile]])[:, place, :, 0]
        wanted[:, number] += rows.astype(int) * folds.held.value[tile, :, None].astype(int)
    primes = np.array(fields.primes)[:, None, None]
    centred = (wanted + primes // 2) % primes - primes // 2
    assert np.array_equal(value, folds.spread(centred.astype(np.float64), 3, 1))
    for found, part in ((total, tiles), (reach, np.abs(tiles, dtype=np.int16))):
        expected = np.zeros((4, 16))
        np.add.at(expected, sums, part.sum(axis=2)[which])
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("shape", [(16, 16), (4, 2), (32, 64)])
def test_sums_over_tiles_equal_those_of_numpy(shape):
    rng, fields = np.random.default_rng(shape[0]), Fields(shape[0], 2)
    tiles = rng.integers(-128, 128, (300, *shape)).astype(np.int8)
    tiles[0], tiles[1], tiles[2::3, :, shape[1] // 2 :] = -128, 127, 0
    folds = Folds(fields, shape, tiles)
    fast, plain = folds.held, PlainFolds.tiles(folds, tiles)
    assert all(np.array_equal(getattr(fast, name), part) for name, part in vars(plain).items())
    exact = tiles[0].reshape(-1).astype(object) @ folds._tiles.T.astype(object)
    assert [x % p for x, p in zip(exact, fields.primes, strict=True)] == fast.value[0].tolist()
    wrong = fast.value, fast.ranges, fast.columns
    with pytest.raises(ValueError, match="shape"):
        _proof.sum_tiles(tiles, folds._tiles[:, 1:], np.ones(4), *wrong)


def test_sums_too_long_for_their_ranges_are_not_folded():
    fields, zero = Fields(0, 2), np.zeros(1, np.int32)
    folds = Folds(fields, (16, 16), np.full((1, 16, 16), -128, np.int8))
    x = fields.symbols((1, 1, 16))
    for count, folded in ((1 << 20) - 1, True), (1 << 20, False):
        found = folds.sums([zero.repeat(count)] * 3, zero, zero, x, 1)
        assert found[3].all() != folded
        assert found[1].tolist() == [[-count * 2048] * 16 if folded else [0] * 16]


def test_indices_outside_their_tables_are_refused():
    fields = Fields(0, 2)
    folds = Folds(fields, (16, 16), np.ones((1, 16, 16), np.int8))
    x, one = fields.symbols((1, 1, 16)), np.zeros(1, np.int32)
    for sums, sources in ((one + 1, one), (one - 1, one), (one, one + 1)):
        with pytest.raises(IndexError):
            folds.sums((sums, sources, one), one, one, x, 1)
    for places, held in ((one + 1, one), (one, one + 1)):
        with pytest.raises(IndexError):
            folds.sums((one, one, one), places, held, x, 1)
    with pytest.raises(ValueError, match="length"):
        folds.sums((np.zeros(2, np.int32), one, one), one, one, x, 1)


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


@pytest.mark.parametrize("flat", [(24, 3, 2), (5, 2, 2), (40, 1, 1)])
def test_matrices_of_flattened_images_fold(flat):
    rng, columns = np.random.default_rng(0), int(np.prod(flat))
    graph = Graph("flattened")
    x = graph.input("x", (2, 16, *flat[1:]), zero_point=3)
    weight = drawn_weights(rng, flat[0], 16, 1, 1)
    x = graph.add(Convolution(weight, None, Requantization(1, 10)), x)
    x = graph.add(Reshape((2, columns)), x)
    dense = Dense(drawn_weights(rng, 20, columns), None, Requantization(1, 10))
    graph.output(graph.add(dense, x))
    (task,) = tasks_of(vtaops.compile_model(graph, "pynq"))
    found, folds = differing(task, folds=True)
    assert not any(d.any() for d in found.values())
    assert folds.step(dense.weight) == flat[1] * flat[2]
    assert folds.are_folded().any()
