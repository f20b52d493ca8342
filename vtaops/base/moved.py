"""Modules that have moved: an import by the old path finds the module at its new one.

`MOVED` is the list of renames since 0.1.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module, util
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

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
    "vtaops.onnx_files": "vtaops.quantization.onnx_files",
    "vtaops.ops.diagonal": "vtaops.ops.constants",
    "vtaops.ops.postprocess": "vtaops.ops.epilogue",
    "vtaops.ops.scaling": "vtaops.ops.epilogue",
    "vtaops.pictures": "vtaops.quantization.pictures",
    "vtaops.reference": "vtaops.ops.reference",
    "vtaops.relax.partition": "vtaops.network.partition",
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


class MovedModules(MetaPathFinder, Loader):
    """Finds a moved module by its old path, with a `DeprecationWarning` that names the new one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self, origin=MOVED[name]) if name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        warnings.warn(f"{old} has moved to {MOVED[old]}", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(MOVED[old])

    def get_code(self, name: str) -> CodeType | None:
        """Return the code of the module, for ``python -m`` with the old path."""
        spec = util.find_spec(MOVED[name])
        loader = spec.loader if spec else None
        return loader.get_code(MOVED[name]) if isinstance(loader, InspectLoader) else None


def find_moved_modules() -> None:
    """Let imports find what has moved, after everything else; once is enough."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
