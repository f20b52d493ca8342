"""Models: files, sessions, reports, mistakes."""

import subprocess
import sys
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from typing_extensions import TypeAliasType

import vtaops
from tests.helpers.tensors import LearningTensor
from trials.random_graphs import random_graph, random_inputs
from vtaops.base.errors import ArgumentError, ConfigError, ProgramError, ShapeError
from vtaops.base.progress import progress_listener
from vtaops.base.records import check_fields
from vtaops.graph import Convolution, Dense, Dequantize, MaxPool, Quantize, Requantization
from vtaops.model import Model
from vtaops.model.artefact import dumps, loads
from vtaops.model.checks import check_stages
from vtaops.program.region import HostStage, Region
from vtaops.runtime import Fsim, LoadedProgram, ResidentPrograms

SEED = 34
"""A random network with two launches, a concatenation, and parts on the host."""


@pytest.fixture(scope="module")
def model():
    return vtaops.compile_model(random_graph(SEED), "tiny")


@pytest.fixture(scope="module")
def arrays(model):
    return random_inputs(model.graph, SEED)


def small(zero_point=0):
    graph = vtaops.Graph("small")
    x = graph.input("x", (1, 4, 6, 6), zero_point=zero_point)
    weight = np.random.default_rng(1).integers(-128, 128, (8, 4, 3, 3)).astype(np.int8)
    y = graph.add(Convolution(weight, None, Requantization(1, 8), padding=(1, 1, 1, 1)), x)
    graph.output(graph.add(MaxPool((2, 2), (2, 2)), y))
    return graph


def equal(found, expected):
    return len(found) == len(expected) and all(map(np.array_equal, found, expected))


def test_a_file_gives_the_same_model(model, arrays, tmp_path):
    path = tmp_path / "network.vtam"
    model.save(path)
    loaded = vtaops.load_model(path)
    assert dumps(loaded) == path.read_bytes()
    assert loaded.plan == model.plan
    assert loaded.cycles() == model.cycles()
    loaded.verify()
    expected = model.reference(*arrays)
    assert equal(loaded.run(*arrays), expected)
    assert equal(loaded.reference(*arrays), expected)
    assert equal(model.run(*arrays), expected)


