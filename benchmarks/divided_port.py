"""Images a second of a network whose bursts are divided between two ports, on the RTL over AXI.

    python -m benchmarks divided_port --clock-mhz 220 --latency 140

Each port moves its width at its clock, in both directions together: less than AMD's ports, which
move as much in each. The configuration needs ``SPLIT_PORT``. The result is compared with the
executor's, the cycles with those of the timing model for one port of both bandwidths.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.networks import Clock, as_tuple, subject
from vtaops import Session, compile_model
from vtaops.errors import ConfigError
from vtaops.machine.config import PORT_MHZ
from vtaops.program.timing import TimingParameters
from vtaops.runtime.tsim import Tsim

DIVIDER_CYCLES = 3
"""By how much a word comes later through the shell and its divider (`docs/tsim.md`)."""


def main(
    case: Annotated[
        str, typer.Option(help="As of the benchmark networks.")
    ] = "classic/resnet18/zcu104_2048",
    clock_mhz: Annotated[float, typer.Option(help="Of the logic.")] = 220.0,
    port_mhz: Annotated[float, typer.Option(help="Of the ports; 0: the data sheet's.")] = 0.0,
    latency: Annotated[int, typer.Option(help="Cycles of the DRAM.")] = 140,
) -> int:
    """Compile, run on the RTL, compare, print."""
    network = subject(case, Path("build/networks"), Clock())
    config = network.config
    if not config.split_port:
        raise ConfigError(f"configuration {config.name!r} has SPLIT_PORT 0; this measures 1")
    port_mhz = port_mhz or PORT_MHZ[config.target]
    bandwidth = 2 * config.board.bus_bits / 8 * port_mhz / clock_mhz
    compiled = compile_model(network.graph, config, prove=False)
    (image, *_) = network.images
    machine = {"latency": latency, "bandwidth": bandwidth}
    with (
        Tsim(config, interface="axi", **machine) as device,
        Session(device, timeout=3600) as session,
    ):
        found = as_tuple(compiled.run(*image, session=session))
        cycles = device.performance().cycles
    equal = all(map(np.array_equal, found, as_tuple(compiled.reference(*image))))
    timing = TimingParameters(dram_latency=latency + DIVIDER_CYCLES, bandwidth=bandwidth)
    model = sum(program.cycles(timing) for program in compiled.programs)
    typer.echo(
        f"{case}: {cycles:,} cycles at {bandwidth:.1f} bytes a cycle and latency {latency}, "
        f"{1e6 * clock_mhz / cycles:.1f} images a second at {clock_mhz:g} MHz; "
        f"{'equal' if equal else 'WRONG'}; by the timing model {100 * (model / cycles - 1):+.2f} %"
    )
    return int(not equal)
