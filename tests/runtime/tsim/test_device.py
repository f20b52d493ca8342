"""The RTL, simulated: random programs against the reference, whole operators against fsim."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.program_builder import PROGRAMS
from helpers.tsim_support import MODELS, needs_tools
from typer.testing import CliRunner, Result

import vtaops
from trials.random_cases import FAMILIES, random_scaled, random_tiling
from trials.random_graphs import random_graph, random_inputs
from trials.random_streams import (
    CONFIGS,
    ConcurrentProgram,
    RandomProgram,
    run_random,
)
from trials.reference_isa import launch, place
from vtaops import HardwareConfig, cli
from vtaops.errors import UnsupportedError
from vtaops.graph import evaluate as evaluate_graph
from vtaops.hardware.registers import RtlRegisters
from vtaops.machine.config import Extension
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime import Fsim
from vtaops.runtime.tsim import RtlParameters, Tsim

pytestmark = needs_tools


# --------------------------------------------------------------------- random programs


@pytest.mark.parametrize(("name", "port_bytes"), MODELS)
def test_random_serial_programs_equal_the_reference(name, port_bytes):
    for seed in range(6):
        with Tsim(
            CONFIGS[name],
            parameters=RtlParameters(port_bytes=port_bytes),
            latency=2 + 20 * (seed % 3),
        ) as device:
            program = RandomProgram(CONFIGS[name], seed)
            program.random_instructions(60)
            run_random(program, program.stream(), device)


@pytest.mark.parametrize("extensions", [(), ("pairs",)])
@pytest.mark.parametrize(("packed", "dsp_multipliers"), [(False, None), (False, 21), (True, 21)])
def test_other_multipliers_compute_the_same(extensions, packed, dsp_multipliers):
    """One product to a DSP block, and some products from LUTs, at once and at twice the clock."""
    config = replace(CONFIGS["tiny"], extensions=extensions)
    parameters = RtlParameters(packed_multipliers=packed, dsp_multipliers=dsp_multipliers)
    for seed in range(200, 206):
        program = RandomProgram(config, seed)
        program.random_instructions(60)
        with Tsim(config, parameters=parameters) as device:
            cycles = run_random(program, program.stream(), device)
        with Tsim(config, parameters=parameters) as device:
            assert run_random(program, program.stream(), device) == cycles


def test_without_counters_the_rest_is_the_same():
    program = RandomProgram(CONFIGS["tiny"], 17)
    program.random_instructions(40)
    with Tsim("tiny", parameters=RtlParameters(performance_counters=False)) as device:
        region = place(device, program.image)
        launch(device, program.stream())
        image = device.read(region, region.nbytes)
        cycles = device.read_register(RtlRegisters.CYCLES_LOW)
        assert device.read_register(RtlRegisters.CONTROL) & RtlRegisters.UNCOUNTED
        for ask in device.stats, device.performance:
            with pytest.raises(UnsupportedError, match="built without performance counters"):
                ask()
    np.testing.assert_array_equal(image, program.expected_image())
    with Tsim("tiny") as device:
        assert run_random(program, program.stream(), device) == cycles
        assert not device.read_register(RtlRegisters.CONTROL) & RtlRegisters.UNCOUNTED


@pytest.mark.parametrize(("name", "port_bytes"), MODELS)
def test_random_concurrent_programs_equal_the_reference(name, port_bytes):
    """And the irregularities of the DRAM change when things happen, never what.

    A sample; `trials/all_sides.py` runs such programs by the thousand.
    """
    for seed in range(100, 105):
        program = ConcurrentProgram(CONFIGS[name], seed)
        program.random_instructions(60)
        cycles = set()
        for jitter in (None, seed, seed + 1):
            with Tsim(
                CONFIGS[name], parameters=RtlParameters(port_bytes=port_bytes), jitter_seed=jitter
            ) as device:
                cycles.add(run_random(program, program.concurrent_stream(), device))
        assert len(cycles) > 1


def test_jitter_is_reproducible():
    program = ConcurrentProgram(CONFIGS["tiny"], 7)
    program.random_instructions(40)
    cycles = set()
    for _ in range(2):
        with Tsim("tiny", jitter_seed=5) as device:
            cycles.add(run_random(program, program.concurrent_stream(), device))
    assert len(cycles) == 1


# ------------------------------------------------------------------------ whole programs


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_by_hand_equal_fsim(name):
    program = PROGRAMS[name]()
    rng = np.random.default_rng(1)
    arrays = [
        rng.integers(-128, 128, buffer.shape).astype(buffer.dtype) for buffer in program.inputs
    ]
    with Fsim(program.config) as fsim, Tsim(program.config, jitter_seed=3) as tsim:
        np.testing.assert_array_equal(program.run(tsim, *arrays), program.run(fsim, *arrays))
        assert tsim.stats() == fsim.stats() == program.stats()


OPERATORS = {
    "conv3x3": (
        "pynq",
        vtaops.Conv2d(in_channels=32, out_channels=48, height=9, width=7, kernel=3, padding=1),
    ),
    "conv1x1_strided": (
        "pynq",
        vtaops.Conv2d(in_channels=64, out_channels=32, height=8, width=8, kernel=1, strides=2),
    ),
    "conv_bias": (
        "pynq",
        vtaops.Conv2d(
            in_channels=16, out_channels=32, height=6, width=6, kernel=3, padding=1, bias=True
        ),
    ),
    "gemm": ("pynq", vtaops.Gemm(m=5, n=48, k=80, bias=True)),
    "tiny_conv": (
        "tiny",
        vtaops.Conv2d(
            batch=2, in_channels=8, out_channels=16, height=6, width=5, kernel=3, padding=1, shift=4
        ),
    ),
    "batch4_gemm": ("4x8_i8w8a32_15_16_16_18", vtaops.Gemm(m=8, n=24, k=40)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_equal_numpy_and_count_as_fsim(name):
    config, op = OPERATORS[name]
    program = vtaops.compile(op, config)
    arrays = random_arguments(op, np.random.default_rng(2))
    port_bytes = dict(MODELS[:1] + MODELS[2:])[config]
    with (
        Fsim(config) as fsim,
        Tsim(config, parameters=RtlParameters(port_bytes=port_bytes)) as tsim,
    ):
        result = program.run(tsim, *arrays)
        np.testing.assert_array_equal(result, evaluate(op, arrays))
        program.run(fsim, *arrays)
        assert tsim.stats() == fsim.stats() == program.stats()


@pytest.mark.parametrize("config", ["pynq", "tiny", "4x8_i8w8a32_15_16_16_18"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(2))
def test_every_family_of_operators_equals_numpy(family, config, seed):
    """Random operators and tilings; what needs MUL or ACC_8BIT included."""
    rng = random.Random(f"tsim {family} {config} {seed}")
    hardware = HardwareConfig.load(config)
    op = FAMILIES[family](rng)
    program = vtaops.compile(op, hardware, random_tiling(rng, op, hardware), capabilities="full")
    arrays = random_arguments(op, np.random.default_rng(seed))
    port_bytes = dict(MODELS[:1] + MODELS[2:])[config]
    with Tsim(hardware, parameters=RtlParameters(port_bytes=port_bytes)) as device:
        np.testing.assert_array_equal(program.run(device, *arrays), evaluate(op, arrays))
        assert device.stats() == program.stats()


def test_fixed_point_scales_equal_numpy():
    """Operators and a network with scales for each channel, on hardware with all extensions."""
    hardware = replace(HardwareConfig.load("tiny"), extensions=tuple(Extension))
    with Tsim(hardware, jitter_seed=1) as device:
        for seed in range(8):
            rng = random.Random(seed)
            op = random_scaled(rng)
            program = vtaops.compile(op, hardware, random_tiling(rng, op, hardware, taps="all"))
            arrays = random_arguments(op, np.random.default_rng(seed))
            np.testing.assert_array_equal(program.run(device, *arrays), evaluate(op, arrays))
        graph = random_graph(1, free=True)
        images = random_inputs(graph, 1)
        found = vtaops.compile_model(graph, hardware).run(*images, session=vtaops.Session(device))
        for result, expected in zip(found, evaluate_graph(graph, *images), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_session_runs_on_tsim():
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-128, 128, shape, np.int8) for shape in ((3, 40), (24, 40)))
    with vtaops.Session("tsim", "tiny") as session, vtaops.Session("fsim", "tiny") as other:
        np.testing.assert_array_equal(session.gemm(x, w), other.gemm(x, w))
        assert session.stats == other.stats


# -------------------------------------------------------------------------- command line


def command(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, [*arguments])


def test_command_line_runs_on_tsim():
    arguments = ["run", "op", "Gemm(m=3, n=8, k=8)", "--config", "tiny"]
    arguments += ["--device", "tsim"]
    plain = command(*arguments)
    assert plain.exit_code == 0, plain.output
    for text in ("equals NumPy", "Where the cycles went", "compute stall load token"):
        assert text in plain.output
    report = json.loads(command(*arguments, "--json").stdout)
    assert report["performance"]["gemm_ops"] == report["counters"]["gemm_counter"] == 3
    assert report["performance"]["cycles"] > 0


def test_command_line_builds_models():
    result = command("hardware", "build", "--config", "tiny")
    assert result.exit_code == 0, result.output
    assert Path(result.stdout.strip()).is_file()
