"""The acceptance test of devices: those that are right pass, whatever they do beyond the manual."""

import numpy as np
import pytest
from helpers.checks import broken_rule
from helpers.upstream import UpstreamSimulator

from vtaops import Conv2d, DeviceError
from vtaops.machine.config import Memory
from vtaops.machine.isa import Alu, AluOp, Load
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program import ProgramBuilder, Role
from vtaops.program.verifier import Rule
from vtaops.runtime import LoadedProgram
from vtaops.session import Session
from vtaops.session.selftest import make, planned_checks


@pytest.mark.parametrize("config", ["tiny", "pynq", "4x8_i8w8a32_15_16_16_18"])
def test_a_device_like_upstreams_simulator_passes(config):
    device = UpstreamSimulator(config)
    planned = planned_checks(device, operators=2, programs=12, seed=1, layers=False)
    checks = [make(check) for check in planned]
    assert not [check for check in checks if not check.passed]
    assert len(checks) > 25


def test_padding_that_no_row_stands_beside_runs_there():
    """Tiles in the padding alone, at both ends of the image and of the rows."""
    op = Conv2d(
        in_channels=5, out_channels=7, height=2, width=3, kernel=3, padding=(7, 6, 5, 8), shift=3
    )
    arrays = random_arguments(op, np.random.default_rng(2))
    with Session(UpstreamSimulator("tiny")) as session:
        assert np.array_equal(session.run(op, *arrays), evaluate(op, arrays))


def shifting(distance):
    """Return what a device leaves of 1000 shifted by a tile of distances."""
    b = ProgramBuilder("tiny")
    values = b.tiles("values", Role.INPUT, 2, Memory.ACC)
    result = b.tiles("result", Role.OUTPUT, 1)
    b.load_micro_ops(b.micro_ops((0, 1, 0)), 1)
    b.load(Memory.ACC, values, 0, 0, 2)
    b.add(Alu(uop_end=1, iter_out=1, iter_in=1, alu_op=AluOp.SHR, push_next=1))
    b.store(result, 0, 0, 1, pop_prev=1, push_prev=1)
    b.finish(pop_next=1)
    tiles = np.stack([np.full((1, 8), 1000, np.int32), np.full((1, 8), distance, np.int32)])
    with LoadedProgram(b.build(), UpstreamSimulator("tiny")) as loaded:
        return loaded.run(tiles)[0, 0, 0]


def test_the_stand_in_does_what_upstream_does():
    assert shifting(5) == 1000 >> 5
    assert shifting(37) == 1000 >> 5
    b = ProgramBuilder("tiny")
    b.add(Load(memory=Memory.INP, y_pad_top=1, x_size=1, x_stride=1))
    b.finish()
    program = b.build()
    assert broken_rule(program) is Rule.RELOCATION
    with pytest.raises(DeviceError, match="no memory at address 0"):
        program.run(UpstreamSimulator("tiny"))
