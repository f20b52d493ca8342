"""A cluster that loses a worker, and the gym."""

import os
import random
import signal
from dataclasses import replace

import pytest

import vtaops
from examples.tiling_gym import SEARCHES, Problem
from vtaops import Conv2d, Gemm, HardwareConfig, Tiling
from vtaops.base.errors import DeviceError
from vtaops.explore import (
    Design,
    Engine,
    Network,
    ResultStore,
    Space,
    dask_executor,
    sweep,
)
from vtaops.schedule import default_tiling
from vtaops.schedule.workloads import Workload

PYNQ = Design(HardwareConfig.load("pynq"))
SMALL = Conv2d(in_channels=16, out_channels=32, height=6, width=7, kernel=3, padding=1)
NETWORK = Network("two", (Workload("conv", SMALL, 2), Workload("gemm", Gemm(m=5, n=64, k=96))))


def test_a_cluster_that_loses_a_worker_answers_as_one_process(tmp_path):
    """Two workers, one killed after the first answers: equal points, equal records."""
    distributed = pytest.importorskip("distributed", reason="a cluster needs Dask")
    designs, _ = Space(PYNQ, {"LOG_INP_BUFF_SIZE": [10, 11, 12], "LOG_BLOCK": [3, 4]}).designs()
    killed = []

    def kill_one(kind, done, total):
        if kind == "time programs" and done and not killed:
            killed.append(client.submit(os.getpid, pure=False).result())
            os.kill(killed[0], signal.SIGKILL)

    import dask

    with (
        dask.config.set({"distributed.worker.daemon": False}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            local_directory=str(tmp_path),
        ) as cluster,
        distributed.Client(cluster) as client,
        ResultStore(tmp_path / "s.db") as store,
        Engine(store, dask_executor(client), kill_one) as engine,
    ):
        points = sweep(designs, NETWORK, engine)
        count = store.count()
    assert killed
    with Engine() as engine:
        assert points == sweep(designs, NETWORK, engine)
        assert count == engine.store.count()


def test_no_scheduler_is_an_error():
    pytest.importorskip("distributed", reason="a cluster needs Dask")
    with pytest.raises(DeviceError, match="no Dask scheduler at 'nonsense:"):
        dask_executor("nonsense://x")


# ------------------------------------------------------------------------------ the gym


def test_reference_searches_spend_their_budget():
    design = Design(HardwareConfig.load("tiny"))
    best = {}
    with Engine() as engine:
        for name, run in SEARCHES.items():
            problem = Problem(SMALL, design, engine)
            run(problem, 12, 1)
            again = Problem(SMALL, design, engine)
            run(again, 12, 1)
            assert problem.evaluations == (1 if name == "first" else 12)
            assert (problem.best, problem._asked) == (again.best, again._asked)
            best[name] = problem.best
    cycles, tiling = best["bound"]
    assert vtaops.compile(SMALL, design.config, tiling).cycles() == cycles
    assert cycles <= best["first"][0]


def test_a_gym_may_ask_for_a_proof_of_each_candidate(monkeypatch):
    plain, proving = Problem(SMALL, PYNQ), Problem(SMALL, PYNQ, prove=True)
    default = default_tiling(SMALL, PYNQ.config)
    assert proving.evaluate(default) == plain.evaluate(default)
    wrong = vtaops.compile(replace(SMALL, shift=SMALL.shift + 1), PYNQ.config, default)
    monkeypatch.setattr("examples.tiling_gym.compile", lambda *_: wrong)
    refused = Problem(SMALL, PYNQ, prove=True).evaluate(default)
    assert not refused.legal
    assert "does not compute what it declares" in refused.reason


def test_a_candidate_may_be_a_text_and_is_never_an_error():
    problem = Problem(SMALL, PYNQ)
    default = default_tiling(SMALL, PYNQ.config)
    outcome = problem.evaluate(default.text)
    assert outcome == problem.evaluate(default)
    assert outcome.legal
    assert outcome.cycles == vtaops.compile(SMALL, PYNQ.config, default).cycles()
    assert outcome.energy_pj > 162.5 * outcome.dram_nbytes
    assert problem.evaluations == 1
    for text, reason in (
        ("oc=17,ic=16", "must be a multiple of 16"),
        ("oc=32", "oc and ic are required"),
        ("oc=16,ic=16,colour=3", "cannot read tiling"),
        ("oc=32,ic=x", "cannot read tiling"),
        ("oc=32,ic=16,keep=all", "keep is 'all'"),
        ("oc=32,ic=16,h=6,w=7,acc_tiles=99", "acc scratchpad"),
        ("I would try a larger tile", "cannot read tiling"),
        ("", "cannot read tiling"),
    ):
        refused = problem.evaluate(text)
        assert not refused.legal
        assert reason in refused.reason
    assert Tiling.parse(default.text) == default
    assert problem.best == (outcome.cycles, default)
    assert isinstance(problem.mutated(default, random.Random(1)), Tiling)


def test_programs_that_take_seconds_to_compile_are_not_candidates():
    large = Conv2d(in_channels=64, out_channels=64, height=56, width=56, kernel=3, padding=1)
    problem = Problem(large, PYNQ)
    outcome = problem.evaluate("oc=16,ic=16,h=1,w=2")
    assert not outcome.legal
    assert f"{4 * 4 * 56 * 28} steps" in outcome.reason
    assert problem.evaluations == 1
