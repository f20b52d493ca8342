"""The functional simulator: random programs against the reference, under every kernel and order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from helpers.fsim_device import LANES, PYNQ, accumulators, load, load_micro_ops, random_program

from trials.random_streams import CONFIGS, REGION
from trials.reference_isa import launch, place, serialise
from vtaops.errors import DeviceError
from vtaops.machine.capabilities import FULL
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
)
from vtaops.runtime import Fsim
from vtaops.runtime.fsim import available_kernels


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CONFIGS)
def test_random_programs_equal_the_reference(name: str, seed: int) -> None:
    program = random_program(name, seed)
    stream = program.stream()
    for kernel in available_kernels():
        with Fsim(program.config, kernel=kernel) as device:
            region = place(device, program.image)
            assert region.address == REGION
            launch(device, stream)
            image = device.read(region, region.nbytes)
            np.testing.assert_array_equal(image, program.expected_image(), err_msg=kernel)
            assert device.stats().as_dict() == program.expected_counters()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CONFIGS)
def test_a_separate_output_memory_holds_what_the_reference_holds(name: str, seed: int) -> None:
    program = random_program(name, seed, separate_out=True)
    with Fsim(program.config, capabilities=FULL) as device:
        region = place(device, program.image)
        launch(device, program.stream())
        np.testing.assert_array_equal(device.read(region, region.nbytes), program.expected_image())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CONFIGS)
def test_check_overflow_finds_the_first(name: str, seed: int) -> None:
    """The first overflow of the reference is the one that is reported; or there is none."""
    program = random_program(name, seed)
    with Fsim(program.config, check_overflow=True) as device:
        region = place(device, program.image)
        if program.reference.first_overflow is None:
            launch(device, program.stream())
            image = device.read(region, region.nbytes)
            np.testing.assert_array_equal(image, program.expected_image())
        else:
            with pytest.raises(DeviceError, match="int32 overflow") as caught:
                launch(device, program.stream())
            _, element, lane = program.reference.first_overflow
            assert f"accumulator {element}, lane {lane}:" in str(caught.value)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_defined_programs_give_the_same_under_every_seed(name: str, seed: int) -> None:
    program = random_program(name, 1)
    with Fsim(program.config, seed=seed) as device:
        region = place(device, program.image)
        launch(device, program.stream())
        np.testing.assert_array_equal(device.read(region, region.nbytes), program.expected_image())


# ------------------------------------------------------------- order, seeds, scratchpads


def garbage_stream(device: Fsim, count: int) -> tuple[list[Instruction], Callable[[], bytes]]:
    """Return a stream that stores what it never wrote, and a function that reads it."""
    out = device.alloc(count * LANES)
    stream = [
        load_micro_ops(device, *[(k, k, k) for k in range(count)]),
        Gemm(uop_end=count, iter_out=1, iter_in=1),
        Store(memory=Memory.OUT, dram_base=out.address // LANES, x_size=count, y_size=1),
    ]
    return serialise(stream), lambda: device.read(out, out.nbytes).tobytes()


def garbage(seed: int | None, kernel: str, launches: int = 1) -> list[bytes]:
    with Fsim(PYNQ, seed=seed, kernel=kernel) as device:
        stream, read = garbage_stream(device, 16)
        results = []
        for _ in range(launches):
            launch(device, stream)
            results.append(read())
        return results


def test_undefined_scratchpads_follow_the_seed() -> None:
    reference = garbage(5, available_kernels()[0], launches=3)
    assert len({*reference}) == 3, "each launch advances the generator"
    assert garbage(6, available_kernels()[0])[0] != reference[0]
    for kernel in available_kernels():
        assert garbage(5, kernel, launches=3) == reference
        assert garbage(None, kernel) == [bytes(16 * LANES)]


def test_scratchpads_keep_their_contents_without_a_seed(device: Fsim) -> None:
    data = np.arange(-8, 8, dtype=np.int32)
    launch(device, serialise([load(device, Memory.ACC, data, sram=100)]))
    launch(device, serialise([]))
    np.testing.assert_array_equal(accumulators(device, 100, 1)[0], data)


def race(device: Fsim, *, with_token: bool) -> bytes:
    """Multiply an input by the identity, with or without a token from load to compute."""
    token = int(with_token)
    x, identity = np.arange(1, 17, dtype=np.int8), np.eye(LANES, dtype=np.int8)
    out = device.alloc(LANES)
    nop = Load(memory=Memory.INP, push_next=1)
    stream: list[Instruction] = [
        load_micro_ops(device, (0, 0, 0)),
        load(device, Memory.WGT, identity),
        replace(load(device, Memory.INP, x), push_next=token),
        Gemm(reset=1, uop_end=1, iter_out=1, iter_in=1),
        Gemm(uop_end=1, iter_out=1, iter_in=1, pop_prev=token, push_next=1),
        Store(
            memory=Memory.OUT,
            dram_base=out.address // LANES,
            x_size=1,
            y_size=1,
            pop_prev=1,
            push_prev=1,
        ),
        nop,
        Finish(pop_prev=1, pop_next=1),
    ]
    launch(device, stream)
    return device.read(out, LANES).tobytes()


def test_a_missing_token_shows() -> None:
    expected = bytes(range(1, 17))
    with_token = [race(Fsim(PYNQ, seed=seed), with_token=True) for seed in range(10)]
    assert {*with_token} == {expected}
    without = [race(Fsim(PYNQ, seed=seed), with_token=False) for seed in range(10)]
    assert len({*without}) > 1
    assert race(Fsim(PYNQ), with_token=True) == expected
    assert race(Fsim(PYNQ), with_token=False) == bytes(LANES), "compute runs before load"
