"""A whole network against ONNX Runtime: every difference of every layer with its cause, counted.

    python benchmarks/onnxruntime_differences.py [resnet20] [--scales pow2] [--json FILE]

Networks are those of examples/networks.py (PyTorch builds most of them).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

CAUSES = ("values", "differences", "ties", "multipliers", "factors", "unexplained")


def measure(name: str, scales: str) -> dict[str, Any]:
    """Quantise a network and count its differences on one image, layer by layer."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
    import networks

    from vtaops import quantize
    from vtaops.relax import trace_differences

    model, data = networks.network(name, count=4)
    quantized = quantize(model, data, scales=scales)  # type: ignore[arg-type]
    ((key, images),) = data.items()
    layers = trace_differences(quantized, {key: images[:1]})
    totals = {cause: sum(getattr(layer, cause) for layer in layers) for cause in CAUSES}
    return {"network": name, "scales": scales, "layers": len(layers), **totals}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=["resnet20"])
    parser.add_argument("--scales", action="append", choices=["pow2", "free"])
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    rows = []
    print("| network | scales | layers | values | differ | ties | multipliers | factors | other |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for name in options.networks:
        for scales in options.scales or ("pow2", "free"):
            row = measure(name, scales)
            rows.append(row)
            counts = " | ".join(f"{row[cause]:,}" for cause in CAUSES)
            print(f"| {name} | {scales} | {row['layers']} | {counts} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
