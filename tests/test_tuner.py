"""The search: better than the default, deterministic, remembered, proof against damaged files."""

import json
from dataclasses import asdict, replace
from itertools import islice

import numpy as np
import pytest
from typer.testing import CliRunner

import vtaops
from trials.boards import serving
from vtaops import Conv2d, DeviceError, Gemm, HardwareConfig, Session, Tiling
from vtaops.board import Fault
from vtaops.board.measure import measure
from vtaops.cli import app
from vtaops.compiler import tuner
from vtaops.compiler.driver import timed_tiling
from vtaops.graph import Convolution, Requantization
from vtaops.machine.capabilities import FSIM, FULL, PORTABLE, of_target
from vtaops.runtime.fsim import Fsim
from vtaops.schedule import (
    TIMED,
    blocked_shape,
    check_tiling,
    default_tiling,
    worth_timing,
)
from vtaops.schedule.blocked import Axis
from vtaops.schedule.candidates import (
    TilingList,
    _divisions,
    candidates,
    cycle_bound,
    depths_of,
    dram_traffic,
)
from vtaops.schedule.workloads import WORKLOADS, find

CONFIG = HardwareConfig.load("pynq")
OP = Conv2d(in_channels=32, out_channels=48, height=9, width=10, kernel=3, padding=1)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_the_best_of_the_timed_tilings_wins():
    best = tuner.tune(OP, CONFIG, "fast")
    assert best.source == "search"
    assert best.compiled == tuner.COMPILED["fast"]
    timed = [
        vtaops.compile(OP, CONFIG, tiling).cycles()
        for tiling in worth_timing(OP, CONFIG, best.compiled)
    ]
    assert best.cycles == min(timed) <= timed[0]
    assert vtaops.compile(OP, CONFIG, best.tiling).cycles() == best.cycles
    assert tuner.tune(OP, CONFIG, "fast", use_cache=False) == best  # deterministic


def test_the_default_of_a_convolution_is_the_best_of_a_few_sizes():
    """A layer of which the first by the estimate takes 1.4 times as long as others."""
    sizes = {"log_uop_buff_size": 14, "log_inp_buff_size": 12, "log_acc_buff_size": 16}
    config = replace(CONFIG, target="sim", log_batch=2, extensions=("overwrite",), **sizes)
    op = find("resnet18.C9").op
    few = worth_timing(op, config, TIMED)
    assert few[0] == default_tiling(op, config)
    assert len({(t.oc, t.ic, t.h, t.w, t.keep) for t in few}) == TIMED
    assert few == worth_timing(op, config, 12)[:TIMED]  # a search times them, too
    cycles = [vtaops.compile(op, config, tiling, verify=False).cycles() for tiling in few]
    chosen = timed_tiling(op, config, FULL)
    assert chosen == few[cycles.index(min(cycles))]
    assert min(cycles) < 0.75 * cycles[0]
    assert vtaops.compile(op, config).operators[0].tiling == vars(chosen)
    near = find("resnet18.C8").op  # the first cannot be beaten by one in a hundred
    assert timed_tiling(near, CONFIG, FULL) == default_tiling(near, CONFIG)


def test_results_are_remembered(monkeypatch):
    first = tuner.tune(OP, CONFIG, "fast")
    monkeypatch.setattr(tuner, "search", None)  # searching again would fail
    again = tuner.tune(OP, CONFIG, "fast")
    assert (again.tiling, again.cycles, again.source) == (first.tiling, first.cycles, "cache")
    with pytest.raises(TypeError):
        tuner.tune(OP, CONFIG, "thorough")  # a fast result answers no thorough search
    tuner.keep(OP, CONFIG, "thorough", first)
    assert tuner.recall(OP, CONFIG, "thorough").tiling == first.tiling


