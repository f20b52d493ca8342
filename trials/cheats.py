"""Exercises that cheat `vtaops course check`: only the program that they leave counts.

Each is judged by the command, in a process that an exercise may kill, and must end with exit code
1 and the verdict that it is not solved, or be ended by the exercise; no verdict of its own counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from trials.campaign import Campaign, Result, result

COURSE = Path(__file__).parents[1] / "examples" / "course"
UNSOLVED = (COURSE / "1_tokens.py").read_text()
SOLVED = (COURSE.parent / "course_solutions" / "2_loops.py").read_text()
VERDICT = json.dumps({"solved": True, "confined": True, "findings": [], "output": ""})

CHEATS = {
    "prints a verdict and exits": f"print({VERDICT!r}, flush=True); os._exit(0)",
    "prints a verdict at its end": f"import atexit; atexit.register(print, {VERDICT!r})",
    "prints what moves a terminal": r"print('\x1b[2J\x1b[H\x1b]0;solved\x07\r', flush=True)",
    "prints no text": "os.write(1, bytes(range(256)) * 99); os._exit(0)",
    "prints without end": "while True: os.write(1, b'solved' * 4096)",
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
    "closes every descriptor": "os.closerange(0, 4096)",
    "exits with success": "sys.exit(0)",
    "exits when Python ends": "import atexit; atexit.register(os._exit, 0)",
    "becomes another program": f"os.execv('/bin/echo', ['echo', {VERDICT!r}])",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "recurses in native code": "import ast; ast.literal_eval('-' * 10**6 + '1')",
    "kills itself": "import signal; os.kill(os.getpid(), signal.SIGKILL)",
    "stops itself": "import signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "kills the judge": "import signal; os.kill(os.getppid(), signal.SIGKILL)",
    "ends the judge": "import signal; os.kill(os.getppid(), signal.SIGTERM)",
    "rings the judge's alarm": "import signal; os.kill(os.getppid(), signal.SIGALRM)",
    "signals its group": "os.killpg(0, 10)",
    "signals everybody": "os.kill(-1, 28)",
    "traces the judge": """
import ctypes
assert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == -1, "it traces the judge"
os._exit(0)""",
    "reads the judge's memory": """
try: open(f"/proc/{os.getppid()}/mem", "rb").seek(0)
except OSError: os._exit(0)""",
    "writes the judge's memory": """
try: open(f"/proc/{os.getppid()}/mem", "r+b").write(b"solved")
except OSError: os._exit(0)""",
    "takes a descriptor of the judge": """
import ctypes
pid = os.pidfd_open(os.getppid())
for fd in range(9): ctypes.CDLL(None).syscall(438, pid, fd, 0)""",
    "leaves a process that writes later": """
import tempfile, time
if not os.fork():
    os.setsid()
    while True:
        for name in ("program.vta", "error.json"):
            try: open(tempfile.gettempdir() + "/" + name, "w").write("{}")
            except OSError: pass""",
    "leaves a thread that writes": """
import tempfile, threading
def write():
    while True: open(tempfile.gettempdir() + "/program.vta", "wb").write(b"solved")
threading.Thread(target=write, daemon=True).start()""",
    "leaves threads that do not end": """
import threading
threading.Thread(target=threading.Event().wait).start()""",
    "leaves many processes": """
for _ in range(40):
    if not os.fork(): os.setsid(); import signal; signal.pause()""",
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
    "replaces the judge in memory": """
import gc
for each in gc.get_objects():
    if getattr(each, "__name__", "") in ("judged", "prove", "verify", "_judgement"):
        try: each.__code__ = (lambda *_, **__: ([], "")).__code__
        except (AttributeError, ValueError, TypeError): pass""",
    "replaces its caller": """
frame = sys._getframe()
while frame:
    frame.f_globals["_execute"] = frame.f_globals["main"] = lambda *_: None
    frame = frame.f_back""",
    "watches every call": "sys.settrace(lambda *_: os._exit(0))",
    "hooks every event": "sys.addaudithook(lambda *_: os._exit(0))",
    "replaces builtins": """
import builtins
builtins.isinstance = lambda *_: True
builtins.len = builtins.any = lambda *_: 0
builtins.all = lambda *_: True""",
    "replaces JSON": f"import json; json.dumps = lambda *_, **__: {VERDICT!r}",
    "replaces NumPy": """
import numpy as np
np.array_equal = np.all = lambda *_, **__: True""",
    "makes every error pass": """
import vtaops.base.errors as e
e.VTAError.__new__ = lambda *_: None""",
    "replaces the kind of the program": """
class Program(vtaops.Program):
    def __len__(self): return 0
    def cycles(self): return 0
    def save(self, path): open(path, "wb").write(b"solved")
import vtaops.program; vtaops.program.Program = vtaops.Program = Program""",
    "saves the program of another exercise": f"""
other = {{"__name__": "other"}}
exec({SOLVED!r}, other)
data = vtaops.program.file_format.dumps(other["program"]())
vtaops.Program.save = lambda self, path: open(path, "wb").write(data)""",
    "states a certificate": """