def test_every_damaged_byte_is_noticed():
    data = dumps(vtaops.compile_model(small(), "tiny"))
    for position in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        with pytest.raises(ProgramError):
            loads(bytes(damaged))
    for length in (0, 5, 30, len(data) // 2, len(data) - 1):
        with pytest.raises(ProgramError, match=r"truncated|not a vtaops model"):
            loads(data[:length])


def test_a_model_runs_where_tvm_is_not_installed(tmp_path):
    model = vtaops.compile_model(small(), "tiny")
    model.save(tmp_path / "m.vtam")
    x = random_inputs(model.graph, 3)[0]
    np.save(tmp_path / "x.npy", x)
    code = f"""
import sys
sys.modules["tvm"] = sys.modules["tvm_ffi"] = None  # importing them fails
import numpy as np
from vtaops.model import load_model
model = load_model({str(tmp_path / "m.vtam")!r})
x = np.load({str(tmp_path / "x.npy")!r})
assert np.array_equal(model.run(x), model.reference(x))
print(model.run(x).sum(), model.cycles())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert done.stdout == f"{model.run(x).sum()} {model.cycles()}\n", done.stderr


def test_weights_stay_in_a_session(model, arrays):
    writes = []

    class Counting(Fsim):
        def write(self, buffer, data):
            writes.append(data.nbytes)
            super().write(buffer, data)

    expected = model.reference(*arrays)
    with vtaops.Session(Counting("tiny")) as session:
        assert equal(model.run(*arrays, session=session), expected)
        first = sum(writes)
        writes.clear()
        assert equal(model.run(*arrays, session=session), expected)
        inputs = sum(b.nbytes for r in model.regions for b in r.program.inputs
                     if b.name not in r.parameters)  # fmt: skip
        assert sum(writes) == inputs < first
        assert session.stats == model.stats() + model.stats()


def test_one_program_with_other_weights_is_another(model, arrays):
    """On one device: the weights of a run are those of its model, even if changed in place."""
    zero = [
        replace(s, parameters={k: np.zeros_like(v) for k, v in s.parameters.items()})
        if isinstance(s, Region)
        else s
        for s in model.stages
    ]
    other = Model(model.graph, model.config, model.capabilities, model.plan, zero)
    with vtaops.Session("fsim", "tiny") as session, vtaops.Session("fsim", "tiny") as fresh:
        first = model.run(*arrays, session=session)
        without = other.run(*arrays, session=session)
        assert not equal(first, without)
        assert equal(without, other.run(*arrays, session=fresh))
        assert equal(first, model.run(*arrays, session=session))
        for region, original in zip(other.regions, model.regions, strict=True):
            for name, image in region.parameters.items():
                image[...] = original.parameters[name]
        assert equal(first, other.run(*arrays, session=session))


def test_programs_that_are_gone_leave_no_results_behind():
    """A new program may have the address in host memory of one that was collected."""
    x, w = np.ones((1, 8), np.int8), np.ones((8, 8), np.int8)
    with Fsim("tiny") as device, ResidentPrograms(device, capacity=2) as residents:
        for shift in (0, 1, 2, 3) * 3:
            program = vtaops.compile(vtaops.Gemm(m=1, n=8, k=8, shift=shift), "tiny")
            (y,) = residents.run(program, [x], {"weight": program.inputs[1].pack(w)})
            assert (y == 8 >> shift).all()
            del program


def test_the_report_adds_up(model):
    report = model.report(quality={model.plan[0].name: 33.0})
    assert report.cycles == model.cycles() == sum(layer.cycles for layer in report.layers)
    assert report.counters == model.stats()
    assert [layer.name for layer in report.layers] == [row.name for row in model.plan]
    assert sum(layer.share for layer in report.layers) == pytest.approx(1)
    assert report.layers[0].sqnr == 33.0
    data = report.as_dict()
    assert data["schema_version"] == 1
    assert data["frames_per_second"] == pytest.approx(
        1e6 * report.batch * report.clock_mhz / report.cycles
    )
    text = str(report)
    assert all(layer.name in text for layer in report.layers)
    assert f"{report.cycles:,} cycles" in text


def test_each_row_of_a_batch_is_a_frame():
    graph = vtaops.Graph("dense")
    x = graph.input("x", (4, 16))
    weight = np.ones((8, 16), np.int8)
    graph.output(graph.add(Dense(weight, None, Requantization(1, 4)), x))
    report = vtaops.compile_model(graph, "tiny").report()
    assert report.batch == 4
    assert report.frames_per_second == pytest.approx(4e6 * report.clock_mhz / report.cycles)
    assert f"{report.frames_per_second:,.1f} frames/s at" in str(report)
    assert "operators on VTA, in batches of 4\n" in str(report)
    assert " in batches" not in str(vtaops.compile_model(small(), "tiny").report())


def test_progress_names_every_stage(model, arrays):
    seen = []
    with progress_listener(lambda work, done, total, step: seen.append((work, step))):
        model.run(*arrays)
    steps = [step for work, step in seen if work == "run stage" and step]
    assert len(steps) == len(model.stages)
    assert sum(step.startswith("VTA") for step in steps) == len(model.programs)


def test_a_stage_computes_something(model):
    stages = [*model.stages, HostStage(())]
    with pytest.raises(ProgramError, match=f"stage {len(model.stages)} has no nodes"):
        check_stages(model.graph, stages, model.config.fingerprint)


def test_mistakes_have_clear_errors(model, arrays, tmp_path):
    with pytest.raises(ShapeError, match="the network takes"):
        model.run()
    with pytest.raises(ShapeError, match="the network takes"):
        model.run(*[array.astype(np.int16) for array in arrays])
    with vtaops.Session("fsim", "pynq") as session, pytest.raises(ConfigError, match="compile"):
        model.run(*arrays, session=session)
    with pytest.raises(ProgramError, match="cannot read"):
        vtaops.load_model(tmp_path / "missing.vtam")
    (tmp_path / "foreign").write_bytes(b"hello")
    with pytest.raises(ProgramError, match="not a vtaops model"):
        vtaops.load_model(tmp_path / "foreign")
    with pytest.raises(ProgramError, match="cannot write"):
        model.save(tmp_path / "nowhere" / "m.vtam")
    with pytest.raises(ShapeError, match="no output"):
        vtaops.compile_model(vtaops.Graph())
    program = model.programs[0]
    with Fsim("tiny") as device:
        with pytest.raises(ShapeError, match="an image for"):
            LoadedProgram(program, device, {"nothing": np.zeros(1, np.int8)})
        name = program.inputs[-1].name
        with pytest.raises(ShapeError, match="bytes"):
            LoadedProgram(program, device, {name: np.zeros(1, np.int8)})


def test_inputs_may_be_given_by_name(model, arrays):
    names = [tensor.name for tensor in model.graph.inputs]
    expected = model.reference(*arrays)
    for count in range(len(arrays) + 1):
        named = dict(zip(names[count:], arrays[count:], strict=True))
        for run in (model.run, model.reference):
            assert equal(run(*arrays[:count], **named), expected)
            first = dict(zip(names[:count], arrays[:count], strict=True))
            assert equal(run(first, **named), expected)
    for run in (model.run, model.reference):
        with pytest.raises(ArgumentError, match=f"no input 'picture' is left.*: {names[0]}"):
            run(picture=arrays[0])
        with pytest.raises(ArgumentError, match=f"no input '{names[0]}' is left.*left are: none"):
            run(*arrays, **{names[0]: arrays[0]})
        with pytest.raises(ShapeError, match=f"{len(arrays) - 1} arrays given; the network takes"):
            run(**dict(zip(names[1:], arrays[1:], strict=True)))


def test_a_field_annotated_by_an_alias_of_python_312():
    """NumPy 2.5 declares NDArray by a `type` statement, which `isinstance` does not take."""
    T = TypeVar("T")
    alias = TypeAliasType("alias", np.ndarray[Any, T], type_params=(T,))
    record = make_dataclass("Record", [("table", alias[np.int8])])
    check_fields(record, {"table": np.zeros(2, np.int8)})
    with pytest.raises(vtaops.errors.ProgramError, match="Record cannot have table = 'gelu'"):
        check_fields(record, {"table": "gelu"})


def test_inputs_are_converted_and_batches_run_one_by_one():
    """Lists, tensors and float64 for a float network; eight images for one of batch 1."""
    graph = vtaops.Graph("floats")
    x = graph.add(Quantize(0.05), graph.input("x", (1, 4, 6, 6), "float32"))
    graph.output(graph.add(Dequantize(), graph.add(MaxPool((2, 2), (2, 2)), x)))
    model = vtaops.compile_model(graph, "tiny")
    images = np.random.default_rng(0).uniform(-1, 1, (8, 1, 4, 6, 6)).astype(np.float32)
    expected = np.concatenate([model.run(image) for image in images])
    stacked = images.reshape(8, 4, 6, 6)
    for form in (stacked, stacked.tolist(), LearningTensor(stacked), stacked.astype(np.float64)):
        assert np.array_equal(model.run(form), expected)
        assert np.array_equal(model.reference({"x": form}), expected)
    with pytest.raises(ShapeError, match="an input is no array of numbers"):
        model.run([[1.0], [1.0, 2.0]])
    with pytest.raises(ShapeError, match=r"shape \(8, 4, 6, 5\)"):
        model.run(stacked[..., :5])
