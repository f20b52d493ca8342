"""What a type checker and an editor know of the package: wrong calls are refused, examples pass."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CASES = Path(__file__).with_name("typing_cases.py")

pytest.importorskip("mypy", reason="mypy is not installed (extra: lint)")


@pytest.fixture(scope="module")
def complaints():
    """What mypy says of the cases and of every example, by (file name, line)."""
    files = [CASES, *sorted((ROOT / "examples").glob("*.py"))]
    command = [sys.executable, "-m", "mypy", "--no-error-summary"]
    # Examples are read, not checked strictly, and use libraries that have no types.
    allowed = "untyped-defs", "any-generics", "untyped-calls", "subclassing-any"
    command += [*(f"--allow-{what}" for what in allowed), "--no-warn-return-any"]
    command += ["--disable-error-code=import-untyped", "--disable-error-code=import-not-found"]
    run = subprocess.run([*command, *map(str, files)], cwd=ROOT, capture_output=True, text=True)
    found = {}
    for line in run.stdout.splitlines():
        if match := re.match(r"(.+?):(\d+): error: (.*)", line):
            found[Path(match[1]).name, int(match[2])] = match[3]
    assert run.returncode in (0, 1), run.stdout + run.stderr
    return found


def refused():
    """Return the numbers of the lines that are wrong."""
    lines = CASES.read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, start=1) if line.endswith("# refused")}
    assert len(wrong) >= 20
    return wrong


def test_wrong_calls_are_refused_and_right_ones_are_not(complaints):
    assert {number for name, number in complaints if name == CASES.name} == refused()


@pytest.mark.skipif(shutil.which("node") is None, reason="pyright needs Node, which is not here")
def test_pyright_says_the_same():
    """The checker of many editors; the examples are left out, since TVM's own types fail there."""
    pytest.importorskip("pyright", reason="pyright is not installed (extra: lint)")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # no question for newer versions
    run = subprocess.run([*command, CASES], cwd=ROOT, capture_output=True, text=True, env=quiet)
    said = json.loads(run.stdout)["generalDiagnostics"]
    errors = [each for each in said if each["severity"] == "error"]
    assert {each["range"]["start"]["line"] + 1 for each in errors} == refused()


def test_every_example_passes(complaints):
    assert not {where: text for where, text in complaints.items() if where[0] != CASES.name}
