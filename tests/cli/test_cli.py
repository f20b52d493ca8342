"""The command line: output, exit codes, help with an example for every command."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from helpers.pictures import shows_something
from typer.testing import CliRunner

import vtaops
from vtaops import cli
from vtaops.cli import options
from vtaops.cli.lists import LISTS
from vtaops.compiler import driver
from vtaops.errors import ShapeError
from vtaops.runtime import DEVICES
from vtaops.schedule.workloads import WORKLOADS

runner = CliRunner()


def call(*arguments):
    return runner.invoke(cli.app, list(arguments))


def test_run_conv2d_prints_the_statistics_report():
    result = call("run", "conv2d", "--layer", "resnet18.C10")
    assert result.exit_code == 0, result.output
    for name in ("inp_load_nbytes", "gemm_counter", "25,088", "equals NumPy"):
        assert name in result.output


def test_run_as_json_with_explicit_shape_and_tiling():
    shape = "in_channels=8, out_channels=16, height=6, width=5, kernel=(3, 1), strides=(1, 2)"
    post = "padding=(1, 0, 1, 0), bias=True, shift=4, clip=(-9, 9)"
    how = "--config tiny --tiling oc=8,ic=8,h=2,w=3,oc_threads=2 --json"
    result = call("run", "op", f"Conv2d({shape}, {post})", *how.split())
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["equals_numpy"] is True
    assert report["operators"][0]["tiling"]["oc_threads"] == 2
    assert report["operators"][0]["parameters"]["clip"] == [-9, 9]
    assert report["counters"]["gemm_counter"] == 2 * 6 * 3 * 3


def test_run_arrays_from_files(tmp_path):
    rng = np.random.default_rng(3)
    shapes = {"x": (1, 5, 6, 7), "w": (9, 5, 3, 3)}
    arrays = {name: rng.integers(-128, 128, s).astype(np.int8) for name, s in shapes.items()}
    files = {name: str(tmp_path / f"{name}.npy") for name in (*arrays, "y")}
    for name, array in arrays.items():
        np.save(files[name], array)
    given = "--input", files["x"], "--input", files["w"], "--output", files["y"]
    sizes = "in_channels=5, out_channels=9, height=6, width=7, kernel=3"
    convolution = f"Conv2d({sizes}, padding='same', clip=(0, 127))"
    result = call("run", "op", convolution, *given)
    assert result.exit_code == 0, result.output
    expected = vtaops.conv2d(arrays["x"], arrays["w"], padding=1, clip=(0, 127))
    np.testing.assert_array_equal(np.load(files["y"]), expected)
    pool = "MaxPool2d(channels=5, height=6, width=7, kernel=2)"
    assert "takes 1 array" in str(call("run", "op", pool, *given).exception)
    missing = call("run", "op", "Gemm(m=1, n=1, k=1)", "--input", str(tmp_path)).exception
    assert "as a .npy array" in str(missing)


def test_run_gemm_of_the_tutorial():
    result = call("run", "op", "tutorial.matrix_multiply", "--json")
    assert json.loads(result.output)["counters"]["wgt_load_nbytes"] == 65536


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("tir", 'T.sblock("res_conv")'),
        ("schedule", "cthread"),
        ("lowered", "vta.gemm"),
        ("program", "STORE OUT"),
    ],
)
def test_every_stage_is_shown(stage, text):
    arguments = ["--tiling", "oc=128,ic=16,h=7,w=14,oc_threads=2"]
    result = call("run", "op", "resnet18.C8", *arguments, "--show", stage)
    assert result.exit_code == 0, result.output
    assert text in result.output


def test_save_disassemble_verify(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "PROVEN", 1 << 11)
    file = str(tmp_path / "gemm.vta")
    assert call("run", "op", "Gemm(m=3, n=20, k=20)", "--save", file).exit_code == 0
    listing = call("disasm", file)
    assert listing.exit_code == 0
    assert "FINISH" in listing.output
    assert all(f"\n  {name} " in listing.output for name in ("data", "weight", "res"))
    verified = call("verify", file)
    assert verified.exit_code == 0
    assert "verified" in verified.output
    shown = json.loads(call("verify", file, "--json").output)
    assert shown["proof"]["claims"]


def test_lists():
    assert "8192/2048/1024/2048" in call("list", "configs").output
    assert json.loads(call("list", "configs", "--json").output)["tiny"]["LOG_BLOCK"] == 3
    assert "resnet18.C11" in call("list", "layers").output
    assert "vww_96_int8.tflite" in call("list", "models").output
    assert call("list", "layers", "pynq").exit_code == 2


@pytest.mark.parametrize("kind", LISTS)
def test_lists_as_json(kind):
    assert len(json.loads(call("list", kind, "--json").output)) > 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "run conv2d --layer resnet18.C99",
            "no layer 'resnet18.C99'; the nearest are resnet18.C9, ",
        ),
        ("run op Conv2d(height=8)", "Conv2d: missing a required argument: 'in_channels'"),
        ("run conv2d --layer lenet5.S4", "not a Conv2d; see vtaops run op"),
        ("run conv2d --layer resnet18.C8 --config pink", "no hardware configuration 'pink'"),
        ("run op Conv2d(kernel=three)", "cannot read the operator 'Conv2d(kernel=three)'"),
        ("run op resnet18.C8 --tiling oc=nine", "cannot read tiling 'oc=nine'"),
        ("run op resnet18.C8 --tiling oc=16,ic=16,depth=3", "cannot read tiling"),
        ("run op Gemm(m=1,n=1,k=1,shift=40)", "shift is 40"),
        ("disasm /nonexistent.vta", "/nonexistent.vta"),
    ],
)
def test_mistakes_end_in_one_line_and_exit_code_1(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["vtaops", *arguments.split()])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_lesson(tmp_path):
    picture = tmp_path / "lesson.png"
    stages = ("--stage", "default", "--stage", "tuned")
    options = ("--size", "32", "--budget", "0.01", "--script", "--plot", str(picture))
    result = call("course", "lesson", "matmul", *stages, *options)
    assert result.exit_code == 0, result.output
    assert "# ==== tuned" in result.output
    assert "speed-up" in result.output
    assert shows_something(picture)
    assert call("course", "lesson", "pool").exception.args[0].startswith("unknown lesson 'pool'")


def commands(group, prefix=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*prefix, name))
        else:
            yield (*prefix, name)


COMMANDS = list(commands(typer.main.get_command(cli.app)))
PASSED_ON = {("board", "serve"), ("board", "virtual")}
"""Commands whose arguments another program reads."""


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in PASSED_ON], ids=" ".join)
def test_wrong_usage_exits_with_2_and_a_short_message(command):
    for wrong in (["--no-such-option"], ["--json=yes"], ["one", "two", "three", "--frob", "1"]):
        done = call(*command, *wrong)
        assert done.exit_code == 2
        assert not isinstance(done.exception, Exception)
        assert "Traceback" not in done.output
        assert len(done.stderr) < 900  # with the frame around it


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command):
    result = call(*command, "--help")
    assert result.exit_code == 0
    assert "Example: vtaops" in result.output


@pytest.mark.parametrize(
    "operator",
    [
        "MaxPool2d(channels=5, height=6, width=7, kernel=3, strides=(2, 1))",
        "Elementwise(function='sub', shape=(3, 40), clip=None)",
        "lenet5.S4",
    ],
)
def test_run_any_operator(operator):
    result = call("run", "op", operator, "--config", "tiny", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["equals_numpy"] is True


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        ("MaxPool2d(3)", "it is not a call with keywords"),
        ("MaxPool3d(kernel=3)", "unknown operator MaxPool3d"),
        ("MaxPool2d(kernel=open('x'))", "malformed"),
        ("MaxPool2d(colour=3)", "has no keyword 'colour'; it takes channels=, height="),
        (
            "MaxPool2d(stride=2)",
            "missing a required argument: 'channels'; it takes channels=, height=",
        ),
        ("MaxPol2d(kernel=3)", "did you mean 'MaxPool2d'?"),
        ("MaxPool2d(kernel=", "was never closed"),
    ],
)
def test_operators_that_cannot_be_read(operator, message):
    error = call("run", "op", operator).exception
    assert isinstance(error, ShapeError)
    assert message in str(error)


@pytest.mark.parametrize(
    ("words", "known", "count"),
    [
        ("run conv2d --layer resnet18.C1", WORKLOADS, 3),
        ("tune nothing", WORKLOADS, 0),
        ("report profile x.onnx --config pyn", vtaops.HardwareConfig.names(), 5),
        ("hardware isa --config ultra", vtaops.HardwareConfig.names(), 2),
        ("run conv2d --device t", DEVICES, 2),
        ("tune --device f", DEVICES, 1),
    ],
)
def test_layers_configurations_and_devices_are_completed(
    words, known, count, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    split = ["vtaops", *words.split()]
    environment = {
        "_VTAOPS_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(split),
        "COMP_CWORD": str(len(split) - 1),
    }
    for _ in range(2):  # the second time from the cache
        said = runner.invoke(cli.app, [], prog_name="vtaops", env=environment)
        assert said.stdout.split() == [name for name in known if name.startswith(split[-1])]
        assert len(said.stdout.split()) == count


def test_a_negative_seed_is_wrong_usage():
    result = call("board", "test", "fsim", "--seed", "-1")
    assert result.exit_code == 2
    assert "seed" in result.output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize(
    "arguments", [["list", "configs"], ["list", "configs", "--json"], ["--help"]]
)
def test_an_output_that_cannot_be_written_is_one_line(arguments):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vtaops", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("run conv2d --layer resnet18.C10", ["compile resnet18.C10", "run resnet18.C10"]),
        ("report program --layer resnet18.C10 --config pynq --config tiny", ["compile"]),
        ("report roofline --layer resnet18.C10 -o r.svg", ["compiling"]),
        ("prove resnet18.C10", ["prove resnet18.C10"]),
        ("tune lenet5.S4 --count 3", ["lenet5.S4"]),
        ("sweep --layer resnet18.C10 -j 1", ["estimate tilings", "time programs"]),
    ],
)
def test_what_takes_seconds_is_named_while_it_runs(command, named, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shown = []

    class Noted(options.Bar):
        def add_task(self, description, *args, **kwargs):
            shown.append(description)
            return super().add_task(description, *args, **kwargs)

    monkeypatch.setattr(options, "Bar", Noted)
    done = call(*command.split())
    assert done.exit_code == 0, done.output
    assert set(named) <= set(shown)
