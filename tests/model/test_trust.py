"""Machine code in the file of a model: it runs at a run that may run it, and never else."""

import hashlib
import json
import shutil
import struct
import subprocess

import numpy as np
import pytest
from tvm import relax
from typer.testing import CliRunner

import vtaops
from vtaops import ProgramError, TrustError, VTAError
from vtaops.cli import app
from vtaops.graph import Convolution, Dequantize, Host, Quantize, Requantization, Tensor
from vtaops.model.artefact import dumps, loads
from vtaops.frontends.host import RelaxFunction

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

PREAMBLE = struct.Struct("<8sIIQ")
SHAPE = (1, 8, 4, 4)


def negation():
    """Return a function of TVM: y = -x."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        y = builder.emit(relax.op.negative(x))
        builder.emit_func_output(relax.Tuple([y]))
    return RelaxFunction(builder.finalize())


def compiled():
    """Return a model of a convolution on VTA and a function on the host."""
    graph = vtaops.Graph("network")
    x = graph.input("x", SHAPE, "float32")
    weight = np.ones((8, 8, 1, 1), np.int8)
    q = graph.add(Convolution(weight, None, Requantization(1, 3)), graph.add(Quantize(1.0), x))
    host = Host(negation(), (Tensor("-", SHAPE, "float32"),), ("negative",), "it is float")
    graph.output(graph.add(host, graph.add(Dequantize(), q)))
    return vtaops.compile_model(graph, "tiny")


X = np.random.default_rng(0).integers(-9, 9, SHAPE).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    return compiled()


@pytest.fixture
def mark(tmp_path):
    """What the hostile constructor writes."""
    return tmp_path / "it_ran"


@pytest.fixture
def hostile(mark, tmp_path):
    """The object code of a constructor that writes a file."""
    source, code = tmp_path / "hostile.c", tmp_path / "hostile.o"
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void run(void) "
        f'{{ FILE *f = fopen("{mark}", "w"); if (f) fclose(f); }}\n'
    )
    subprocess.run(["cc", "-c", "-fPIC", str(source), "-o", str(code)], check=True)
    return code


@pytest.fixture
def path(model, hostile, tmp_path, monkeypatch):
    """A model whose function is a library that works, with the constructor in it."""

    def to_bytes(function):
        library = tmp_path / "host.so"
        function._compiled().export_library(str(library), addons=[str(hostile)])
        return library.read_bytes()

    monkeypatch.setattr(RelaxFunction, "to_bytes", to_bytes)
    model.save(tmp_path / "network.vtam")
    return tmp_path / "network.vtam"


def vta(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_reading_a_model_runs_nothing_of_it(path, mark, tmp_path):
    for trusted in (False, True):
        loaded = vtaops.load_model(path, trusted=trusted)
        loaded.verify()
        loaded.report()
        loaded.cycles()
        loaded.stats()
        loaded.save(tmp_path / "again.vtam")
        assert (tmp_path / "again.vtam").read_bytes() == path.read_bytes()
    page = tmp_path / "page.html"
    for command in (("ops", path), ("profile", path), ("profile", path, "-o", page)):
        done = vta(*command)
        assert done.exit_code == 0, done.output
    for command in (("verify", path), ("prove", path), ("export", path, "--c", tmp_path / "c")):
        done = vta(*command)
        assert isinstance(done.exception, VTAError | SystemExit | None), done.output
    assert not mark.exists()


def test_a_run_without_consent_is_refused_before_it_begins(path, mark):
    loaded, stages = vtaops.load_model(path), []
    for run in (lambda: loaded.run(X, progress=stages.append), lambda: loaded.reference(X)):
        with pytest.raises(TrustError, match=r"1 functions .* 'negative'.*trusted=True.*--trust"):
            run()
    with pytest.raises(TrustError):
        vtaops.graph.evaluate(loaded.graph, X)
    done = vta("run", path)
    assert done.exit_code == 1
    assert isinstance(done.exception, TrustError)
    assert stages == []
    assert not mark.exists()


def test_with_consent_the_first_run_loads_it(path, mark, model):
    loaded = vtaops.load_model(path, trusted=True)
    assert not mark.exists()
    assert np.array_equal(loaded.run(X), model.run(X))
    assert mark.exists()
    mark.unlink()
    done = vta("run", path, "--trust", "--check")
    assert done.exit_code == 0, done.output
    assert mark.exists()


def test_a_model_compiled_here_asks_for_nothing(model):
    assert np.array_equal(model.run(X), model.reference(X))


def test_a_library_that_is_none_is_refused_at_the_first_run(model, monkeypatch):
    monkeypatch.setattr(RelaxFunction, "to_bytes", lambda _: b"no library")
    loaded = loads(dumps(model), trusted=True)
    with pytest.raises(ProgramError, match="not a library for this processor"):
        loaded.run(X)


def changed(path, change):
    """Write a model with another header and the right checksum."""
    data = path.read_bytes()
    magic, version, length, _ = PREAMBLE.unpack_from(data)
    header = json.loads(data[PREAMBLE.size : PREAMBLE.size + length])
    change(header)
    blobs = data[-(-(PREAMBLE.size + length) // 64) * 64 : -32]
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    start = -(-(PREAMBLE.size + len(text)) // 64) * 64
    body = PREAMBLE.pack(magic, version, len(text), start + len(blobs) + 32) + text
    body = body.ljust(start, b"\0") + blobs
    path.write_bytes(body + hashlib.sha256(body).digest())


def node(header, operator):
    return next(n for n in header["graph"]["nodes"] if n["operator"] == operator)


def own(header):
    return node(header, "Host")["parameters"]["function"]


def put(operator, name, wrap=lambda function: function):
    """Return a change that places the function in a parameter of a node."""

    def change(header):
        node(header, operator)["parameters"][name] = wrap(own(header))

    return change


def on_vta(header):
    """Let a stage claim that VTA computes the function."""
    (stage,) = (s for s in header["stages"] if s["where"] == "vta")
    stage["nodes"] += node(header, "Host")["outputs"]


def inconsistent(header):
    header["graph"]["outputs"] = ["nothing"]


MISPLACED = {
    "weight": put("Convolution", "weight"),
    "bias": put("Convolution", "bias"),
    "residual": put("Convolution", "residual_factor"),
    "scaling": put("Convolution", "requantization", lambda f: {"requantization": [f, 0]}),
    "padding": put("Convolution", "padding", lambda f: [f] * 4),
    "scale": put("Quantize", "scale"),
    "unknown parameter": put("Dequantize", "function"),
    "results": put("Host", "outputs", lambda f: [f]),
    "reason": put("Host", "reason"),
    "a tensor": put("Host", "outputs", lambda f: [{"tensor": f}]),
    "on VTA": on_vta,
    "no such kind": lambda header: own(header).update(function="python"),
    "no kind": lambda header: own(header).update(function=["relax"]),
    "no blob": lambda header: own(header).update(blob=99),
    "a blob from behind": lambda header: own(header).update(blob=-1),
    "a blob that is true": lambda header: own(header).update(blob=True),
    "beyond the file": lambda header: header["blobs"][own(header)["blob"]].__setitem__(1, 1 << 40),
    "elsewhere inconsistent": inconsistent,
}


@pytest.mark.parametrize("place", MISPLACED)
@pytest.mark.parametrize("trusted", [False, True])
def test_a_function_out_of_place_is_refused_unloaded(place, trusted, path, mark):
    changed(path, MISPLACED[place])
    with pytest.raises(ProgramError):
        vtaops.load_model(path, trusted=trusted)
    for command in (("ops", path), ("profile", path), ("run", path, "--trust")):
        assert isinstance(vta(*command).exception, ProgramError)
    assert not mark.exists()
