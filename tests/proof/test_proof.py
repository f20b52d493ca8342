"""The proof that programs compute what they declare: what holds, what is refuted, certificates."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import vtaops
from trials import random_cases
from trials.mutations import mutate
from trials.own_schedules import described_program
from trials.plain_integers import Integers
from trials.random_graphs import random_graph
from vtaops import HardwareConfig, VTAError
from vtaops.errors import NotEquivalent, ProgramError
from vtaops.graph import (
    Add,
    Convolution,
    Graph,
    MaxPool,
    Requantization,
    TransposedConvolution,
    evaluate,
)
from vtaops.machine.config import Memory
from vtaops.machine.isa import Alu, AluOp, Encoding, Gemm, Load, words_to_array
from vtaops.model import Region
from vtaops.ops.reference import evaluate as evaluate_operator
from vtaops.ops.reference import random_arguments
from vtaops.program import Role
from vtaops.proof import certified, rechecked
from vtaops.proof.machine import TermMachine
from vtaops.proof.networks import meaning
from vtaops.proof.operators import result_of
from vtaops.proof.prover import FEW, proven
from vtaops.proof.tasks import operator_task
from vtaops.proof.terms import Fields, Terms, is_prime

FAMILIES = {
    "conv2d": random_cases.random_conv2d,
    "gemm": random_cases.random_gemm,
    "scaled": random_cases.random_scaled,
    **random_cases.FAMILIES,
}
CONV = vtaops.Conv2d(
    in_channels=20, out_channels=24, height=6, width=5, kernel=3, padding=1, bias=True
)


def configured(name: str, *extensions: str) -> HardwareConfig:
    needed = random_cases.with_needs(*extensions)
    return replace(HardwareConfig.load(name), extensions=needed)


def changed(program, number, **fields):
    """Return a program with some fields of one instruction replaced."""
    instruction = replace(program.decode()[number], **fields)
    words = program.instructions.copy()
    words[number] = words_to_array([Encoding.of(program.config).encode(instruction)])[0]
    return replace(program, instructions=words)


def refutation(program):
    """Return why a program does not compute what it declares; None if it does not verify."""
    try:
        program.prove()
    except NotEquivalent as error:
        return error
    except VTAError:
        return None
    return None


# ------------------------------------------------------------------------ what is proven


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_random_operators_are_proven(family, seed):
    rng = random.Random(f"{family}{seed}")
    base = rng.choice(random_cases.CONFIGS)
    needs = ["post"] if family == "scaled" else []
    config = configured(base, *random_cases.random_extensions(rng, seed / 2, *needs))
    op = FAMILIES[family](rng)
    try:
        program = vtaops.compile(op, config, capabilities="fsim")
    except VTAError:
        pytest.skip("no tile fits")
    proof = program.prove()
    assert proof.complete
    assert proof.error < 2.0**-20


@pytest.mark.parametrize("seed", range(6))
def test_random_networks_are_proven(seed):
    free = seed % 2 == 1
    config = "pynq_ext" if seed % 4 == 1 else "pynq"  # without scales, weights hold them
    model = vtaops.compile_model(random_graph(seed, free=free), config)
    proof = model.prove()
    assert proof.complete
    assert len(proof.certificate["parts"]) == len(model.regions)


@pytest.mark.parametrize("kernel", [2, 4, 5])
def test_maxima_of_windows_in_parts_are_proven(kernel):
    pool = vtaops.MaxPool2d(channels=20, height=9, width=8, kernel=kernel, strides=2)
    assert vtaops.compile(pool, configured("pynq", "pool", "overwrite")).prove().complete


@pytest.mark.parametrize("padding", [(2, 1, 1, 0), (0, 3, 0, 1), (1, 0, 3, 2)])
def test_windows_that_lie_in_the_padding_are_proven(padding):
    op = vtaops.Conv2d(
        in_channels=3,
        out_channels=4,
        height=4,
        width=7,
        kernel=(2, 1),
        padding=padding,
        bias=True,
        shift=3,
        clip=(0, 127),
        residual_scale=-1,
        residual_clip=(-30, 0),
        fold_columns=True,
    )
    assert vtaops.compile(op, configured("pynq", "post", "overwrite")).prove().complete


@pytest.mark.parametrize("seed", range(4))
def test_schedules_of_ones_own_are_proven_against_a_description(seed):
    rng = random.Random(seed)
    op, program = described_program(rng, HardwareConfig.load(rng.choice(["tiny", "pynq"])))
    assert program.prove().unproven  # its record does not say
    assert program.prove(against=op).complete
    with pytest.raises(NotEquivalent) as refused:
        program.prove(against=replace(op, shift=op.shift - 1, clip=(-128, 127)))
    assert sorted(refused.value.counterexample) == sorted(
        ["data", "kernel", *(["bias"] if op.bias else [])]
    )


def test_constants_that_one_pair_of_fields_does_not_know_are_proven_in_two():
    """Windows of padding alone: their mean is 0, whether the compiler clips it or not."""
    op = vtaops.AvgPool2d(channels=8, height=1, width=1, kernel=2, strides=4, padding=2)
    program = vtaops.compile(op, "tiny")
    clips = [k for k, i in enumerate(program) if isinstance(i, Alu) and i.alu_op == AluOp.MIN]
    other = changed(program, clips[0], imm=0)
    assert len(program.prove().primes) == 2
    assert len(other.prove().primes) == 4


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
def test_layers_of_every_shape_are_proven(config, zero_point):
    model = vtaops.compile_model(layers(zero_point), config)
    assert model.prove().complete
    for about in ({"against": object()}, {"capabilities": "fsim"}):
        with pytest.raises(ProgramError, match="its own graph"):
            vtaops.prove(model, **about)


class Opaque(Fields):
    """Prime fields in which only operations without laws can be used."""

    sum = product_of = times = shifted = clamped = None


def test_an_operation_of_the_alu_that_the_proof_does_not_know_is_opaque():
    """It is a function of both operands, of which no law is known: no sum and no product."""
    novel = int.__new__(AluOp, 7)
    novel._name_, novel._value_ = "NOVEL", 7
    fields = Fields(0, 2)
    x, y = (fields.symbols((3, 1, 16)) for _ in range(2))
    machine = TermMachine.__new__(TermMachine)
    machine.fields = Opaque(0, 2)
    one, other = (machine._alu(novel, None, *pair).value for pair in ((x, y), (y, x)))
    assert (machine._alu(novel, None, x, y).value == one).all()
    assert not (one == other).any()
    assert not (machine._alu(novel, 3, x).value == machine._alu(novel, 4, x).value).any()
    known = [fields.sum(x, y).value, fields.product_of(x, y).value, x.value, y.value]
    assert not any((one == value).any() for value in known)


def test_networks_have_a_small_probability_of_error(residual):
    assert vtaops.compile_model(residual, "pynq").prove().error < 2.0**-54


def test_pairs_of_fields_multiply_the_probability_of_error():
    task = operator_task(vtaops.compile(CONV, "pynq"), None)
    once, twice, thrice = (proven(task, pairs=pairs) for pairs in (1, 2, 3))
    assert twice.error == pytest.approx(once.error**2 / FEW)
    assert thrice.error == pytest.approx(once.error**3 / FEW**2)
    assert [len(set(proof.primes)) for proof in (once, twice, thrice)] == [2, 4, 6]
    assert all(is_prime(prime) for prime in twice.primes)


# --------------------------------------------------- the definitions mean what they say


@pytest.mark.parametrize("family", FAMILIES)
def test_definitions_equal_the_reference_on_numbers(family):
    rng = random.Random(family)
    for seed in range(8):
        op = FAMILIES[family](rng)
        arrays = random_arguments(op, np.random.default_rng(seed))
        names = [b.name for b in op.buffers(HardwareConfig()) if b.role in _GIVEN]
        given = {n: _terms(a) for n, a in zip(names, arrays, strict=True)}
        found = result_of(Integers(0), op, given)
        assert np.array_equal(found.value[0], evaluate_operator(op, arrays))


_GIVEN = (Role.INPUT, Role.PARAMETER)


def _terms(array):
    return Terms(np.stack([array, array]).astype(float))


@pytest.mark.parametrize("seed", range(8))
def test_meanings_of_nodes_equal_the_executor_on_numbers(seed):
    graph = random_graph(seed, free=seed % 2 == 1)
    rng, fields = np.random.default_rng(seed), Integers(0)
    for node in graph.nodes:
        if any(t.dtype != "int8" for t in (*node.inputs, *node.outputs)):
            continue
        arrays = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in node.inputs}
        single = Graph()
        for tensor in dict.fromkeys(node.inputs):
            single.input_like(tensor)
        single.output(single.add(node.op, *(single.tensors[t.name] for t in node.inputs)))
        (expected,) = evaluate(single, *arrays.values())
        found = meaning(fields, node, [_terms(arrays[t.name]) for t in node.inputs])
        assert np.array_equal(np.broadcast_to(found.value[0], expected.shape), expected), node.name


def test_laws_of_integers():
    """Laws hold: the terms of both sides are one; what is not a law tells them apart."""
    fields = Fields(1)
    x, y, z = (fields.symbols((4,), "int8") for _ in range(3))

    def key(terms):
        return fields.keys(fields.forced(terms).value).tolist()

    late = fields.shifted(fields.sum(x, fields.times(y, 1 << 3)), 3)
    assert key(fields.sum(fields.shifted(x, 3), y)) == key(late)
    assert key(fields.shifted(fields.shifted(x, 2), 3)) == key(fields.shifted(x, 5))
    assert key(fields.shifted(x, 2)) != key(fields.shifted(x, 3))
    clipped = fields.clamped(fields.clamped(late, -5, np.inf), -np.inf, 9)
    assert key(clipped) == key(fields.clamped(late, -5, 9)) != key(fields.clamped(late, -5, 8))
    assert key(fields.clamped(x, -128, 127)) == key(x)
    both = [fields.extremum_of(terms, 1) for terms in ([x, y, z, y], [z, x, y])]
    assert key(both[0]) == key(both[1]) != key(fields.extremum_of([x, y], 1))


# --------------------------------------------------------------------- what is refuted


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("Gemm", {"src_factor_in": 0, "src_factor_out": 0}),
        ("Load", {"x_stride": 0}),
    ],
)
def test_a_wrong_program_is_refuted_with_inputs_that_show_it(kind, fields):
    op = replace(CONV, bias=False)
    program = vtaops.compile(op, "pynq")
    numbers = [k for k, i in enumerate(program) if type(i).__name__ == kind]
    refuted = 0
    for number in numbers:
        wrong = changed(program, number, **fields)
        error = refutation(wrong)
        if error is None:
            continue
        refuted += 1
        arrays = [error.counterexample[b.name] for b in program.inputs]
        with vtaops.runtime.open_device("fsim", "pynq") as device:
            found = wrong.run(device, *arrays)
        assert not np.array_equal(found, evaluate_operator(op, arrays))
        assert type(wrong.decode()[error.instruction]).__name__ == "Store"
    assert refuted


def test_a_load_that_reads_no_row_writes_its_padding():
    program = vtaops.compile(replace(CONV, height=4), "pynq")
    loads = [k for k, i in enumerate(program) if isinstance(i, Load) and i.memory == Memory.INP]
    number = loads[0]
    height = program.decode()[number].y_size
    padding = program.decode()[number].y_pad_top + height
    wrong = changed(program, number, y_size=0, y_pad_top=padding)
    error = refutation(wrong)
    assert error is not None
    assert error.counterexample is not None


def test_a_clip_to_one_number_leaves_nothing_else():
    program = vtaops.compile(replace(CONV, clip=(-43, -43)), "pynq")
    number = next(k for k, i in enumerate(program) if isinstance(i, Gemm) and not i.reset)
    wrong = changed(program, number, wgt_factor_in=0, src_factor_in=0)
    wrong.verify()
    assert wrong.prove().complete


def test_another_shift_is_refuted():
    program = vtaops.compile(CONV, "pynq")
    number = next(k for k, i in enumerate(program) if getattr(i, "imm", 0) == 8)
    with pytest.raises(NotEquivalent, match="does not compute what it declares") as caught:
        changed(program, number, imm=7).prove()
    assert caught.value.result == "res"


def test_no_mutant_that_differs_is_proven():
    rng = np.random.default_rng(5)
    op = vtaops.Conv2d(
        in_channels=16, out_channels=16, height=6, width=6, kernel=3, padding=1, shift=6
    )
    config = configured("pynq", "overwrite", "post", "depthwise", "pool")
    program = vtaops.compile(op, config)
    refuted = 0
    with vtaops.runtime.open_device("fsim", config) as device:
        for kind in ("loop factor", "immediate", "DRAM address", "micro-op index", "stride") * 6:
            mutant = mutate(program, kind, rng)
            if mutant is None:
                continue
            try:
                mutant.program.prove()
            except NotEquivalent:
                refuted += 1
                continue
            except VTAError:
                continue
            for seed in range(5):
                arrays = random_arguments(op, np.random.default_rng(seed))
                found = mutant.program.run(device, *arrays)
                assert np.array_equal(found, program.run(device, *arrays)), mutant.change
    assert refuted


@pytest.fixture(scope="module")
def residual() -> Graph:
    rng = np.random.default_rng(0)
    graph = Graph("residual")
    x = graph.input("x", (1, 16, 8, 8), zero_point=3)

    def weights(*shape):
        return rng.integers(-128, 128, shape).astype(np.int8)

    y = graph.add(
        Convolution(weights(16, 16, 3, 3), None, Requantization(1, 9), padding=(1, 1, 1, 1)), x
    )
    z = graph.add(Add((1, 2), Requantization(1, 2, 5)), y, x)
    graph.output(graph.add(MaxPool((3, 3), (2, 2), (1, 1, 1, 1)), z))
    return graph


def test_a_wrong_weight_in_the_image_is_refuted(residual):
    model = vtaops.compile_model(residual, "pynq")
    (region,) = model.regions
    name = next(name for name in region.parameters if name.endswith("kernel"))
    image = region.parameters[name].copy()
    image.flat[17] ^= 64
    wrong = replace(region, parameters={**region.parameters, name: image})
    stages = [wrong if isinstance(stage, Region) else stage for stage in model.stages]
    other = vtaops.Model(model.graph, model.config, model.capabilities, model.plan, stages)
    with pytest.raises(NotEquivalent) as caught:
        other.prove()
    arrays = caught.value.counterexample
    assert not np.array_equal(other.run(arrays["x"]), other.reference(arrays["x"]))
    assert model.prove().complete


def test_against_another_operator():
    program = vtaops.compile(CONV, "pynq")
    assert program.prove(against=CONV).complete
    with pytest.raises(NotEquivalent):
        program.prove(against=replace(CONV, rounding="truncate", clip=(-127, 127)))
    other = program.prove(against=replace(CONV, bias=False))
    assert not other.complete
    assert "arguments" in other.unproven[0]


def test_arguments_are_packed_as_the_program_packs_them():
    """Rounding is a part of the bias: two programs are equal but for how they pack it."""
    for own, asked in (("truncate", "half_up"), ("half_up", "truncate")):
        program = vtaops.compile(replace(CONV, bias=True, rounding=own), "tiny")
        with pytest.raises(NotEquivalent) as caught:
            program.prove(against=replace(CONV, bias=True, rounding=asked))
        arrays = [*caught.value.counterexample.values()]
        wanted = evaluate_operator(replace(CONV, bias=True, rounding=asked), arrays)
        assert not np.array_equal(program.run("fsim", *arrays), wanted)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_proof_against_another_description_says_what_runs_show(family, seed):
    """A parameter differs: either no input tells, or it is refuted with one that does."""
    rng = random.Random(f"other {family}{seed}")
    op = FAMILIES[family](rng)
    while op.macs > 1_000_000:
        op = FAMILIES[family](rng)
    others = {"shift": 5, "clip": (-100, 99), "rounding": ("half_up", "truncate"), "relu": True}
    asked = []
    for name in others.keys() & vars(op).keys():
        own, other = getattr(op, name), others[name]
        if name == "rounding":
            other = next(value for value in others[name] if value != own)
        with contextlib.suppress(VTAError):
            asked.append(replace(op, **{name: other}))
    config = configured("tiny", "post") if family == "scaled" else "tiny"
    try:
        program = vtaops.compile(op, config, capabilities="fsim")
    except VTAError:
        pytest.skip("no tile fits")
    drawn = np.random.default_rng(seed)
    for other in asked:
        try:
            assert program.prove(against=other).complete
            tried = [random_cases.random_arguments(other, drawn) for _ in range(4)]
            equal = True
        except NotEquivalent as error:
            tried = [[*error.counterexample.values()]] if error.counterexample else []
            equal = False
        for arrays in tried:
            result = program.run("fsim", *arrays)
            assert np.array_equal(result, evaluate_operator(other, arrays)) == equal


def test_what_has_no_meaning_here_is_unproven():
    program = vtaops.compile(CONV, "pynq")
    record = replace(program.operators[0], kind="Novel")
    for operators in ((), (record,), (*program.operators, *program.operators)):
        proof = replace(program, operators=operators).prove()
        assert not proof.complete
        assert proof.claims == ()
        assert str(proof).startswith("not proven: ")


def test_bad_arguments():
    program = vtaops.compile(CONV, "pynq")
    with pytest.raises(ProgramError, match="takes a Program or a Model"):
        vtaops.prove(CONV)
    with pytest.raises(ProgramError, match="at least 0"):
        vtaops.prove(program, seed=-1)


# ------------------------------------------------------------------------- certificates


def test_a_certificate_survives_its_file_and_is_checked(residual, tmp_path):
    model = vtaops.compile_model(residual, "pynq")
    model.save(tmp_path / "m.vtam")
    loaded = vtaops.load_model(tmp_path / "m.vtam")
    assert loaded.report().proven
    assert "proven" in str(loaded.report())
    assert rechecked(loaded).complete
    assert rechecked(vtaops.compile_model(residual, "pynq", prove=False)) is None
    (region,) = model.regions
    stated = dict(region.program.metadata["proof"])
    changes = {"proof": {**stated, "weights": stated["program"]}}
    program = replace(region.program, metadata={**region.program.metadata, **changes})
    stages = [replace(region, program=program)]
    forged = vtaops.Model(model.graph, model.config, model.capabilities, model.plan, stages)
    with pytest.raises(ProgramError, match="not for this weights"):
        rechecked(forged)


def test_nothing_is_certified_in_part():
    program = replace(vtaops.compile(CONV, "pynq"), operators=())
    with pytest.raises(ProgramError, match="not proven"):
        certified(program, program.prove())


def test_the_command(tmp_path, capsys):
    from typer.testing import CliRunner

    from vtaops.cli import app

    program = vtaops.compile(CONV, "pynq")
    path = tmp_path / "c.vta"
    certified(program, program.prove()).save(path)
    shown = CliRunner().invoke(app, ["prove", str(path)])
    assert shown.exit_code == 0
    assert "proven: Conv2d" in shown.output
    again = CliRunner().invoke(app, ["verify", str(path)])
    assert "its certificate holds" in again.output
    neither = CliRunner().invoke(app, ["prove"])
    assert neither.exit_code != 0


@pytest.mark.parametrize("roles", [{}, {Role.OUTPUT: Role.SCRATCH}])
def test_the_last_argument_must_be_the_one_output(roles):
    program = vtaops.compile(vtaops.Gemm(m=4, n=16, k=16), "tiny")
    buffers = [replace(b, role=roles.get(b.role, b.role)) for b in program.buffers]
    proof = replace(program, buffers=tuple(buffers)).prove()
    assert proof.complete == (not roles)
    assert proof.complete or "not its one output" in proof.unproven[0]


def test_arguments_that_are_no_integers_are_not_proven():
    program = vtaops.compile(vtaops.Gemm(m=4, n=16, k=16), "tiny")
    buffers = [replace(b, dtype="float32") if b.name == "weight" else b for b in program.buffers]
    proof = replace(program, buffers=tuple(buffers)).prove()
    assert not proof.complete
    assert "weight is float32[16, 16]; weight of Gemm is int8" in proof.unproven[0]