def test_a_result_belongs_to_what_the_device_can_execute(empty_cache):
    """Before, a search for one device was recalled for another, with cycles that it never takes."""
    for able in (FULL, PORTABLE):
        found = tuner.tune(OP, CONFIG, "fast", capabilities=able)
        assert found == tuner.tune(OP, CONFIG, "fast", capabilities=able, use_cache=False)
    assert len(list((empty_cache / "vtaops" / "tilings").iterdir())) == 2
    keys = {tuner.tuning_key(OP, CONFIG, FULL)}
    for name, value in asdict(FULL).items():
        other = {str: "other", tuple: (), bool: not value}.get(type(value), 7)
        keys.add(tuner.tuning_key(OP, CONFIG, replace(FULL, **{name: other})))
    assert len(keys) == len(asdict(FULL))  # the name tells nothing
    assert tuner.tuning_key(OP, CONFIG) == tuner.tuning_key(OP, CONFIG, of_target(CONFIG))


@pytest.mark.parametrize("able", [FSIM, FULL, of_target(CONFIG)], ids=lambda able: able.name)
def test_named_layers_are_known_for_every_simulator_and_the_board(able):
    known = tuner.recall(find("resnet18.C11").op, CONFIG, "thorough", able)
    assert known.source == "shipped"
    program = vtaops.compile(
        find("resnet18.C11").op, CONFIG, known.tiling, capabilities=able, verify=False
    )
    assert program.cycles() == known.cycles


def test_networks_are_searched_for_their_device(empty_cache):
    graph = vtaops.Graph("one layer")
    x = graph.input("x", (1, 16, 6, 6))
    weight = np.ones((16, 16, 3, 3), np.int8)
    scaling = Requantization(1, 8)
    graph.output(graph.add(Convolution(weight, None, scaling, padding=(1, 1, 1, 1)), x))
    for count, able in enumerate((FSIM, PORTABLE), start=1):
        vtaops.compile_model(graph, "pynq", search="fast", capabilities=able)
        assert len(list((empty_cache / "vtaops" / "tilings").iterdir())) == count


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{}",
        b"\xff\xfe",
        b'{"tiling": {"oc": -1, "ic": 16}}',
        b'{"tiling": {"oc": 4096, "ic": 16}, "cycles": 1, "compiled": 1}',  # fits no scratchpad
    ],
)
def test_a_damaged_cache_is_searched_again(damage, empty_cache):
    first = tuner.tune(OP, CONFIG, "fast")
    (file,) = (empty_cache / "vtaops" / "tilings").iterdir()
    file.write_bytes(damage)
    assert tuner.recall(OP, CONFIG, "fast") is None
    assert tuner.tune(OP, CONFIG, "fast") == first
    assert json.loads(file.read_text())["cycles"] == first.cycles


def test_a_cache_that_cannot_be_written_is_no_error(empty_cache):
    (empty_cache / "vtaops").write_text("a file where the folder should be")
    assert tuner.tune(OP, CONFIG, "fast").source == "search"


def test_sessions_search(monkeypatch):
    with Session("fsim", CONFIG, search="fast") as session:
        assert session.program(OP).operators[0].tiling == vars(tuner.tune(OP, CONFIG).tiling)
        explicit = Tiling(16, 16, 3, 5)
        assert session.program(OP, explicit).operators[0].tiling == vars(explicit)
    with Session("fsim", CONFIG) as session:
        assert session.program(OP).operators[0].tiling == vars(timed_tiling(OP, CONFIG, FULL))
    with pytest.raises(vtaops.ScheduleError, match="search is 'deep'; it must be off, fast or"):
        Session("fsim", CONFIG, search="deep")
    with pytest.raises(vtaops.ScheduleError, match="search effort is 'deep'"):
        tuner.tune(OP, CONFIG, "deep")


