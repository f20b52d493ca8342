"""Weights that stay on the chip between runs: results, cycles, and what forbids them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.tsim_support import needs_tools

import vtaops
from trials.random_graphs import check, random_graph, random_inputs
from vtaops import HardwareConfig
from vtaops.errors import DeviceError, ProgramError, VerificationError
from vtaops.graph import Convolution, Graph, Requantization, evaluate
from vtaops.machine.config import Extension, Memory
from vtaops.machine.isa import Encoding, Load
from vtaops.model import Model
from vtaops.program import Program
from vtaops.program.file_format import dumps, loads
from vtaops.program.timing import TimingParameters
from vtaops.runtime import Fsim
from vtaops.runtime.tsim import Tsim

EXTENDED = replace(HardwareConfig.load("tiny"), extensions=tuple(Extension))
SEEDS = (0, 3, 5, 7, 9)  # 7: products of two tensors, of which none are weights


def chain(layers: int = 3, channels: int = 16) -> Graph:
    """Return convolutions one after the other, which share the weight memory."""
    rng = np.random.default_rng(layers)
    graph = Graph("chain")
    x = graph.input("x", (1, channels, 6, 6))
    for _ in range(layers):
        weight = rng.integers(-128, 128, (channels, channels, 3, 3), np.int8)
        bias = np.zeros(channels, np.int32)
        x = graph.add(Convolution(weight, bias, Requantization(shift=8), padding=(1, 1, 1, 1)), x)
    graph.output(x)
    return graph


@pytest.fixture(scope="module")
def model() -> Model:
    return vtaops.compile_model(chain(), "pynq_512", pin_weights=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks_equal_the_executor_in_every_run(seed):
    check(random_graph(seed, free=True), seed, EXTENDED, pinned=True)


def test_random_networks_keep_weights():
    """What the test above relies on."""
    models = [
        vtaops.compile_model(random_graph(seed, free=True), EXTENDED, pin_weights=True, prove=False)
        for seed in SEEDS
    ]
    assert sum(program.pinned for model in models for program in model.programs) > len(SEEDS)


def test_later_runs_load_no_weights_and_take_the_predicted_cycles(model):
    (program,) = model.programs
    whole, steady = program.stats(), program.steady.stats()
    assert program.pinned == 3
    assert whole.wgt_load_nbytes == steady.wgt_load_nbytes + 3 * 16 * 16 * 9
    assert model.steady_cycles() < vtaops.compile_model(chain(), "pynq_512").cycles()
    report = model.report()
    assert (report.cycles, report.steady_cycles) == (model.cycles(), model.steady_cycles())
    assert f"{report.steady_cycles:,} cycles once its weights are on the chip" in str(report)


@needs_tools
@pytest.mark.parametrize(("latency", "bandwidth"), [(32, None), (100, 7.0)])
def test_the_rtl_takes_these_cycles(latency, bandwidth):
    """Later runs begin within a burst of instructions, which then is a shorter one."""
    model = vtaops.compile_model(chain(5, 32), "pynq_512", pin_weights=True)
    dram = TimingParameters(dram_latency=latency, bandwidth=bandwidth)
    expected = [model.cycles(dram), *[model.steady_cycles(dram)] * 2]
    found = []
    with (
        Tsim(model.config, latency=latency, bandwidth=bandwidth) as device,
        vtaops.Session(device) as session,
    ):
        for run in range(3):
            device.reset_stats()
            (array,) = random_inputs(model.graph, run)
            assert np.array_equal(model.run(array, session=session), *evaluate(model.graph, array))
            found.append(device.performance().cycles)
    assert found == expected


@pytest.mark.parametrize("between", ["launch", "failure", "other session"])
def test_a_run_after_another_program_loads_its_weights_again(model, between):
    (program,), (array,) = model.programs, random_inputs(model.graph, 0)
    expected = evaluate(model.graph, array)[0]
    other = vtaops.compile_model(chain(2), "pynq_512", pin_weights=True)
    with Fsim(model.config) as device, vtaops.Session(device) as session:
        model.run(array, session=session)
        device.reset_stats()
        assert np.array_equal(model.run(array, session=session), expected)
        assert device.stats().wgt_load_nbytes == program.steady.stats().wgt_load_nbytes
        if between == "failure":
            with pytest.raises(DeviceError):
                device.launch(1 << 30, 1, 1.0)
        elif between == "launch":
            other.run(array, session=session)
        else:
            other.run(array, session=vtaops.Session(device))
        device.reset_stats()
        assert np.array_equal(model.run(array, session=session), expected)
        assert device.stats().wgt_load_nbytes == program.stats().wgt_load_nbytes


def test_other_weights_are_loaded(model):
    """A model of the same program with other parameters is another one."""
    graph = chain()
    for node in graph.nodes:
        node.op.weight[:] = -node.op.weight
    negative = vtaops.compile_model(graph, "pynq_512", pin_weights=True)
    (array,) = random_inputs(graph, 1)
    with Fsim(model.config) as device, vtaops.Session(device) as session:
        for one in (model, negative, negative, model, model):
            found = one.run(array, session=session)
            assert np.array_equal(found, evaluate(one.graph, array)[0])


def test_random_scratchpads_are_never_trusted(model):
    (array,) = random_inputs(model.graph, 2)
    with Fsim(model.config, seed=1) as device, vtaops.Session(device) as session:
        for _ in range(2):
            found = model.run(array, session=session)
            assert np.array_equal(found, evaluate(model.graph, array)[0])


def test_launches_that_overwrite_each_other_keep_nothing():
    graph = random_graph(5)  # several regions
    model = vtaops.compile_model(graph, "pynq", pin_weights=True)
    assert len(model.programs) == 1 or not any(program.pinned for program in model.programs)


def test_the_file_says_so_and_the_proof_covers_it(model):
    (program,) = model.programs
    assert loads(dumps(program)).pinned == 3
    assert not any(vtaops.prove(model).unproven)
    with pytest.raises(ProgramError, match="-1 loads are pinned"):
        replace(program, pinned=-1)


def changed(program: Program, row: int, **fields: int) -> Program:
    """Return a program with other fields in one LOAD."""
    encoding, words = Encoding.of(program.config), program.instructions.copy()
    load = program.decode()[row]
    words[row] = encoding.encode_all([replace(load, **fields)])[0]
    return replace(program, instructions=words)


def test_the_verifier_refuses_what_does_not_stay(model):
    (program,) = model.programs
    decoded = program.decode()
    inputs = (isinstance(i, Load) and i.memory == Memory.INP for i in decoded)
    first = list(inputs).index(True)
    twice = replace(
        program,
        instructions=np.insert(program.instructions, first, program.instructions[0], axis=0),
        relocations=np.insert(program.relocations, first, program.relocations[0]),
        operators=(),
    )
    for wrong, reason in (
        (replace(program, pinned=4), "a pinned instruction is a LOAD"),
        (changed(program, 1, push_next=1), "token"),
        (twice, "element 997 of WGT, which it writes, is pinned"),
    ):
        with pytest.raises(VerificationError, match=reason):
            wrong.verify()
    replace(program, pinned=2).verify()  # fewer stay than may
