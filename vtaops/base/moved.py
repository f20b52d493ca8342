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

MOVED = {
    "vtaops.alu": "vtaops.machine.alu",
    "vtaops.cache": "vtaops.base.cache",
    "vtaops.capabilities": "vtaops.machine.capabilities",
    "vtaops.config": "vtaops.machine.config",
    "vtaops.errors": "vtaops.base.errors",
    "vtaops.explore.cluster": "vtaops.explore.engine",
    "vtaops.farm": "vtaops.board.farm",
    "vtaops.files": "vtaops.base.files",
    "vtaops.isa": "vtaops.machine.isa",
    "vtaops.layout": "vtaops.machine.layout",
    "vtaops.metaschedule": "vtaops.compiler.metaschedule",
    "vtaops.names": "vtaops.base.names",
    "vtaops.onnx_files": "vtaops.graph.onnx_files",
    "vtaops.quantization.onnx_files": "vtaops.graph.onnx_files",
    "vtaops.quantization.probe": "vtaops.graph.probe",
    "vtaops.ops.batch_matmul": "vtaops.ops.matmul",
    "vtaops.ops.diagonal": "vtaops.ops.constants",
    "vtaops.ops.gemm": "vtaops.ops.matmul",
    "vtaops.ops.postprocess": "vtaops.ops.epilogue",
    "vtaops.ops.scaling": "vtaops.ops.epilogue",
    "vtaops.pictures": "vtaops.quantization.pictures",
    "vtaops.reference": "vtaops.ops.reference",
    "vtaops.relax.partition": "vtaops.network.partition",
    "vtaops.report.html": "vtaops.program.html",
    "vtaops.report.networks": "vtaops.model.tables",
    "vtaops.rpc": "vtaops.board.rpc",
    "vtaops.runtime.performance": "vtaops.hardware.performance",
    "vtaops.runtime.registers": "vtaops.hardware.registers",
    "vtaops.runtime.tsim.build": "vtaops.hardware.build",
    "vtaops.runtime.tsim.rtl": "vtaops.hardware.rtl",
    "vtaops.runtime.tsim.synthesis": "vtaops.hardware.synthesis",
    "vtaops.runtime.tsim.vivado": "vtaops.hardware.vivado",
    "vtaops.selftest": "vtaops.session.selftest",
    "vtaops.shapes": "vtaops.base.shapes",
    "vtaops.tuner": "vtaops.compiler.tuner",
    "vtaops.views": "vtaops.machine.views",
    "vtaops.workloads": "vtaops.schedule.workloads",
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
    """Install the finder of moved modules, after all other finders; idempotent."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
