"""Verdicts a minute of the judge, on one core: cold and warm, for each task.

    python -m benchmarks judge --count 20 --json benchmarks/results/judge.json

Cold is the first verdict of a new judge: it compiles the task, derives its definition and proves
the program. Warm are verdicts on other streams of the task (`trials.judged_answers`), none of which
was judged before: as text, and as programs. Times are of the CPU.
"""

from __future__ import annotations

import random
import time
from typing import Annotated

import typer

from benchmarks.options import Json, Only, Row, chosen, show, write_json
from trials.judged_answers import right_stream
from vtaops.explore.judge import Judge, task_names
from vtaops.program import assemble


def measured(name: str, count: int) -> Row:
    """Return the verdicts a minute for one task."""
    begin = time.process_time()
    judge = Judge(name)
    assert judge(judge.task.compiled).accepted
    cold = time.process_time() - begin
    rng, texts = random.Random(name), set()
    for _ in range(3 * count):
        text = right_stream(judge, rng)
        if isinstance(text, str) and len(texts) < count:
            texts.add(text)
    row: Row = {"cold": round(60 / cold, 1)}
    programs = [assemble(text, judge.task.config, judge.task.buffers) for text in texts]
    for kind, answers in (("programs", programs), ("texts", [*texts])):
        judge._cached.cache_clear()
        begin = time.process_time()
        accepted = [judge(answer).accepted for answer in answers]
        row[kind] = round(60 * len(answers) / (time.process_time() - begin))
        assert all(accepted), name
    return row


def main(
    count: Annotated[int, typer.Option(help="Streams of each task.")] = 20,
    only: Only = [],  # noqa: B006
    json_file: Json = None,
) -> None:
    """Measure all tasks, print a table, write the file."""
    rows = {name: measured(name, count) for name in chosen(task_names(), only)}
    show("Verdicts a minute", rows, of="task")
    write_json(json_file, rows)
