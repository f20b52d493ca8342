"""The C runtime gives what `Model.run` gives, byte for byte, and refuses what is damaged."""

import ctypes
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import vtaops
from trials import c_bundles, random_bundles
from trials.c_bundles import every_operator, load, on_host, rewritten, same
from trials.onnx_models import Builder
from trials.random_graphs import random_graph, random_inputs
from vtaops import HardwareConfig
from vtaops.base.window import Window
from vtaops.graph import (
    AddTerm,
    Concat,
    Convolution,
    Graph,
    LayerNorm,
    LookupTable,
    MaxPool,
    Requantization,
    Slice,
    Softmax,
    Transpose,
    TransposedConvolution,
    operators,
)
from vtaops.graph.host import HostFunction
from vtaops.graph.tensor import Tensor
from vtaops.machine.layout import data_layout
from vtaops.machine.views import Patches
from vtaops.model.export import stages
from vtaops.model.export.regions import packed
from vtaops.model.export.values import Values


class Halved(HostFunction):
    """A function that has no C code."""

    def __call__(self, array):
        return (array // 2,)


pytestmark = pytest.mark.skipif(not c_bundles.compilers(), reason="no compiler of C is installed")


@pytest.fixture(scope="module")
def network():
    """A network with launches and host stages."""
    graph = random_graph(5)
    return vtaops.compile_model(graph, "pynq"), random_inputs(graph, 5)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_operator_of_a_graph(compiler):
    if compiler not in c_bundles.compilers():
        pytest.skip(f"{compiler} is not installed")
    model = on_host(every_operator())
    rng = np.random.default_rng(0)
    edges = np.array([0.05, 0.15, -0.25, 1e30, -1e30, np.inf, -np.inf, np.nan, 12.75, -1e-40])
    for scale in (1, 1000):
        image = (scale * rng.standard_normal((2, 5, 9, 8))).astype(np.float32)
        image.flat[: edges.size] = edges
        arrays = image, rng.integers(-128, 128, (2, 3, 6)).astype(np.int8)
        loaded = load(model, lib=c_bundles.library(compiler))
        assert loaded.status == c_bundles.OK
        status, found = loaded.run(*arrays)
        assert status == c_bundles.OK
        assert same(found, model.reference(*arrays))


@pytest.mark.parametrize("native", [True, False])
def test_host_stages_run_in_c_where_it_is_installed(native, monkeypatch):
    """As a bundle does; what C leaves to NumPy, or all of it, gives the same."""
    if not native:
        monkeypatch.setattr(stages, "Steps", None)
    graph = every_operator()
    halved = Tensor("-", graph.outputs[0].shape, "int8")
    made = graph.add(operators.Host(Halved(), (halved,), ("halve",)), graph.outputs[0])
    graph.output(*graph.outputs, graph.add(MaxPool((2, 3), (1, 2), (1, 0, 2, 2)), made))
    rng, model = np.random.default_rng(1), on_host(graph)
    arrays = (
        rng.standard_normal((2, 5, 9, 8)).astype(np.float32),
        rng.integers(-128, 128, (2, 3, 6)).astype(np.int8)[:, ::-1],
    )
    found = model.run(*arrays)
    assert same(found, model.reference(*arrays))
    in_numpy = {isinstance(part, partial) for part in stages._parts(graph.nodes, graph)}
    assert in_numpy == ({False, True} if native else {True})
    with pytest.raises(vtaops.errors.ShapeError, match="image has shape"):
        model.run(arrays[0][:1], arrays[1])


def test_host_stages_need_nothing_native():
    """The wheel for boards has no native module."""
    code = """
import sys
native = "vtaops._fsim", "vtaops._proof", "vtaops._steps", "vtaops._timing", "vtaops._uses"
for name in ("tvm", "typer", "rich", *native):
    sys.modules[name] = None  # importing them fails
import numpy as np
from vtaops.graph import Graph, MaxPool
from vtaops.model import HostStage
from vtaops.model.export.stages import host_stage
graph = Graph("pool")
graph.output(graph.add(MaxPool((2, 2), (2, 2)), graph.input("x", (1, 1, 2, 2))))
run = host_stage(HostStage(tuple(node.name for node in graph.nodes)), graph)
(result,) = run({"x": np.array([[[[1, 5], [-3, 2]]]], np.int8)}).values()
print(result.item())
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "5\n", done.stderr


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_requantisation(compiler):
    """Any multiplier and shift: its definition in integers without limits."""
    if compiler not in c_bundles.compilers():
        pytest.skip(f"{compiler} is not installed")
    rng, lib = np.random.default_rng(0), c_bundles.library(compiler)
    edges = np.array([0, 1, -1, (1 << 31) - 1, -(1 << 31), 255, -256])
    for shift in (*range(48), 55, 62):
        for bits in (1, 15, 16, 24, 30, 31):
            multiplier = int(rng.integers(1 << bits - 1, 1 << bits))
            zero, (low, high) = int(rng.integers(-128, 128)), np.sort(rng.integers(-128, 128, 2))
            near = np.arange(-10, 11) * 2**shift // (2 * multiplier)  # about the halves
            sums = np.concatenate([edges, near, rng.integers(-(1 << 31), 1 << 31, 30)])
            sums = sums[np.abs(sums + 0.5) < 2.0**31].astype(np.int64)
            for nudge in (0, 3, -3):
                word = shift | (nudge & 0xFFFFFF) << 8
                scaling = np.array([0, 1, zero, low, high], np.int64).astype(np.uint32)
                words, found = sums.astype(np.uint32), np.zeros(sums.size, np.int8)
                arrays = found.ctypes.data, words.ctypes.data
                lib.vta_requantize(
                    *map(ctypes.c_void_p, arrays),
                    sums.size,
                    ctypes.c_uint64(word << 32 | multiplier),  # the struct, in a register
                    ctypes.c_void_p(scaling.ctypes.data),
                )
                half = (1 << shift) >> 1
                more = [half - nudge * 16384 if n < 0 else half + nudge * 16384 for n in sums]
                wanted = [
                    min(max((int(n) * multiplier + m >> shift) + zero, low), high)
                    for n, m in zip(sums, more, strict=True)
                ]
                assert found.tolist() == wanted, (multiplier, shift, nudge)


@pytest.mark.parametrize("seed", range(12))
def test_movements_of_bytes(seed):
    """Any order of axes, whole blocks or not; boxes of few bytes that lie beside each other."""
    rng = np.random.default_rng(seed)
    graph = Graph("movements")
    shape = tuple(int(n) for n in rng.permutation([1, *rng.integers(2, 45, 3)]))
    x = graph.input("x", shape)
    table = LookupTable(np.arange(-128, 128).astype(np.int8)[::-1])
    turned = graph.add(Transpose(tuple(map(int, rng.permutation(4)))), x)
    parts = [graph.add(Slice(3, i % 2, 2 + i % 2, 1), x) for i in range(8) if shape[3] > 3]
    for y in (turned, graph.add(Concat(3), *parts) if parts else x):
        graph.output(graph.add(table, y))
        graph.output(graph.add(Transpose((0, 3, 1, 2)), graph.add(table, y)))
    model = on_host(graph)
    array = rng.integers(-128, 128, shape).astype(np.int8)
    status, found = load(model).run(array)
    assert status == c_bundles.OK
    assert same(found, model.reference(array))


@pytest.mark.skipif(stages.Steps is None, reason="the native module is not installed")
@pytest.mark.parametrize("seed", range(40))
def test_gathered_windows(seed):
    """Images of either order become what the layout says, whatever the window."""
    rng = np.random.default_rng(seed)
    size, channels = tuple(int(n) for n in rng.integers(3, 40, 2)), int(rng.integers(1, 7))
    kernel = tuple(int(n) for n in rng.integers(1, 6, 2))
    sides = tuple(int(n) for n in rng.integers(0, 4, 4) * rng.integers(0, 2, 4))
    gaps = (1, 1) if seed % 2 else (1, int(rng.integers(1, 3)))
    window = Window(kernel, tuple(int(n) for n in rng.integers(1, 4, 2)), sides, gaps)
    if min(window.out_size(*size)) < 1:
        window = Window((2, 2), (1, 2), (1, 0, 0, 1))
    view = Patches.of_columns(window) if seed % 5 == 0 else Patches(window, int(rng.integers(0, 6)))
    layout = data_layout(HardwareConfig.load("pynq"), view)
    array = rng.integers(-128, 128, (1, channels, *size)).astype(np.int8)
    wanted, last = layout.pack(array), seed % 4 > 0  # where the channels are
    given = np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if last else array
    x, y = Tensor("x", given.shape), Tensor("y", wanted.shape)
    values = Values([x], [y])
    image = values.array(x).transpose((0, 3, 1, 2)) if last else values.array(x)
    values.define(y, packed(image, layout, values, 1))
    blob, found = values.finished(0, (0, 1)), np.zeros_like(wanted)
    stages.Steps(blob, values.blob.arena()).run([given], [found])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("channels", [1, 3, 8])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (1, 4), (5, 2)])
def test_convolutions_of_every_window(channels, kernel):
    """Strides, dilations, borders and images of one column choose other loops in C."""
    rng = np.random.default_rng(channels * 100 + kernel[0])
    for size in ((7, 9), (12, 1), (1, 70)):
        graph = Graph("windows")
        x = graph.input("x", (1, channels, *size), zero_point=5)
        for groups, strides, dilation in (
            (1, (1, 1), (1, 1)),
            (channels, (1, 2), (1, 1)),
            (1, (3, 2), (2, 1)),
            (channels, (2, 3), (1, 2)),
            (channels, (1, 1), (2, 3)),
        ):
            weight = rng.integers(-128, 128, (channels, channels // groups, *kernel))
            padding = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True)) * 2
            scaling = Requantization(rng.integers(1, 9, channels), 10 + rng.integers(0, 9), 3)
            op = Convolution(
                weight.astype(np.int8), None, scaling, strides, padding, dilation, groups
            )
            graph.output(graph.add(op, x))
        for strides in ((1, 1), (2, 3)):
            weight = rng.integers(-128, 128, (channels, 3, *kernel)).astype(np.int8)
            scaling = Requantization(1, (9, 13)[strides[0] - 1])
            cut = tuple((k - 1) // 2 for k in kernel) * 2
            op = TransposedConvolution(weight, None, scaling, strides, cut)
            graph.output(graph.add(op, x))
        model = on_host(graph)
        array = rng.integers(-128, 128, x.shape).astype(np.int8)
        status, found = load(model).run(array)
        assert status == c_bundles.OK
        assert same(found, model.reference(array))


@pytest.mark.parametrize(("seed", "config"), [(1, "pynq_ext"), (4, "pynq"), (9, "pynq")])
def test_random_networks(seed, config):
    """`python -m trials random_bundles` runs more of them."""
    graph = random_graph(seed, free=seed != 4)
    model = vtaops.compile_model(graph, config)
    loaded = load(model)
    for turn in range(2):  # what the first run left behind does not matter
        arrays = random_inputs(graph, seed + turn)
        status, found = loaded.run(*arrays)
        assert (loaded.status, status) == (c_bundles.OK, c_bundles.OK)
        assert same(found, model.reference(*arrays))


def test_state_of_random_networks():
    assert not [found for case in ("3", "6", "9") for found in random_bundles.trial(case)["failed"]]


def test_softmax_is_close_to_the_definition():
    from scipy import special

    data = np.random.default_rng(0).normal(0, 30, (40, 70)).astype(np.float32)
    graph = Graph("softmax")
    graph.output(graph.add(Softmax(), graph.input("x", data.shape, "float32")))
    found = vtaops.graph.evaluate(graph, data)[0]
    np.testing.assert_allclose(found, special.softmax(data.astype(np.float64), -1), 2e-7, 2e-45)
    assert same(load(on_host(graph)).run(data)[1], found)
    data[:, 33:37] = -700, np.nextafter(np.float32(-700), -np.inf), -1e30, -1e-30
    data[:9, 0] = 0, 1, -200, 1e30, np.inf, -np.inf, np.nan, -1e30, 60
    data[6:8, -1] = 5, np.nan
    with np.errstate(invalid="ignore"):
        assert same(load(on_host(graph)).run(data)[1], vtaops.graph.evaluate(graph, data)[0])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e15])
def test_float_operators_are_close_to_their_definitions(scale):
    rng = np.random.default_rng(1)
    data = (scale * (3 + rng.standard_normal((2, 7, 33)))).astype(np.float32)
    weight, bias = rng.standard_normal((2, 33)).astype(np.float32)
    graph = Graph("floats")
    x = graph.input("x", data.shape, "float32")
    graph.output(graph.add(LayerNorm(weight, bias, 1e-5), x))
    graph.output(graph.add(AddTerm(weight), x))
    graph.output(graph.add(LayerNorm(weight, bias, 1e-5, centered=False), x))
    found = vtaops.graph.evaluate(graph, data)
    exact = data.astype(np.float64)
    centred = exact - exact.mean(-1, keepdims=True)
    normal = centred / np.sqrt(exact.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found[0], normal * weight + bias, 1e-6, 1e-7)
    assert np.array_equal(found[1], data + weight)
    root = np.sqrt(np.square(exact).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found[2], exact / root * weight + bias, 1e-6, 1e-7)
    assert same(load(on_host(graph)).run(data)[1], found)


def test_float_operators_refuse_terms_that_do_not_suit():
    graph = Graph("floats")
    x = graph.input("x", (2, 3), "float32")
    right = np.zeros(3, np.float32)
    for op, said in (
        (LayerNorm(right[:2], right), r"weight is float32\[2\]; it must be float32\[3\]"),
        (LayerNorm(right, right.astype(np.float64)), r"bias is float64\[3\]"),
        (AddTerm(np.zeros((1, 2, 3), np.float32)), r"it must be float32\[2, 3\]"),
        (AddTerm([1.0]), r"term is \[1.0\]"),
    ):
        with pytest.raises(vtaops.errors.ShapeError, match=said):
            graph.add(op, x)


def test_a_layer_of_a_vision_transformer(tmp_path):
    """Layer norms, positions and the softmax of a model file run in C, as in `Model.run`."""
    b = Builder(4)

    def dense(x):
        return b.add("MatMul", x, b.constant((b.rng.standard_normal((16, 16)) / 4).astype("f4")))

    def normal(x):
        terms = (b.constant(v.astype("f4")) for v in 1 + b.rng.standard_normal((2, 16)) / 4)
        return b.add("LayerNormalization", x, *terms, axis=-1, epsilon=1e-6)

    x = b.input([1, 12, 16])
    placed = b.add("Add", dense(x), b.constant(b.rng.standard_normal((1, 12, 16)).astype("f4")))
    y = normal(placed)
    scores = b.add("MatMul", dense(y), b.add("Transpose", dense(y), perm=[0, 2, 1]))
    mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), dense(y))
    y = b.add("ReduceMean", normal(b.add("Add", mixed, placed)), axes=[1], keepdims=0)
    b.output(dense(y))
    data = np.random.default_rng(3).standard_normal((4, 12, 16)).astype(np.float32)
    model = vtaops.compile_model(vtaops.quantize(b.model(), {"x": data}), "pynq")
    kinds = [node.op.kind for node in model.graph.nodes]
    floats = ("layer_norm", "constant", "softmax")
    assert [kinds.count(kind) for kind in floats] == [2, 1, 1]
    assert not any(isinstance(node.op, operators.Host) for node in model.graph.nodes)
    model.save(tmp_path / "layer.vtam")
    status, found = load(vtaops.load_model(tmp_path / "layer.vtam")).run(data[:1])
    assert status == c_bundles.OK
    assert same(found, model.run(data[:1]))
    assert same(found, model.reference(data[:1]))


def test_damaged_blobs_end_in_a_code(network):
    model, _ = network
    bundle, files = c_bundles.bundle_files(model, None)
    blob, rng = files["model.bin"], np.random.default_rng(0)

    def status(data, arena=bundle.arena_nbytes):
        device = c_bundles.PythonDevice(vtaops.runtime.Fsim(model.config))
        return c_bundles.Loaded(model, data, arena, device).status

    assert status(blob) == c_bundles.OK
    assert status(blob[:-8]) == status(blob[:50]) == status(b"") == c_bundles.BLOB
    assert status(b"VTAX" + blob[4:]) == c_bundles.BLOB
    assert status(blob[3::-1] + blob[4:]) == c_bundles.ENDIAN
    assert status(blob[:4] + b"\1\0\0\0" + blob[8:]) == c_bundles.VERSION
    assert status(blob, bundle.arena_nbytes - 8) == c_bundles.ARENA
    other = rewritten(blob, lambda data: data.__setitem__(48, data[48] ^ 1))
    assert status(other) == c_bundles.CONFIG
    for place in rng.integers(16, len(blob), 30).tolist():
        damaged = bytearray(blob)
        damaged[place] ^= 1 << int(rng.integers(8))
        assert status(bytes(damaged)) == c_bundles.CRC


def test_blobs_that_contradict_themselves_do_no_harm():
    """A right CRC proves no content: every step checks its operands. A sanitizer watches."""
    found = c_bundles.contradictions(on_host(every_operator()), 300)
    assert {*found} == {c_bundles.OK, c_bundles.CONTENT}
    assert found[c_bundles.CONTENT] > 100


@pytest.mark.parametrize("function", ["alloc", "write", "read", "launch", "wait"])
def test_a_device_that_fails_costs_one_run(network, function):
    """Whatever fails, and whenever: a code, no result, and nothing more until the next init."""
    model, arrays = network
    for code in (c_bundles.DEVICE, c_bundles.TIMEOUT):
        loaded = load(model, fail={function: lambda _, code=code: code})
        if loaded.status:
            assert loaded.status == code
            assert loaded.run(*arrays)[0] == c_bundles.NOT_READY
            continue
        assert loaded.run(*arrays)[0] == code
        del loaded.device.fail[function]
        assert loaded.run(*arrays)[0] == c_bundles.NOT_READY


def test_the_host_prepares_a_run_while_the_device_executes_another(network):
    """Two models of one blob take turns; a launch begins when the other's has ended."""
    model, arrays = network
    images = [[array - n for array in arrays] for n in range(4)]
    turns = [load(model)]
    turns.append(load(model, device=turns[0].device))
    calls, found = [], []
    device = turns[0].device
    device.fail = {name: partial(lambda name, _: calls.append(name) or 0, name)
                   for name in ("write", "launch", "wait", "read")}  # fmt: skip
    assert turns[0].prepare(*images[0]) == turns[0].start() == c_bundles.OK
    assert turns[0].prepare(*images[0]) == turns[0].start() == c_bundles.NOT_READY
    for number, image in enumerate(images[1:]):
        now, ahead = turns[number % 2], turns[1 - number % 2]
        assert ahead.start() == ahead.finish()[0] == c_bundles.NOT_READY
        before = len(calls)
        assert ahead.prepare(*image) == c_bundles.OK
        assert {*calls[before:]} == {"write"}
        found.append(now.finish())
        assert ahead.start() == c_bundles.OK
    found.append(ahead.finish())
    for image, (status, outputs) in zip(images, found, strict=True):
        assert status == c_bundles.OK
        assert same(outputs, model.run(*image))
    launches = [name for name in calls if name in ("launch", "wait")]
    assert launches == ["launch", "wait"] * (len(launches) // 2)


def test_a_launch_that_never_ends(network):
    """The device keeps the time; a program without FINISH ends in a code too."""
    model, arrays = network
    loaded = load(model)
    device = loaded.device
    device.launch = lambda address, count: setattr(device, "_launch", (address, 1))
    device.struct.launch = type(device.struct.launch)(device._guarded(device.launch))
    device.fail = {}
    status, _ = loaded.run(*arrays)
    assert status in (c_bundles.FAULT, c_bundles.DEVICE)
    assert loaded.run(*arrays)[0] == c_bundles.NOT_READY


def test_float_functions_are_refused_by_name(tmp_path):
    b = Builder()
    x = b.input([1, 8, 6, 6])
    b.output(b.add("Softmax", b.conv(x, 8, 8, kernel=1), axis=1))
    data = [np.ones((8, 6, 6), np.float32)]
    model = vtaops.compile_model(vtaops.quantize(b.model(), {"x": np.stack(data)}))
    with pytest.raises(
        vtaops.errors.UnsupportedError, match=r"Softmax.* has no C code.*ONNX Runtime"
    ):
        model.export_c(tmp_path / "c")
    assert not (tmp_path / "c").exists()
