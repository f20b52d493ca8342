"""Exploration: results that are kept, and designs ranked fairly."""

import itertools
import json
import os
import platform
import random
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import pytest

import vtaops
from vtaops import Conv2d, Gemm, HardwareConfig, Tiling
from vtaops.base import heap
from vtaops.base.errors import ConfigError, DeviceError, ShapeError, StoreError
from vtaops.explore import (
    Design,
    Engine,
    Network,
    ResultStore,
    Space,
    TilingCandidate,
    area,
    energy_pj,
    evaluate,
    front,
    model_version,
    shares,
    sweep,
)
from vtaops.explore.energy import SRAM_64_BITS_PJ, sram_pj_per_byte
from vtaops.explore.evaluation import TilingQuery
from vtaops.explore.judge import KernelTask
from vtaops.machine.config import Extension
from vtaops.schedule import default_tiling
from vtaops.schedule.workloads import Workload

PYNQ = Design(HardwareConfig.load("pynq"))
TINY = Design(HardwareConfig.load("tiny"))
SMALL = Conv2d(in_channels=16, out_channels=32, height=6, width=7, kernel=3, padding=1)
PRODUCT = Gemm(m=5, n=64, k=96)
NETWORK = Network("two", (Workload("conv", SMALL, 2), Workload("gemm", PRODUCT)))
LATTICE = {
    "LOG_UOP_BUFF_SIZE": [9, 13],
    "LOG_INP_BUFF_SIZE": [10, 12, 15],
    "LOG_WGT_BUFF_SIZE": [13, 18],
    "LOG_ACC_BUFF_SIZE": [10, 12, 15],
}


# ------------------------------------------------------------------------------ designs


def test_designs_are_their_values():
    axes = {"LOG_BLOCK": [4, 5], "EXTENSIONS": ["", "overwrite+post"], "PORT_BYTES": [8, 64]}
    designs, refused = Space(PYNQ, {**axes, "LOG_UOP_BUFF_SIZE": [6, 15]}).designs()
    assert {Design.of(d.as_dict()) for d in designs} == set(designs)
    assert len(designs) == 12
    assert len(refused) == 4
    assert all("a port word of 64 bytes holds 16 elements of UOP" in r for r in refused.values())
    shipped = HardwareConfig.load("zcu104_2048")  # whose port is wider than its tiles of inputs
    assert Design.of(Design(shipped).as_dict()).port_bytes == 2 * shipped.inp.element_bytes
    assert len({d.name for d in designs}) == len(designs)
    assert Design(HardwareConfig.load("ultra96")).port_bytes == 16
    for values, message in (
        ({"LOG_BLOK": [4]}, "unknown axis 'LOG_BLOK'"),
        ({"LOG_BLOCK": []}, "has no values"),
    ):
        with pytest.raises(ConfigError, match=message):
            Space(PYNQ, values)
    for values, message in (
        ({"CLOCK_MHZ": 2.5}, "positive integer"),
        ({"DRAM_LATENCY": -1}, "dram_latency is -1"),
        ({"EXTENSIONS": "magic"}, "EXTENSIONS"),
        ({"LOG_BLOCK": "four"}, "LOG_BLOCK is 'four'"),
    ):
        with pytest.raises(ConfigError, match=message):
            Space(PYNQ, {}).design(values)


def test_what_holds_a_tiling_does_not_change_its_cycles():
    """The identity of questions: equal cycles on every configuration that holds the tiling."""
    rng = random.Random(3)
    for _ in range(6):
        base = replace(PYNQ.config, log_batch=rng.choice([0, 1]), log_uop_buff_size=15,
                       log_inp_buff_size=11, log_wgt_buff_size=14, log_acc_buff_size=12,
                       extensions=rng.choice([(), ("overwrite", "post")]))  # fmt: skip
        op = rng.choice([SMALL, PRODUCT, replace(SMALL, strides=2, bias=True)])
        tiling = default_tiling(op, base)
        larger = replace(
            base,
            log_inp_buff_size=rng.choice([12, 14]),
            log_wgt_buff_size=rng.choice([14, 16]),
            log_acc_buff_size=rng.choice([13, 15]),
        )
        asked = [TilingCandidate(op, tiling, Design(config)) for config in (base, larger)]
        assert asked[0].key == asked[1].key
        verdict = evaluate(asked[0])
        for config in (base, larger):
            program = vtaops.compile(op, config, tiling)
            assert program.cycles() == verdict.cycles
            counted = program.stats().as_dict()
            assert counted == verdict.counters
    other = replace(PYNQ, dram_latency=64)
    assert TilingCandidate(op, tiling, other).key != TilingCandidate(op, tiling, PYNQ).key


