"""Every convolution of published networks, compiled by default on every shipped configuration.

    python benchmarks/published_layers.py --configs tiny --json published.json

Prints, for each configuration, how many layers compile, how many of them in parts of their kernel,
and the processor time of a layer (search for the tiling and compilation; median and greatest).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

import vtaops
from vtaops import HardwareConfig, VTAError
from vtaops.schedule import default_tiling

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.published import published


def main() -> None:
    """Read the options, measure, show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", nargs="*", default=HardwareConfig.names())
    parser.add_argument("--every", type=int, default=1, help="only each n-th layer")
    parser.add_argument("--tilings", action="store_true", help="search tilings, compile nothing")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    layers = published()[:: options.every]
    configs = {c.fingerprint: c for c in map(HardwareConfig.load, options.configs)}
    rows = [measure(config, layers, options.tilings) for config in configs.values()]
    table = Table("configuration", "layers", "refused", "in parts", "median s", "greatest s")
    for row in rows:
        table.add_row(*(str(row[key]) for key in row if key != "refusals"))
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def measure(config: HardwareConfig, layers: list[vtaops.Conv2d], tilings: bool) -> dict:
    """Return counts and times of all layers on one configuration."""
    refusals, parts, seconds = {}, 0, []
    for op in track(layers, f"{config.name}", console=Console(stderr=True)):
        start = time.process_time()
        try:
            tiling = default_tiling(op, config)
            parts += tiling.taps != "all"
            if not tilings:
                vtaops.compile(op, config, tiling)
        except VTAError as error:
            refusals[repr(op)] = str(error)
        seconds.append(time.process_time() - start)
    return {
        "configuration": config.name,
        "layers": len(layers),
        "refused": len(refusals),
        "in parts": parts,
        "median s": round(statistics.median(seconds), 3),
        "greatest s": round(max(seconds), 2),
        "refusals": refusals,
    }


if __name__ == "__main__":
    main()
