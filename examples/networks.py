"""Networks to compile, without the internet: seeded torch models, and those in the package onnx.

    python examples/networks.py                  # light_squeezenet.onnx, light_squeezenet.npz
    python examples/networks.py resnet18 -o resnet18.onnx --calibration resnet18.npz

writes a float ONNX model and calibration data for it. Those whose names begin with light_ need the
package onnx alone, the others torch (the extra `examples`). Weights are random (He's
initialisation, batch norms as after training), so that shapes and ranges are those of real networks
while results mean nothing; `lenet5` is trained, on the digits of scikit-learn.
"""

import argparse
import io
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from vtaops.base.optional import install_command

LIGHT = [
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
]
"""Classic networks in the package onnx (backend/test/data/light)."""


def light(name, seed=0):
    """Return a network of the package onnx, its generated weights replaced by random ones."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(folder / f"light_{name}.onnx")
    rng = np.random.default_rng(seed)
    shapes = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    readers = {name: (n, i) for n in model.graph.node for i, name in enumerate(n.input)}
    nodes = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            nodes.append(node)
            continue
        reader, place = readers[node.output[0]]
        while reader.op_type == "Unsqueeze":
            reader, place = readers[reader.output[0]]
        shape = tuple(int(extent) for extent in shapes[node.input[0]])
        value = _weight(reader.op_type, place, shape, rng).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.ir_version = 8  # initializers need not be listed among the inputs
    return model


def _weight(reader, place, shape, rng):
    if reader in ("Conv", "Gemm") and place == 1:
        return rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
    if reader == "BatchNormalization":
        return rng.uniform(0.5, 1.5, shape) if place in (1, 4) else rng.normal(0, 0.1, shape)
    if reader == "Mul":
        return rng.uniform(0.5, 1.5, shape)
    return rng.normal(0, 0.1, shape)


# --------------------------------------------------------------------- torch


def resnet(blocks, widths=(64, 128, 256, 512), bottleneck=False, classes=1000, small=False):
    """Build ResNet (He et al. 2015); `small`: the form for CIFAR with a 3x3 stem and no pooling."""
    from torch import nn

    def norm(i, o, k, stride=1):
        return nn.Sequential(nn.Conv2d(i, o, k, stride, k // 2, bias=False), nn.BatchNorm2d(o))

    class Block(nn.Module):
        def __init__(self, i, width, stride):
            super().__init__()
            o = width * 4 if bottleneck else width
            if bottleneck:
                inner = [norm(i, width, 1), norm(width, width, 3, stride), norm(width, o, 1)]
            else:
                inner = [norm(i, width, 3, stride), norm(width, o, 3)]
            layers = [x for layer in inner for x in (layer, nn.ReLU())][:-1]
            self.branch = nn.Sequential(*layers)
            self.skip = norm(i, o, 1, stride) if stride != 1 or i != o else nn.Identity()

        def forward(self, x):
            return (self.branch(x) + self.skip(x)).relu()

    stem = [norm(3, widths[0], 3), nn.ReLU()]
    if not small:
        stem = [norm(3, widths[0], 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    layers, i = [], widths[0]
    for stage, (count, width) in enumerate(zip(blocks, widths, strict=True)):
        for index in range(count):
            layers.append(Block(i, width, 2 if stage and not index else 1))
            i = width * 4 if bottleneck else width
    return nn.Sequential(
        *stem, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, classes)
    )


def mobilenet_v1(classes=1000):
    """Build MobileNet (Howard et al. 2017): depthwise separable convolutions."""
    from torch import nn

    def norm(i, o, k, stride, groups=1):
        return [
            nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(),
        ]

    layers, i = norm(3, 32, 3, 2), 32
    for o, stride in (
        [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
        + [(512, 1)] * 5
        + [(1024, 2), (1024, 1)]
    ):
        layers += norm(i, i, 3, stride, i) + norm(i, o, 1, 1)
        i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, classes))


def mobilenet_v2(classes=1000):
    """Build MobileNet-v2 (Sandler et al. 2018): inverted residuals, ReLU6."""
    from torch import nn

    def norm(i, o, k, stride=1, groups=1, act=True):
        conv = nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False)
        return [conv, nn.BatchNorm2d(o)] + [nn.ReLU6()] * act

    class Block(nn.Module):
        def __init__(self, i, o, stride, expand):
            super().__init__()
            width = i * expand
            layers = norm(i, width, 1) if expand > 1 else []
            layers += norm(width, width, 3, stride, width) + norm(width, o, 1, act=False)
            self.branch, self.same = nn.Sequential(*layers), stride == 1 and i == o

        def forward(self, x):
            return x + self.branch(x) if self.same else self.branch(x)

    layers, i = norm(3, 32, 3, 2), 32
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)]
    for expand, o, count, stride in [*rows, (6, 160, 3, 2), (6, 320, 1, 1)]:
        for index in range(count):
            layers.append(Block(i, o, stride if not index else 1, expand))
            i = o
    layers += norm(i, 1280, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes))


def tiny_yolo(classes=20):
    """Build a detector with two scales: leaky ReLU, upsampling and concatenation."""
    import torch
    from torch import nn

    def layer(i, o, k=3, stride=1):
        conv = nn.Conv2d(i, o, k, stride, k // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(o), nn.LeakyReLU(0.125))

    class Yolo(nn.Module):
        def __init__(self):
            super().__init__()
            self.near = nn.Sequential(
                layer(3, 16), nn.MaxPool2d(2), layer(16, 32), nn.MaxPool2d(2), layer(32, 64),
                nn.MaxPool2d(2), layer(64, 128),
            )  # fmt: skip
            self.far = nn.Sequential(nn.MaxPool2d(2), layer(128, 256), layer(256, 128, 1))
            self.up = nn.Sequential(layer(128, 64, 1), nn.Upsample(scale_factor=2))
            self.coarse = nn.Sequential(layer(128, 128), nn.Conv2d(128, 3 * (5 + classes), 1))
            self.fine = nn.Sequential(layer(192, 128), nn.Conv2d(128, 3 * (5 + classes), 1))

        def forward(self, x):
            near = self.near(x)
            far = self.far(near)
            return self.coarse(far), self.fine(torch.cat([self.up(far), near], 1))

    return Yolo()


def encoder_layer(tokens, width, heads):
    """Build a layer of attention and an MLP, with layer norms before both."""
    from torch import nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

        def forward(self, x):
            def split(y):
                return y.reshape(1, tokens, heads, width // heads).permute(0, 2, 1, 3)

            q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
            scores = (q @ k.transpose(2, 3)) * (width // heads) ** -0.5
            mixed = scores.softmax(-1) @ v
            return self.out(mixed.permute(0, 2, 1, 3).reshape(1, tokens, width))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = Attention()
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x):
            x = x + self.attention(self.first(x))
            return x + self.mlp(self.second(x))

    return Layer()


def vit_tiny(classes=1000, width=192, depth=12, heads=3, patch=16, tokens=196):
    """Build ViT-Tiny (Touvron et al. 2020), with a mean over the tokens for the class token."""
    import torch
    from torch import nn

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, width, patch, patch)
            self.place = nn.Parameter(torch.randn(1, tokens, width) * 0.02)
            layers = (encoder_layer(tokens, width, heads) for _ in range(depth))
            self.layers = nn.Sequential(*layers, nn.LayerNorm(width))
            self.head = nn.Linear(width, classes)

        def forward(self, x):
            x = self.patches(x).reshape(1, width, tokens).permute(0, 2, 1) + self.place
            return self.head(self.layers(x).mean(1))

    return ViT()


def encoder(depth=6, width=128, heads=4, tokens=64):
    """Build an encoder of tokens that are embedded already."""
    from torch import nn

    layers = (encoder_layer(tokens, width, heads) for _ in range(depth))
    return nn.Sequential(*layers, nn.LayerNorm(width))


def decoder_layer(tokens, width, heads):
    """Build a layer as Llama has it: rotary positions, RMS norms, an MLP with a SiLU gate."""
    import torch
    from torch import nn

    each = width // heads
    angles = torch.outer(torch.arange(tokens), 1e4 ** (-torch.arange(0, each, 2) / each))
    angles = torch.cat([angles, angles], -1)

    def turned(x):
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return self.weight * x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Norm(), Norm()
            self.q, self.k, self.v, self.out = (
                nn.Linear(width, width, bias=False) for _ in range(4)
            )
            self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
            self.down = nn.Linear(3 * width, width, bias=False)
            self.register_buffer("later", torch.ones(tokens, tokens).triu(1).bool())

        def forward(self, x):
            y = self.first(x)
            q, k, v = (
                part(y).reshape(1, tokens, heads, each).transpose(1, 2)
                for part in (self.q, self.k, self.v)
            )
            scores = turned(q) @ turned(k).transpose(2, 3) * each**-0.5
            shares = scores.masked_fill(self.later, float("-inf")).softmax(-1)
            x = x + self.out((shares @ v).transpose(1, 2).reshape(1, tokens, width))
            y = self.second(x)
            return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    return Layer()


def decoder(depth=6, width=128, heads=4, tokens=64):
    """Build a decoder of tokens that are embedded already; each sees those before it."""
    from torch import nn

    return nn.Sequential(*(decoder_layer(tokens, width, heads) for _ in range(depth)))


def lenet5():
    """Build LeNet-5 (LeCun et al. 1998) for digits of 8x8 pixels, with ReLU and max pooling."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


