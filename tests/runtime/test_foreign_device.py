"""A device that another package offers by an entry point: found, checked, tested like our own."""

import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import vtaops
from vtaops import Session, cli
from vtaops.errors import DeviceError, UnsupportedError
from vtaops.machine.capabilities import HLS_2020, PORTABLE
from vtaops.runtime import Fsim, open_device

PACKAGE = Path(__file__).parents[2] / "examples" / "own_device"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The package of the example, as pip lays it out."""
    facts = tmp_path / "own_device-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: own-device\nVersion: 0.1\n")
    (facts / "entry_points.txt").write_text(
        "[vtaops.devices]\nown = own_device:OwnDevice\nbroken = own_device:Missing\n"
    )
    (tmp_path / "own_device.py").write_text((PACKAGE / "own_device.py").read_text())
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_device", None)


def call(*arguments):
    return CliRunner().invoke(cli.app, [*map(str, arguments)])


@pytest.mark.usefixtures("installed")
def test_the_example_passes_the_test_of_devices():
    result = call("board", "test", "own", "--config", "tiny", "--operators", 2,
                  "--programs", 3)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert " 0 failed, 0 skipped" in result.output


@pytest.mark.usefixtures("installed")
def test_sessions_and_commands_know_it_by_name():
    x = np.ones((2, 8), np.int8)
    with Session("own", "tiny") as session:
        assert (session.gemm(x, x, shift=0) == 8).all()
    assert "own_device:OwnDevice" in call("list", "devices").output
    command = "run op Gemm(m=1,n=8,k=8) --config tiny --device own"
    assert call(*command.split()).exit_code == 0


@pytest.mark.usefixtures("installed")
def test_a_broken_or_unknown_device_is_named():
    with pytest.raises(DeviceError, match=r"'broken' .* is broken: .*Missing"):
        open_device("broken", "tiny")
    with pytest.raises(DeviceError, match=r"no device 'nothing'; known devices: fsim.* own"):
        open_device("nothing", "tiny")


class Halfway:
    config = vtaops.HardwareConfig.load("tiny")

    def alloc(self, nbytes):
        raise AssertionError


def test_what_is_no_device_is_refused_when_the_session_opens():
    with pytest.raises(
        DeviceError, match=r"Halfway does not implement .*: it lacks free, write, read, launch"
    ):
        Session(Halfway())


def test_a_program_is_not_loaded_on_a_device_that_lacks_something():
    op = vtaops.Elementwise(function="multiply", shape=(4, 16))
    program = vtaops.compile(op, "pynq", capabilities="fsim")
    x = np.ones((4, 16), np.int8)
    lacks = pytest.raises(UnsupportedError, match="multiplies in the ALU: hls-2020 lacks 'mul'")
    with Fsim("pynq", capabilities=HLS_2020) as device, lacks:
        program.run(device, x, x)


def test_the_session_judges_by_its_target():
    x = np.ones((4, 16), np.int8)
    op = vtaops.Elementwise(function="multiply", shape=(4, 16))
    with Session("fsim", "pynq") as session:
        assert (session.multiply(x, x) == 1).all()
        assert "hls-2020 lacks 'mul'" in session.obstacle_on_target(op)
        assert session.obstacle_on_target(vtaops.Gemm(m=4, n=16, k=16)) == ""
    lacks = pytest.raises(UnsupportedError, match="'mul', which portable lacks")
    with Session("fsim", "pynq", capabilities=PORTABLE) as session, lacks:
        session.multiply(x, x)


def test_the_command_says_what_the_board_could_not_run():
    op = "Elementwise(function='multiply', shape=(4, 16))"
    result = call("run", "op", op)
    assert result.exit_code == 0
    assert "note: would not run on a pynq: instruction" in result.output + result.stderr
