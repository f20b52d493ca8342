"""Train the classifier of `vtaops demo` on characters that `trials.glyphs` draws.

    python -m trials.train_glyphs examples/glyphs

writes ``glyphs.onnx`` (float, about 60 kB) and ``samples.npz``: images for calibration, and others
with labels. Needs ``torch==2.13.0``, onnx, matplotlib and Pillow, and some minutes of CPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from trials.glyphs import CHARACTERS, SIZE, glyphs, to_input

CHANNELS = (16, 32, 32)
"""Output channels of the convolutions: whole tiles of VTA."""


class Classifier(nn.Sequential):
    """Three convolutions of 3x3 with batch normalisation, two pools, the mean, a dense layer."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for before, channels in zip((1, *CHANNELS), CHANNELS, strict=False):
            layers += [
                nn.Conv2d(before, channels, 3, padding=1, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
        pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS[-1], len(CHARACTERS))]
        super().__init__(*layers[:-1], *pooled)


def train(model: Classifier, count: int, epochs: int, seed: int) -> None:
    """Train with Adam and one cycle of the learning rate; new characters in each epoch."""
    torch.manual_seed(seed)
    batch = 128
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-4)
    steps = epochs * (count // batch)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for epoch in range(epochs):
        images, labels = glyphs(count, seed + epoch)
        model.train()
        for first in range(0, count - batch + 1, batch):
            x = torch.from_numpy(to_input(images[first : first + batch]))
            loss = nn.functional.cross_entropy(
                model(x), torch.from_numpy(labels[first : first + batch]), label_smoothing=0.05
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cycle.step()
        print(f"epoch {epoch + 1} of {epochs}: loss {loss.item():.3f}", flush=True)
    model.eval()


def accuracy(model: Classifier, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of images that are classified rightly."""
    with torch.no_grad():
        found = model(torch.from_numpy(to_input(images))).argmax(1).numpy()
    return float((found == labels).mean())


def to_onnx(model: Classifier) -> onnx.ModelProto:
    """Return the model with its batch normalisations folded into the convolutions."""
    nodes, weights, value = [], [], "image"

    def add(kind: str, *parameters: torch.Tensor, **attributes: object) -> None:
        nonlocal value
        place = len(nodes)
        names = [f"{kind.lower()}{place}_{part}" for part, _ in zip("wb", parameters, strict=False)]
        for name, parameter in zip(names, parameters, strict=True):
            weights.append(numpy_helper.from_array(parameter.detach().numpy(), name))
        result = f"{kind.lower()}{place}"
        nodes.append(helper.make_node(kind, [value, *names], [result], result, **attributes))
        value = result

    layers = list(model)
    for layer, after in zip(layers, [*layers[1:], None], strict=True):
        match layer:
            case nn.Conv2d():
                scale = after.weight / torch.sqrt(after.running_var + after.eps)
                weight = layer.weight * scale.reshape(-1, 1, 1, 1)
                bias = after.bias - after.running_mean * scale
                add("Conv", weight, bias, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            case nn.ReLU():
                add("Relu")
            case nn.MaxPool2d():
                add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
            case nn.AdaptiveAvgPool2d():
                add("GlobalAveragePool")
            case nn.Flatten():
                add("Flatten", axis=1)
            case nn.Linear():
                add("Gemm", layer.weight, layer.bias, transB=1)
    nodes[-1].output[0] = "scores"
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, SIZE, SIZE])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", len(CHARACTERS)])
    graph = helper.make_graph(nodes, "glyphs", [image], [scores], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where glyphs.onnx and samples.npz go")
    parser.add_argument("--count", type=int, default=20_000, help="characters in each epoch")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    model = Classifier()
    train(model, options.count, options.epochs, seed=1000)
    images, labels = glyphs(10_000, seed=1)
    print(f"accuracy on 10,000 other characters: {accuracy(model, images, labels):.2%}")
    options.folder.mkdir(parents=True, exist_ok=True)
    onnx.save(to_onnx(model), options.folder / "glyphs.onnx")
    calibration, _ = glyphs(32, seed=2)
    images, labels = glyphs(100, seed=3)
    np.savez_compressed(
        options.folder / "samples.npz",
        calibration=calibration,
        images=images,
        labels=labels.astype(np.uint8),
        characters=np.array([*CHARACTERS]),
    )


if __name__ == "__main__":
    main()