def test_a_tiling_that_does_not_fit_is_a_verdict():
    verdict = evaluate(TilingCandidate(SMALL, Tiling(32, 16, 6, 7, inp_tiles=9), TINY))
    assert not verdict.legal
    assert "scratchpad" in verdict.reason


def test_no_tiling_goes_below_the_bound():
    rng = random.Random(5)
    designs, _ = Space(
        PYNQ,
        {"LOG_BATCH": [0, 1], "EXTENSIONS": ["", "overwrite+post", "+".join(Extension)],
         "PORT_BYTES": [8, 16],
         "BANDWIDTH": [0, 3.0], "LOG_INP_BUFF_SIZE": [11, 15], "LOG_WGT_BUFF_SIZE": [14, 18]},
    ).designs()  # fmt: skip
    operators = [
        SMALL,
        PRODUCT,
        vtaops.MaxPool2d(channels=16, height=9, width=9, kernel=3, strides=2, padding=1),
        vtaops.Conv2dTranspose(
            in_channels=16, out_channels=16, height=4, width=4, kernel=4, strides=2, padding=1
        ),
        Conv2d(
            in_channels=32,
            out_channels=32,
            height=7,
            width=7,
            kernel=3,
            padding=1,
            groups=32,
            clip=(0, 127),
        ),
        vtaops.Elementwise(function="add", shape=(1, 16, 9, 9), clip=(0, 127)),
    ]
    for design in rng.sample(designs, 6):
        for op in rng.sample(operators, 3):
            verdict = evaluate(TilingCandidate(op, default_tiling(op, design.config), design))
            assert 0 < KernelTask("", design.config, op).bound <= verdict.cycles


# -------------------------------------------------------------------------------- sweeps


def test_a_larger_scratchpad_is_never_worse():
    """Over a whole lattice, although each ranking is one estimate."""
    designs, _ = Space(PYNQ, LATTICE).designs()
    random.Random(1).shuffle(designs)
    with Engine() as engine:
        points = sweep(designs, NETWORK, engine)
        count = engine.store.count()
    assert len(points) == 36
    reached = {point.design: point for point in points}
    own = 0
    for one in designs:
        for other in designs:
            if one != other and one.contains(other):
                assert reached[one].cycles <= reached[other].cycles, (one.name, other.name)
        own += sum(result.design == one for result in reached[one].layers)
    assert own < 2 * len(designs)  # some inherit
    assert count["evaluation"] < len(designs)
    result = reached[designs[0]].layers[0]
    program = vtaops.compile(SMALL, result.design.config, result.tiling)
    assert program.cycles() == result.cycles


def test_a_sweep_counts_occurrences_and_keeps_failures():
    huge = vtaops.MaxPool2d(channels=16, height=64, width=64, kernel=64, strides=1, padding=1)
    network = Network("mixed", (Workload("small", SMALL, 3), Workload("huge", huge)))
    with Engine() as engine:
        (mixed,) = sweep([TINY, TINY], network, engine)
        (small,) = sweep([TINY], Network("one", network.layers[:1]), engine)
        (guess,) = sweep([TINY], Network("one", network.layers[:1]), engine, timed=False)
    assert set(mixed.failures) == {"huge"}
    assert front([mixed]) == []
    once = vtaops.compile(SMALL, TINY.config, default_tiling(SMALL, TINY.config))
    assert small.cycles == 3 * once.cycles()
    assert small.dram_nbytes == 3 * once.stats().dram_nbytes
    assert small.milliseconds == small.cycles / 1e5
    assert small.limit in ("compute", "port", "latency")
    one_run = energy_pj(TINY.config, small.layers[0].evaluation.statistics)
    assert small.energy_pj == pytest.approx(3 * one_run)
    assert guess.limit == ""
    assert "energy_uj" not in guess.as_dict()
    assert 0.7 < guess.cycles / small.cycles < 1.4


def test_objectives_have_names():
    with pytest.raises(ConfigError, match="no objective 'speed'"):
        front([], ["speed"])


def test_networks_have_names_and_graphs():
    network = Network.named(["resnet18"])
    assert sum(layer.occurrences for layer in network.layers) == 20
    assert Network.named(["resnet18.C8"]).layers[0].occurrences == 3
    with pytest.raises(ShapeError, match="no layer 'vgg'"):
        Network.named(["vgg"])


# -------------------------------------------------------------------- store and engine


