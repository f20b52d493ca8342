"""Exercises that cheat: whatever they do, the judge sees only the program that they leave."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trials.cheats import ALL, COURSE, FILES, UNSOLVED, VERDICT, exercise_of, verdict_is_no
from vtaops.cli import app
from vtaops.explore.judge.confined import is_confined

SOLUTIONS = COURSE.parent / "course_solutions"


def checked(path, *more):
    """Return the exit code of the command and its verdict."""
    command = ["course", "check", str(path), "--json", "--timeout", "5", *more]
    found = CliRunner().invoke(app, command)
    return found.exit_code, json.loads(found.output)


KILLING = {cheat for cheat in ALL if "signal" in cheat or "judge" in cheat or "kills" in cheat}
"""Those that may end this process; the campaign runs the command in one of its own."""


@pytest.mark.parametrize("cheat", [*FILES, *[c for c in ALL if c not in {*FILES, *KILLING}][::3]])
def test_no_cheat_solves_an_exercise(tmp_path, cheat):
    """A sample; `trials/cheats.py` runs all."""
    path = tmp_path / ("x.ipynb" if cheat.startswith("notebook") else "x.py")
    path.write_bytes(exercise_of(cheat))
    found = CliRunner().invoke(app, ["course", "check", str(path), "--json", "--timeout", "3"])
    assert verdict_is_no(found.exit_code, found.output)
    assert json.loads(found.output)["confined"] == is_confined()


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
