"""Records are proven again from nothing, and one that says something else is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from docs.records import record
from vtaops.errors import ProgramError
from vtaops.explore.judge import find_task, task_names
from vtaops.explore.judge.records import answer_of, read_records, rechecked

ROOT = Path(__file__).parent.parent.parent
RECORDS = read_records(ROOT / "records")


def test_every_record_is_of_a_task_and_has_a_certificate():
    assert {row.task for row in RECORDS} <= {*task_names()}
    assert all({"checker", "program", "definition"} <= row.certificate.keys() for row in RECORDS)
    assert {row.answer for row in RECORDS if isinstance(row.answer, str)} == {
        path.name for path in (ROOT / "records").glob("*.txt")
    }


@pytest.mark.parametrize("row", [r for r in RECORDS if r.task.startswith("tiny/")], ids=str)
def test_small_records_hold(row):
    rechecked(row, ROOT / "records")


def test_a_record_that_says_something_else_is_refused():
    row = next(r for r in RECORDS if r.task == "tiny/first")
    for wrong, reason in (
        (replace(row, cycles=row.cycles - 1), "the record says"),
        (replace(row, certificate={**row.certificate, "program": "0"}), "not for this program"),
        (replace(row, task="tiny/gemm"), "cannot|another"),
        (replace(row, answer="../pyproject.toml"), "not a file in the folder"),
        (replace(row, answer="missing.txt"), "cannot read"),
    ):
        with pytest.raises(ProgramError, match=reason):
            rechecked(wrong, ROOT / "records")


def test_only_what_is_faster_is_recorded(tmp_path):
    task = find_task("tiny/first")
    slow = task.compiled.disassemble()
    fast = answer_of(next(r for r in RECORDS if r.task == task.name), ROOT / "records")
    assert record(task.name, slow, "me", tmp_path).cycles == task.cycles
    assert record(task.name, fast, "me", tmp_path).cycles < task.cycles
    assert record(task.name, slow, "me", tmp_path) is None
    (row,) = read_records(tmp_path)
    rechecked(row, tmp_path)
    with pytest.raises(ProgramError):
        record(task.name, slow.replace("imm 4", "imm 5"), "cheat", tmp_path)
    assert len(read_records(tmp_path)) == 1
