"""Wrong values in calls of the public functions: each works, or ends in a `VTAError`.

A call that works gets one argument of another type or size. The parameters are those of the
signatures, so a new one joins by itself; a public name without a call here fails a test.
"""

from __future__ import annotations

import inspect
import random
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import chdir
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import vtaops
from trials.campaign import Campaign, Result, result
from trials.crossed_fields import BASES, NODES, nodes
from trials.onnx_models import images, small_network
from vtaops import cpu, ops, schedule
from vtaops.base.data import data_directory
from vtaops.graph import operators as graph_operators
from vtaops.graph.operators import Convolution
from vtaops.graph.requantization import Requantization
from vtaops.runtime import open_device
from vtaops.schedule import Tiling

SECONDS = 10
"""After which a call counts as one that works: it is interrupted."""

VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "zero": lambda: 0,
    "negative": lambda: -1,
    "number": lambda: 3,
    "int32": lambda: np.int32(3),
    "huge": lambda: 1 << 40,
    "beyond int64": lambda: 10**30,
    "fraction": lambda: 0.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "complex": lambda: 1j,
    "empty text": lambda: "",
    "text": lambda: "x",
    "text with zero": lambda: "a\0b",
    "bytes": lambda: b"ab",
    "empty list": list,
    "list": lambda: [1, 2],
    "list of texts": lambda: ["a", None],
    "ragged list": lambda: [[1], [1, 2]],
    "pair": lambda: (1, 2),
    "five": lambda: (1, 2, 3, 4, 5),
    "dict": lambda: {"a": 1},
    "dict by number": lambda: {1: [2]},
    "set": lambda: {1},
    "array": lambda: np.ones(3, np.int8),
    "floats": lambda: np.full((2, 3), 0.5),
    "texts": lambda: np.array(["a", "b"]),
    "objects": lambda: np.array([None, {}], object),
    "empty array": lambda: np.zeros((0, 3), np.int8),
    "scalar array": lambda: np.array(1),
    "object": object,
    "type": lambda: int,
    "function": lambda: len,
    "folder": lambda: Path(),
}


