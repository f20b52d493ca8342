"""Accuracy with labels: float, quantised for devices, and ONNX Runtime's int8.

    python -m benchmarks accuracy [--folder accuracy_models] [--images 3000] [--json accuracy.json]

A ResNet-20, a small MobileNet-v1, torchvision's ResNet-18 and MobileNet-v2 and a small ViT learn
characters that `trials.glyphs` draws (28x28, in many fonts, turned, noisy); training takes minutes
and needs ``torch==2.13.0`` and ``torchvision==0.28.0``; a network that lies in the folder is not
trained again. Each is quantised for `pynq` (powers of two) and `pynq_ext` (free
scales), every option left to `quantize`, and by ONNX Runtime's `quantize_static` with its defaults.
Those for devices run on fsim. Counted are right answers, and answers equal to float's, on
characters that neither training nor calibration has seen.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.networks import by_onnxruntime
from benchmarks.options import Json, Only, chosen, read_json, show, write_json
from trials.glyphs import SIZE, glyphs, to_input
from trials.labelled_networks import NETWORKS, PASSES, RATES
from vtaops import compile_model
from vtaops.graph.onnx_files import ModelProto
from vtaops.graph.probe import runtime_session
from vtaops.quantization import run_quantization
from vtaops.quantization.sources import from_torch

CALIBRATION = 64
DEVICES = {"powers of two, pynq": "pynq", "free scales, pynq_ext": "pynq_ext"}


def trained(name: str, count: int, seed: int = 0) -> ModelProto:
    """Return a network as ONNX that has learned from so many characters."""
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model, batch = NETWORKS[name](), 64
    images, labels = glyphs(count, seed + 1000)
    data, answers = torch.from_numpy(to_input(images)), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-4)
    steps = PASSES.get(name, 2) * (count // batch)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATES.get(name, 1e-2), total_steps=steps)
    model.train()
    for step in range(steps):
        chosen = torch.randint(count, (batch,))
        loss = torch.nn.functional.cross_entropy(model(data[chosen]), answers[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        cycle.step()
        if step % 50 == 0:
            print(f"step {step} of {steps}: loss {loss.item():.3f}", flush=True)
    return from_torch(model.eval(), np.zeros((1, 1, SIZE, SIZE), np.float32), None)


def answers(model: ModelProto, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the answers of ONNX Runtime."""
    session = runtime_session(model, "ORT_ENABLE_ALL")
    name = model.graph.input[0].name
    return np.array([session.run(None, {name: image[None]})[0].argmax() for image in images])


def measure(model: ModelProto, count: int) -> list[dict[str, Any]]:
    """Return a row for each way to compute a network."""
    name = model.graph.input[0].name
    calibration = {name: to_input(glyphs(CALIBRATION, seed=2)[0])}
    drawn, labels = glyphs(count, seed=1)
    images = to_input(drawn)
    found = {"float": answers(model, images)}
    facts: dict[str, dict[str, Any]] = {}
    for way, config in DEVICES.items():
        start = time.process_time()
        done = run_quantization(model, calibration, config=config)
        seconds = time.process_time() - start
        compiled = compile_model(done.model, config)
        found[way] = np.array([compiled.run(image[None]).argmax() for image in images])
        facts[way] = {
            "way": str(done.recipe),
            "quantize_s": round(seconds, 1),
            "sqnr_db": min(output.sqnr_db for output in done.quality().outputs),
            "launches": len(compiled.regions),
            "cycles": compiled.cycles(),
        }
    found["int8, ONNX Runtime"] = answers(by_onnxruntime(model, calibration), images)
    return [
        {
            "computed": way,
            "accuracy": float((given == labels).mean()),
            "agreement": float((given == found["float"]).mean()),
            **facts.get(way, {}),
        }
        for way, given in found.items()
    ]


def main(
    folder: Annotated[Path, typer.Option(help="Where the networks lie.")] = Path("accuracy_models"),
    characters: Annotated[int, typer.Option(help="That a network learns from.")] = 12_000,
    images: Annotated[int, typer.Option(help="That are classified.")] = 3_000,
    only: Only = [],  # noqa: B006
    json_file: Json = None,
) -> None:
    """Train what is not trained, measure, and print the table."""
    import onnx

    folder.mkdir(parents=True, exist_ok=True)
    results = read_json(json_file, {})
    for name in chosen(NETWORKS, only):
        file = folder / f"{name}.onnx"
        if not file.exists():
            onnx.save(trained(name, characters), file)
        results[name] = {"images": images, "rows": measure(onnx.load(file), images)}
        write_json(json_file, results)
    rows = {f"{n}, {row['computed']}": row for n, r in results.items() for row in r["rows"]}
    columns = ("accuracy", "agreement", "way", "sqnr_db", "launches", "cycles", "quantize_s")
    show(f"{images} characters", rows, columns, "network, computed")
