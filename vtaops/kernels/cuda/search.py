"""Brute-force search for an operator's best tile on this machine's GPU, as in Hu's article."""

from __future__ import annotations

from functools import partial
from typing import Any

from vtaops.kernels.cuda.kernel import CudaKernel
from vtaops.kernels.cuda.schedule import family
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops import TensorOp
from vtaops.kernels.trials import Progress, Trial, tile_space, try_all


def search(
    op: TensorOp,
    target: CudaTarget | None = None,
    budget: float = 0.05,
    progress: Progress | None = None,
) -> list[Trial]:
    """Time all tiles of an operator on the GPU; return the trials, fastest first.

    Parameters
    ----------
    op : TensorOp
        A matrix product, convolution or pooling.
    target : CudaTarget, optional
        By default `CudaTarget()`.
    budget : float
        Seconds of measurement per tile.
    progress : callable, optional
        See `Progress`.

    Raises
    ------
    DeviceError
        If no GPU is available.
    UnsupportedError
        If the operator's schedule has no tiles.
    """
    schedule, tiles = tile_space(op, target or CudaTarget(), family)

    def seconds(tile: Any) -> float:
        return CudaKernel(op, target, partial(schedule, tile=tile)).time(budget)

    return try_all(tiles, seconds, progress)