real = vtaops.Program.save
def save(self, path):
    import dataclasses
    stated = {**self.metadata, "certificate": {"claims": ["all"]}}
    real(dataclasses.replace(self, metadata=stated), path)
vtaops.Program.save = save""",
    "leaves a forged error": """
import tempfile
open(tempfile.gettempdir() + "/error.json", "w").write(
    '{"error": "", "text": "", "solved": true, "findings": []}')
os._exit(0)""",
    "leaves JSON that is no object": """
import tempfile
open(tempfile.gettempdir() + "/error.json", "w").write("[" * 100_000); os._exit(0)""",
    "leaves an error of other types": """
import tempfile
open(tempfile.gettempdir() + "/error.json", "w").write('{"error": {}, "text": [1e999]}')
os._exit(0)""",
    "leaves a link to a device": """
import tempfile
os.symlink("/dev/zero", tempfile.gettempdir() + "/program.vta"); os._exit(0)""",
    "leaves a link to itself": """
import tempfile
os.symlink("program.vta", tempfile.gettempdir() + "/program.vta"); os._exit(0)""",
    "leaves a pipe": """
import tempfile
os.mkfifo(tempfile.gettempdir() + "/program.vta"); os._exit(0)""",
    "leaves a folder": """
import tempfile
os.makedirs(tempfile.gettempdir() + "/program.vta/" + "x/" * 99); os._exit(0)""",
    "leaves a giant file": """
import tempfile
with open(tempfile.gettempdir() + "/program.vta", "wb") as f: f.truncate(1 << 40)""",
    "leaves a folder that cannot be removed": """
import tempfile
os.makedirs(tempfile.gettempdir() + "/x/y")
os.chmod(tempfile.gettempdir() + "/x", 0); os._exit(0)""",
    "removes its folder": """
import tempfile, shutil
shutil.rmtree(tempfile.gettempdir()); os._exit(0)""",
    "links its output to another file": """
import tempfile
os.unlink(tempfile.gettempdir() + "/output.txt")
os.symlink("/etc/passwd", tempfile.gettempdir() + "/output.txt"); os._exit(0)""",
    "pickles a program": """
import pickle, tempfile
class P:
    def __reduce__(self): return os._exit, (0,)
open(tempfile.gettempdir() + "/program.vta", "wb").write(pickle.dumps(P())); os._exit(0)""",
    "replaces files of vtaops": """
import vtaops.proof.prover
for path in (vtaops.proof.prover.__file__, vtaops.__file__):
    open(path, "a").write("")
""",
    "leaves code for the next start of Python": """
import site
for name in ("usercustomize.py", "sitecustomize.py", "x.pth"):
    try:
        os.makedirs(site.getusersitepackages(), exist_ok=True)
        open(os.path.join(site.getusersitepackages(), name), "w").write("raise SystemExit(0)")
    except OSError: pass""",
    "replaces itself by the solution": f"""
import __main__
for path in sys.argv[1:2]:
    try: open(path, "w").write({SOLVED!r})
    except OSError: pass""",
    "leaves kernels for the judge": """
for place in ("~/.cache/vtaops/kernels/x.so", "~/.cache/vtaops/layers/x.txt"):
    try: open(os.path.expanduser(place), "w").write("x")
    except OSError: pass""",
    "asks for something simpler in the judge's process": """
real = vtaops.Gemm
vtaops.Gemm = lambda **_: real(m=1, n=1, k=1)""",
    "sets the environment": """
os.environ.update(PYTHONSTARTUP="x", PYTHONPATH=os.getcwd(), LD_PRELOAD="x.so")""",
    "opens sockets": """
import socket
for place in ("\\0solved", "/tmp/solved"):
    try: socket.socket(socket.AF_UNIX).connect(place)
    except OSError: pass
try: socket.create_connection(("127.0.0.1", 80), 1)
except OSError: pass""",
    "takes all memory": "x = bytearray(64 << 30)",
    "takes all descriptors": "x = [os.pipe() for _ in range(10**6)]",
    "never ends": "while True: pass",
    "sleeps": "import time; time.sleep(10**6)",
    "ignores all signals": """
import signal
for s in (1, 2, 3, 14, 15, 24): signal.signal(s, signal.SIG_IGN)
while True: pass""",
    "raises": "raise BaseException('solved')",
    "raises an interruption": "raise KeyboardInterrupt",
    "raises an end": "raise SystemExit('solved')",
    "raises nothing that has a text": """
class E(Exception):
    def __str__(self): return ""
raise E""",
    "raises what cannot be told": """
class E(vtaops.VTAError):
    def __str__(self): os._exit(0)
