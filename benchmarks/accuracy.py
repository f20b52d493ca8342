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
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.networks import by_onnxruntime
from benchmarks.options import Json, figure_table, read_json, write_json
from trials.glyphs import CHARACTERS, SIZE, glyphs, to_input
from vtaops import compile_model
from vtaops.graph.onnx_files import ModelProto
from vtaops.graph.probe import runtime_session
from vtaops.quantization import run_quantization
from vtaops.quantization.sources import from_torch

CALIBRATION = 64
DEVICES = {"powers of two, pynq": "pynq", "free scales, pynq_ext": "pynq_ext"}


def resnet20() -> Any:
    """Return ResNet-20 (arXiv 1512.03385); a first stride of 2 lets it learn in minutes."""
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, before: int, channels: int, stride: int) -> None:
            super().__init__()
            first = _convolution(before, channels, 3, stride)
            self.main = nn.Sequential(*first, *_convolution(channels, channels)[:-1])
            apart = stride > 1 or before != channels
            short = _convolution(before, channels, 1, stride)[:-1]
            self.short = nn.Sequential(*(short if apart else []))

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.main(x) + self.short(x))

    layers, before = _convolution(1, 16, 3, 2), 16
    for channels in (16, 32, 64):
        for number in range(3):
            layers.append(Block(before, channels, 2 if number == 0 and channels > 16 else 1))
            before = channels
    return nn.Sequential(*layers, *_classifier(before))


def mobilenet() -> Any:
    """Return a small MobileNet-v1 (arXiv 1704.04861): six depthwise and pointwise layers each."""
    from torch import nn

    layers, before = _convolution(1, 16, 3, 2), 16
    for channels, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (128, 1)):
        layers += _convolution(before, before, 3, stride, before) + _convolution(
            before, channels, 1
        )
        before = channels
    return nn.Sequential(*layers, *_classifier(before))


def _convolution(
    before: int, channels: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> list[Any]:
    from torch import nn

    window = {"stride": stride, "padding": kernel // 2, "groups": groups}
    convolution = nn.Conv2d(before, channels, kernel, bias=False, **window)
    return [convolution, nn.BatchNorm2d(channels), nn.ReLU()]


def _classifier(channels: int) -> list[Any]:
    from torch import nn

    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, len(CHARACTERS))]


def resnet18() -> Any:
    """Return torchvision's ResNet-18 for pictures of one channel."""
    from torch import nn
    from torchvision.models import resnet18 as whole

    model = whole(num_classes=len(CHARACTERS))
    model.conv1 = nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    return model


def mobilenet_v2() -> Any:
    """Return torchvision's MobileNet-v2 of a quarter of the channels; its first stride is 1."""
    from torch import nn
    from torchvision.models import mobilenet_v2 as whole

    model = whole(num_classes=len(CHARACTERS), width_mult=0.25, dropout=0)
    model.features[0][0] = nn.Conv2d(1, 8, 3, 1, 1, bias=False)
    return model


def vit() -> Any:
    """Return torchvision's vision transformer of four layers and 96 channels, patches of 4x4."""
    from torch import nn
    from torchvision.models import VisionTransformer

    model = VisionTransformer(SIZE, 4, 4, 4, 96, 192, num_classes=len(CHARACTERS))
    model.conv_proj = nn.Conv2d(1, 96, 4, 4)
    return model


NETWORKS: dict[str, Callable[[], Any]] = {
    "resnet20": resnet20,
    "mobilenet": mobilenet,
    "resnet18": resnet18,
    "mobilenet_v2": mobilenet_v2,
    "vit": vit,
}
RATES = {"vit": 2e-3}
"""Highest learning rates, where 0.01 is too much."""

PASSES = {"vit": 12, "mobilenet_v2": 4}
"""How often a network sees each character, where that is not twice."""


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
        best = done.trials[0]
        facts[way] = {
            "way": str(best.recipe),
            "quantize_s": round(seconds, 1),
            "sqnr_db": best.sqnr_db,
            "launches": best.figures.launches,
            "cycles": best.figures.cycles,
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
    only: Annotated[list[str] | None, typer.Option(help="Names of networks.")] = None,
    json_file: Json = None,
) -> None:
    """Train what is not trained, measure, and print the table."""
    import onnx

    folder.mkdir(parents=True, exist_ok=True)
    results = read_json(json_file, {})
    columns = ("accuracy", "agreement", "SQNR dB", "launches", "cycles")
    table = figure_table(f"{images} characters", ["network", "computed", "way"], columns)
    for name in only or NETWORKS:
        file = folder / f"{name}.onnx"
        if not file.exists():
            onnx.save(trained(name, characters), file)
        results[name] = {"images": images, "rows": measure(onnx.load(file), images)}
        for row in results[name]["rows"]:
            cells = [f"{100 * row['accuracy']:.2f} %", f"{100 * row['agreement']:.2f} %"]
            if "way" in row:
                cells += [f"{row['sqnr_db']:.1f}", f"{row['launches']}", f"{row['cycles']:,}"]
            table.add_row(name, row["computed"], row.get("way", ""), *cells)
        write_json(json_file, results)
    Console(width=140).print(table)
