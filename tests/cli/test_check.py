"""The course: starters are unsolved, solutions pass, and typical mistakes are told apart."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vtaops.cli import app
from vtaops.cli.check import judged

EXAMPLES = Path(__file__).parents[2] / "examples"
EXERCISES = sorted(path.name for path in (EXAMPLES / "course").glob("*.py"))


def mistake(tmp_path, name, *changes):
    """Return the findings that are not good enough, of a solution with changes."""
    text = (EXAMPLES / "course_solutions" / name).read_text()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / name).write_text(text)
    return {f.question: f"{f.answer}; {f.advice}" for f in judged(tmp_path / name)[0] if f.advice}


def notebook(path, text):
    """Write a file of cells as Jupyter keeps it, with a command of the shell."""
    cells = [{"cell_type": "markdown", "source": ["# ?"]}]
    for cell in ("!vtaops --version", "%timeit 1", text):
        cells.append({"cell_type": "code", "source": cell.splitlines(keepends=True)})
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))


STARTERS = {
    "1_tokens.py": {"safe": "the first of the two must push a token that the other one pops"},
    "2_loops.py": {
        "instructions": "an instruction has two loops",
        "uop_load_nbytes": "repeat few micro-ops",
    },
    "3_epilogue.py": {"right": "They are those of shift=0 instead of 8 and clip=None instead of"},
    "4_traffic.py": {
        "wgt_load_nbytes": "weights are read again for each tile of the image",
        "inp_load_nbytes": "inputs are read again for each block of output channels",
    },
    "5_threads.py": {"cycles": "a token of the load unit); the loads are not hidden"},
    "6_convolution.py": {"cycles": "a token of the load unit); the loads are not hidden"},
    "7_hardware.py": {"cycles": "work of the kind alu; each stage"},
}
"""What is said about the exercises as they are given out."""


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_is_unsolved_and_says_why(name, tmp_path):
    path = (tmp_path / name).with_suffix(".ipynb")
    notebook(path, (EXAMPLES / "course" / name).read_text())
    found = {f.question: f.advice for f in judged(path)[0] if f.advice}
    assert found.keys() == STARTERS[name].keys()
    assert all(advice in found[question] for question, advice in STARTERS[name].items())


@pytest.mark.parametrize("name", EXERCISES)
def test_a_solution_passes(name):
    assert [f for f in judged(EXAMPLES / "course_solutions" / name)[0] if f.advice] == []


@pytest.mark.parametrize("name", EXERCISES)
def test_solutions_have_the_task_and_the_limits_of_the_exercise(name):
    asked, solved = (
        (EXAMPLES / folder / name).read_text() for folder in ("course", "course_solutions")
    )
    assert asked.partition("# %%\n")[0] == solved.partition("# %%\n")[0]
    task = asked[asked.index("TASK = ") : asked.index("# %%\ndef ")]
    assert task.partition("plain =")[0] in solved


@pytest.mark.parametrize(
    ("change", "rule", "advice"),
    [
        (("dram=0, count=1, push_next=1)", "dram=0, count=1)"), "token-order", "must push"),
        (("count=1, pop_prev=1, push_next=1", "count=1, push_next=1"), "token-balance", "must pop"),
        (("b.finish(pop_next=1)", "b.finish()"), "token-balance", "must pop"),
        (("    b.reset(uop=0, count=1)\n", ""), "undefined-sram", "a reset before it must write"),
    ],
)
def test_rules_of_tokens_and_memories_are_explained(tmp_path, change, rule, advice):
    found = mistake(tmp_path, "1_tokens.py", change)
    assert f"breaks the rule {rule!r}" in found["safe"]
    assert advice in found["safe"]


def test_wrong_factors_are_refuted_by_values(tmp_path):
    found = mistake(tmp_path, "2_loops.py", ('"dst_factor_out": 4', '"dst_factor_out": 3'))
    assert list(found) in (["right"], ["safe"])
    found = mistake(tmp_path, "2_loops.py", ('"wgt_factor_in": 4', '"wgt_factor_in": 1'))
    assert list(found) == ["right"]
    assert "does not compute what it declares" in found["right"]
    assert "and should be" in found["right"]
    assert "instead of" not in found["right"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([(">> 8", ">> 7"), ('"shr", "shr", 8', '"shr", "shr", 7')], "shift=7 instead of 8"),
        (
            [("shr(*i), 0)", "shr(*i), -128)"), ('"max", 0', '"max", -128')],
            "clip=(-128, 127) instead of (0, 127)",
        ),
    ],
)
def test_a_wrong_shift_or_clip_is_named(tmp_path, changes, told):
    found = mistake(tmp_path, "3_epilogue.py", *changes)
    assert list(found) == ["right"]
    assert f"They are those of {told}" in found["right"]


def test_wrong_tiles_are_told_by_what_is_read_again_or_does_not_fit(tmp_path):
    tiles = "oc=128, ic=16, h=14, w=14"
    found = mistake(tmp_path, "4_traffic.py", (tiles, "oc=64, ic=16, h=14, w=14"))
    assert list(found) == ["inp_load_nbytes"]
    assert "for each block of output channels" in found["inp_load_nbytes"]
    found = mistake(tmp_path, "4_traffic.py", (tiles, "oc=256, ic=16, h=14, w=14"))
    assert list(found) == ["builds"]
    assert "scratchpad" in found["builds"]


ASKED = "import vtaops\nTASK = vtaops.Gemm(m=1, n=16, k=16)\nLIMITS = {}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "lacks LIMITS, TASK"),
        ("TASK = 1\nLIMITS = {}\ndef program(): return 3", "TASK is 1; it must be an operator"),
        (f"{ASKED}def program(): return 3", "program() returned 3"),
        (f"{ASKED}def program():\n    return x", "line 5: NameError: name 'x' is not defined"),
        (f"{ASKED}program = 1", "TypeError: 'int' object is not callable"),
        (f"{ASKED}", "lacks program"),
    ],
)
def test_what_is_no_exercise_is_refused(tmp_path, text, said):
    (tmp_path / "x.py").write_text(text)
    found = CliRunner().invoke(app, ["course", "check", str(tmp_path / "x.py")])
    assert found.exit_code == 1
    assert said in found.output


def test_unknown_limits_and_files_are_refused(tmp_path):
    found = mistake(tmp_path, "1_tokens.py", ('"instructions"', '"speed"'))
    assert "LIMITS has speed; there are inp_load" in found["judged"]
    (tmp_path / "x.ipynb").write_text("[]")
    for name in ("none.py", "x.ipynb"):
        assert "cannot read" in judged(tmp_path / name)[0][0].advice


def test_the_command(tmp_path):
    folder = tmp_path / "course"
    written = CliRunner().invoke(app, ["course", "check", "--new", str(folder)])
    assert [Path(line).name for line in written.output.split()] == EXERCISES
    (folder / EXERCISES[0]).write_text((EXAMPLES / "course_solutions" / EXERCISES[0]).read_text())
    CliRunner().invoke(app, ["course", "check", "--new", str(folder)])  # what a student wrote stays
    solved = CliRunner().invoke(app, ["course", "check", str(folder / EXERCISES[0]), "--json"])
    assert solved.exit_code == 0
    assert json.loads(solved.output)["solved"]
    unsolved = CliRunner().invoke(app, ["course", "check", str(folder / EXERCISES[1])])
    assert unsolved.exit_code == 1
    assert "not solved yet" in unsolved.output
    assert CliRunner().invoke(app, ["course", "check"]).exit_code == 1


@pytest.mark.parametrize(
    ("task", "made", "told"),
    [
        (
            "vtaops.Conv2d(in_channels=16, out_channels=16, height=6, width=6, kernel=3, padding=1,"
            " shift=6, rounding='half_up')",
            "replace(TASK, rounding='truncate')",
            "rounding='truncate' instead of 'half_up'",
        ),
        (
            "vtaops.Conv2d(in_channels=16, out_channels=16, height=6, width=6, kernel=3, padding=1,"
            " bias=True, shift=6, rounding='half_up')",
            "replace(TASK, rounding='truncate')",  # the half is part of how the bias is packed
            "rounding='truncate' instead of 'half_up'",
        ),
        (
            "vtaops.Elementwise(function='add', shape=(64, 10), shift=1)",
            "replace(TASK, shift=2, clip=(0, 127))",
            "shift=2 instead of 1 and clip=(0, 127) instead of (-128, 127)",
        ),
        ("vtaops.MaxPool2d(channels=16, height=6, width=6, kernel=2)", "TASK", ""),
    ],
)
def test_every_kind_of_operator_can_be_a_task(tmp_path, task, made, told):
    (tmp_path / "x.py").write_text(
        f"from dataclasses import replace\nimport vtaops\nTASK = {task}\n"
        f"LIMITS = {{'cycles': 10_000}}\ndef program(): return vtaops.compile({made})\n"
    )
    found = judged(tmp_path / "x.py")[0]
    assert told in " ".join(f.advice for f in found)
    if not told:
        assert "times the bound" in found[-1].answer
