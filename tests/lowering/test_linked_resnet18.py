"""All layers of ResNet-18 as one program, by `link`: proved, and equal to NumPy."""

import numpy as np
import pytest
from helpers.tsim_support import needs_tools

from trials.linked_resnet18 import linked_resnet18
from trials.mutations import tokens
from vtaops import HardwareConfig
from vtaops.errors import VerificationError
from vtaops.lowering import link, whole
from vtaops.machine.capabilities import HLS_2020
from vtaops.runtime.fsim import Fsim
from vtaops.runtime.tsim import Tsim

PYNQ = HardwareConfig.load("pynq")


@pytest.fixture(scope="module")
def network():
    """ResNet-18 with 32 x 32 pixels: 23 operators of 18 kinds, 20 convolutions among them."""
    return linked_resnet18(32, PYNQ, classes=100)


def test_the_network_is_proved_and_equals_numpy(network):
    program, arrays, expected, linker = network
    program.verify(HLS_2020)
    with Fsim(PYNQ, capabilities=HLS_2020, seed=3) as device:
        np.testing.assert_array_equal(program.run(device, *arrays), expected)
    assert len(np.unique(expected)) > 10  # the signal survives all layers
    assert [o.kind for o in program.operators].count("Conv2d") == 20
    assert len(linker.fragments) == 18 < len(program.operators) == 23


def test_slots_are_used_again(network):
    """The arena holds what is alive at once, not all that is ever stored."""
    program, _, _, _ = network
    slots = [b for b in program.buffers if b.offset is not None]
    assert len(slots) == 22
    assert program.arena_nbytes < sum(slot.nbytes for slot in slots) / 2


def test_the_parts_together_take_no_more_cycles(network):
    program, _, _, linker = network
    alone = {op: _alone(fragment).cycles() for op, fragment in linker.fragments.items()}
    assert program.cycles() <= sum(alone[step.op] for step in linker.steps)


def _alone(fragment):
    return link([whole(fragment)], fragment.buffers)


def test_tokens_of_the_network_are_needed(network):
    """Without one, drawn at random from each queue, it is unsafe; the benchmark removes each."""
    program, _, _, _ = network
    rng = np.random.default_rng(0)
    for queue in tokens(program):
        for number in rng.choice(len(queue), 2, replace=False):
            mutant = queue[number]()
            with pytest.raises(VerificationError, match=r"rule 'race'|rule 'completion'"):
                mutant.program.verify()


def test_the_network_uses_extensions(network):
    """Where the hardware has them: fewer cycles, the same scores."""
    extended = HardwareConfig.load("pynq_ext")
    program, arrays, expected, _ = linked_resnet18(32, extended, classes=100)
    program.verify()
    with Fsim(extended, seed=1) as device:
        np.testing.assert_array_equal(program.run(device, *arrays), expected)
    np.testing.assert_array_equal(expected, network[2])
    assert program.cycles() < network[0].cycles()


@needs_tools
def test_a_stage_runs_on_tsim():
    """Two blocks of the first stage, in three slots of which two overlap."""
    program, arrays, expected, _ = linked_resnet18(32, PYNQ, first=2, last=6)
    assert program.arena_nbytes < sum(b.nbytes for b in program.buffers if b.offset is not None)
    program.verify()
    with Tsim(PYNQ) as device:
        np.testing.assert_array_equal(program.run(device, *arrays), expected)
        cycles = device.performance().cycles
    assert abs(program.cycles() - cycles) < 0.01 * cycles
