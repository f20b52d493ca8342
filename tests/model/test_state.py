"""Networks with state: what a run takes from the run before, on the device or on the host."""

import sys

import numpy as np
import onnxruntime
import pytest
from helpers.processes import spawned
from typer.testing import CliRunner

import vtaops
from trials import c_bundles
from trials.networks import cache, growing, window
from trials.onnx_models import Builder
from vtaops.cli import app
from vtaops.errors import ArgumentError, DeviceError, ShapeError
from vtaops.graph.executor import evaluate_runs
from vtaops.runtime.arguments import as_tuple

BOARD = (sys.executable, "-m", "vtaops.board", "virtual", "pynq", "--programmed", "--port", "0")


def drawn(model, runs, seed=0):
    """Random arguments of several runs, in one array each; places are those of the runs."""
    rng = np.random.default_rng(seed)
    tensors = model.graph.arguments
    made = {t.name: rng.integers(-90, 90, (runs, *t.shape[1:])).astype(np.int8) for t in tensors}
    if "place" in made:
        made["place"] = np.eye(runs, 32, dtype=np.int8).reshape(runs, 1, 32, 1)
    return made


@pytest.fixture(scope="module")
def model():
    return vtaops.compile_model(cache())


@pytest.mark.parametrize("device", ["fsim", "tsim"])
def test_conversations_stand_beside_each_other_on_the_device(model, device):
    assert len(model.regions) == 1
    data = drawn(model, 12)
    other = drawn(model, 12, seed=1)
    with vtaops.Session(device, model.config) as session:
        first, second = (model.new_state(session) for _ in range(2))
        assert first.on_device == ("past",)
        found = [[], []]
        for run in range(12):
            for state, given, results in zip((first, second), (data, other), found, strict=True):
                one = {name: array[run : run + 1] for name, array in given.items()}
                results.append(model.run(one, state=state))
        for results, given in zip(found, (data, other), strict=True):
            assert np.array_equal(np.concatenate(results), model.reference(given))
        assert np.array_equal(first.values()["past"][0, 0, :12], data["key"][:, 0, 0])


def test_state_with_a_view_that_another_launch_reads_stays_on_the_host():
    model = vtaops.compile_model(cache(), "pynq", prove=False)
    assert len(model.regions) > 1
    data, state = drawn(model, 3), model.new_state()
    assert state.on_device == ()
    assert np.array_equal(model.run(data, state=state), model.reference(data))


def test_only_arguments_and_results_travel(model):
    data = drawn(model, 3)
    with spawned([*BOARD, "--config", "pynq_ext"]) as process:
        address = process.stdout.readline().split()[-1]
        with vtaops.Session(address, model.config, timeout=30) as session:
            state = model.new_state(session)
            expected = model.reference(data)
            one = [{name: array[run : run + 1] for name, array in data.items()} for run in range(3)]
            for run in range(2):  # the images change places: each way writes its instructions once
                assert np.array_equal(model.run(one[run], state=state), expected[run : run + 1])
            device = session.device
            sent, received = device.sent_bytes, device.received_bytes
            assert np.array_equal(model.run(one[2], state=state), expected[2:])
            (region,) = model.regions
            buffers = {b.name: b.nbytes for b in region.program.buffers}
            given = [a.buffer for a in region.inputs if a.tensor != "past"]
            assert device.sent_bytes - sent == sum(buffers[name] for name in given)
            assert device.received_bytes - received == buffers["scores"]
            device._drop()  # the board frees what the connection held
            for _ in range(2):
                with pytest.raises(DeviceError, match="lost the state of the network; reset it"):
                    model.run(one[0], state=state)
                assert np.array_equal(model.run(one[0], session=session), expected[:1])
                model.reset()
            state.reset()
            assert np.array_equal(model.run(data, state=state), expected)


