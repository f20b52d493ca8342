"""The device of MLPerf Tiny's runner: its commands, a line to it, and the runner itself."""

import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import vtaops
from trials import mlperf_runner
from trials.tflite_models import Writer
from vtaops import DeviceError, ModelError
from vtaops.board.mlperf import MOST_CHARACTERS, TASKS, DeviceUnderTest, open_line, serve, task_of
from vtaops.graph import Tensor

RUNNER = Path(os.environ.get("MLPERF_RUNNER", "mlperf-runner"))
PIXELS = Tensor("x", (1, 32, 32, 3), scale=1.0, zero_point=-128)
SCORES = Tensor("y", (1, 3), scale=1 / 256, zero_point=-128)


def device(given=PIXELS, result=SCORES, run=None, **options):
    """A device whose scores are the first values of its input."""
    return DeviceUnderTest(given, result, run or (lambda x: x.reshape(1, -1)[:, :3]), **options)


def said(tested, *commands):
    """The lines before m-ready that answer the last command."""
    for command in commands:
        *lines, last = tested.answer(command)
        assert last == "m-ready"
    return lines


def load(tested, content):
    said(tested, f"db load {len(content)}")
    for at in range(0, len(content), 31):
        lines = said(tested, f"db {content[at : at + 31].hex()}")
    assert lines == ["m-load-done"]


def test_the_commands():
    tested = device(name="a board")
    assert said(tested, "name") == ["m-name-dut-[a board]"]
    assert said(tested, "profile")[1] == "m-model-[ic01]"
    first, second = (int(said(tested, "timestamp")[0].removeprefix("m-lap-us-")) for _ in "ab")
    assert 0 < first <= second
    pixels = bytes(range(256)) * 12
    load(tested, pixels)
    assert said(tested, "db print")[1] == "m-buffer-08-09-0a-0b-0c-0d-0e-0f"
    lines = said(tested, "infer 3 2")
    assert [line.rpartition("-")[0] for line in lines] == [
        "m-warmup-start",
        "m-warmup",
        "m-infer-start",
        "m-lap-us",
        "m-lap-us",
        "m-infer",
        "m-results",
    ]
    assert lines[-1] == "m-results-[0.000,0.004,0.008]" == said(tested, "results")[0]
    load(tested, pixels[100:] + pixels[:100])
    assert said(tested, "infer", "results") == ["m-results-[0.391,0.395,0.398]"]
    assert len(said(tested, "help")) == 3


def test_inferences_are_counted():
    ran = []
    tested = device(run=lambda x: ran.append(1) or x.reshape(1, -1)[:, :3], inference_seconds=1e-3)
    load(tested, bytes(3072))
    lines = said(tested, "infer 7 4")
    laps = [int(line.removeprefix("m-lap-us-")) for line in lines if "lap" in line]
    assert (len(ran), laps) == (11, [4000, 11_000])


def test_floats_go_on_the_grid_and_return_as_an_error():
    grid = Tensor("x", (1, 640), scale=0.5, zero_point=10)
    tested = device(grid, Tensor("y", (1, 640), scale=0.25, zero_point=-3), run=lambda x: x)
    values = np.linspace(-100, 100, 640, dtype="<f4")
    load(tested, values.tobytes())
    steps = np.clip(np.rint(values.astype(float) / 0.5) + 10, -128, 127)
    wanted = np.mean(((steps + 3) * 0.25 - values.astype(float)) ** 2)
    assert said(tested, "infer 1 0")[-1] == f"m-results-[{wanted:.3f}]"
    for odd, result in ((np.inf, "inf"), (np.nan, "nan")):
        values[3] = odd
        load(tested, values.tobytes())
        assert said(tested, "infer 1 0")[-1] == f"m-results-[{result}]"


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        (["hello"], "Unknown command: hello"),
        ([""], "Unknown command: "),
        (["db"], "requires load N, print, or hex"),
        (["db 00"], "after a load"),
        (["db load 0"], "1 to 3072 bytes"),
        (["db load 3073"], "1 to 3072 bytes"),  # it would be kept
        (["db load " + "9" * 4000], "1 to 3072 bytes"),
        (["db load many"], "many"),
        (["db load 3", "db 0g"], "hexadecimal"),
        (["db load 3", "db 0001", "infer"], "has 2 bytes, expected 3072 of uint8"),
        (["results"], "no results yet"),
    ],
)
def test_bad_commands_are_answered(commands, message):
    (line,) = said(device(), *commands)
    assert line.startswith("e-[")
    assert message in line


def test_numbers_of_inferences():
    tested = device()
    load(tested, bytes(3072))
    for command in ("infer 0", "infer 1 -1", "infer x", "infer 9999999 0", "infer 1 9999999"):
        assert said(tested, command)[0].startswith("e-[")


def test_failures_of_the_device_are_answered():
    def fail(array):
        raise DeviceError("the board\nis gone")

    tested = device(run=fail)
    load(tested, bytes(3072))
    assert said(tested, "infer 1 0")[-1] == "e-[the board is gone]"


