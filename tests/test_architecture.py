"""The rules of the house: imports go one way, and boards need no TVM."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vtaops

PACKAGE = Path(vtaops.__file__).parent

# A room may import the rooms before it in its row (and the rows it lists), never the other way.
ALLOWED = {
    "errors": set(),
    "names": {"errors"},
    "_data": set(),
    "files": set(),
    "cache": set(),
    "config": {"files", "names", "errors", "_data"},
    "capabilities": {"config", "errors"},
    "alu": {"capabilities"},
    "isa": {"alu", "config", "errors"},
    "shapes": {"errors"},
    "views": {"config", "errors"},
    "layout": {"views", "config", "errors"},
    "program": {"alu", "isa", "layout", "views", "capabilities", "config", "files", "errors"},
    "graph": {"errors"},
    "runtime": {
        "files",
        "program",
        "capabilities",
        "isa",
        "layout",
        "config",
        "cache",
        "errors",
        "_data",
    },
    "model": {"files", "graph", "runtime", "program", "views", "capabilities", "config", "errors"},
    "board": {
        "files",
        "runtime",
        "program",
        "capabilities",
        "isa",
        "config",
        "cache",
        "errors",
        "_data",
    },
    "ops": {
        "names",
        "program",
        "alu",
        "shapes",
        "capabilities",
        "isa",
        "layout",
        "views",
        "config",
        "errors",
    },
    "schedule": {"ops", "program", "isa", "layout", "config", "errors"},
    "kernels": {"layout", "shapes", "cache", "errors"},
    "cpu": {"kernels", "layout", "shapes", "errors"},
    "cuda": {"kernels", "cache", "errors"},
    "lessons": {"cpu", "cuda", "kernels", "errors"},
    "fallback": {"cpu", "cuda", "kernels", "ops", "shapes", "program", "isa", "config", "errors"},
    "lowering": {"schedule", "ops", "program", "isa", "layout", "views", "config", "errors"},
    "compiler": {
        "lowering",
        "capabilities",
        "schedule",
        "ops",
        "views",
        "program",
        "config",
        "errors",
    },
    "metaschedule": {"compiler", "program", "config", "errors"},
    "tuner": {"compiler", "capabilities", "schedule", "ops", "config", "cache", "files", "errors"},
    "network": {
        "tuner",
        "compiler",
        "lowering",
        "schedule",
        "ops",
        "model",
        "graph",
        "program",
        "capabilities",
        "layout",
        "views",
        "config",
        "errors",
    },
    "explore": {
        "network",
        "tuner",
        "compiler",
        "workloads",
        "schedule",
        "ops",
        "graph",
        "runtime",
        "program",
        "capabilities",
        "config",
        "cache",
        "errors",
    },
    "reference": {"ops", "shapes", "program", "views", "config", "errors"},
    "workloads": {"schedule", "ops", "names", "errors"},
    "onnx_files": {"files", "errors"},
    "pictures": {"files", "errors"},
    "quantization": {"onnx_files", "pictures", "files", "errors"},
    "relax": {"graph", "quantization", "onnx_files", "files", "errors"},
    "farm": {"rpc", "runtime", "program", "config", "errors"},
    "report": {"model", "program", "isa", "config", "errors"},
    "rpc": {"board", "files", "runtime", "program", "config", "errors"},
    "selftest": {
        "session",
        "workloads",
        "reference",
        "ops",
        "runtime",
        "program",
        "capabilities",
        "isa",
        "config",
        "errors",
    },
    "session": {
        "names",
        "shapes",
        "fallback",
        "capabilities",
        "tuner",
        "compiler",
        "runtime",
        "schedule",
        "ops",
        "program",
        "config",
        "errors",
    },
}
TOP = {"__init__", "cli"}
TVM_FREE = (
    "files",
    "errors",
    "_data",
    "cache",
    "config",
    "capabilities",
    "alu",
    "isa",
    "shapes",
    "views",
    "layout",
    "program",
    "graph",
    "runtime",
    "model",
    "board",
)


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path, *, inside_functions):
    """Yield the absolute modules that a file imports at run time."""
    tree = ast.parse(path.read_text())
    functions = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for child in ast.walk(node)
    }
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing_only or (node in functions and not inside_functions):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "vtaops":
                yield from (f"vtaops.{alias.name}" for alias in node.names)
            else:
                yield node.module


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    """At module level; the convenience methods of operators and programs call forward lazily."""
    room = room_of(path)
    if room in TOP:
        return
    assert room in ALLOWED, f"give the room {room} its place in ALLOWED"
    for module in imports(path, inside_functions=False):
        parts = module.split(".")
        if parts[0] == "vtaops" and len(parts) > 1 and parts[1] not in (room, "_fsim", "_timing"):
            assert parts[1] in ALLOWED[room], f"{room} imports {module}"


TWINS = {
    "Gemm": "the operator, and the instruction as the ISA names it",
    "ConvTile": "of a CPU kernel and of a CUDA kernel",
    "MatmulTile": "of a CPU kernel and of a CUDA kernel",
    "WindowTile": "of a CPU kernel and of a CUDA kernel",
}
"""Names that two public classes share, with the reason."""


def test_a_class_has_a_name_of_its_own():
    files = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    shared = {name: paths for name, paths in files.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in TWINS} == {}
    assert shared.keys() == TWINS.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_rooms_of_the_board_never_import_tvm(path):
    if room_of(path) in TVM_FREE:
        found = list(imports(path, inside_functions=True))
        assert not [module for module in found if module.split(".")[0] in ("tvm", "tvm_ffi")]


def python(code):
    """Run code in a new interpreter, away from the source tree."""
    command = [sys.executable, "-c", code]
    here = Path(__file__).parent
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)


def test_programs_run_where_tvm_is_not_installed(tmp_path):
    file = tmp_path / "gemm.vta"
    vtaops.compile(vtaops.Gemm(m=2, n=8, k=8, shift=0), "tiny").save(file)
    code = f"""
import sys
sys.modules["tvm"] = sys.modules["tvm_ffi"] = None  # importing them fails
import numpy as np
import vtaops, vtaops.machine.isa, vtaops.program, vtaops.runtime
from vtaops.runtime.fsim import Fsim
program = vtaops.Program.load({str(file)!r})
program.verify()
ones = np.ones((2, 8), np.int8), np.ones((8, 8), np.int8)
assert (program.run(Fsim("tiny"), *ones) == 8).all()
print("ran")
"""
    done = python(code)
    assert done.stdout == "ran\n", done.stderr


def test_import_is_lazy():
    done = python("import sys, vtaops; print(sorted({'tvm', 'typer', 'rich'} & set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr


def test_public_names_resolve():
    for name in vtaops.__all__:
        assert getattr(vtaops, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'conv3d'"):
        vtaops.conv3d  # noqa: B018
    assert set(vtaops.__all__) <= set(dir(vtaops))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_file_says_what_it_owns(path):
    assert ast.get_docstring(ast.parse(path.read_text()))