def test_answers_are_kept_and_never_computed_twice(tmp_path):
    designs, _ = Space(PYNQ, {"LOG_INP_BUFF_SIZE": [12, 14], "DRAM_LATENCY": [32, 64]}).designs()
    told = []
    with (
        ResultStore(tmp_path / "s.db") as store,
        Engine(store, progress=lambda *a: told.append(a)) as e,
    ):
        first = sweep(designs, NETWORK, e)
        counted = store.count()
    assert told[-1][1] == told[-1][2]
    with ResultStore(tmp_path / "s.db") as store, Engine(store, _Refusing()) as engine:
        assert sweep(reversed(designs), NETWORK, engine) == first[::-1]
        assert store.count() == counted
    with sqlite3.connect(tmp_path / "s.db") as database:
        versions = database.execute("SELECT DISTINCT version FROM records").fetchall()
    database.close()
    assert versions == [(model_version(),)]


class InThisProcess(Executor):
    """Runs each call when it is submitted."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class _Refusing(InThisProcess):
    def submit(self, fn, /, *args, **kwargs):
        raise AssertionError("computed again")


_KILLED = """
import os, signal, sys
from vtaops.explore import *
from vtaops.explore import engine as module
from vtaops.explore.energy import SRAM_64_BITS_PJ, sram_pj_per_byte
import test_explore as test
count = [0]
whole = module._records
def dying(questions):
    count[0] += type(questions[0]) is TilingCandidate
    if count[0] > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(questions)
module._records = dying
designs, _ = Space(test.PYNQ, {"LOG_ACC_BUFF_SIZE": [12, 14]}).designs()
with ResultStore(sys.argv[1]) as store, Engine(store) as engine:
    sweep(designs, test.NETWORK, engine)
