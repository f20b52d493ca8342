"""Moved modules: an import of the old path loads the module at its new path.

`MOVED` is the list of renames since 0.1.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

_TO_ROOMS = {
    "base": "cache errors files names shapes",
    "board": "farm rpc",
    "compiler": "metaschedule tuner",
    "graph": "onnx_files",
    "machine": "alu capabilities config isa layout views",
    "ops": "reference",
    "quantization": "pictures",
    "schedule": "workloads",
    "session": "selftest",
}
"""Modules of 0.1 right below ``vtaops/``, by the room that they moved to."""

_EXPORT = ("blob", "boxes", "bundle", "regions", "stages", "steps", "values")
_BETWEEN_ROOMS = {
    "explore.cluster": "explore.engine",
    "export": "model.export",
    **{f"export.{name}": f"model.export.{name}" for name in _EXPORT},
    "model.region": "program.region",
    "ops.batch_matmul": "ops.matmul",
    "ops.diagonal": "ops.constants",
    "ops.gemm": "ops.matmul",
    "ops.postprocess": "ops.epilogue",
    "ops.scaling": "ops.epilogue",
    "quantization.onnx_files": "graph.onnx_files",
    "quantization.probe": "graph.probe",
    "relax.partition": "network.partition",
    "report.html": "program.html",
    "report.networks": "model.tables",
    **{f"runtime.{name}": f"hardware.{name}" for name in ("performance", "registers")},
    **{f"runtime.tsim.{n}": f"hardware.{n}" for n in ("build", "rtl", "synthesis", "vivado")},
}

MOVED = {
    **{f"vtaops.{n}": f"vtaops.{room}.{n}" for room, ns in _TO_ROOMS.items() for n in ns.split()},
    **{f"vtaops.{old}": f"vtaops.{new}" for old, new in _BETWEEN_ROOMS.items()},
}


class MovedModules:
    """A finder and loader for moved modules; a `DeprecationWarning` names the new path.

    Implements the protocols of `importlib.abc` without importing it, which would cost more than all
    else here.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader: Any = self
        return ModuleSpec(name, loader, origin=MOVED[name]) if name in MOVED else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None: Python creates a module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        warnings.warn(f"{old} has moved to {MOVED[old]}", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(MOVED[old])

    def get_code(self, name: str) -> CodeType | None:
        """Return the code of a moved module, for ``python -m`` with the old path."""
        from importlib.util import find_spec

        spec: Any = find_spec(MOVED[name])
        code: CodeType | None = spec.loader.get_code(MOVED[name])
        return code


def find_moved_modules() -> None:
    """Install the finder of moved modules; idempotent.

    It comes first: others would find the files of a moved folder again, as modules of the old name.
    """
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
