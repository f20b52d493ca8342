"""vtaops: the VTA tensor accelerator on today's Apache TVM.

The names of ``__init__.pyi`` are the public interface. They are imported on first use, so that
``vtaops.machine.isa``, ``vtaops.program`` and ``vtaops.runtime`` work where TVM is not installed
(on a board), and importing the package costs nothing: what it imports itself runs before
``vtaops.__main__`` can tell of Ctrl-C. The logger ``vtaops`` tells at the level INFO
what takes long: compilations, searches for tilings, builds of models.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"


def _read_exports() -> dict[str, str]:
    """Return the module of each public name: the imports of the stub beside this file."""
    with open(f"{__file__.rpartition('.')[0]}.pyi", encoding="utf-8") as stub:  # noqa: PTH123
        lines = [line.split() for line in stub if line.startswith("from ")]
    return {name: module for _, module, *_, name in lines}


_EXPORTS = _read_exports()

_MODULES = {
    name: f"{module}.{name}"
    for name, module in _EXPORTS.items()
    if module in (__name__, f"{__name__}.kernels")
}
"""The modules among them."""

UPSTREAM = ("build", "build_config", "get_env", "lower", "reconfig_runtime", "Environment", "top")
"""Names of upstream's package that users look for here."""

__all__ = sorted({*_EXPORTS, "__version__"} - {*_MODULES})


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        from vtaops.base.names import suggestion

        hint = suggestion(name, _EXPORTS)
        if name in UPSTREAM:
            hint = "; upstream's VTA has it, and docs/migration.md says what takes its place"
        raise AttributeError(f"module 'vtaops' has no attribute {name!r}{hint}")
    if name in _MODULES:
        return import_module(_MODULES[name])
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_EXPORTS, *(name for name in globals() if name.startswith("__"))})