TORCH = {
    "resnet18": (lambda: resnet((2, 2, 2, 2)), (3, 224, 224)),
    "resnet50": (lambda: resnet((3, 4, 6, 3), bottleneck=True), (3, 224, 224)),
    "resnet20": (
        lambda: resnet((3, 3, 3), (16, 32, 64), classes=10, small=True),
        (3, 32, 32),
    ),
    "mobilenet_v1": (mobilenet_v1, (3, 224, 224)),
    "mobilenet_v2": (mobilenet_v2, (3, 224, 224)),
    "tiny_yolo": (tiny_yolo, (3, 160, 160)),
    "vit_tiny": (vit_tiny, (3, 224, 224)),
    "encoder": (encoder, (64, 128)),
    "decoder": (decoder, (64, 128)),
}
"""Builders of torch modules and the shapes of their inputs."""


def seeded(name, seed=0):
    """Return a torch module with random weights and its image shape."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    build, shape = TORCH[name]
    module = build().eval()
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_(0, 0.1)
                part.running_var.uniform_(0.5, 1.5)
                part.weight.uniform_(0.5, 1.0)
                part.bias.normal_(0, 0.1)
    return module, shape


def to_onnx(module, shape):
    """Export a torch module for one image to ONNX, opset 17."""
    import torch

    file = io.BytesIO()
    torch.onnx.export(
        module, (torch.zeros(1, *shape),), file, opset_version=17, input_names=["x"], dynamo=False
    )
    return onnx.load_from_string(file.getvalue())


def digits():
    """Return the digits of scikit-learn as (train, held out), each (images, labels)."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:1297], order[1297:]
    return (images[train], data.target[train]), (images[test], data.target[test])


