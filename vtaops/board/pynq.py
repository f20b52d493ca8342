"""PynqDevice: VTA in the programmable logic of a Zynq board, driven through PYNQ's interface.

Implements the protocol of a run: caches, registers, waiting, recovery. The board's facilities
(contiguous memory, register pages, programming) come from the ``pynq`` package, or from anything
with the same interface, such as the virtual board.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import (
    BufferLost,
    DeviceError,
    DeviceTimeout,
    NoRoom,
    UnsupportedError,
    raising,
)
from vtaops.base.shapes import Array, Bytes
from vtaops.hardware.performance import TsimPerformance
from vtaops.hardware.registers import ControlRegisters, RegisterMap, control_registers
from vtaops.machine.capabilities import FULL, HLS_2020
from vtaops.machine.config import (
    DRAM_BYTES,
    INSTRUCTION_BYTES,
    PAGE_BYTES,
    PORT_MHZ,
    HardwareConfig,
    Memory,
)
from vtaops.machine.isa import Encoding, Load
from vtaops.runtime import arguments
from vtaops.runtime.device import DeviceBuffer
from vtaops.runtime.instruction_check import BoardDevice, finish, poll
from vtaops.runtime.pages import Block, Blocks, whole_pages

NOT_PROGRAMMED = (
    "no bitstream is programmed in the logic of the board (vtaops flash; without PYNQ, start the "
    "board again)"
)

_BUSY_POLLS = 200  # before the CPU is yielded between polls
_POLL_SECONDS = 100e-6
_CLEAR_SECONDS = 1.0  # for one instruction that does nothing


def pynq_package() -> Any:
    """Import the ``pynq`` package.

    Raises
    ------
    DeviceError
        If it is not installed, so this is not a board.
    """
    try:
        package = importlib.import_module("pynq")
        if not hasattr(package, "allocate"):
            raise ImportError("found a folder of that name, or an unrelated package")
    except ImportError as error:
        raise DeviceError(
            f"cannot import pynq ({error}); run this on a board with a PYNQ image, or connect to "
            f"one with Session(device='pynq://HOST:PORT')"
        ) from error
    return package


DEFAULT_CLOCK_MHZ = 100.0


class Accelerator:
    """The VTA of a board, shared by its devices; calls are serialized.

    No register is accessed before a bitstream has been programmed: reading missing logic hangs a
    Zynq's processor.

    Parameters
    ----------
    config : HardwareConfig
        Configuration of the bitstream; its target must be the board.
    register_map : RegisterMap
        Register map of the bitstream.
    interface : optional
        The ``pynq`` package by default; or anything with what vtaops uses of it:
        ``Clocks.fclk0_mhz`` and ``fclk1_mhz`` (the clocks of the logic, and of ports with one of
        their own), ``allocate(shape, dtype, cacheable=)`` (an array in contiguous memory, with
        ``physical_address``, ``flush``, ``invalidate`` and ``freebuffer``), ``MMIO(base_addr,
        length)`` (a page of registers) and ``Bitstream(name).download()``.
    clock_mhz : float
        Clock from the processing system to the logic, in MHz. Upstream's designs expect 100 and
        derive their own clock from it; ours run at this clock (``vtaops hardware write
        --clock-mhz``).

    Raises
    ------
    DeviceError
        If the target is a simulator, the clock is not within 1..1000 MHz, or ``pynq`` is not
        installed.
    """

    def __init__(
        self,
        config: HardwareConfig,
        register_map: RegisterMap = RegisterMap.HLS,
        interface: Any = None,
        *,
        clock_mhz: float = DEFAULT_CLOCK_MHZ,
    ) -> None:
        if not config.board.register_base:
            missing = config.board.no_driver
            why = f"for which vtaops has no driver: {missing}" if missing else "not a board"
            raise DeviceError(f"configuration {config.name!r} has target {config.target!r}, {why}")
        if not 1 <= clock_mhz <= 1000:
            raise DeviceError(f"the clock is {clock_mhz} MHz; it must be 1..1000")
        self.config = config
        self.clock_mhz = clock_mhz
        self.register_map = register_map
        self.interface = interface if interface is not None else pynq_package()
        self.capabilities = HLS_2020 if register_map is RegisterMap.HLS else FULL
        self.generation = 0
        """Incremented whenever the logic is programmed; buffers of older generations are lost."""
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._bitstream: Path | None = None
        self._registers: ControlRegisters | None = None
        self._polls = 0  # of this wait
        self._counted: TsimPerformance | None = None  # the counters after the last run
        self._clearing: Any = None  # instructions that only clear the done flag
        self._launches = 0  # also counts bitstreams: each leaves other things in the scratchpads

    @property
    def programmed(self) -> bool:
        """Whether a bitstream has been programmed."""
        return self._registers is not None

    def program(self, bitstream: Path) -> None:
        """Program the logic.

        Parameters
        ----------
        bitstream : Path
            A ``.bit`` file; the caller must check that it matches the board and configuration.

        Raises
        ------
        DeviceError
            If the board refuses it; the board then counts as having no bitstream.
        """
        with self._lock:
            if self._registers is not None:
                with _translate_errors("cannot stop the logic"):
                    self._registers.stop()
            self._registers = None
            self.generation += 1
            with _translate_errors("cannot program the logic"):
                if self._clearing is not None:
                    self._clearing.freebuffer()
                    self._clearing = None
                self.interface.Clocks.fclk0_mhz = self.clock_mhz
                if self.config.split_port:
                    self.interface.Clocks.fclk1_mhz = PORT_MHZ.get(
                        self.config.target, self.clock_mhz
                    )
                self.interface.Bitstream(str(bitstream)).download()
            self._bitstream = bitstream
            self.attach()

    def attach(self) -> None:
        """Use a bitstream that was programmed by other means.

        Raises
        ------
        DeviceError
            If the register pages cannot be mapped (usually for lack of root rights).
        """
        with self._lock, _translate_errors("cannot map the registers"):
            self._launches += 1
            base = self.config.board.register_base
            self._registers = control_registers(self.register_map, self.interface.MMIO, base)
            self._counted = self._registers.performance()

    def launch(
        self,
        insn_address: int,
        count: int,
        timeout: float,
        pinned: int,
        since: int,
        generation: int,
    ) -> tuple[int, int, TsimPerformance | None]:
        """Run instructions until FINISH, with memory of a generation; see `PynqDevice.relaunch`.

        After a run that fails the logic is programmed again, if it was programmed here.

        Returns
        -------
        number, left_out : int
            The number of this launch, and the leading instructions that it did not execute.
        performance : TsimPerformance or None
            The logic's counters for this run; None if the logic has none.
        """
        deadline = time.monotonic() + timeout
        with self._turn(timeout):
            registers = self._registers
            if registers is None:
                raise DeviceError(NOT_PROGRAMMED)
            if generation != self.generation:
                raise BufferLost("the logic was programmed again; load the program again")
            left_out = pinned if since == self._launches else 0
            self._launches += 1
            insn_address += left_out * INSTRUCTION_BYTES
            count -= left_out
            with _translate_errors("cannot reach the registers"):
                try:
                    if registers.finish_is_sticky and registers.finished():
                        self._clear_finish(registers)
                    registers.start(insn_address, count)
                    self._polls = 0
                    finish(registers, deadline, timeout, self._pause)
                except DeviceError:
                    self._recover()
                    raise
                before, self._counted = self._counted, registers.performance()
            counted = self._counted - before if self._counted and before else None
            return self._launches, left_out, counted

    def registers(self) -> dict[str, int]:
        """Return the readable control registers by name; empty without a bitstream.

        Does not wait for the current run.
        """
        registers = self._registers
        with _translate_errors("cannot reach the registers"):
            return {} if registers is None else registers.values()

    def allocate(self, nbytes: int) -> Any:
        """Return `nbytes` of contiguous cached memory as an array of uint8."""
        with _translate_errors(f"cannot allocate {nbytes} bytes"):  # may happen during a run
            if self._registers is None:
                raise DeviceError(NOT_PROGRAMMED)
            text = f"the board has no room for {nbytes} bytes"
            with raising(NoRoom, text, MemoryError, RuntimeError):  # PYNQ defines no exception
                array = self.interface.allocate((nbytes,), np.uint8, cacheable=1)
            address = int(array.physical_address)
        if address % PAGE_BYTES or not 0 < address <= DRAM_BYTES - nbytes:
            raise DeviceError(
                f"the board allocated address {address:#x}; VTA needs a multiple of {PAGE_BYTES} "
                f"below {DRAM_BYTES:#x}"
            )
        return array

    # ----------------------------------------------------------------------- details

    def _recover(self) -> None:
        """Stop a run that did not finish by programming the logic again."""
        if self._bitstream is None:
            self._registers = None
            return
        with suppress(DeviceError):  # the next call tells that there is no bitstream
            self.program(self._bitstream)

    @contextmanager
    def _turn(self, timeout: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX)):
            raise DeviceTimeout(f"the board was busy with other runs for {timeout} s")
        try:
            self._check_open()
            yield
        finally:
            self._lock.release()

    def close(self) -> None:
        """Stop the current run; any later run is an error."""
        self._closed.set()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise DeviceError("the board is shutting down")

    def _pause(self) -> None:
        """Leave the processor to others for a moment."""
        self._check_open()
        self._polls += 1
        if self._polls > _BUSY_POLLS:
            time.sleep(_POLL_SECONDS)

    def _clear_finish(self, registers: ControlRegisters) -> None:
        """Run a no-op instruction to clear the done flag, which only FINISH sets.

        Otherwise the flag of the previous run could be mistaken for that of the next.
        """
        if self._clearing is None:
            words = Encoding.of(self.config).encode_all([Load(memory=Memory.UOP)])
            image = words.view(np.uint8).reshape(-1)
            self._clearing = self.allocate(PAGE_BYTES)
            self._clearing[: image.size] = image
            self._clearing.flush()
        registers.start(int(self._clearing.physical_address), 1)
        self._polls = 0
        if not poll(registers, False, time.monotonic() + _CLEAR_SECONDS, self._pause):
            raise DeviceTimeout(
                f"the done flag of the run before did not clear within {_CLEAR_SECONDS} s"
            )


class PynqDevice(BoardDevice):
    """The VTA of this board behind the `Device` protocol.

    Several devices may share one `Accelerator`; each has its own buffers and counters.
    A launch flushes written data from the cache; a read invalidates data that a run may have
    changed. Not every design has counters, so they are computed from the completed instructions;
    the definition of the counters makes this exact.

    Parameters
    ----------
    accelerator : Accelerator
        The hardware.

    Examples
    --------
    >>> accelerator = Accelerator(HardwareConfig.load("pynq"))
    >>> accelerator.program(Path("1x16_i8w8a32_15_15_18_17.bit"))
    >>> with Session(PynqDevice(accelerator)) as session: ...
    """

    def __init__(self, accelerator: Accelerator) -> None:
        super().__init__(accelerator.config)
        self._accelerator = accelerator
        self.capabilities = accelerator.capabilities
        self._blocks = Blocks()

    # ------------------------------------------------------------------------ memory

    def alloc(self, nbytes: int) -> DeviceBuffer:
        nbytes = arguments.as_nbytes(nbytes)
        with self._lock:
            self._check_open()
            array = self._accelerator.allocate(whole_pages(nbytes))
            array[:] = 0
            self._blocks.generation = self._accelerator.generation
            return self._blocks.add(Block(int(array.physical_address), nbytes, array))

    def free(self, buffer: DeviceBuffer) -> None:
        with self._lock:
            self._check_open()
            _release(self._blocks.remove(buffer))

    def write(self, buffer: DeviceBuffer, data: Array) -> None:
        self.write_at(buffer, 0, data)

    def write_at(self, buffer: DeviceBuffer, offset: int, data: Array) -> None:
        """Copy the bytes of an array to a byte offset of a buffer.

        Raises
        ------
        DeviceError
            If the data exceed the buffer, or it does not belong to this device.
        """
        image = arguments.as_bytes(data)
        with self._lock:
            self._check_open()
            own = self._blocks.own(buffer, image.size, offset)
            if image.size < own.nbytes:
                _refresh(own)
            own.image[offset : offset + image.size] = image
            own.dirty, own.stale = True, False

    def read(self, buffer: DeviceBuffer, nbytes: int, offset: int = 0) -> Bytes:
        """Return `nbytes` from a byte offset of a buffer.

        Raises
        ------
        DeviceError
            If the bytes exceed the buffer, or it does not belong to this device.
        """
        with self._lock:
            self._check_open()
            own = self._blocks.own(buffer, nbytes, offset)
            _refresh(own)
            return np.array(own.image[offset : offset + nbytes], dtype=np.uint8)

    # --------------------------------------------------------------------------- runs

    def _launch(self, address: int, count: int, timeout: float, pinned: int, since: int) -> int:
        """Run a program; see `vtaops.runtime.Device.launch`.

        Raises
        ------
        UnsupportedError
            If the hardware lacks a feature that an instruction needs.
        DeviceError
            If the instructions are not in a buffer of this device, no bitstream is programmed, or
            the hardware reports a fault.
        DeviceTimeout
            If FINISH does not complete in time.
        """
        with self._lock:
            self._check_open()
            self._blocks.generation = self._accelerator.generation
            block, place = self._blocks.holding(address, count)
            _refresh(block)
            words = np.array(block.image[place], dtype=np.uint8).view(np.uint64).reshape(-1, 2)
            self._counted(words)
            with _translate_errors("cannot flush the cache"):
                for block in self._blocks:
                    if block.dirty:
                        block.image.flush()
                        block.dirty = False
            for block in self._blocks:
                block.stale = True
            number, left_out, performance = self._accelerator.launch(
                address, count, timeout, pinned, since, self._blocks.generation
            )
            self._statistics += self._counted(words[left_out:])
            self._performance += performance or TsimPerformance()
            return number

    def performance(self) -> TsimPerformance:
        """Return cycles by cause, counted by the logic since `reset_stats`.

        Raises
        ------
        UnsupportedError
            If the logic is upstream's HLS design, which has no cycle counters.
        """
        if self._accelerator.register_map is RegisterMap.HLS:
            raise UnsupportedError("upstream's HLS design counts no cycles; our RTL does")
        return super().performance()

    def close(self) -> None:
        """Free all buffers; any later call but `close` is an error."""
        with self._lock:
            self._closed = True
            for block in self._blocks:
                _release(self._blocks.remove(block))


def _refresh(block: Block) -> None:
    if block.stale:
        with _translate_errors("cannot invalidate the cache"):
            block.image.invalidate()
        block.stale = False


def _release(block: Block) -> None:
    """Free memory; PYNQ also frees it when the array is garbage collected."""
    with _translate_errors("cannot free a buffer"):
        block.image.freebuffer()
    block.image = None


def _translate_errors(what: str) -> AbstractContextManager[None]:
    """Convert PYNQ exceptions to `DeviceError`."""
    return raising(DeviceError, what, Exception, describe=lambda e: f"{type(e).__name__}: {e}")