@pytest.mark.parametrize("name", [n for n in WORKLOADS if n.startswith("resnet18.")])
def test_shipped_tilings_reach_the_bound(name):
    """Every layer within 8 % of its bound, and little more DRAM traffic than necessary."""
    op = WORKLOADS[name].op
    best = tuner.tune(op, CONFIG)
    assert best.source == "shipped"
    check_tiling(op, CONFIG, best.tiling)
    program = vtaops.compile(op, CONFIG, best.tiling)
    assert program.cycles() == best.cycles
    shape, moved = blocked_shape(op, CONFIG), program.stats().dram_nbytes
    assert best.cycles <= 1.08 * max(shape.compute_cycles, moved / 8)
    grid, fit = candidates(shape, depths_of(CONFIG))
    fitting = grid.at(fit, fit.shape)
    assert moved <= 1.25 * sum(dram_traffic(shape, CONFIG, fitting)).min()


def test_shipped_tilings_of_resnet18_beat_the_published_cycles():
    layers = [w for n, w in WORKLOADS.items() if n.startswith("resnet18.") and n != "resnet18.C1"]
    total = sum(w.occurrences * tuner.tune(w.op, CONFIG).cycles for w in layers)
    assert sum(w.occurrences for w in layers) == 19
    assert total <= 7_200_000  # published: 8,828,000