def test_exported_c_keeps_state_that_grows():
    model = vtaops.compile_model(growing(), prove=False)
    bundle, rng = c_bundles.load(model), np.random.default_rng(0)
    assert [tensor.name for tensor in bundle.inputs] == ["key", "query"]
    assert [tensor.name for tensor in bundle.outputs] == ["scores"]
    for count in (12, 5):
        state = model.new_state()
        for _ in range(count):
            run = [rng.integers(-50, 50, t.shape).astype(np.int8) for t in model.graph.arguments]
            status, (scores,) = bundle.run(*run)
            assert status == c_bundles.OK
            assert np.array_equal(scores, model.run(*run, state=state))
        assert (bundle.run(*run)[0] == c_bundles.NO_ROOM) == (count == 12)
        assert bundle.reset() == c_bundles.OK
    read = c_bundles.load(vtaops.compile_model(growing(read=True), prove=False))
    assert "past" in [tensor.name for tensor in read.inputs]


@pytest.mark.parametrize(("device", "read"), [("fsim", False), ("tsim", False), ("fsim", True)])
def test_runs_add_their_rows_to_state_that_grows(device, read):
    model = vtaops.compile_model(growing(read=read))
    rng = np.random.default_rng(0)
    runs = [
        [rng.integers(-50, 50, t.shape).astype(np.int8) for t in model.graph.arguments]
        for _ in range(12)
    ]
    expected = [*evaluate_runs(model.graph, runs)]
    with vtaops.Session(device, model.config) as session:
        states = [model.new_state(session) for _ in range(2)]
        assert states[0].on_device == (() if read else ("past",))
        for run, wanted in zip(runs, expected, strict=True):
            for state in states:
                for found, made in zip(as_tuple(model.run(*run, state=state)), wanted, strict=True):
                    assert np.array_equal(found, made)
        keys = np.concatenate([key for key, _ in runs], axis=2)
        assert np.array_equal(states[0].values()["past"], keys + 3)
        with pytest.raises(ArgumentError, match="past holds 12 rows, of which 12 are written"):
            model.run(*runs[0], state=states[0])
        states[0].reset()
        for run in runs[:5]:
            model.run(*run, state=states[0])
        values, place = states[0].values(), states[0].place
        states[1] = model.new_state(session, values, place)
        for run, wanted in zip(runs[5:], expected[5:], strict=True):
            assert np.array_equal(as_tuple(model.run(*run, state=states[1]))[0], wanted[0])


def test_rows_travel_without_the_state_that_they_join():
    model = vtaops.compile_model(growing())
    with spawned([*BOARD, "--config", "pynq_ext"]) as process:
        address = process.stdout.readline().split()[-1]
        with vtaops.Session(address, model.config, timeout=30) as session:
            state = model.new_state(session)
            given = np.ones((2, 8, 1), np.int8), np.ones((2, 1, 8), np.int8)
            sent = []
            for _ in range(3):
                before = session.device.sent_bytes
                model.run(*given, state=state)
                sent.append(session.device.sent_bytes - before)
            assert np.array_equal(state.values()["past"][..., :3], np.full((2, 8, 3), 4))
            (region,) = model.regions
            buffers = {b.name: b.nbytes for b in region.program.buffers}
            assert sent[2] == buffers["key"] + buffers["query"] + 2 * 8


def test_a_state_continues_where_its_values_were_kept(model, tmp_path):
    data = drawn(model, 6)
    state, expected = model.new_state(), model.reference(data)
    head, tail = ({n: a[cut] for n, a in data.items()} for cut in (slice(3), slice(3, 6)))
    assert np.array_equal(model.run(head, state=state), expected[:3])
    model.save(tmp_path / "cache.vtam")
    again = vtaops.load_model(tmp_path / "cache.vtam")
    assert again.graph.state == {"past": "present"}
    other = again.new_state(values=state.values())
    assert np.array_equal(again.run(tail, state=other), expected[3:])
    assert np.array_equal(model.run(tail, state=state), expected[3:])
    other.reset()
    assert np.array_equal(again.run(tail, state=other), expected[3:])


