"""A farm of boards: everything is measured and right, whatever becomes of the boards."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from typer.testing import CliRunner

import vtaops
from trials.boards import CONFIG, free_port, serving, serving_rpc
from vtaops.base.errors import DeviceError
from vtaops.board import Fault
from vtaops.board.farm import BoardFarm, PynqBoard, tracker_boards
from vtaops.cli import app
from vtaops.hardware.registers import RegisterMap
from vtaops.ops.reference import evaluate
from vtaops.program.random_programs import random_inputs
from vtaops.schedule.workloads import find

OPS = [vtaops.Gemm(m=m, n=32, k=48, shift=7) for m in (1, 2, 3, 5, 8, 13)]


@cache
def programs():
    return [vtaops.compile(op, CONFIG) for op in OPS]


@pytest.fixture
def served():
    """Return a function that serves boards until the test ends, and gives their servers."""
    with ExitStack() as stack:
        yield lambda count, **options: [
            stack.enter_context(serving(**options)) for _ in range(count)
        ]


def address(server):
    return server.address


def inputs(number):
    """The inputs of a program: its number is its seed."""
    return random_inputs(programs()[number], np.random.default_rng(number))


def assert_all_right(outcomes):
    assert len(outcomes) == len(OPS)
    for number, (op, outcome) in enumerate(zip(OPS, outcomes, strict=True)):
        (output,) = outcome.measurement.outputs
        assert np.array_equal(output, evaluate(op, inputs(number)))
        assert outcome.measurement.seconds > 0


def test_every_program_is_measured_once(served):
    farm = BoardFarm([address(server) for server in served(2)], CONFIG)
    told = []
    outcomes = farm.measure(programs(), on_outcome=lambda number, _: told.append(number))
    assert_all_right(outcomes)
    assert sorted(told) == list(range(len(OPS)))
    assert not farm.lost
    assert not any(outcome.failures for outcome in outcomes)


def test_boards_that_count_cycles_tell_them(served):
    (server,) = served(1, design=RegisterMap.RTL, simulator="tsim")
    (outcome,) = BoardFarm([address(server)]).measure(programs()[:1], repeats=1)
    with vtaops.Session("tsim", CONFIG) as session:
        session.run(OPS[0], *inputs(0))
        assert outcome.measurement.performance == session.device.performance()


def test_a_board_that_is_not_there_is_left_out(served):
    (server,) = served(1)
    farm = BoardFarm(["pynq://127.0.0.1:9", address(server)], CONFIG)
    assert_all_right(farm.measure(programs()))
    assert list(farm.lost) == ["pynq://127.0.0.1:9"]


def test_a_board_that_dies_is_left_out_and_its_program_measured_elsewhere(served):
    first, second = served(2)

    def die(number, outcome):
        if outcome.board == address(first):
            first.close()

    farm = BoardFarm([address(first), address(second)], CONFIG)
    outcomes = farm.measure(programs(), on_outcome=die)
    assert_all_right(outcomes)
    assert farm.lost.keys() <= {address(first)}
    again = farm.measure(programs())
    assert_all_right(again)
    assert {outcome.board for outcome in again} == {address(second)}
    assert list(farm.lost) == [address(first)]


def test_a_board_that_computes_wrongly_is_left_out(served):
    class Wrong(PynqBoard):
        def measure(self, program, arrays, **options):
            found = super().measure(program, arrays, **options)
            return replace(found, outputs=(found.outputs[0] ^ 1,))

    first, second = map(address, served(2))
    opened = {"wrong": lambda: Wrong(first), "right": lambda: PynqBoard(second)}
    farm = BoardFarm(opened)
    outcomes = farm.measure(programs())
    assert_all_right(outcomes)
    assert {outcome.board for outcome in outcomes} == {"right"}
    (failed,) = [outcome.failures for outcome in outcomes if outcome.failures]
    assert failed == farm.lost
    assert "differ from the simulator" in farm.lost["wrong"]


def fewer(found):
    return replace(found, outputs=())


def other_shape(found):
    return replace(found, outputs=(found.outputs[0][..., :1],))


def other_type(found):
    return replace(found, outputs=(found.outputs[0].astype(np.int32),))


def no_arrays(found):
    return replace(found, outputs=("result",))


def broken(found):
    raise OSError(5, "Input/output error")


def not_ours(found):
    raise AttributeError("driver")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (fewer, "returned 0 outputs; the program has 1"),
        (other_shape, "was returned as int8"),
        (other_type, "was returned as int32"),
        (no_arrays, "AttributeError"),
        (broken, "OSError: .*Input/output error"),
        (not_ours, "AttributeError: driver"),
    ],
)
def test_a_bad_board_is_put_aside_and_no_result_is_lost(spoil, reason, served):
    """Before, any of these ended the farm with a raw error, and all results with it."""

    class Bad(PynqBoard):
        def measure(self, program, arrays, **options):
            return spoil(super().measure(program, arrays, **options))

        def close(self):
            super().close()
            raise OSError("cannot even be closed")

    first, second = map(address, served(2))
    farm = BoardFarm({"bad": lambda: Bad(first), "good": lambda: PynqBoard(second)})
    outcomes = farm.measure(programs())
    assert_all_right(outcomes)
    assert {outcome.board for outcome in outcomes} == {"good"}
    assert list(farm.lost) == ["bad"]
    assert re.search(reason, farm.lost["bad"])


def test_a_board_whose_driver_cannot_open_it_is_put_aside(served):
    (server,) = served(1)

    def gone():
        raise OSError(19, "No such device")

    farm = BoardFarm({"gone": gone, "good": lambda: PynqBoard(address(server))})
    assert_all_right(farm.measure(programs()))
    assert farm.lost == {"gone": "cannot be opened: OSError: [Errno 19] No such device"}


def test_a_launch_that_hangs_costs_its_timeout_and_no_board(served):
    first, second = served(2)
    for server in (first, second):
        server.board.faults.inject(Fault.HANG)
    farm = BoardFarm([address(first), address(second)], CONFIG)
    outcomes = farm.measure([*programs(), *programs()], timeout=0.3)
    hung = [outcome for outcome in outcomes if outcome.failures]
    assert 1 <= len(hung) <= 2
    assert not farm.lost
    assert all(outcome.measurement for outcome in outcomes if len(outcome.failures) < 2)


def test_a_program_that_fails_on_two_boards_is_given_up():
    tried = []

    class Dead:
        def __init__(self, name):
            self.name = name

        def measure(self, program, arrays, **options):
            tried.append(self.name)
            raise DeviceError(f"{self.name} is dead")

        def close(self):
            pass

    farm = BoardFarm({name: lambda name=name: Dead(name) for name in "abc"})
    (outcome,) = farm.measure(programs()[:1])
    assert outcome.measurement is None
    assert not outcome.board
    assert len(tried) == len(set(tried)) == 2
    assert outcome.failures == {name: f"{name} is dead" for name in tried}


def test_a_mistake_of_the_caller_is_raised(served):
    def fail(number, outcome):
        raise RuntimeError("mine")

    farm = BoardFarm([address(server) for server in served(2)], CONFIG)
    with pytest.raises(RuntimeError, match="mine"):
        farm.measure(programs(), on_outcome=fail)
    with pytest.raises(DeviceError, match="a farm of no boards"):
        BoardFarm([])


def test_boards_of_a_tracker():
    for package in ("cloudpickle", "psutil", "tornado"):
        pytest.importorskip(package, reason="TVM's tracker needs it: pip install vtaops[rpc]")
    from tvm.rpc.tracker import Tracker

    tracker = Tracker("127.0.0.1", free_port(), port_end=65535, silent=True)
    try:
        options = ("--tracker", f"127.0.0.1:{tracker.port}", "--key", "pynq")
        with serving_rpc("fsim", *options), serving_rpc("fsim", *options):
            boards = tracker_boards("127.0.0.1", tracker.port, "pynq", 2, CONFIG)
            farm = BoardFarm(boards)
            assert_all_right(farm.measure(programs()))
            assert not farm.lost
    finally:
        tracker.terminate()


def test_the_command_tells_where_layers_ran(served):
    (server,) = served(1)
    command = ("board", "farm", server.address, "127.0.0.1:9", "--layer", "resnet18.C10")
    report = json.loads(run(*command, "--repeats", "1", "--json"))
    (layer,) = report["layers"]
    assert layer["board"] == server.address
    assert layer["forecast_cycles"] == vtaops.compile(find("resnet18.C10").op, "pynq").cycles()
    assert list(report["lost"]) == ["127.0.0.1:9"]
    assert "nowhere" in run("board", "farm", "127.0.0.1:9", "--layer", "resnet18.C10", code=1)


def test_the_search_tells_why_a_board_measured_nothing(served):
    (server,) = served(1, flashed=False)
    command = ("tune", "--layer", "resnet18.C10", "--effort", "fast", "--device")
    result = CliRunner().invoke(app, [*command, f"pynq://{server.address.split('//')[-1]}"])
    assert result.exit_code == 1
    assert "measured nothing of a layer: " in result.stderr
    assert "bitstream" in result.stderr


def run(*command, code=0):
    """Run a command of vtaops; return what it printed."""
    result = CliRunner().invoke(app, command)
    assert result.exit_code == code, result.output
    return result.stdout