@dataclass(frozen=True)
class Call:
    """A call that works: a function, its arguments by name, and the parameters to change."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    parameters: tuple[str, ...]


def _call(function: Callable[..., Any], /, **arguments: Any) -> Call:
    """Return a call; its parameters are those of the signature, without stars."""
    own = inspect.signature(function).parameters.values()
    named = [p.name for p in own if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return Call(function, arguments, tuple(dict.fromkeys([*named, *arguments])))


def _int8(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(-128, 128, shape, dtype=np.int8)


def _arrays(shape: tuple[int, ...], name: str) -> np.ndarray[Any, Any]:
    return _int8(*shape) if name == "int8" else np.random.default_rng(0).random(shape, "float32")


def _operators(kind: str, of: Any) -> dict[str, Call]:
    """Return calls of the operators that sessions and `vtaops.cpu` have by one name."""
    x, w, a = _arrays((1, 4, 5, 5), kind), _arrays((4, 4, 3, 3), kind), _arrays((3, 4), kind)
    pairs = {name: {"a": a, "b": a} for name in ("add", "maximum", "minimum", "multiply")}
    size = "kernel" if kind == "int8" else "kernel_size"
    arguments: dict[str, dict[str, Any]] = {
        "conv2d": {"data": x, "kernel": w},
        "depthwise_conv2d": {"data": x, "kernel": w[:, :1]},
        "max_pool2d": {"data": x, size: 2},
        "avg_pool2d": {"data": x, size: 2},
        "global_avg_pool2d": {"data": x},
        "relu": {"data": a},
        "matmul": {"a": a, "b": _arrays((4, 4), kind)},
        **pairs,
    }
    if kind == "int8":
        arguments |= {
            name: {"data": given["a"], "other": given["b"]}
            for name, given in arguments.items()
            if "a" in given
        }
        arguments |= {
            "sub": {"data": a, "other": a},
            "gemm": {"data": a, "weight": a},
            "batch_matmul": {"data": a[None], "other": a[None]},
            "conv2d_transpose": {"data": x, "kernel": w},
            "requantize": {"data": a},
            "clip": {"data": a, "low": 0, "high": 9},
        }
    else:
        row = np.ones(4, "float32")
        separable = {"data": x, "depthwise": w[:, :1], "pointwise": w[..., :1, :1]}
        arguments |= {
            "subtract": {"a": a, "b": a},
            "vector_add": {"a": row, "b": row},
            "dense": {"data": a, "weight": a},
            "conv1d": {"data": x[:, :, 0], "kernel": w[:, :, 0]},
            "depthwise_separable_conv2d": separable,
            "activation": {"data": a, "name": "relu"},
            "batch_norm": {"data": x, "gamma": row, "beta": row, "mean": row, "variance": row},
            "global_max_pool2d": {"data": x},
            "scale_shift": {"data": x, "scale": row, "shift": row},
            "softmax": {"data": a},
        }  # fmt: skip
    return {name: _call(getattr(of, name), **given) for name, given in arguments.items()}


def _fused() -> Call:
    """Return a call with what fuses into sums, which signatures do not name."""
    x, w = _arrays((1, 4, 5, 5), "float32"), _arrays((4, 4, 3, 3), "float32")
    fused = {"bias": None, "scale_shift": None, "residual": None, "activation": None}
    return _call(cpu.conv2d, data=x, kernel=w, **fused)


@cache
def _subjects() -> dict[str, Any]:
    """Return a program, networks and files to call with."""
    place = Path(tempfile.mkdtemp(prefix="wrong_calls"))
    float_file = small_network()
    file = vtaops.quantize(float_file, images(4))
    onnx.save(file, place / "net.onnx")
    model = vtaops.compile_model(file)
    model.save(place / "net.vtam")
    op = ops.Gemm(m=2, n=16, k=16)
    program = vtaops.compile(op, "pynq")
    program.save(place / "net.vta")
    return {
        "place": place, "float": float_file, "file": file, "model": model, "op": op,
        "program": program, "config": vtaops.HardwareConfig.load("pynq"),
    }  # fmt: skip


def _in_graph(**changes: Any) -> Callable[..., Any]:
    """Return a function that makes a graph of one node."""

    def make(
        name: Any = "net",
        input_name: Any = "x",
        shape: Any = (1, 4, 5, 5),
        dtype: Any = "int8",
        scale: Any = 0.5,
        zero_point: Any = 0,
        op: Any = changes["op"],
        node_name: Any = "",
        node_scale: Any = None,
        output: Any = None,
    ) -> Any:
        graph = vtaops.Graph(name)
        x = graph.input(input_name, shape, dtype, scale=scale, zero_point=zero_point)
        y = graph.add(op, x, name=node_name, scale=node_scale)
        graph.output(y if output is None else output)
        return graph

    return make


def _compiling() -> dict[str, Call]:
    at = _subjects()
    op, config, file = at["op"], at["config"], at["file"]
    declared = schedule.schedule(op, config)
    dynamic = deepcopy(file)
    dynamic.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"

    def compile_sized(size: Any = 1) -> Any:
        shapes = {dynamic.graph.input[0].name: (size, 3, 12, 12)}
        return vtaops.compile_model(dynamic, shapes=shapes, prove=False)

    return {
        "compile_model sized": _call(compile_sized),
        "compile": _call(vtaops.compile, op=op),
        "compile_model": _call(vtaops.compile_model, source=file),
        "compile_schedule": _call(
            vtaops.compile_schedule, schedule=declared, buffers=op.buffers(config)
        ),
        "quantize": _call(vtaops.quantize, model=at["float"], calibration=images(4)),
        "load_model": _call(vtaops.load_model, path=at["place"] / "net.vtam"),
        "prove": _call(vtaops.prove, subject=at["program"]),
        "Tiling": _call(Tiling, oc=1, ic=1),
        "Tiling.parse": _call(Tiling.parse, text="oc=16,ic=16"),
        "HardwareConfig": _call(vtaops.HardwareConfig),
        "HardwareConfig.load": _call(vtaops.HardwareConfig.load, source="pynq"),
        "HardwareConfig.of": _call(vtaops.HardwareConfig.of, source="pynq"),
        "HardwareConfig.from_dict": _call(vtaops.HardwareConfig.from_dict, values={}),
        "Graph": _call(_in_graph(op=Convolution(_int8(4, 4, 3, 3)))),
        "Requantization": _call(Requantization, multiplier=1, shift=1),
        "Session": _call(vtaops.Session),
        "open_device": _call(open_device, name="fsim"),
        "schedule.default_tiling": _call(schedule.default_tiling, op=op, config=config),
        "schedule.schedule": _call(schedule.schedule, op=op, config=config),
        "schedule.check_tiling": _call(
            schedule.check_tiling, op=op, config=config, tiling=Tiling(16, 16)
        ),
        "schedule.blocked_shape": _call(
            lambda op, config: schedule.blocked_shape(op, config), op=op, config=config
        ),
        "schedule.gemm": _call(schedule.gemm, config=config),
        "schedule.alu": _call(schedule.alu, config=config, op="add"),
        "schedule.alu_reduction": _call(schedule.alu_reduction, config=config, op="add"),
        "schedule.reset": _call(schedule.reset, config=config),
    }


def _using() -> dict[str, Call]:
    """Return calls of methods, each of an object that is made anew where it changes."""
    at = _subjects()
    op, program, model = at["op"], at["program"], at["model"]
    data, weight, x = _int8(2, 16), _int8(16, 16), images(1)
    session = vtaops.Session()
    weights = data_directory("examples/stories") / "stories.bin"
    teller = vtaops.LanguageModel.load(weights, length=8, prove=False)

    def run_program(device: Any = "fsim", first: Any = data, second: Any = weight) -> Any:
        return program.run(device, first, second)

    def run_model(value: Any = x, session: Any = None, state: Any = None) -> Any:
        return model.run(value, session=session, state=state)

    def run_named(x: Any = x) -> Any:
        return model.run({"x": x})

    def run_operator(
        op: Any = op, first: Any = data, second: Any = weight, tiling: Any = None
    ) -> Any:
        return session.run(op, first, second, tiling=tiling)

    def load(path: Any, tokenizer: Any = None, config: Any = "tiny", length: Any = 8) -> Any:
        given = {"length": length, "prove": False}
        return vtaops.LanguageModel.load(path, tokenizer, config, **given)

    def write(
        prompt: Any = "", tokens: Any = 2, temperature: Any = 0.8, top_p: Any = 0.9, seed: Any = 0,
        session: Any = None,
    ) -> Any:  # fmt: skip
        more = {"tokens": tokens, "temperature": temperature, "top_p": top_p, "seed": seed}
        return [*teller.write(prompt, **more, session=session)]

    return {
        "Program.run": _call(run_program),
        "Program.save": _call(program.save, path="made.vta"),
        "Program.load": _call(vtaops.Program.load, path=at["place"] / "net.vta"),
        "Program.verify": _call(program.verify),
        "Program.prove": _call(program.prove),
        "Program.cycles": _call(program.cycles),
        "Program.certified": _call(program.certified, proof=program.prove()),
        "Statistics.array_share": _call(program.stats().array_share, cycles=5),
        "Model.run": _call(run_model),
        "Model.run by name": _call(run_named),
        "Model.save": _call(model.save, path="made.vtam"),
        "Model.prove": _call(model.prove),
        "Model.cycles": _call(model.cycles),
        "Model.export_c": _call(model.export_c, folder="made", force=True),
        "Model.new_state": _call(model.new_state),
        "Model.report": _call(model.report),
        "Session.run": _call(run_operator),
        "Session.program": _call(session.program, op=op),
        "LanguageModel.write": _call(write),
        "LanguageModel.export_c": _call(teller.export_c, folder="made", force=True),
        "LanguageModel.load": _call(load, path=weights, length=8),
    }  # fmt: skip


@cache
def calls() -> dict[str, Call]:
    """Return the calls that work, by name."""
    made = {
        f"{name} {number}": _call(getattr(ops, name), **base)
        for name, bases in BASES.items()
        for number, base in enumerate(bases)
    }
    made |= {
        f"graph.{name}": _call(getattr(graph_operators, name), **NODES[name][0]) for name in nodes()
    }
    made |= {f"cpu.{name}": call for name, call in _operators("float32", cpu).items()}
    made |= {**_compiling(), **_using(), "cpu.conv2d fused": _fused()}
    made |= _operators("int8", vtaops)
    return {name: call for name, call in made.items() if call.parameters}


def cases() -> list[tuple[str, str, str]]:
    """Return all cases: a call, a parameter, a kind of value."""
    return [
        (name, parameter, kind)
        for name, call in calls().items()
        for parameter in call.parameters
        for kind in VALUES
    ]


class Endless(Exception):
    """A call that works on."""


def fault(name: str, parameter: str, kind: str) -> str:
    """Return what is wrong with how a call ends; empty if nothing is."""
    call = calls()[name]

    def stop(*_: object) -> None:
        raise Endless

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        with tempfile.TemporaryDirectory() as place, chdir(place), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call.function(**{**call.arguments, parameter: VALUES[kind]()})
    except (vtaops.VTAError, Endless):
        return ""
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {str(error)[:150]}"
        return f"{name}({parameter}={kind}): {text} ({Path(where.filename).name}:{where.lineno})"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return ""


def draw(seed: object, count: int) -> list[tuple[str, str, str]]:
    """Return random cases: each call and each parameter of it equally often."""
    chance = random.Random(str(seed))
    chosen = []
    for _ in range(count):
        name = chance.choice([*calls()])
        chosen.append((name, chance.choice(calls()[name].parameters), chance.choice([*VALUES])))
    return chosen


def trial(case: str) -> Result:
    """Judge all cases of one call."""
    mine = [each for each in cases() if each[0] == case]
    faults = [wrong for each in mine if (wrong := fault(*each))]
    return result("wrong values", faults, calls=1, values=len(mine))


CAMPAIGN = Campaign(lambda _: [*calls()], trial, len(BASES) + len(NODES))
