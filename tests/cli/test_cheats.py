"""Exercises that cheat: whatever they do, the judge sees only the program that they leave."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vtaops.cli import app
from vtaops.program.confined import is_confined

COURSE = Path(__file__).parents[2] / "examples" / "course"
SOLUTIONS = COURSE.parent / "course_solutions"
UNSOLVED = (COURSE / "1_tokens.py").read_text()
VERDICT = json.dumps({"solved": True, "confined": True, "findings": [], "output": ""})

CHEATS = {
    "prints a verdict and exits": f"print({VERDICT!r}, flush=True); os._exit(0)",
    "prints to the judge's output": f"""
for path in (f"/proc/{{os.getppid()}}/fd/1", "/dev/tty", "/dev/pts/0"):
    try: open(path, "w").write({VERDICT!r})
    except OSError: pass
os._exit(0)""",
    "writes to every descriptor": f"""
for fd in range(64):
    try: os.write(fd, {VERDICT.encode()!r})
    except OSError: pass
os._exit(0)""",
    "exits with success": "sys.exit(0)",
    "exits when Python ends": "import atexit; atexit.register(os._exit, 0)",
    "replaces prove": """
import vtaops.proof, vtaops.proof.prover
class Proof: claims, unproven = ("all",), ()
vtaops.proof.prove = vtaops.proof.prover.prove = lambda *_, **__: Proof""",
    "replaces the verifier": """
import vtaops.program.verifier as v
v.verify = vtaops.Program.verify = vtaops.Program.prove = lambda *_, **__: None""",
    "replaces the judge": """
import vtaops.cli.check as c, vtaops.cli.course as d
c.judged = d.judged = lambda *_: ([c.Finding("right", "yes")], "")""",
    "makes every error pass": """
import vtaops.base.errors as e
e.VTAError.__new__ = lambda *_: None""",
    "replaces the kind of the program": """
class Program(vtaops.Program):
    def __len__(self): return 0
    def cycles(self): return 0
    def save(self, path): open(path, "wb").write(b"solved")
import vtaops.program; vtaops.program.Program = vtaops.Program = Program""",
    "leaves a forged error": """
import tempfile
open(tempfile.gettempdir() + "/error.json", "w").write(
    '{"error": "", "text": "", "solved": true, "findings": []}')
os._exit(0)""",
    "leaves JSON that is no object": """
import tempfile
open(tempfile.gettempdir() + "/error.json", "w").write("[" * 100_000); os._exit(0)""",
    "leaves a link to a device": """
import tempfile
os.symlink("/dev/zero", tempfile.gettempdir() + "/program.vta"); os._exit(0)""",
    "leaves a pipe": """
import tempfile
os.mkfifo(tempfile.gettempdir() + "/program.vta"); os._exit(0)""",
    "leaves a giant file": """
import tempfile
with open(tempfile.gettempdir() + "/program.vta", "wb") as f: f.truncate(1 << 40)""",
    "replaces files of vtaops": """
import vtaops.proof.prover
for path in (vtaops.proof.prover.__file__, vtaops.__file__):
    open(path, "a").write("")
""",
    "asks for something simpler in the judge's process": """
real = vtaops.Gemm
vtaops.Gemm = lambda **_: real(m=1, n=1, k=1)""",
    "sets the environment": """
os.environ.update(PYTHONSTARTUP="x", VTAOPS_SOLVED="1", PYTHONPATH=os.getcwd())""",
    "takes all memory": "x = bytearray(64 << 30)",
    "never ends": "while True: pass",
    "raises": "raise BaseException('solved')",
    "raises nothing that has a text": """
class E(Exception):
    def __str__(self): return ""
raise E""",
    "is no Python": "def (",
    "asks for nothing": "TASK = LIMITS = {}",
}


def checked(path, *more):
    """Return the exit code of the command and its verdict."""
    command = ["course", "check", str(path), "--json", "--timeout", "5", *more]
    found = CliRunner().invoke(app, command)
    return found.exit_code, json.loads(found.output)


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_solves_an_exercise(tmp_path, cheat):
    before = "\n".join(("import os, sys, vtaops", CHEATS[cheat], ""))
    (tmp_path / "x.py").write_text(before + UNSOLVED)
    code, verdict = checked(tmp_path / "x.py")
    assert (code, verdict["solved"]) == (1, False)
    assert verdict["findings"][-1]["advice"]
    assert verdict["confined"] == is_confined()


def test_a_cheat_in_the_program_is_judged_as_one_outside(tmp_path):
    text = UNSOLVED.replace("b = ProgramBuilder", f"print({VERDICT!r}); b = ProgramBuilder")
    (tmp_path / "x.py").write_text(text)
    code, verdict = checked(tmp_path / "x.py")
    assert (code, verdict["solved"]) == (1, False)
    assert VERDICT in verdict["output"]


def test_the_solution_of_another_exercise_is_refused(tmp_path):
    for name in ("2_loops.py", "5_threads.py"):
        code, verdict = checked(SOLUTIONS / name, "--against", str(COURSE / "1_tokens.py"))
        assert (code, verdict["solved"]) == (1, False)
    code, verdict = checked(SOLUTIONS / "1_tokens.py", "--against", str(COURSE / "1_tokens.py"))
    assert (code, verdict["solved"]) == (0, True)


def test_limits_and_hardware_of_ones_own_count_for_nothing(tmp_path):
    easier = (COURSE / "5_threads.py").read_text().replace("485_000", "4_850_000")
    (tmp_path / "x.py").write_text(easier)
    assert checked(tmp_path / "x.py")[1]["solved"]
    assert not checked(tmp_path / "x.py", "--against", str(COURSE / "5_threads.py"))[1]["solved"]
    for config in ("pynq_ext", "pynq_512"):
        (tmp_path / "x.py").write_text(easier.replace('"pynq"', f'"{config}"'))
        assert [f["question"] for f in checked(tmp_path / "x.py")[1]["findings"]] == ["hardware"]


@pytest.mark.skipif(not is_confined(), reason="this kernel has no Landlock")
def test_an_exercise_writes_nothing_outside_its_folder(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("kept")
    (tmp_path / "x.py").write_text(
        f"import os\nfor change in (lambda: open({str(kept)!r}, 'w'), lambda: os.remove("
        f"{str(kept)!r}), lambda: os.mkdir({str(tmp_path / 'new')!r})):\n"
        "    try: change()\n    except PermissionError: print('refused')\n" + UNSOLVED
    )
    assert checked(tmp_path / "x.py")[1]["output"] == "refused\n" * 3
    assert kept.read_text() == "kept"
    assert not (tmp_path / "new").exists()


def test_processes_do_not_survive(tmp_path):
    (tmp_path / "x.py").write_text(
        "import os, signal\nfor _ in range(3):\n    if not os.fork():\n        os.setsid()\n"
        "        if os.fork(): os._exit(0)\n        signal.pause()\n"
        "print(os.getpid(), flush=True)\n" + UNSOLVED
    )
    verdict = checked(tmp_path / "x.py")[1]
    assert not verdict["solved"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(verdict["output"]), 0)
    lines = [_line(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert [line for line in lines if str(tmp_path / "x.py").encode() in line] == []


def _line(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
