"""CudaTarget: the NVIDIA GPU to generate kernels for; CUDA source from schedules."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from vtaops.base.errors import UnsupportedError

WARP = 32
"""Threads that execute in lockstep."""


@dataclass(frozen=True)
class CudaTarget:
    """A GPU to compile kernels for.

    Attributes
    ----------
    arch : str
        Compute capability, in nvcc's notation.
    threads : int
        Maximum threads per block.
    shared : int
        Bytes of shared memory that a block may use without opting in to more.
    multiprocessors : int
        Number of blocks that keep the whole GPU busy.
    """

    arch: str = "sm_90"
    threads: int = 1024
    shared: int = 48 * 1024
    multiprocessors: int = 132

    @property
    def capability(self) -> int:
        """The compute capability as a number: 75 for sm_75."""
        return int("".join(filter(str.isdigit, self.arch)))

    @property
    def copies_ahead(self) -> bool:
        """Whether it supports ``cp.async`` (PTX ISA, "Data Movement": sm_80 and higher)."""
        return self.capability >= 80

    def tensor_cores(self, dtype: str) -> bool:
        """Whether its tensor cores support a dtype (PTX ISA, "wmma.mma")."""
        return self.capability >= {"float16": 70, "int8": 72}.get(dtype, 1000)

    @cached_property
    def tvm(self) -> Any:
        """The ``tvm.target.Target``."""
        from tvm.target import Target

        return Target(
            {
                "kind": "cuda",
                "arch": self.arch,
                "max_threads_per_block": self.threads,
                "max_shared_memory_per_block": self.shared,
                "thread_warp_size": WARP,
            },
            host={"kind": "llvm"},
        )


def compile_cuda(schedule: Any, target: CudaTarget) -> Any:
    """Compile a scheduled kernel.

    Arrays keep separate memory: TVM 0.27 would let tiles of different dtypes share it and then
    reject the tensor cores' pointers into it.
    """
    import tvm

    config = {"tirx.disable_storage_rewrite": True, "tirx.use_async_copy": True}
    if find_spec("cuda.bindings" if find_spec("cuda") else "cuda") is None:  # NVRTC needs it
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
    tvm.backend.load("cuda")  # `vtaops compile` imports TVM without its back ends
    with tvm.transform.PassContext(config=config), target.tvm:
        return tvm.compile(schedule.mod, target=target.tvm)


def cuda_source(schedule: Any, target: CudaTarget) -> str:
    """Return a scheduled kernel's CUDA C++ source. Needs neither a GPU nor nvcc."""
    with _source_only():
        executable = compile_cuda(schedule, target)
    return str(executable.mod.imports_[0].inspect_source("cuda"))


@contextmanager
def _source_only() -> Iterator[None]:
    """Keep TVM from calling a CUDA compiler even if available."""
    name = "TVM_COMPILE_FORCE_FALLBACK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@dataclass(frozen=True)
class Launch:
    """Grid and block of a kernel, each (x, y, z)."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    @property
    def threads(self) -> int:
        """Threads of one block."""
        x, y, z = self.block
        return x * y * z


def launches_of(schedule: Any) -> tuple[Launch, ...]:
    """Return grid and block of each of a schedule's kernels, in order."""
    from tvm.tirx import SeqStmt

    body = schedule.mod["main"].body.block.body
    return tuple(map(_launch, body if isinstance(body, SeqStmt) else [body]))


def _launch(nest: Any) -> Launch:
    bound = re.findall(r'T\.thread_binding\((\d+), thread="([\w.]+)"\)', nest.script())
    extents = {name: int(extent) for extent, name in bound}

    def of(kind: str) -> tuple[int, int, int]:
        x, y, z = (extents.get(f"{kind}Idx.{axis}", 1) for axis in "xyz")
        return x, y, z

    return Launch(of("block"), of("thread"))


_PROTOTYPE = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(?P<name>\w+)\((?P<types>[^)]*)\);'
)


@dataclass(frozen=True)
class EntryPoint:
    """A kernel's name, and its parameters in order.

    The parameters are pointers to the tensors of those names, in TVM's own order.
    """

    name: str
    parameters: tuple[str, ...]
    types: tuple[str, ...]


def entry_points(source: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of CUDA source, in the order in which its kernels run.

    Raises
    ------
    UnsupportedError
        If the source has no kernels.
    """
    points = []
    for name, types in sorted(_PROTOTYPE.findall(source)):
        pairs = [parameter.rsplit(maxsplit=1) for parameter in types.split(",")]
        names = tuple(parameter.removesuffix("_ptr") for _, parameter in pairs)
        kinds = tuple(kind.replace("__restrict__", "") for kind, _ in pairs)
        points.append(EntryPoint(name, names, kinds))
    if not points:
        raise UnsupportedError("the source has no kernels")
    return tuple(points)