def train_lenet5(epochs=12):
    """Train LeNet-5 on the digits (some seconds); return the module."""
    import torch

    torch.manual_seed(0)
    (images, labels), _ = digits()
    x, y = torch.from_numpy(images), torch.from_numpy(labels).long()
    module = lenet5()
    optimizer = torch.optim.Adam(module.parameters(), 2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
            optimizer.step()
    return module.eval()


def network(name, seed=0, count=2):
    """Return a network by name as ONNX model, and calibration data by the name of its input."""
    if name == "lenet5":
        (images, _), _ = digits()
        return to_onnx(train_lenet5(), (1, 8, 8)), {"x": images[: max(count, 64)]}
    if name.startswith("light_"):
        model = light(name.removeprefix("light_"), seed)
        constants = {tensor.name for tensor in model.graph.initializer}
        (value,) = (v for v in model.graph.input if v.name not in constants)
        shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)[1:]
        key = value.name
    else:
        module, shape = seeded(name, seed)
        model, key = to_onnx(module, shape), "x"
    images = np.random.default_rng(seed + 1).standard_normal((count, *shape))
    return model, {key: images.astype(np.float32)}


NAMES = ["lenet5", *TORCH, *(f"light_{name}" for name in LIGHT)]


def main():
    """Write one network and its calibration data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=NAMES, nargs="?", default="light_squeezenet")
    parser.add_argument("-o", "--output", help="default: NAME.onnx")
    parser.add_argument("--calibration", help="default: NAME.npz")
    arguments = parser.parse_args()
    name = arguments.name
    output, images = arguments.output or f"{name}.onnx", arguments.calibration or f"{name}.npz"
    try:
        model, data = network(name)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"{name} needs {error.name}: {install_command('examples')}; names with light_ do not"
        ) from error
    onnx.save(model, output)
    np.savez(images, **data)
    print(f"{output}: {len(model.graph.node)} nodes; {images}: images")
    print(f"next: vtaops quantize {output} --calibration {images} -o {name}.q.onnx")


if __name__ == "__main__":
    main()
