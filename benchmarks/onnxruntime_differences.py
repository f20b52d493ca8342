"""A whole network against ONNX Runtime: every difference of every layer with its cause, counted.

    python -m benchmarks onnxruntime_differences [resnet20] [--scales pow2] [--json FILE]

Networks are those of examples/networks.py (PyTorch builds most of them).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from benchmarks.options import Json, choice, write_json
from examples import networks

COUNTS = ("values", "differences", "halves", "scales")


def measure(name: str, scales: str) -> dict[str, Any]:
    """Quantise a network and count its differences on one image, layer by layer."""
    from vtaops import quantize
    from vtaops.frontends import differences

    model, data = networks.network(name, count=4)
    quantized = quantize(model, data, scales=scales)  # type: ignore[arg-type]
    ((key, images),) = data.items()
    layers = differences(quantized, {key: images[:1]})
    totals = {name: sum(getattr(layer, name) for layer in layers.values()) for name in COUNTS}
    return {"network": name, "scales": scales, "layers": len(layers), **totals}


def main(
    networks: Annotated[list[str] | None, typer.Argument()] = None,
    chosen: Annotated[
        list[str] | None, typer.Option("--scales", **choice(["pow2", "free"]))
    ] = None,
    json_file: Json = None,
) -> None:
    """Run from the command line."""
    rows = []
    print("| network | scales | tensors | values | differ | halves | scales |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for name in networks or ["resnet20"]:
        for scales in chosen or ("pow2", "free"):
            row = measure(name, scales)
            rows.append(row)
            counts = " | ".join(f"{row[count]:,}" for count in COUNTS)
            print(f"| {name} | {scales} | {row['layers']} | {counts} |", flush=True)
    write_json(json_file, rows)
