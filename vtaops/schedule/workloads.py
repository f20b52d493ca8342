"""Named operators: published VTA benchmark layers, and those of the tutorials.

Sources: ResNet-18, DCGAN and the grouped MobileNet as in upstream's benchmarks; the depthwise
layers of MobileNet 1.0 (arXiv 1704.04861, table 1); LeNet-5; the shapes and schedules of TVM's
VTA tutorials.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypedDict

from vtaops.base.errors import ShapeError
from vtaops.ops import AvgPool2d, Conv2d, Conv2dTranspose, Elementwise, Gemm, MaxPool2d, Operator
from vtaops.schedule import Tiling


@dataclass(frozen=True)
class Workload:
    """A named operator.

    Attributes
    ----------
    name : str
        For example ``"resnet18.C8"``.
    op : Operator
        The operator.
    occurrences : int
        Number of occurrences in its network.
    tiling : Tiling or None
        The published schedule; None: the default.
    """

    name: str
    op: Operator
    occurrences: int = 1
    tiling: Tiling | None = None


RELU = (0, 127)
"""The clip of every convolution in these networks."""


class _Size(TypedDict):
    height: int
    width: int


def _square(size: int) -> _Size:
    return {"height": size, "width": size}


# name: size, in channels, out channels, kernel, padding, stride, occurrences in the network
_RESNET18 = {
    "C1": (224, 3, 64, 7, 3, 2, 1),
    "C2": (56, 64, 64, 3, 1, 1, 4),
    "C3": (56, 64, 128, 3, 1, 2, 1),
    "C4": (56, 64, 128, 1, 0, 2, 1),
    "C5": (28, 128, 128, 3, 1, 1, 3),
    "C6": (28, 128, 256, 3, 1, 2, 1),
    "C7": (28, 128, 256, 1, 0, 2, 1),
    "C8": (14, 256, 256, 3, 1, 1, 3),
    "C9": (14, 256, 512, 3, 1, 2, 1),
    "C10": (14, 256, 512, 1, 0, 2, 1),
    "C11": (7, 512, 512, 3, 1, 1, 3),
}


def _resnet18(name: str) -> Workload:
    size, in_channels, out_channels, kernel, padding, stride, occurrences = _RESNET18[name]
    op = Conv2d(
        in_channels=in_channels,
        out_channels=out_channels,
        **_square(size),
        kernel=kernel,
        strides=stride,
        padding=padding,
        clip=RELU,
        fold_columns=in_channels == 3,
    )
    return Workload(f"resnet18.{name}", op, occurrences)


# The layers around the convolutions, and C2 with the residual that ends a block.
_RESNET18_REST = (
    Workload(
        "resnet18-rest.maxpool",
        MaxPool2d(channels=64, **_square(112), kernel=3, strides=2, padding=1),
    ),
    Workload(
        "resnet18-rest.C2+add",
        Conv2d(in_channels=64, out_channels=64, **_square(56), kernel=3, padding=1, clip=RELU,
               residual=True),
        occurrences=2,
    ),
    Workload(
        "resnet18-rest.add", Elementwise(function="add", shape=(1, 64, 56, 56), clip=RELU)
    ),
    Workload("resnet18-rest.avgpool", AvgPool2d(channels=512, **_square(7), kernel=7, strides=1)),
    Workload("resnet18-rest.dense", Gemm(m=1, n=1000, k=512, bias=True)),
)  # fmt: skip

# name: input size, in channels, out channels; kernel 4, stride 2, padding 1
_DCGAN = {"CT1": (4, 1024, 512), "CT2": (8, 512, 256), "CT3": (16, 256, 128)}


def _dcgan(name: str) -> Workload:
    size, in_channels, out_channels = _DCGAN[name]
    op = Conv2dTranspose(
        in_channels=in_channels,
        out_channels=out_channels,
        **_square(size),
        kernel=4,
        strides=2,
        padding=1,
        clip=RELU,
    )
    return Workload(f"dcgan.{name}", op)


# name: input size, channels, stride, occurrences in MobileNet 1.0; kernel 3, padding 1
_MOBILENET = {
    "D1": (112, 32, 1, 1),
    "D2": (112, 64, 2, 1),
    "D3": (56, 128, 1, 1),
    "D4": (56, 128, 2, 1),
    "D5": (28, 256, 1, 1),
    "D6": (28, 256, 2, 1),
    "D7": (14, 512, 1, 5),
    "D8": (14, 512, 2, 1),
    "D9": (7, 1024, 1, 1),
}


def _mobilenet(name: str, depthwise: bool) -> Workload:
    """Return a layer: upstream's variant has 16 channels per group, the real network one."""
    size, channels, stride, occurrences = _MOBILENET[name]
    op = Conv2d(
        in_channels=channels,
        out_channels=channels,
        **_square(size),
        kernel=3,
        strides=stride,
        padding=1,
        groups=channels if depthwise else channels // 16,
        clip=RELU,
    )
    network = "mobilenet" if depthwise else "mobilenet-grouped"
    return Workload(f"{network}.{name}", op, occurrences)