def test_the_model_has_a_state_of_its_own_until_it_is_reset():
    model = vtaops.compile_model(window())
    data = {"new": drawn(model, 5)["new"] // 3}  # whose sums of three are int8
    expected = model.reference(data)
    assert np.array_equal(model.run(data["new"][:2]), expected[:2])
    assert np.array_equal(model.run(data["new"][2:]), expected[2:])
    model.reset()
    assert np.array_equal(model.run(data), expected)
    padded = np.concatenate([np.zeros((2, 16, 4, 4), int), data["new"]])
    assert np.array_equal(expected, sum(padded[n : n + 5] for n in range(3)))


def running_sum():
    """The sum of all inputs so far, quantised by hand: state on equal grids."""
    b = Builder()
    x, past = b.input([1, 16, 4, 4]), b.input([1, 16, 4, 4], "past")
    grid = b.constant(np.float32(2**-5)), b.constant(np.int8(3))

    def pair(name):
        return b.add("DequantizeLinear", b.add("QuantizeLinear", name, *grid), *grid)

    made = pair(b.add("Add", pair(x), pair(past)))
    b.output(made)
    return b.model(), made


def test_integers_of_a_file_are_carried_as_they_are():
    file, made = running_sum()
    model = vtaops.compile_model(file, state={"past": made})
    assert model.graph.tensors["past"].dtype == "int8"
    assert model.new_state().on_device == ("past",)
    xs = np.random.default_rng(0).normal(0, 1, (5, 16, 4, 4)).astype(np.float32)
    for x in xs:
        model.run(x[None])
    run = onnxruntime.InferenceSession(file.SerializeToString())
    past = np.zeros((1, 16, 4, 4), np.float32)
    for x in xs:
        (past,) = run.run(None, {"x": x[None], "past": past})
    kept = model.graph.tensors["past"]
    found = (model._state.values()["past"] - 3.0) * kept.scale
    assert np.array_equal(found, past)


def test_state_that_does_not_fit_is_refused(model):
    graph = cache()
    for past, present, said in (
        ("past", "present", "no input 'past' is left"),
        ("key", "scores", "are not alike; state has one type, and one shape but for an axis"),
        ("keys", "scores", r"no input 'keys' is left for state \(did you mean 'key'\?\)"),
        ("key", "score", r"no output 'score' is left for state \(did you mean 'scores'\?\)"),
    ):
        with pytest.raises(ShapeError, match=said):
            graph.carry({past: present})
    with pytest.raises(ShapeError, match="no output 'score' is left"):
        vtaops.compile_model(graph, state={"key": "score"})
    with pytest.raises(ArgumentError, match="'key' is no state; cache keeps past"):
        model.new_state(values={"key": np.zeros(1)})
    with pytest.raises(ShapeError, match="past has shape"):
        model.new_state(values={"past": np.zeros(1, np.int8)})
    with (
        vtaops.Session("fsim", model.config) as session,
        pytest.raises(ArgumentError, match="a state and a session are given"),
    ):
        model.run(drawn(model, 1), session=session, state=model.new_state())


def test_commands_compile_and_run_networks_with_state(tmp_path):
    file, made = running_sum()
    source, compiled, data = (tmp_path / name for name in ("sum.onnx", "sum.vtam", "xs.npz"))
    source.write_bytes(file.SerializeToString())
    np.savez(data, x=np.random.default_rng(0).normal(0, 1, (3, 16, 4, 4)).astype(np.float32))
    run = CliRunner().invoke
    words = ["compile", str(source), "-o", str(compiled), "--state"]
    refused = run(app, [*words, "past"]).exception
    assert str(refused) == "--state is 'past'; it must be like past=present"
    assert run(app, [*words, f"past={made}"]).exit_code == 0
    told = run(app, ["run", "model", str(compiled), "--input", str(data), "--check"])
    assert told.exit_code == 0
    assert "equal to the reference" in told.output
