"""The rules of the house: imports go one way, boards need no TVM, and the house stays small."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import house
import pytest

import vtaops

ALLOWED = {
    "base": "",
    "graph": "base",
    "machine": "base",
    "kernels": "base machine",
    "program": "base machine",
    "frontends": "base graph",
    "hardware": "base machine program",
    "ops": "base machine program",
    "runtime": "base machine program hardware",
    "schedule": "base machine program ops",
    "lowering": "base machine program ops schedule",
    "proof": "base graph machine program ops runtime",
    "model": "base graph machine program hardware runtime proof",
    "compiler": "base machine program ops schedule lowering",
    "report": "base machine program hardware model",
    "network": "base graph machine program frontends ops schedule lowering model compiler",
    "quantization": "base graph frontends network",
    "language": "base graph machine model network",
    "session": "base machine kernels program ops runtime compiler schedule",
    "board": "base machine program hardware ops runtime schedule compiler session",
    "explore": "base graph machine program hardware ops runtime schedule lowering proof compiler "
    "network",
}
"""What a room may import, from the ground up; the command line imports everything."""

TVM_FREE = ALLOWED.keys() - {"kernels", "network"}
WITH_TVM = {
    "vtaops.frontends.relax",
    "vtaops.ops.base",
    "vtaops.ops.declarations",
    *(
        f"vtaops.schedule.{name}"
        for name in (
            "checks",
            "explained",
            "flatten",
            "intrinsics",
            "operators",
            "steps",
        )
    ),
    "vtaops.lowering.tree.tir",
    "vtaops.compiler.schedules",
    "vtaops.session.fallback",
    "vtaops.session.plain",
}
"""Files of rooms without TVM that need it."""


def test_imports_go_one_way():
    """Also inside functions and for types; what goes upwards is listed, file by file."""
    wrong = [
        f"{found.file} imports {found.name} of {found.module}"
        for found in house.inner_imports()
        for room, other in [(house.room_of(found.file), house.room_of(found.module))]
        if room not in ("", "cli", other)
        and other not in ALLOWED[room].split()
        and not (found.lazy and (found.file, found.module) in house.UPWARDS)
    ]
    assert wrong == []


def test_what_goes_upwards_is_needed():
    lazy = {(found.file, found.module) for found in house.inner_imports() if found.lazy}
    assert lazy >= house.UPWARDS


def test_the_house_stays_small():
    figures = house.figures()
    assert {name: figures[name] for name in figures if figures[name] > house.LIMITS[name]} == {}


TWINS = {
    "Epilogue": "of an operator of VTA, and of a kernel",
    "Gemm": "the operator, and the instruction as the ISA names it",
    "ConvTile": "of a CPU kernel and of a CUDA kernel",
    "MatmulTile": "of a CPU kernel and of a CUDA kernel",
    "WindowTile": "of a CPU kernel and of a CUDA kernel",
}
"""Names that two public classes share, with the reason."""


def test_a_class_has_a_name_of_its_own():
    files = {}
    for module, path in house.modules().items():
        for node in house.tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files.setdefault(node.name, []).append(module)
    shared = {name: paths for name, paths in files.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in TWINS} == {}
    assert shared.keys() == TWINS.keys()


def test_rooms_of_the_board_never_import_tvm():
    found = {
        module
        for module, path in house.modules().items()
        if house.room_of(module) in TVM_FREE
        for name, _, _ in house.imports(path)
        if name.split(".")[0] in ("tvm", "tvm_ffi")
    }
    assert found <= WITH_TVM


def python(code, *options):
    """Run code in a new interpreter, away from the source tree."""
    command = [sys.executable, *options, "-c", code]
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


def test_compiling_imports_no_tvm():
    done = python("""
import sys
import numpy as np, vtaops
one = np.ones((1, 16, 8, 8), np.int8)
assert vtaops.conv2d(one, np.ones((16, 16, 3, 3), np.int8), padding=1).shape == one.shape
op = vtaops.MaxPool2d(channels=16, height=8, width=8, kernel=2)
assert vtaops.compile(op, "pynq").operators
from vtaops.graph import Graph, MaxPool
graph = Graph()
graph.output(graph.add(MaxPool((2, 2), (2, 2)), graph.input("x", (1, 16, 8, 8))))
assert vtaops.compile_model(graph, "pynq").regions
print(sorted({"tvm", "tvm_ffi"} & set(sys.modules)))
""")
    assert done.stdout == "[]\n", done.stderr


def test_import_is_lazy():
    done = python("import sys, vtaops; print(sorted({'tvm', 'typer', 'rich'} & set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr


def test_public_names_resolve():
    for name in vtaops.__all__:
        assert getattr(vtaops, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'conv3d'"):
        vtaops.conv3d  # noqa: B018
    assert set(vtaops.__all__) <= set(dir(vtaops))


def test_every_file_says_what_it_owns():
    silent = [m for m, path in house.modules().items() if not ast.get_docstring(house.tree(path))]
    assert silent == []


WALL_CLOCKS = re.compile(
    r"\btime\.time(_ns)?\(|datetime\.(now|today)|utcnow|system_clock|gettimeofday|CLOCK_REALTIME"
)


def test_nobody_waits_by_a_clock_that_can_be_set():
    """A computer that wakes up or gets its time from a network: no limit of time changes."""
    kinds = {".py", ".c", ".h", ".cpp", ".hpp"}
    files = [
        p
        for room in ("vtaops", "sim")
        for p in (house.PACKAGE.parent / room).rglob("*")
        if p.suffix in kinds
    ]
    assert len(files) > 300
    assert [str(path) for path in files if WALL_CLOCKS.search(path.read_text())] == []
    assert WALL_CLOCKS.search("end = time.time() + 5")
