"""The tasks of a developer and of continuous integration: ``python tasks.py lint types``.

Tasks run one after the other until one fails; arguments after ``--`` go to the last of them:
``python tasks.py test -- tests/ops -k gemm``. The tools are those of this Python's environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent
LOCK = [
    *("-m", "uv", "pip", "compile", "--quiet", "--upgrade", "--universal", "--python-version=3.11"),
    *("--generate-hashes", "--no-header", "--no-annotate"),
]
OLDEST = [
    *("-m", "uv", "pip", "compile", "--quiet", "--upgrade", "--only-binary=:all:"),
    *("--generate-hashes", "--no-header", "--no-annotate", "--resolution=lowest-direct"),
]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Those that `tests/wheel/pythons.py` tries."""

EXTRAS = ["--extra=test", "--extra=lint", "--extra=docs"]
TASKS: dict[str, tuple[str, list[list[str]]]] = {
    "lint": (
        "ruff: rules, complexity and format",
        [["-m", "ruff", "check", "."], ["-m", "ruff", "format", "--check", "."]],
    ),
    "format": (
        "ruff: repair what it can",
        [["-m", "ruff", "check", "--fix", "."], ["-m", "ruff", "format", "."]],
    ),
    "types": ("mypy on the package", [["-m", "mypy"]]),
    "house": ("print the figures that tests/test_architecture.py limits", [["tests/house.py"]]),
    "docs": (
        "build the site to build/site; a broken link fails",
        [["-m", "mkdocs", "build", "--strict", "--quiet"]],
    ),
    "test": ("pytest: all tests over the cores, or those behind --", [["-m", "pytest"]]),
    "wheel": (
        "build the wheel, try it where no compiler is: .wheel/",
        [["tests/wheel/run.sh", ".wheel"]],
    ),
    "pythons": (
        "try that wheel on each Python here, with the newest and the lowest versions",
        [["tests/wheel/pythons.py", ".wheel/wheel"]],
    ),
    "lock": (
        "write the hashes of all that CI installs anew: .ci/*.txt",
        [
            [*LOCK, "pyproject.toml", *EXTRAS, "-o", ".ci/requirements.txt"],
            [*LOCK, "pyproject.toml", "-o", ".ci/newest.txt"],
            *(
                [*LOCK, f".ci/{name}.in", "-o", f".ci/{name}.txt"]
                for name in ("build", "uv", "ffi", "wheels")
            ),
            *(
                [*OLDEST, f"--python-version={v}", "pyproject.toml", "-o", f".ci/lowest-{v}.txt"]
                for v in PYTHONS
            ),
            [*OLDEST, "--python-version=3.10", ".ci/board.in", "-o", ".ci/board.txt"],
        ],
    ),
    "bench": ("a benchmark: bench -- NAME [options]", [["-m", "benchmarks"]]),
}
"""By name: what the task is, and the arguments of Python, or a script, for each of its steps."""


def run(task: str, arguments: list[str]) -> int:
    """Run a task, its last step with more arguments; return the exit code of what failed, or 0."""
    *steps, last = TASKS[task][1]
    tools = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "NO_MKDOCS_2_WARNING": "1",
    }
    for step in (*steps, last + arguments):
        command = step if step[0].endswith(".sh") else [sys.executable, *step]
        print("+", *command, flush=True)
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        if done.returncode:
            return done.returncode
    return 0


def main(words: list[str]) -> int:
    """Run the tasks that are named; return an exit code."""
    names, arguments = words, []
    if "--" in words:
        at = words.index("--")
        names, arguments = words[:at], words[at + 1 :]
    unknown = [name for name in names if name not in TASKS]
    if unknown or not names:
        print(__doc__, *(f"{name:8}{about}" for name, (about, _) in TASKS.items()), sep="\n")
        return 2 if unknown or arguments else 0
    for name in names:
        failed = run(name, arguments if name == names[-1] else [])
        if failed:
            print(f"{name} failed", file=sys.stderr)
            return failed
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