def test_which_benchmark():
    assert [task.nbytes for task in TASKS] == [3072, 27648, 490, 2560, 1200]
    assert task_of(Tensor("x", (1, 49, 10, 1))).name == "kws01"
    with pytest.raises(ModelError, match="12 elements, which no benchmark"):
        device(Tensor("x", (1, 12)))
    with pytest.raises(ModelError, match="takes float32 and returns int8"):
        device(Tensor("x", (1, 640), "float32"))


@pytest.fixture
def line():
    """A device at a pseudo-terminal of this process: the file of its other end."""
    file, path = open_line(None, 0)
    other = os.open(path, os.O_RDWR | os.O_NOCTTY)
    served = threading.Thread(target=serve, args=(device(), file), daemon=True)
    served.start()
    yield other
    os.close(other)


def ask(line, text):
    os.write(line, text)
    found = b""
    while not found.endswith(b"m-ready\r\n"):
        found += os.read(line, 4096)
    return found


def test_commands_arrive_in_pieces(line):
    os.write(line, b"na")
    assert ask(line, b"me%") == b"m-name-dut-[vtaops]\r\nm-ready\r\n"
    assert b"Unknown command: \\xff" not in ask(line, b"\xff%")
    assert ask(line, b"name%").startswith(b"m-name")


def test_endless_commands_are_refused(line):
    """The end of one is no command, nor is its beginning."""
    for end in (b"%", b" name%"):
        for _ in range(3):
            os.write(line, b"name " * (MOST_CHARACTERS // 8))
        assert ask(line, end).startswith(b"e-[a command has at most")
    assert ask(line, b"name%").startswith(b"m-name")


@pytest.mark.parametrize("sent", [b"", b"name%", b"na"])
def test_a_line_that_ends(sent):
    """Within a command or before its answer; a socket that is closed with bytes unread is reset."""
    ours, runners = socket.socketpair()
    with ours:
        ours.sendall(b"unread")
        runners.sendall(sent)
        runners.close()
        with pytest.raises(DeviceError, match="the line to the runner is gone"):
            serve(device(), ours.fileno())


def test_ports_that_are_none(tmp_path):
    with pytest.raises(DeviceError, match="No such file"):
        open_line(tmp_path / "none", 115200)
    (tmp_path / "file").touch()
    with pytest.raises(DeviceError, match="it is not a serial port"):
        open_line(tmp_path / "file", 115200)


def keyword_file(path):
    """A small network with the shapes of the keyword benchmark."""
    writer = Writer(1)
    x = writer.tensor((1, 49, 10, 1), "int8", 0.58, 83)
    y = writer.convolution(x, 8, 3, 0.1, -128, stride=2, relu=1)
    mean = writer.tensor((1, 8), "int8", 0.1, -128)
    writer.operator("MEAN", [y, writer.constant([1, 2])], [mean], KeepDims=False)
    weights = writer.rng.integers(-127, 128, (12, 8)).astype(np.int8)
    weight = writer.tensor((12, 8), "int8", 0.02, data=weights)
    bias = writer.tensor((12,), "int32", 0.002, data=np.zeros(12, np.int32))
    scores = writer.tensor((1, 12), "int8", 0.1, 3)
    writer.operator("FULLY_CONNECTED", [mean, weight, bias], [scores], FusedActivationFunction=0)
    path.write_bytes(writer.finish([x], [scores]))


def test_the_published_runner_measures_a_model(tmp_path):
    """mlcommons' own main.py, unmodified; `python -m benchmarks mlperf_runner --fetch` gets it."""
    if reason := mlperf_runner.missing(RUNNER):
        pytest.skip(reason)
    keyword_file(tmp_path / "words.tflite")
    model = vtaops.compile_model(tmp_path / "words.tflite", "pynq_exact")
    model.save(tmp_path / "words.vtam")
    task = mlperf_runner.task_named("kws01")
    command = [sys.executable, "-m", "vtaops", "board", "mlperf", str(tmp_path / "words.vtam")]
    with subprocess.Popen(
        [*command, "--clock-mhz", "100"], stdout=subprocess.PIPE, text=True
    ) as served:
        try:
            name, _, port = served.stdout.readline().strip().partition(" at ")
            assert name == "kws01"
            found = mlperf_runner.drive(RUNNER, port, task, tmp_path, 40, 1)
        finally:
            served.terminate()
    inputs = mlperf_runner.write_data(tmp_path / "data", task)
    for number, content in enumerate(inputs):
        scores = model.run(np.frombuffer(content, np.int8).reshape(1, 49, 10, 1))
        real = [float(f"{(value - 3) * 0.1:.3f}") for value in scores.reshape(-1).astype(float)]
        assert f"window {number + 1}:" in found
        assert f"m-results    : {real}" in found
    throughput = [float(text) for text in re.findall(r"Throughput +: +([\d.]+)", found)]
    assert throughput == pytest.approx([1e8 / model.cycles()] * 5, rel=1e-3)
