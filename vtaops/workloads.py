"""Named operators: the layers that VTA has been measured with, and those of the tutorials.

Sources: ResNet-18 as in upstream's convolution benchmarks, the shapes and schedules of TVM's VTA
tutorials.
"""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.errors import ShapeError
from vtaops.ops import Conv2d, Gemm, Operator
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
        How often it occurs in its network.
    tiling : Tiling or None
        The schedule it is published with; None: the default.
    """

    name: str
    op: Operator
    occurrences: int = 1
    tiling: Tiling | None = None


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
        height=size,
        width=size,
        kernel=kernel,
        padding=padding,
        strides=stride,
    )
    return Workload(f"resnet18.{name}", op, occurrences)


_TUTORIALS = (
    Workload(
        "tutorial.convolution_opt",
        Conv2d(),
        tiling=Tiling(oc=128, ic=16, h=7, w=14, oc_threads=2),
    ),
    Workload(
        "tutorial.matrix_multiply",
        Gemm(m=1, n=256, k=256, shift=0, clip=None),
        tiling=Tiling(oc=256, ic=16),
    ),
    Workload(
        "tutorial.matrix_multiply_opt",
        Gemm(m=1, n=1024, k=1024),
        tiling=Tiling(oc=256, ic=256),
    ),
)

WORKLOADS: dict[str, Workload] = {
    workload.name: workload for workload in (*map(_resnet18, _RESNET18), *_TUTORIALS)
}
"""All named operators."""


def find(name: str) -> Workload:
    """Return a named operator.

    Raises
    ------
    ShapeError
        If there is none; the message lists the names.
    """
    if name not in WORKLOADS:
        raise ShapeError(f"no layer {name!r}; known layers: {', '.join(WORKLOADS)}")
    return WORKLOADS[name]
