"""Tiny architectures of transformers and timm with random weights: launches, products, cycles, dB.

    python -m benchmarks architectures --minutes 60
    python -m benchmarks architectures --only timm/test

Each is exported by torch, quantised by the defaults, compiled for `pynq_ext` and run on fsim, in a
process of its own. Told are launches, the share of multiply-adds on VTA (those of LSTM and GRU
counted), cycles, and the dB of the outputs beside those of the same quantised file in ONNX Runtime.
It needs torch, transformers and timm; what one of them cannot build or export has its reason. Text
models get embeddings, because rows of a table are the host's; pictures have 64 x 64 pixels where
the model allows it. Figures lie in ``--json``, a network at a time.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import vtaops
from benchmarks.networks import least_decibels, macs, refused_or
from benchmarks.options import (
    RESULTS,
    Again,
    Case,
    Kept,
    Minutes,
    Only,
    Row,
    chosen,
    measured_apart,
    show,
)
from trials.torch_networks import TINY_CASES, tiny
from vtaops.graph.probe import Probe
from vtaops.quantization.sources import from_torch
from vtaops.runtime.arguments import as_tuple

CALIBRATION, JUDGED, SECONDS = 4, 2, 900


def multiply_adds(module: Any, x: np.ndarray[Any, Any]) -> int:
    """Return the multiply-adds of a network, as PyTorch counts them."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as flops:
        module(torch.from_numpy(x))
    return int(flops.get_total_flops()) // 2


def measure(name: str) -> Row:
    """Quantise, compile and run a network; return its figures."""
    try:
        module, inputs = tiny(name, CALIBRATION + JUDGED)
    except Exception as error:  # anything that torch, transformers or timm raises
        return {"refused": f"not built: {type(error).__name__}: {str(error).splitlines()[0]}"}
    data = {"x": inputs[:CALIBRATION]}
    judged = [{"x": each[None]} for each in inputs[CALIBRATION:]]
    source = from_torch(module, data, None)
    done = vtaops.quantize(source, data)
    model = vtaops.compile_model(done, prove=False)
    exact = [*map(Probe(source).run, judged)]
    theirs = [*map(Probe(done).run, judged)]
    made = [as_tuple(model.run(*each.values())) for each in judged]
    ours = [dict(zip(exact[0], results, strict=True)) for results in made]
    return {
        "multiply_adds": multiply_adds(module, inputs[CALIBRATION : CALIBRATION + 1]),
        "launches": len(model.programs),
        "on_vta": sum(
            macs(node)
            for node, row in zip(model.graph.nodes, model.plan, strict=True)
            if row.where == "vta"
        ),
        "cycles": model.cycles(),
        "db": least_decibels(exact, ours),
        "onnxruntime_db": least_decibels(exact, theirs),
    }


def summary(results: dict[str, Any]) -> list[str]:
    """Return a line for each package: how many networks run in how many launches."""
    lines = []
    for package in ("transformers", "timm"):
        rows = [row for name, row in results.items() if name.startswith(f"{package}/")]
        runs = [row["launches"] for row in rows if "launches" in row]
        within = sum(n <= 3 for n in runs), sum(n > 10 for n in runs)
        lines.append(
            f"{package}: {len(runs)} of {len(rows)} run, {within[0]} in at most three launches, "
            f"{within[1]} in more than ten"
        )
    return lines


def main(
    only: Only = [],  # noqa: B006
    minutes: Minutes = 60,
    again: Again = False,
    case: Case = None,
    json_file: Kept = RESULTS / "architectures.json",
) -> int:
    """Measure what is not measured, and print the table; exit code 1 if a network ends raw."""
    if case is not None:
        print(json.dumps(refused_or(lambda: measure(case))))
        return 0
    names = chosen(TINY_CASES, only)
    rows, errors = measured_apart(
        "architectures", names, json_file, minutes, again=again, seconds=SECONDS
    )
    columns = {"launches": "launches", "multiply_adds": "multiply-adds", "on_vta": "on VTA"}
    columns |= {"cycles": "cycles", "db": "dB", "onnxruntime_db": "ONNX Runtime"}
    show("Tiny architectures on pynq_ext", rows | errors, {**columns, "error": "error"}, "network")
    print(*summary(rows), sep="\n")
    return int(bool(errors))
