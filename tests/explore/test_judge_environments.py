"""The judge as an environment for agents, and as rewards for models."""

import asyncio
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import vtaops
from vtaops.explore.judge import Judge, find_task
from vtaops.explore.judge.streams import EDITS, operations_of, program_of

TASKS = ("tiny/first", "tiny/gemm", "pynq_ext/attention_head", "pynq/max_pool")


@pytest.mark.parametrize("name", TASKS)
def test_a_stream_that_is_taken_apart_goes_together_again(name):
    judge = Judge(name)
    compiled = judge.task.compiled
    program = program_of(operations_of(compiled), compiled)
    assert judge(program).accepted
    assert program.cycles() <= compiled.cycles()


def test_an_edit_is_an_edit():
    compiled = find_task("tiny/gemm").compiled
    stream = operations_of(compiled)
    for edit in EDITS.values():
        for at in range(len(stream)):
            changed = edit(stream, at, 2)
            if changed is not None:
                program_of(changed, compiled)
    assert len(operations_of(compiled)) == len(stream)


@pytest.fixture(scope="module")
def gymnasium():
    found = pytest.importorskip("gymnasium", reason="gymnasium is not installed (extra: gym)")
    if "vtaops/Stream-v0" not in found.registry:  # installed before there was an entry point
        from vtaops.explore.judge.environment import register

        register()
    return found


@pytest.mark.parametrize("name", ["vtaops/Tiling-v0", "vtaops/Stream-v0"])
def test_gymnasiums_checker_passes(gymnasium, name):
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(name, task="tiny/gemm").unwrapped)


def test_a_stream_gets_no_worse(gymnasium):
    env = gymnasium.make("vtaops/Stream-v0", task="tiny/gemm")
    observed, info = env.reset(seed=0)
    text, total = info["stream"], 0.0
    env.action_space.seed(2)
    for _ in range(40):
        observed, reward, _, _, info = env.step(env.action_space.sample())
        text, total = info.get("stream", text), total + reward
    current, best, _, left = observed
    assert np.isclose(best, 1 - total)
    assert left == 1 - 40 / 256
    verdict = Judge("tiny/gemm")(text)
    assert verdict.accepted
    assert np.isclose(verdict.cycles / verdict.compiler, current)


def test_a_tiling_is_chosen(gymnasium):
    env = gymnasium.make("vtaops/Tiling-v0", task="tiny/gemm", steps=2).unwrapped
    env.reset(seed=0)
    action = np.zeros(len(env.action_space.nvec), np.int64)
    *_, over, info = env.step(action)
    assert not over
    assert info["verdict"].accepted
    assert env.tiling(action).oc == 8
    assert env.step(action)[3]
    with pytest.raises(vtaops.errors.ScheduleError, match="only an operator has a tiling"):
        gymnasium.make("vtaops/Tiling-v0", task="pynq/residual_sum")


def test_replies_of_models_are_rewarded():
    pytest.importorskip("verifiers.v1", reason="verifiers is not installed (extra: verifiers)")
    from vtaops.explore.judge.rewards import KernelConfig, KernelTaskset

    row = next(iter(KernelTaskset(KernelConfig(names="tiny/first"))))
    stream = row.data.prompt.split("```")[1]
    replies = {
        f"First\n```\nx\n```\nthen\n```\n{stream}```": 1.0,
        '```json\n{"oc": 8, "ic": 8, "h": 1, "w": 1}\n```': 1.0,
        f"```\n{stream}```\nbut rather\n```\nFINISH\n```": 0.0,
        "I do not know": 0.0,
    }
    for reply, reward in replies.items():
        trace = SimpleNamespace(last_reply=reply)
        assert asyncio.run(row.speed(trace)) == reward
        assert asyncio.run(row.accepted(trace)) == float(reward > 0)
