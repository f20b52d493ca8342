"""The timing model fitted to virtual boards whose DRAM the fitter does not know: its errors.

    python -m benchmarks calibrate --json calibrate.json

Each board is our RTL, cycle by cycle, behind the server of a Pynq. Its DRAM has a random latency
and bandwidth, every fourth one no limit. Errors are also those of layers that the fit did not have.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.options import Json, show, write_json
from trials.boards import CONFIG, serving
from vtaops import compile as compile_program
from vtaops.board.calibration import calibrate
from vtaops.board.random_programs import random_inputs
from vtaops.hardware.registers import RegisterMap
from vtaops.program.timing import TimingParameters
from vtaops.runtime import LoadedProgram, Tsim
from vtaops.runtime.remote import RemoteDevice
from vtaops.schedule.workloads import find

OTHERS = "resnet18.C10", "mobilenet.D3", "lenet5.C3"


def measured(latency: int, bandwidth: float | None) -> dict[str, Any]:
    """Return what a calibration finds of a DRAM, and the errors before and after."""
    programs = [compile_program(find(name).op, CONFIG) for name in OTHERS]
    with serving(design=RegisterMap.RTL, simulator="tsim") as server:
        server.board.dram = Tsim(CONFIG, latency=latency, bandwidth=bandwidth, interface="axi")
        with RemoteDevice(server.address, CONFIG) as device:
            found = calibrate(device)
            cycles = []
            for program in programs:
                with LoadedProgram(program, device) as loaded:
                    device.reset_stats()
                    loaded.run(*random_inputs(program, np.random.default_rng(0)), timeout=300.0)
                    cycles.append(device.performance().cycles)

    def error(parameters: TimingParameters) -> float:
        pairs = zip(programs, cycles, strict=True)
        return max(abs(program.cycles(parameters) / real - 1) for program, real in pairs)

    return {
        "latency": latency,
        "bandwidth": bandwidth,
        "found_latency": found.parameters.dram_latency,
        "found_bandwidth": found.parameters.bandwidth,
        "launches": [found.error("before"), found.error("after")],
        "other_layers": [error(TimingParameters()), error(found.parameters)],
    }


def main(
    count: Annotated[int, typer.Option(help="Boards.")] = 6,
    seed: Annotated[int, typer.Option(help="Of their DRAM.")] = 0,
    json_file: Json = None,
) -> None:
    """Calibrate boards and print the figures."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(count):
        latency = int(rng.integers(10, 300))
        bandwidth = round(float(np.exp(rng.uniform(0, np.log(16)))), 2) if number % 4 else None
        rows.append(measured(latency, bandwidth))
        print(rows[-1], flush=True)
        write_json(json_file, rows)
    columns = {
        f"{row['latency']}, {row['bandwidth'] or 'no limit'}": {
            "found": f"{row['found_latency']}, {row['found_bandwidth'] or 'no limit'}",
            "launches before %": 100 * row["launches"][0][0],
            "after": 100 * row["launches"][1][0],
            "other layers before %": 100 * row["other_layers"][0],
            "after that": 100 * row["other_layers"][1],
        }
        for row in rows
    }
    show("Calibrated boards", columns, of="latency, bandwidth")
