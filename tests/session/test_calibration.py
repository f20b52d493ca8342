"""Calibration finds the DRAM of a device that it knows nothing of but the cycles of launches."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers.tsim_support import needs_tools
from typer.testing import CliRunner

import vtaops
from trials.boards import CONFIG, serving
from vtaops.board.calibration import PROBES, calibrate, fit
from vtaops.cli import app
from vtaops.hardware.registers import RegisterMap
from vtaops.hardware.ulx3s import Ulx3sDesign
from vtaops.program.timing import TimingParameters
from vtaops.runtime import Fsim, Tsim


@pytest.fixture(scope="module")
def programs():
    """Return those that the model is quick with."""
    return {op.summary: vtaops.compile(op, CONFIG) for op in (*PROBES[:2], PROBES[3], *PROBES[10:])}


@pytest.mark.parametrize(
    ("latency", "bandwidth", "overhead"), [(77, 5.3, 9000), (250, 1.7, 0), (12, None, 0)]
)
def test_the_model_finds_its_own_parameters(programs, latency, bandwidth, overhead):
    """Times of a host are as good as counted cycles, if they are regular."""
    hidden = TimingParameters(dram_latency=latency, bandwidth=bandwidth)
    launches = {n: (p, p.cycles(hidden) + overhead) for n, p in programs.items()}
    found = fit(launches, TimingParameters(), has_overhead=overhead > 0)
    assert found.parameters.dram_latency == pytest.approx(latency, abs=1 + overhead / 1000)
    if bandwidth:
        assert found.parameters.bandwidth == pytest.approx(bandwidth, rel=0.01)
    assert found.overhead == pytest.approx(overhead, abs=25)
    assert max(found.error("after")) < 0.005
    assert found.error("after") < found.error("before")


def test_of_an_sdram_only_the_latency_is_fitted(programs):
    start = Ulx3sDesign(vtaops.HardwareConfig.load("ulx3s")).timing
    hidden = replace(start, dram_latency=31)
    found = fit({n: (p, p.cycles(hidden)) for n, p in programs.items()}, start)
    assert found.parameters == hidden
    assert found.error("after") == (0, 0)


@needs_tools
def test_a_board_whose_dram_is_unknown():
    """The virtual board counts cycles; nobody tells the command of its DRAM."""
    with serving(design=RegisterMap.RTL, simulator="tsim") as server:
        server.board.dram = Tsim(CONFIG, latency=91, bandwidth=3.7, interface="axi")
        command = ("board", "calibrate", server.address, "--json")
        result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["parameters"]["dram_latency"] == pytest.approx(93, abs=2)  # the shell adds two
    assert found["parameters"]["bandwidth"] == pytest.approx(3.7, rel=0.01)
    assert found["overhead_cycles"] == 0
    assert len(found["probes"]) == len(PROBES) == 12
    assert found["error"]["before"][0] > 0.2
    assert max(found["error"]["after"]) < 0.02


def test_a_device_that_computes_wrongly_is_refused():
    class Wrong(Fsim):
        def read(self, buffer, nbytes):
            return super().read(buffer, nbytes) ^ np.uint8(1)

    with (
        Wrong(CONFIG) as device,
        pytest.raises(vtaops.errors.DeviceError, match="differ from the simulator's"),
    ):
        calibrate(device)
