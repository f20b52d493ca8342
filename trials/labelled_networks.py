"""Networks that learn characters (`trials.glyphs`) in minutes; they need torch and torchvision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trials.glyphs import CHARACTERS, SIZE


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