raise E""",
    "is no Python": "def (",
    "is nested too deeply": f"x = {'(' * 5000}{')' * 5000}",
    "asks for nothing": "TASK = LIMITS = {}",
}
"""What comes before an exercise that is not solved."""

RETURNED = {
    "returns nothing": "None",
    "returns a verdict": VERDICT.replace("true", "True"),
    "returns a kind": "vtaops.Program",
    "returns what lies about its kind": """type("P", (), {"__class__": vtaops.Program, "save":
        lambda self, path: open(path, "wb").write(b"solved")})()""",
    "returns what is unpickled": """type("P", (vtaops.Program,), {"__reduce__":
        lambda self: (os._exit, (0,))}).__new__(vtaops.Program)""",
    "exits": "os._exit(0)",
}
"""What the function of an exercise returns instead of a program."""


def exercise_of(cheat: str) -> bytes:
    """Return the text of an exercise that cheats."""
    if cheat in FILES:
        return FILES[cheat]()
    head = "import os, sys, vtaops, vtaops.program.file_format\n"
    if cheat in RETURNED:
        return f"{head}{UNSOLVED}\ndef program():\n    return {RETURNED[cheat]}\n".encode()
    return f"{head}{CHEATS[cheat]}\n{UNSOLVED}".encode()


def _asking(**texts: str) -> bytes:
    """Return the exercise with TASK, LIMITS or CONFIG as something else, which is its last word."""
    lines = [f"{name} = {text}" for name, text in texts.items()]
    return "\n".join((UNSOLVED, *lines, "")).encode()


def _notebook(*cells: object) -> bytes:
    return json.dumps({"cells": cells, "nbformat": 4}).encode()


FILES: dict[str, Callable[[], bytes]] = {
    "is empty": bytes,
    "holds bytes": lambda: bytes(range(256)),
    "is of another encoding": lambda: b"# coding: utf-7\n" + UNSOLVED.encode(),
    "has unhashable limits": lambda: _asking(LIMITS="{[]: 1}"),
    "has limits without numbers": lambda: _asking(LIMITS="{'cycles': float('nan')}"),
    "has endless limits": lambda: _asking(LIMITS=f"{{'cycles': {'9' * 5000}}}"),
    "has nested limits": lambda: _asking(LIMITS=f"{'-' * 3000}1"),
    "asks for nested work": lambda: _asking(TASK=f"vtaops.Gemm(m={'-' * 3000}1)"),
    "asks for a sum of ten thousand": lambda: _asking(TASK="+".join(["1"] * 10_000)),
    "asks for unknown fields": lambda: _asking(TASK="vtaops.Gemm(q=1)"),
    "asks for fields of nobody": lambda: _asking(TASK="vtaops.Gemm(**{})"),
    "asks for texts": lambda: _asking(TASK="vtaops.Gemm(m='1', n=[], k={})"),
    "asks for giant work": lambda: _asking(TASK=f"vtaops.Gemm(m={1 << 62}, n={1 << 62}, k=1)"),
    "asks for other kinds": lambda: _asking(TASK="vtaops.Session(device='fsim')"),
    "asks for hardware of no name": lambda: _asking(CONFIG="5"),
    "asks for hardware in a list": lambda: _asking(CONFIG="[[]]"),
    "asks for hardware elsewhere": lambda: _asking(CONFIG="'/dev/zero'"),
    "notebook of half a character": lambda: _notebook(
        {"cell_type": "code", "source": "x = '\ud800'\n" + UNSOLVED}
    ),
    "notebook of no cells": lambda: _notebook(5, [], None),
    "notebook of lists": lambda: b"[" * 100_000,
}
"""Files that are hardly exercises."""

ALL = (*CHEATS, *RETURNED, *FILES)


def run(cheat: str, *more: str, seconds: int = 5) -> tuple[int, str]:
    """Return the exit code of the command for a cheat, and what it prints, with errors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.ipynb" if cheat.startswith("notebook") else "x.py")
        path.write_bytes(exercise_of(cheat))
        words = ["course", "check", str(path), "--json", "--timeout", str(seconds), *more]
        done = subprocess.run(
            [sys.executable, "-m", "vtaops", *words],
            capture_output=True, text=True, check=False, timeout=20 * seconds + 60,
        )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def verdict_is_no(code: int, text: str) -> bool:
    """Whether a command says that an exercise is not solved, in one JSON object."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return code == 1 and found["solved"] is False and any(f["advice"] for f in found["findings"])


def trial(case: str) -> Result:
    """Judge one cheat by its own TASK, or against that of the course: ``raises/against``."""
    cheat, _, way = case.partition("/")
    against = ["--against", str(COURSE / "1_tokens.py")] if way == "against" else []
    code, text = run(cheat, *against)
    kills = code < 0 and cheat in ("kills the judge", "ends the judge", "rings the judge's alarm")
    refused = verdict_is_no(code, text)
    failed = "" if refused or kills else f"{case}: exit code {code}: {text[-800:]}"
    return result(way, failed, cheats=1, refused=refused, ended=kills)


CAMPAIGN = Campaign(
    lambda count: [f"{cheat}/{way}" for cheat in ALL for way in ("own", "against")][:count],
    trial,
    count=2 * len(ALL),
)