@pytest.mark.parametrize(
    "op",
    [
        OP,
        Conv2d(
            in_channels=32, out_channels=64, height=12, width=12, kernel=3, strides=2, padding=1
        ),
        Gemm(m=12, n=100, k=80),
    ],
    ids=["conv", "strided", "gemm"],
)
def test_the_predicted_traffic_is_the_real_one(op):
    """The analytic model of reuse equals what lowering loads, micro-ops aside."""
    shape = blocked_shape(op, CONFIG)
    grid, fit = candidates(shape, depths_of(CONFIG))
    found = grid.at(fit, fit.shape)
    predicted = sum(dram_traffic(shape, CONFIG, found))
    bound = cycle_bound(shape, CONFIG, found)
    assert (bound == cycle_bound(shape, CONFIG, grid)[fit]).all()
    for row in range(0, len(bound), max(1, len(bound) // 12)):
        program = vtaops.compile(op, CONFIG, found.tiling(row, CONFIG))
        moved = program.stats().dram_nbytes - program.stats().uop_load_nbytes
        assert moved == predicted[row], found.tiling(row, CONFIG)
        assert program.cycles() >= shape.compute_cycles
    assert (bound >= shape.compute_cycles).all()


def test_counts_over_pieces_equal_naive_loops():
    for extent in range(1, 80):
        assert _divisions(extent) == sorted({-(-extent // n) for n in range(1, extent + 1)})
    rng = np.random.default_rng(0)
    for step, window in ((1, 3), (2, 3), (3, 1)):
        axis = Axis(11, step, window, bytes(rng.random(11 * step + window) < 0.7))
        for tile in range(1, 12):
            pieces = [(y, min(tile, 11 - y)) for y in range(0, 11, tile)]
            spans = [axis.real[y * step :][: axis.span(n)] for y, n in pieces]
            assert axis.loaded(tile) == sum(map(sum, spans))


def test_long_tensors_find_their_tiling_at_once():
    """Ten million elements: the choice is as good as that of a tenth, in pieces of like size."""
    long, short = (
        vtaops.Elementwise(function="add", shape=(size,)) for size in (10_000_000, 1_000_000)
    )
    assert abs(default_tiling(long, CONFIG).h - default_tiling(short, CONFIG).h) < 50


def test_operators_of_equal_extents_share_their_tiling():
    """Neither shifts nor clips matter to it; a bias takes accumulators."""
    assert default_tiling(replace(OP, shift=3, clip=(0, 100)), CONFIG) is default_tiling(OP, CONFIG)
    assert default_tiling(replace(OP, bias=True), CONFIG) is not default_tiling(OP, CONFIG)


@pytest.mark.parametrize("name", ["resnet18.C8", "mobilenet.D9"])
def test_designs_share_the_enumeration_of_tilings(name):
    """What larger scratchpads hold as well changes neither the order nor the bound."""
    op = find(name).op
    small = replace(CONFIG, log_inp_buff_size=12, log_acc_buff_size=14)
    tilings = TilingList(op, CONFIG)
    shared = list(islice(tilings.estimated(small), 50))
    assert shared == list(islice(TilingList(op, small).estimated(small), 50))
    assert tilings.least_cycles(small) == TilingList(op, small).least_cycles(small)
    assert shared != list(islice(tilings.estimated(CONFIG), 50))


def test_measured_tilings_are_kept_and_come_first():
    other = replace(OP, height=8)
    asked = []

    def measure(programs):
        """By the number of instructions; the first one cannot be measured."""
        asked.extend(programs)
        return [None, *(float(len(program)) for program in programs[1:])]

    best, second = tuner.tune_on(measure, [OP, other], CONFIG)
    assert len(asked) == 2 * tuner.COMPILED["fast"]
    mine = asked[: tuner.COMPILED["fast"]]
    assert best.cost == min(len(program) for program in mine[1:])
    assert best.compiled == len(mine) - 1
    assert vtaops.compile(OP, CONFIG, best.tiling).cycles() == best.cycles
    tuner.tune(OP, CONFIG, "thorough", use_cache=False)
    for op, kept in ((OP, best), (other, second)):
        for effort in ("fast", "thorough"):
            assert tuner.tune(op, CONFIG, effort) == replace(kept, cost=None)
    shipped = find("resnet18.C10").op
    assert tuner.recall(shipped, CONFIG, "fast").source == "shipped"
    tuner.tune_on(lambda programs: [1.0] * len(programs), [shipped], CONFIG)
    assert tuner.recall(shipped, CONFIG, "fast").source == "measured"


def test_what_no_device_could_measure_is_not_kept():
    assert tuner.tune_on(lambda programs: [None] * len(programs), [OP], CONFIG) == [None]
    assert tuner.recall(OP, CONFIG, "fast") is None


TUNE = ("tune", "--layer", "resnet18.C10", "--effort", "fast", "--repeats", "1", "--json")


def test_the_command_measures_on_a_board():
    with serving() as server:
        result = CliRunner().invoke(app, [*TUNE, "--device", server.address])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["resnet18.C10"]
    assert (found["source"], found["compiled"]) == ("measured", tuner.COMPILED["fast"])
    assert 0 < found["cost"] < 60
    assert not result.stderr


def test_a_candidate_that_fails_is_told_and_left_out():
    with serving() as server:
        server.board.faults.inject(Fault.HANG)
        result = CliRunner().invoke(app, [*TUNE, "--timeout", "0.3", "--device", server.address])
    assert result.exit_code == 0, result.output
    assert result.stderr.count("a candidate failed on") == 1
    assert json.loads(result.stdout)["resnet18.C10"]["source"] == "measured"


def test_a_board_that_measures_nothing():
    with serving(flashed=False) as server:
        result = CliRunner().invoke(app, [*TUNE, "--device", server.address])
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"resnet18.C10": None}
    assert "no bitstream is programmed" in result.stderr
    result = CliRunner().invoke(app, [*TUNE, "--device", "pynq://127.0.0.1:9"])
    assert "cannot reach a board" in str(result.exception)
    result = CliRunner().invoke(app, [*TUNE, "--device", "fsim"])
    assert "fsim has no clock" in str(result.exception)


def test_a_result_that_differs_is_no_measurement():
    class Wrong(Fsim):
        def read(self, buffer, nbytes):
            return super().read(buffer, nbytes) ^ 1

    program = vtaops.compile(OP, CONFIG)
    with Fsim(CONFIG) as device:
        assert measure(program, device).seconds > 0
    with Wrong(CONFIG) as device, pytest.raises(DeviceError, match="differ from the simulator's"):
        measure(program, device)
