"""Export kernels to files, for a machine with a GPU but without TVM.

A folder holds one fatbin per candidate and ``kernels.json``: the operators, and for each candidate
its file, its launches in order (entry point, grid, block, argument order) and the arrays passed
from one kernel to the next. Needs no GPU;
``cuda_run.py`` beside this file runs such a folder with NumPy and PyTorch alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vtaops.base.errors import UnsupportedError, VTAError
from vtaops.kernels.cuda.kernel import CudaKernel
from vtaops.kernels.cuda.resources import assemble
from vtaops.kernels.cuda.target import entry_points
from vtaops.kernels.ops import TensorOp

ARCHS = ("sm_80", "sm_90")
"""Ampere and Hopper; PTX for the second serves newer GPUs."""

FORMAT = 2
"""Version of kernels.json."""


@dataclass(frozen=True)
class Candidate:
    """One kernel that computes an operator, and the tile that tells it from the others."""

    tile: str
    kernel: CudaKernel


@dataclass(frozen=True)
class Case:
    """One operator at one size, with the kernels to choose from.

    Attributes
    ----------
    operator, size : str
        For tables.
    op : TensorOp
        What is computed.
    candidates : tuple of Candidate
        The first is the one that the schedule chooses by itself.
    """

    operator: str
    size: str
    op: TensorOp
    candidates: tuple[Candidate, ...]


def export(
    cases: Iterable[Case],
    folder: Path,
    archs: tuple[str, ...] = ARCHS,
    *,
    machine_code: bool = True,
) -> Path:
    """Write kernels to a folder; candidates that cannot be built, or spill, are only listed.

    Parameters
    ----------
    cases : iterable of Case
        What to write.
    folder : Path
        Made if it is not there.
    archs : tuple of str
        Compute capabilities to assemble for.
    machine_code : bool
        Assemble with nvcc; else only the source is written.

    Returns
    -------
    Path
        The file kernels.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    described = [
        _describe(case, number, folder, archs if machine_code else ())
        for number, case in enumerate(cases)
    ]
    index = folder / "kernels.json"
    index.write_text(json.dumps({"format": FORMAT, "archs": archs, "cases": described}, indent=1))
    return index


def _describe(case: Case, number: int, folder: Path, archs: tuple[str, ...]) -> dict[str, Any]:
    candidates, refused = [], []
    for index, candidate in enumerate(case.candidates):
        stem = folder / f"{number:02}_{case.operator}_{index:02}"
        try:
            candidates.append(_write(candidate, stem, archs))
        except VTAError as error:
            refused.append({"tile": candidate.tile, "why": str(error)})
    op = case.op
    return {
        "operator": case.operator,
        "size": case.size,
        "op": {"type": type(op).__name__, **asdict(op)},  # type: ignore[call-overload]
        "flops": op.flops,
        "bytes": op.nbytes,
        "arguments": [asdict(spec) for spec in op.arguments],
        "candidates": candidates,
        "refused": refused,
    }


def _write(candidate: Candidate, stem: Path, archs: tuple[str, ...]) -> dict[str, Any]:
    source, kernel = candidate.kernel.source(), candidate.kernel
    used: dict[str, Any] = {}
    if archs:
        code, found = assemble(source, archs)
        for arch, needed in found.items():
            if needed.spills or needed.stack:
                raise UnsupportedError(
                    f"on {arch} it spills {needed.spills} bytes and has {needed.stack} on the stack"
                )
        path = stem.with_suffix(".fatbin")
        path.write_bytes(code)
        used = {arch: asdict(value) for arch, value in found.items()}
    else:
        path = stem.with_suffix(".cu")
        path.write_text(source)
    return {
        "tile": candidate.tile,
        "file": path.name,
        "launches": [
            {"function": entry.name, "parameters": entry.parameters, **asdict(launch)}
            for entry, launch in zip(entry_points(source), kernel.launches, strict=True)
        ],
        "workspace": kernel.workspace,
        "resources": used,
    }
