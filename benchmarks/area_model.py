"""The model of area against runs of Yosys: the error on each configuration.

    python benchmarks/area_model.py --runs 30 --json area.json

Each run takes minutes (four for `tiny`). Runs already in the file are not repeated. Printed are
LUTs, flip-flops, DSPs and block RAMs of both, and the largest relative error of each.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import asdict
from pathlib import Path

from vtaops import HardwareConfig
from vtaops.errors import ConfigError
from vtaops.explore import Design, area
from vtaops.runtime.tsim import RtlParameters
from vtaops.runtime.tsim.synthesis import FpgaResources, synthesize

AXES = {
    "LOG_BATCH": (0, 0, 1, 2),
    "LOG_BLOCK": (3, 3, 4, 5),
    "LOG_UOP_BUFF_SIZE": (10, 13, 15),
    "LOG_INP_BUFF_SIZE": (11, 13, 15),
    "LOG_WGT_BUFF_SIZE": (14, 16, 18),
    "LOG_ACC_BUFF_SIZE": (12, 14, 16),
    "EXTENSIONS": ("", "overwrite", "overwrite+post"),
    "PORT_BYTES": (8, 8, 16),
}


def designs(count: int, seed: int) -> list[Design]:
    """Return tiny, pynq, and random designs."""
    rng = random.Random(seed)
    found = [Design(HardwareConfig.load(name)) for name in ("tiny", "pynq")]
    while len(found) < count:
        try:
            found.append(Design.of({axis: rng.choice(values) for axis, values in AXES.items()}))
        except ConfigError:
            continue
    return found[:count]


def main() -> None:
    """Synthesise, compare, print, write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=Path("area.json"))
    options = parser.parse_args()
    known = json.loads(options.json.read_text()) if options.json.exists() else {}
    names = ("lut", "ff", "dsp", "bram")
    worst = dict.fromkeys(names, 0.0)
    for design in designs(options.runs, options.seed):
        if design.name not in known:
            rtl = RtlParameters(port_bytes=design.port_bytes, address_bits=32)
            blocks = synthesize(design.config, rtl, "xc7")
            known[design.name] = asdict(sum(blocks.values(), FpgaResources()))
            options.json.write_text(json.dumps(known, indent=1))
        counted, modelled = known[design.name], asdict(area(design))
        shown = []
        for name in names:
            error = modelled[name] / max(1, counted[name]) - 1
            worst[name] = max(worst[name], abs(error))
            shown.append(f"{name} {counted[name]:g} {100 * error:+.1f} %")
        print(f"{design.name}: " + ", ".join(shown), flush=True)
    print("largest error: " + ", ".join(f"{n} {100 * worst[n]:.1f} %" for n in names))


if __name__ == "__main__":
    main()
