"""The acceptance test of devices: those that are right pass, whatever they do beyond the manual."""

import ast
import re
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest
from helpers.checks import broken_rule
from helpers.upstream import UpstreamSimulator

from vtaops import Conv2d, HardwareConfig
from vtaops.board.selftest import make, planned_checks
from vtaops.errors import DeviceError, VerificationError
from vtaops.machine.capabilities import FULL, HLS_2020
from vtaops.machine.config import Memory
from vtaops.machine.isa import Alu, AluOp, Encoding, Load, words_to_array
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program import ProgramBuilder, Role
from vtaops.program.verifier import Rule
from vtaops.runtime import Fsim, LoadedProgram
from vtaops.session import Session

ENCODING = Encoding.of(HardwareConfig.load("tiny"))


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


# ------------------------------------------------------------------- devices that are wrong


class Wrong(Fsim):
    """A simulator that claims to have everything, and lacks something."""

    def __init__(self, spoiled):
        super().__init__("tiny", capabilities=FULL)
        self._spoiled = spoiled

    def launch(self, insn_address, count, timeout):
        """Run the program as hardware without a feature would."""
        code = next(b for b in self._buffers if b.address == insn_address)
        words = self.read(code, 16 * count).view(np.uint64).reshape(count, 2)
        changed = [self._spoiled(step) for step in ENCODING.decode_all(words)]
        self.write(code, words_to_array([ENCODING.encode(step) for step in changed]))
        super().launch(insn_address, count, timeout)
        self.write(code, words)

    @cached_property
    def _buffers(self):
        return []

    def alloc(self, nbytes):
        self._buffers.append(super().alloc(nbytes))
        return self._buffers[-1]

    def free(self, buffer):
        self._buffers.remove(buffer)
        super().free(buffer)


def no_acc_padding(step):
    """What the padding would have set to zero keeps what was there: other rows are loaded."""
    if isinstance(step, Load) and step.memory in (Memory.ACC, Memory.ACC_8BIT):
        return replace(step, y_pad_top=0, y_pad_bottom=0, x_pad_left=0, x_pad_right=0)
    return step


def no_product(step):
    """MUL is an addition."""
    is_product = isinstance(step, Alu) and step.alu_op == AluOp.MUL
    return replace(step, alu_op=AluOp.ADD) if is_product else step


@pytest.mark.parametrize("spoiled", [no_acc_padding, no_product])
def test_a_failure_names_the_place(spoiled):
    with Wrong(spoiled) as device:
        planned = planned_checks(device, operators=1, programs=12, seed=3, layers=False)
        failed = [check for check in map(make, planned) if check.passed is False]
        details = [c.detail for c in failed if c.name.startswith("random program")]
        assert len(details) > 3
        for detail in details:
            found = re.search(r"the first at (\[.*?\]): (-?\d+) in place of (-?\d+)$", detail)
            assert found, detail
            place, got, right = found.groups()
            assert got != right
            assert len(ast.literal_eval(place)) == 3  # a tile, a row, a column


def test_refusals_name_the_way_out():
    b = ProgramBuilder("tiny")
    values = b.tiles("values", Role.INPUT, 1, Memory.ACC)
    result = b.tiles("result", Role.OUTPUT, 1)
    b.load_micro_ops(b.micro_ops((0, 0, 0)), 1)
    b.load(Memory.ACC, values, 0, 0, 1)
    b.alu(AluOp.MUL, 0, 1, 3, push_next=1)
    b.store(result, 0, 0, 1, pop_prev=1, push_prev=1)
    b.finish(pop_next=1)
    with pytest.raises(VerificationError, match="lacks 'mul'; compile it for"):
        b.build().verify(HLS_2020)
