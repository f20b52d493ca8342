"""No hostile answer is accepted, and every right one: ten of each strategy and kind."""

import pytest

from trials import judged_answers
from trials.judged_answers import RIGHT, STRATEGIES, cases, judged, trial
from vtaops.explore.judge import Judge
from vtaops.explore.judge.confined import is_confined

TASKS = (
    "tiny/gemm",
    "tiny/conv2d",
    "pynq/strided",
    "pynq/max_pool",
    "pynq/residual_sum",
    "pynq_ext/depthwise",
    "pynq_ext/attention_head",
)


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    monkeypatch.setattr(judged_answers, "TASKS", TASKS)


def test_there_are_twenty_strategies_and_three_kinds():
    assert (len(STRATEGIES), len(RIGHT)) == (20, 3)
    assert len(cases(10)) == 230


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_hostile_answers_are_refused(strategy):
    if strategy == "source" and not is_confined():
        pytest.skip("this kernel has no Landlock")
    counts = dict.fromkeys(("answers", "accepted", "unchanged"), 0)
    assert [judged(strategy, number, counts) for number in range(10)] == [""] * 10
    assert counts["accepted"] == 0
    assert counts["answers"] == 10


@pytest.mark.parametrize("kind", RIGHT)
def test_right_answers_are_accepted(kind):
    counts = dict.fromkeys(("answers", "accepted", "unchanged"), 0)
    size = 2 if kind == "right_schedule" else 10
    assert [judged(kind, number, counts) for number in range(size)] == [""] * size
    assert counts["accepted"] == size


def test_a_judge_that_believed_samples_would_be_found(monkeypatch):
    """With the proof replaced by a nod, hostile answers pass, and the trial says so."""
    monkeypatch.setattr(Judge, "_prove", lambda self, program: "it looks right")
    judged_answers.judge.cache_clear()
    try:
        assert trial("right_on_samples/0")["failed"]
    finally:
        judged_answers.judge.cache_clear()
