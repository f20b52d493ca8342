"""The functional simulator as a device: memory, life, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from helpers.fsim_device import LANES, PYNQ, load, random_program

from trials.random_streams import RandomProgram
from trials.reference_isa import launch, place, serialise
from vtaops.base.errors import NoRoom
from vtaops.errors import ConfigError, DeviceError, DeviceTimeout
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Finish,
    Gemm,
    Store,
)
from vtaops.runtime import DeviceBuffer, Fsim
from vtaops.runtime.fsim import available_kernels

# ------------------------------------------------------------- memory and life of a device


def test_memory_is_zeroed_aligned_and_apart(fsim: Fsim) -> None:
    sizes = [1, 4095, 4096, 4097, 100_000]
    buffers = [fsim.alloc(size) for size in sizes]
    assert buffers[0].address == 4096
    for buffer, size in zip(buffers, sizes, strict=True):
        assert buffer.nbytes == size
        assert buffer.address % 4096 == 0
        assert 0 < buffer.address < 1 << 32
        assert not fsim.read(buffer, size).any()
        fsim.write(buffer, np.full(size, 255, np.uint8))
    ends = [b.address + b.nbytes for b in buffers]
    for end, following in zip(ends, buffers[1:], strict=False):
        assert following.address - end >= 4096
    fsim.free(buffers[2])
    again = fsim.alloc(4096)
    assert not fsim.read(again, 4096).any()


def test_memory_is_finite_and_reused(fsim: Fsim) -> None:
    half = 1 << 31
    first = fsim.alloc(half)
    with pytest.raises(NoRoom, match="no room for 2147483648 bytes; 1 buffers are allocated"):
        fsim.alloc(half)
    fsim.free(first)
    second = fsim.alloc(half)
    assert second.address + half < 1 << 32
    small = [fsim.alloc(1 << 20) for _ in range(8)]
    for buffer in small:
        assert buffer.address + buffer.nbytes <= 1 << 32
        assert not second.address <= buffer.address < second.address + half
    for nbytes in (0, -1, (1 << 32) + 1):
        with pytest.raises(DeviceError, match="must be an integer in 1"):
            fsim.alloc(nbytes)


def test_buffers_stay_apart_under_random_use(fsim: Fsim) -> None:
    """Sizes that fill the address space several times over, so that gaps are used again."""
    rng = np.random.default_rng(0)
    live: list[DeviceBuffer] = []
    refused = 0
    for _ in range(300):
        if live and rng.random() < 0.45:
            fsim.free(live.pop(rng.integers(len(live))))
            continue
        try:
            live.append(fsim.alloc(int(2 ** rng.uniform(12, 30))))
        except DeviceError:
            refused += 1
        spans = sorted((buffer.address, buffer.address + buffer.nbytes) for buffer in live)
        for (_, end), (begin, _) in pairwise(spans):
            assert begin - end >= 4096
        assert spans[0][0] >= 4096
        assert spans[-1][1] <= (1 << 32) - 4096
    assert refused


def test_addresses_are_reused_after_the_last(fsim: Fsim) -> None:
    """The whole space can be handed out many times, with other buffers in between."""
    kept = fsim.alloc(4096)
    addresses = set()
    for _ in range(9):
        buffer = fsim.alloc(1 << 30)
        addresses.add(buffer.address)
        fsim.free(buffer)
    assert kept.address not in addresses
    assert len(addresses) < 9


def test_write_and_read(fsim: Fsim) -> None:
    data = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    buffer = place(fsim, data)
    np.testing.assert_array_equal(fsim.read(buffer, data.nbytes).view(np.int32), data.reshape(-1))
    fsim.write(buffer, data.transpose(2, 0, 1))  # in C order
    np.testing.assert_array_equal(
        fsim.read(buffer, data.nbytes).view(np.int32), data.transpose(2, 0, 1).reshape(-1)
    )
    fsim.write(buffer, np.array([], np.int8))
    data.setflags(write=False)
    fsim.write(buffer, data)
    assert fsim.read(buffer, 0).size == 0
    for nbytes in (97, 1 << 40, 1 << 70, -1, 2.5, "4", True, None):
        with pytest.raises(DeviceError, match=r"bytes to read is .*must be an integer in 0\.\.96"):
            fsim.read(buffer, nbytes)
    with pytest.raises(DeviceError, match="97 bytes exceed buffer"):
        fsim.write(buffer, np.zeros(97, np.uint8))
    with pytest.raises(DeviceError, match="array of object"):
        fsim.write(buffer, np.array([None]))


def test_handles_are_checked(fsim: Fsim) -> None:
    buffer = fsim.alloc(64)
    with Fsim(PYNQ) as other:
        foreign = other.alloc(64)
        assert foreign.address == buffer.address
        with pytest.raises(DeviceError, match="belongs to another device"):
            fsim.free(foreign)
        with pytest.raises(DeviceError, match="belongs to another device"):
            fsim.write(foreign, np.zeros(1, np.int8))
    fsim.free(buffer)
    with pytest.raises(DeviceError, match="was freed"):
        fsim.free(buffer)
    with pytest.raises(DeviceError, match="was freed"):
        fsim.read(buffer, 1)

    class Fake:
        address, nbytes = 4096, 64

    with pytest.raises(DeviceError, match="does not belong to a functional simulator"):
        fsim.free(Fake())


def test_a_closed_device_refuses(fsim: Fsim) -> None:
    buffer = fsim.alloc(64)
    fsim.close()
    fsim.close()
    for call in (
        lambda: fsim.alloc(1),
        lambda: fsim.free(buffer),
        lambda: fsim.write(buffer, np.zeros(1, np.int8)),
        lambda: fsim.read(buffer, 1),
        lambda: fsim.launch(4096, 1, 1.0),
        fsim.stats,
        fsim.reset_stats,
    ):
        with pytest.raises(DeviceError, match="the device is closed"):
            call()


def test_construction() -> None:
    assert Fsim().config == PYNQ
    assert Fsim("tiny").config.block_in == 8
    assert Fsim().kernel == available_kernels()[0]
    assert available_kernels()[-1] == "generic"
    assert Fsim(check_overflow=True).kernel == "checked"
    assert repr(Fsim("tiny", seed=3, kernel="generic")) == "Fsim('tiny', seed=3, kernel='generic')"
    with pytest.raises(ConfigError, match="no hardware configuration"):
        Fsim("no such")
    with pytest.raises(DeviceError, match=r"no kernels '\{0\}' on this CPU; give one of auto, "):
        Fsim(kernel="{0}")
    with pytest.raises(DeviceError, match="cannot detect overflow"):
        Fsim(kernel="generic", check_overflow=True)
    for seed in (-1, 1 << 64):
        with pytest.raises(DeviceError, match="seed is"):
            Fsim(seed=seed)


def test_statistics_add_up_until_reset(fsim: Fsim) -> None:
    data = np.zeros(LANES, np.int32)
    stream = serialise([load(fsim, Memory.ACC, data)])
    launch(fsim, stream)
    launch(fsim, stream)
    assert fsim.stats().acc_load_nbytes == 2 * data.nbytes
    fsim.reset_stats()
    assert not any(fsim.stats().as_dict().values())


# ------------------------------------------------------------- threads


def in_threads(*bodies: Callable[[], None]) -> None:
    """Run all bodies at once; raise what any of them raised."""
    errors: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_devices_in_threads_are_independent() -> None:
    programs = [random_program("pynq", seed) for seed in (0, 1, 2)]

    def run(program: RandomProgram) -> None:
        for _ in range(10):
            with Fsim(PYNQ) as device:
                region = place(device, program.image)
                launch(device, program.stream())
                image = device.read(region, region.nbytes)
                np.testing.assert_array_equal(image, program.expected_image())

    in_threads(*(lambda p=p: run(p) for p in programs))


def test_one_device_in_threads_is_not_corrupted(fsim: Fsim) -> None:
    """Launches, copies and allocations from three threads; each has its own accumulators."""

    def run(number: int) -> None:
        for k in range(50):
            data = np.full((4, LANES), 10 * number + k % 10, np.int32)
            out = fsim.alloc(4 * LANES)
            acc = load(fsim, Memory.ACC, data, sram=100 * number)
            store = Store(
                memory=Memory.OUT,
                sram_base=100 * number,
                dram_base=out.address // LANES,
                x_size=4,
                y_size=1,
            )
            launch(fsim, serialise([acc, store]))
            result = fsim.read(out, out.nbytes).view(np.int8)
            np.testing.assert_array_equal(result, data.reshape(-1).astype(np.int8))
            fsim.free(out)

    in_threads(*(lambda n=n: run(n) for n in range(3)))
    assert fsim.stats().acc_load_nbytes == 3 * 50 * 4 * LANES * 4


def test_python_goes_on_during_a_launch(fsim: Fsim) -> None:
    endless = [Gemm(uop_end=8192, iter_out=16383, iter_in=16383), Finish()]

    def run() -> None:
        with pytest.raises(DeviceTimeout):
            launch(fsim, endless, timeout=0.3)

    thread = threading.Thread(target=run)
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
    thread.join()
    assert turns > 100