_MOBILENET_FIRST = Workload(
    "mobilenet.C1",
    Conv2d(in_channels=3, out_channels=32, **_square(224), kernel=3, strides=2, padding=1,
           clip=RELU, fold_columns=True),
)  # fmt: skip

_LENET5 = (
    Workload(
        "lenet5.C1",
        Conv2d(in_channels=1, out_channels=6, **_square(28), kernel=5, padding=2, clip=RELU,
               fold_columns=True),
    ),
    Workload("lenet5.S2", AvgPool2d(channels=6, **_square(28), kernel=2)),
    Workload(
        "lenet5.C3",
        Conv2d(in_channels=6, out_channels=16, **_square(14), kernel=5, clip=RELU,
               fold_columns=True),
    ),
    Workload("lenet5.S4", AvgPool2d(channels=16, **_square(10), kernel=2)),
    Workload("lenet5.C5", Gemm(m=1, n=120, k=400, bias=True, clip=RELU)),
    Workload("lenet5.F6", Gemm(m=1, n=84, k=120, bias=True, clip=RELU)),
    Workload("lenet5.output", Gemm(m=1, n=10, k=84, bias=True)),
)  # fmt: skip


_TUTORIALS = (
    Workload(
        "tutorial.convolution_opt",
        Conv2d(in_channels=256, out_channels=256, **_square(14), kernel=3, padding=1, clip=RELU),
        tiling=Tiling(oc=128, ic=16, h=7, w=14, oc_threads=2),
    ),
    Workload(
        "tutorial.matrix_multiply",
        Gemm(m=1, n=256, k=256, shift=0, clip=None),
        tiling=Tiling(oc=256, ic=16),
    ),
    Workload(
        "tutorial.matrix_multiply_opt",
        Gemm(m=1, n=1024, k=1024, clip=RELU),
        tiling=Tiling(oc=256, ic=256),
    ),
)

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        *map(_resnet18, _RESNET18),
        *_RESNET18_REST,
        *map(_dcgan, _DCGAN),
        *(_mobilenet(name, depthwise=False) for name in _MOBILENET),
        _MOBILENET_FIRST,
        *(_mobilenet(name, depthwise=True) for name in _MOBILENET),
        *_LENET5,
        *_TUTORIALS,
    )
}
"""All named operators."""


def find(name: str) -> Workload:
    """Return a workload by name.

    Raises
    ------
    ShapeError
        If the name is unknown; the message lists similar names.
    """
    if name not in WORKLOADS:
        near = get_close_matches(name, WORKLOADS, cutoff=0.0)
        raise ShapeError(
            f"no layer {name!r}; the nearest are {', '.join(near)}; vtaops list layers lists all "
            f"{len(WORKLOADS)}"
        )
    return WORKLOADS[name]