"""


def test_a_killed_driver_is_resumed(tmp_path):
    """What was computed stays, and the result is that of one run."""
    path = tmp_path / "s.db"
    folders = [str(Path(__file__).parent), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, path], env=environment, check=False, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    axes = {"LOG_ACC_BUFF_SIZE": [12, 14]}
    designs, _ = Space(PYNQ, axes).designs()
    with ResultStore(path) as store, Engine(store) as engine:
        assert store.count()["evaluation"] == 2
        points = sweep(designs, NETWORK, engine)
        count = store.count()
    with Engine() as engine:
        assert points == sweep(designs, NETWORK, engine)
        assert count == engine.store.count()


def test_two_processes_share_a_file_and_the_first_result_stays(tmp_path):
    path = tmp_path / "s.db"
    with ResultStore(path) as one, ResultStore(path) as two:
        one.put("v", {"a": ("test", {}, {"x": 1})})
        two.put("v", {"a": ("test", {}, {"x": 2}), "b": ("test", {}, {"x": 3})})
        assert one.get(["a", "b", "c"]) == {"a": {"x": 1}, "b": {"x": 3}}
        assert one.count() == two.count() == {"test": 2}


def test_what_is_no_store_is_refused_and_not_touched(tmp_path):
    text, other = tmp_path / "text", tmp_path / "other.db"
    text.write_text("no database, but longer than the header of one" * 9)
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    for path in (text, other, tmp_path / "no" / "folder.db", tmp_path):
        content = path.read_bytes() if path.is_file() else None
        with pytest.raises(StoreError, match="store"):
            ResultStore(path)
        assert (path.read_bytes() if path.is_file() else None) == content


class _Losing(InThisProcess):
    """Loses its workers after some answers."""

    def __init__(self, answers):
        self.answers = answers

    def submit(self, fn, /, *args, **kwargs):
        self.answers -= 1
        future = super().submit(fn, *args, **kwargs)
        if self.answers < 0:
            future = type(future)()
            future.set_exception(BrokenProcessPool("a worker died"))
        return future


class Answering(Executor):
    """Workers of another program, which answer everything with one thing."""

    def __init__(self, answer):
        self.answer = answer

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(self.answer)
        return future


@pytest.mark.parametrize(
    "answer",
    [
        None,
        5,
        [],
        [None],
        ["x"],
        [{}],
        [{}, {}],
        [{"text": "<b>"}],
        [{"reason": "", "estimate": -1}],
    ],
)
def test_what_workers_answer_is_read_before_it_is_stored(answer):
    store = ResultStore(":memory:")
    query = TilingQuery(Gemm(m=2, n=16, k=16), Design(HardwareConfig.load("tiny")))
    with Engine(store, Answering(answer)) as engine, pytest.raises(StoreError):
        engine.tilings([query])
    assert store.count() == {}


def test_who_reads_a_store_leaves_it_as_it_is(tmp_path):
    path = tmp_path / "results.db"
    query = TilingQuery(Gemm(m=2, n=16, k=16), Design(HardwareConfig.load("tiny")))
    with ResultStore(path) as store, Engine(store) as engine:
        engine.tilings([query])
    before = path.read_bytes()
    with ResultStore(path) as store:
        assert store.count() == {"tilings": 1}
        assert Engine(store, _Refusing()).tilings([query])
    assert path.read_bytes() == before


def test_a_lost_worker_is_an_error_and_what_was_computed_stays(tmp_path):
    designs, _ = Space(PYNQ, {"LOG_INP_BUFF_SIZE": [12, 13, 14]}).designs()
    with (
        ResultStore(tmp_path / "s.db") as store,
        Engine(store, _Losing(2)) as engine,
        pytest.raises(DeviceError, match="lost; what was computed is in the store"),
    ):
        sweep(designs, NETWORK, engine)
    with ResultStore(tmp_path / "s.db") as store, Engine(store) as engine:
        assert store.count()["tilings"] == 2 * len(designs)
        points = sweep(designs, NETWORK, engine)
    with Engine() as engine:
        assert points == sweep(designs, NETWORK, engine)


# --------------------------------------------------------------------- area and energy


RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
AREA_RUNS = json.loads((RESULTS / "area_runs.json").read_text())["runs"]


@pytest.mark.parametrize("run", AREA_RUNS, ids=lambda run: Design.of(run["design"]).name)
def test_area_is_that_of_the_synthesised_designs(run):
    """DSPs and block RAMs exactly as Yosys counted; LUTs and flip-flops within 3 %."""
    found = area(Design.of(run["design"]))
    for name, largest in (("dsp", 0), ("bram", 0), ("lut", 0.03), ("ff", 0.03)):
        counted = sum(block[name] for block in run["blocks"].values())
        assert getattr(found, name) == pytest.approx(counted, rel=largest), name


AREA_LATTICE = {
    "LOG_BATCH": (0, 1, 2),
    "LOG_BLOCK": (3, 4),
    "LOG_WGT_BUFF_SIZE": (14, 15),
    "LOG_ACC_BUFF_SIZE": (13, 14),
    "EXTENSIONS": ("", "post", "post+pool", "depthwise+forward+overwrite+pool+post"),
}


def test_more_hardware_takes_no_less_area():
    """Over a lattice: one step up on any axis takes at least as much of everything."""
    steps = {axis: range(len(values)) for axis, values in AREA_LATTICE.items()}

    def at(place):
        design = {axis: AREA_LATTICE[axis][i] for axis, i in zip(steps, place, strict=True)}
        return area(Design.of(design | {"LOG_UOP_BUFF_SIZE": 10, "LOG_INP_BUFF_SIZE": 13}))

    for place in itertools.product(*steps.values()):
        small = at(place)
        for k, axis in enumerate(steps):
            if place[k] + 1 < len(AREA_LATTICE[axis]):
                large = at((*place[:k], place[k] + 1, *place[k + 1 :]))
                for name in ("lut", "ff", "dsp", "bram"):
                    assert getattr(large, name) >= getattr(small, name), (place, axis, name)


def test_a_copy_of_the_tables_for_each_lane_takes_no_block_ram():
    """Yosys counted 1,816 LUTs and 1,185 flip-flops more than without (docs/tsim.md)."""
    with_tables, without = (
        area(Design(replace(PYNQ.config, extensions=names)))
        for names in (("post", "table"), ("post",))
    )
    assert with_tables.lut - without.lut == pytest.approx(1_816, rel=0.02)
    assert with_tables.ff - without.ff == pytest.approx(1_185, rel=0.02)
    assert (with_tables.dsp, with_tables.bram) == (without.dsp, without.bram)


def test_the_share_is_that_of_the_scarcest_resource():
    large = Design(HardwareConfig.load("1x32_i8w8a32_15_15_20_17"))
    fits, not_at_all = (max(shares(area(design), "xc7z020").values()) for design in (PYNQ, large))
    assert fits == pytest.approx(129.5 / 140)
    assert not_at_all > 1


def test_energy_follows_the_published_table():
    for nbytes, picojoules in SRAM_64_BITS_PJ:
        assert 8 * sram_pj_per_byte(nbytes) == pytest.approx(picojoules)
    sizes = [1 << n for n in range(8, 24)]
    grown = [sram_pj_per_byte(n) for n in sizes]
    assert grown == sorted(grown)
    verdict = evaluate(TilingCandidate(PRODUCT, default_tiling(PRODUCT, PYNQ.config), PYNQ))
    found = energy_pj(PYNQ.config, verdict.statistics)
    assert found > PRODUCT.macs * 0.3 + verdict.dram_nbytes * 162.5


# ------------------------------------------------------------------------------- the heap

PAGE_FAULTS = """
import resource, runpy, sys
keep = runpy.run_path(sys.argv[1])["keep_freed_memory"]
assert keep()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(4 << 20)
before = faults()
for _ in range(50):
    bytearray(4 << 20)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tells glibc's malloc")
def test_freed_memory_is_kept_where_dask_asks_to_give_it_back():
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", PAGE_FAULTS, heap.__file__]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 1024  # the pages of one such block; 50 are taken
