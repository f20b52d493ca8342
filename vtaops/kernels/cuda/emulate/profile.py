"""Profile: a kernel's resource use, counted without a GPU, and lower bounds of its time on a card.

`profile` runs some thread blocks of a kernel in the emulator. Its counts are those of TVM's source:
an assembler may still merge neighbouring loads, or keep more in registers. Times are bounds derived
from the counts (arithmetic, memory, shared memory, each alone), never predictions.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.kernels.cuda.emulate.cards import Card
from vtaops.kernels.cuda.emulate.emulator import Emulated, Traffic
from vtaops.kernels.cuda.kernel import CudaKernel
from vtaops.kernels.cuda.resources import Resources, occupancy, resources
from vtaops.kernels.cuda.target import WARP
from vtaops.kernels.ops.common import TensorOp, ceil_div

SECTOR, BANK_BYTES = 32, 128
"""Transfer unit of global memory, and bytes that shared memory's banks deliver per cycle."""

_KINDS = ("dp4a", "tensor products", "shuffles", "fragment loads", "fragment stores")
"""Instructions that the emulator counts, in the order of device.h."""


@dataclass(frozen=True)
class Profile:
    """A kernel's resource use, counted in some of its blocks.

    Attributes
    ----------
    op : TensorOp
        The kernel's operator.
    arch : str
        Compute capability.
    threads, blocks : int
        Threads per block; blocks in the grid. For two kernels, here and below, those of the first.
    traffic : tuple of Traffic
        Per array, reads and writes separately, of the blocks that ran.
    instructions : dict
        Warp-level count of special instructions, by kind, for the whole grid.
    barriers : float
        Number of ``__syncthreads()`` waits per thread.
    convergence : float
        Fraction of a warp's threads that execute a basic block together, 0 to 1.
    used : Resources or None
        Resource usage reported by nvcc; None without nvcc, or if it does not support the GPU.
    """

    op: TensorOp
    arch: str
    threads: int
    blocks: int
    traffic: tuple[Traffic, ...]
    instructions: dict[str, int]
    barriers: float
    convergence: float
    used: Resources | None

    def sum(self, field: str, *, shared: bool, write: bool | None = None) -> float:
        """Sum a field of `Traffic` over global or shared arrays, for the whole grid."""
        return sum(
            part.scale * float(getattr(part, field))
            for part in self.traffic
            if part.shared == shared and write in (None, part.write)
        )

    @property
    def conflict(self) -> float:
        """Bank cycles relative to the minimum; 1 is free of conflicts."""
        return self._units_per_fewest(True)

    @property
    def overfetch(self) -> float:
        """Sectors relative to the minimum for each request's bytes; 1 is coalesced."""
        return self._units_per_fewest(False)

    def _units_per_fewest(self, shared: bool) -> float:
        """Return sectors, or bank cycles, relative to the fewest possible."""
        fewest = self.sum("fewest", shared=shared)
        return self.sum("units", shared=shared) / fewest if fewest else 1.0

    @property
    def global_bytes(self) -> float:
        """Bytes between multiprocessors and the cache: all sectors of all requests."""
        return SECTOR * self.sum("units", shared=False)

    @property
    def shared_loads_per_fma(self) -> float:
        """Shared-memory loads of a thread per multiply-add of the operator's definition."""
        return 2 * self.sum("lanes", shared=True, write=False) / self.op.flops

    @property
    def occupancy(self) -> float | None:
        """Fraction of a multiprocessor's threads that can be resident; None without nvcc."""
        return None if self.used is None else occupancy(self.used, self.threads, self.arch)

    def bounds(self, card: Card) -> dict[str, float]:
        """Return lower bounds of a card's time in seconds, by limiting resource.

        Parameters
        ----------
        card : Card
            One of `vtaops.kernels.cuda.emulate.CARDS`.

        Returns
        -------
        dict
            "arithmetic": the operations of the definition at the card's peak; "memory": each byte
            of the arguments once; "sectors": all sectors at 64 bytes per cycle and multiprocessor
            (the path to the second-level cache); "shared": all bank cycles, one per cycle and
            multiprocessor. The last two count only multiprocessors that have a block.
        """
        busy = min(self.blocks, card.multiprocessors) * card.gigahertz * 1e9
        peak = 2.0 * card.lanes * card.cycles
        if self.instructions["tensor products"]:
            peak = 1e12 * dict(card.tensor).get(self.op.inputs[0].dtype, peak / 1e12)
        elif self.instructions["dp4a"]:
            peak *= 4
        return {
            "arithmetic": self.op.flops / peak,
            "memory": self.op.nbytes / (card.gigabytes_per_second * 1e9),
            "sectors": self.global_bytes / (64 * busy),
            "shared": self.sum("units", shared=True) / busy,
        }

    def summary(self, card: Card) -> dict[str, float | str | None]:
        """Return the key figures, and the bound on a card."""
        bounds = self.bounds(card)
        return {
            "blocks": self.blocks,
            "threads": self.threads,
            "overfetch": self.overfetch,
            "bank conflict": self.conflict,
            "shared loads per multiply-add": self.shared_loads_per_fma,
            "barriers": self.barriers,
            "convergence": self.convergence,
            "occupancy": self.occupancy,
            "card": card.name,
            "limit": self.limit(card),
            "most GFLOPS": self.op.flops / max(bounds.values()) / 1e9,
            **{f"least us, {name}": seconds * 1e6 for name, seconds in bounds.items()},
        }

    def limit(self, card: Card) -> str:
        """Return the name of the largest of the `bounds`."""
        bounds = self.bounds(card)
        return max(bounds, key=lambda name: bounds[name])


def profile(kernel: CudaKernel | TensorOp, blocks: int = 2) -> Profile:
    """Count a kernel's resource use.

    Parameters
    ----------
    kernel : CudaKernel or TensorOp
        The kernel; for an operator, that of its default schedule.
    blocks : int
        Number of thread blocks to run, spread evenly over the grid, including its corners.

    Raises
    ------
    UnsupportedError
        If no C++ compiler is available.
    KernelFault
        If the kernel violates the rules of a GPU.

    Examples
    --------
    >>> counts = profile(MatmulOp(512, 512, 512))
    >>> counts.conflict, counts.bounds(CARDS["T4"])
    """
    compiled = kernel if isinstance(kernel, CudaKernel) else CudaKernel(kernel)
    op, first = compiled.op, compiled.launch
    emulated = Emulated.of(compiled, counting=True)
    arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in op.arguments}
    traffic: list[Traffic] = []
    for number, launch in reversed(list(enumerate(compiled.launches))):  # the first is asked more
        grid = prod(launch.grid)
        chosen = sorted({round(i) for i in np.linspace(0, grid - 1, min(blocks, grid))})
        emulated(arrays, blocks=chosen, only=number)
        scale = grid / len(chosen)
        traffic += [replace(part, scale=scale) for part in emulated.traffic()]
    warps = ceil_div(first.threads, WARP) / first.threads
    counts = [emulated.counted(kind) * scale * warps for kind in range(len(_KINDS))]
    passed = sum(emulated.passed(barrier) for barrier in range(emulated.barriers))
    return Profile(
        op,
        compiled.target.arch,
        first.threads,
        prod(first.grid),
        tuple(traffic),
        {kind: round(number) for kind, number in zip(_KINDS, counts, strict=True)},
        passed / first.threads / len(chosen),
        emulated.convergence(),
        _resources(compiled.source(), compiled.target.arch),
    )


def _resources(source: str, arch: str) -> Resources | None:
    """Return what a kernel occupies, if nvcc can tell."""
    with suppress(UnsupportedError):
        return resources(source, arch)
    return None
