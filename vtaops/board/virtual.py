"""VirtualBoard: a Zynq board as drivers see it, backed by a simulator.

It has the part of the ``pynq`` package's interface that `vtaops.board.pynq` uses: contiguous
memory with a cache that is not coherent with DRAM (a missing flush or invalidate gives wrong data),
pages of control registers, a clock, and an FPGA manager that accepts only ``.bit`` files for its
part. An access that would hang a real board's processor (registers of missing logic) is an error.

Imports no TVM.
"""

from __future__ import annotations

import atexit
import errno
import os
import threading
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np

from vtaops.base.errors import ConfigError, DeadlockError, DeviceError, DeviceTimeout
from vtaops.base.shapes import Bytes
from vtaops.board.bitfile import BitFile, check_part, parse_bit_file
from vtaops.board.faults import Fault, Faults
from vtaops.hardware.registers import REGISTER_PAGE, HlsRegisters, RegisterMap, RtlRegisters
from vtaops.machine.capabilities import FSIM, HLS_2020, Capabilities
from vtaops.machine.config import INSTRUCTION_BYTES, HardwareConfig
from vtaops.machine.isa import Encoding, Finish, rows_of
from vtaops.runtime import open_device
from vtaops.runtime.device import performance_of

if TYPE_CHECKING:
    from vtaops.runtime.device import Device, DeviceBuffer
    from vtaops.runtime.tsim import Tsim

    _Array = np.ndarray[Any, Any]
else:
    _Array = np.ndarray  # NumPy 1.21, which board images have, does not allow a subscript here

RUN_SECONDS = 60.0
"""Maximum simulation time of one run."""

POLL_CYCLES = 1000
"""Cycles of the simulated RTL between two polls by the processor."""

SHORT_RUN_SECONDS = 0.05
"""Runs up to this duration end before the register write that starts them returns."""

LATE_POLLS = 5
"""Reads of the done flag that return the old value if a late flag is injected."""

_GARBAGE = 0xA5  # new memory is not zero


class VirtualBoard:
    """A board without hardware.

    Parameters
    ----------
    config : HardwareConfig
        Configuration of its bitstreams; its target determines addresses and part.
    register_map : RegisterMap
        Register map of its bitstreams.
    faults : Faults, optional
        Faults to inject.
    simulator : "fsim", "tsim" or "tsim-axi"
        The functional simulator; our RTL, cycle by cycle; or our RTL behind its AXI shell, in
        which case the driver accesses the RTL's own registers and no faults can be injected.

    Raises
    ------
    ConfigError
        If "tsim-axi" is combined with the register map of upstream's cores.
    """

    def __init__(
        self,
        config: HardwareConfig,
        register_map: RegisterMap = RegisterMap.HLS,
        faults: Faults | None = None,
        simulator: str = "fsim",
    ) -> None:
        self.config = config
        self.faults = faults if faults is not None else Faults()
        self.Clocks = SimpleNamespace(fclk0_mhz=0.0)
        hls = register_map is RegisterMap.HLS
        self.dram = _simulator(simulator, config, HLS_2020 if hls else FSIM)
        self.programmed: BitFile | None = None
        self.last_error = ""
        """Why the last run did not finish, as the simulator says."""
        self._logic: _Logic = _HlsLogic(self) if hls else _RtlLogic(self)
        if simulator == "tsim-axi":
            if hls:
                raise ConfigError("simulator 'tsim-axi' is our RTL; use register map 'rtl'")
            self._logic = _AxiLogic(self)
        self._blocks: dict[int, DeviceBuffer] = {}
        self._run: _Run | None = None
        self.looking = threading.RLock()
        """Held by the thread that records the end of a run."""

    # ------------------------------------------------------------- interface of pynq

    def allocate(self, shape: Any, dtype: Any = "u4", *, cacheable: int = 0) -> VirtualBuffer:
        """Return contiguous cached memory, like ``pynq.allocate``, which also needs a bitstream."""
        if self.programmed is None:
            raise RuntimeError("Overlay is not downloaded")
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        block = self.dram.alloc(nbytes)
        self._blocks[block.address] = block
        garbage = np.full(nbytes, _GARBAGE, np.uint8)
        buffer: VirtualBuffer = garbage.view(dtype).reshape(shape).view(VirtualBuffer)
        buffer.attach(self, block)
        buffer.flush()
        return buffer

    def MMIO(self, base_addr: int, length: int = 4) -> VirtualMmio:  # noqa: N802 (PYNQ's name)
        """Map registers, like ``pynq.MMIO``."""
        return VirtualMmio(self, base_addr, length)

    def Bitstream(self, bitfile_name: str) -> Any:  # noqa: N802 (PYNQ's name)
        """Return a bitstream to download, like ``pynq.Bitstream``."""
        path = Path(bitfile_name)
        return SimpleNamespace(download=lambda: self.program(path.read_bytes()))

    # --------------------------------------------------------------------- the logic

    def program(self, content: bytes) -> None:
        """Take the bytes of a ``.bit`` file like the FPGA manager, and reset the logic."""
        self._restart()
        bit_file = parse_bit_file(content)
        check_part(bit_file, self.config.board.device)
        self.programmed = bit_file

    def _restart(self) -> None:
        self.programmed = None
        if self._run is not None:
            self._run.abandon(self.dram)
            self._run = None
        self._logic.reset()
        if self.faults.take(Fault.REFUSE_PROGRAMMING):
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    def register(self, address: int) -> tuple[_Logic, int]:
        """Return the logic at a physical address, and the offset within it."""
        offset = address - self.config.board.register_base
        if self.programmed is None or not 0 <= offset < self._logic.length:
            raise RuntimeError(f"bus error: nothing answers at address {address:#x}")
        return self._logic, offset

    def start(self, address: int, count: int) -> None:
        """Start executing instructions in DRAM asynchronously; see `outcome`."""
        self._run = _Run(self, address, count)
        self._run.wait(SHORT_RUN_SECONDS)

    def outcome(self) -> Outcome | None:
        """Return the outcome of the started run, once; None while it runs."""
        if self._run is None or self._run.outcome is None:
            return None
        outcome, self._run = self._run.outcome, None
        return outcome

    def execute(self, address: int, count: int) -> Outcome:
        """Run instructions in DRAM to completion."""
        if self.faults.take(Fault.HANG):
            self.last_error = "a hang was injected"
            return Outcome.HANG
        try:
            return self._execute(address, count)
        except DeviceError as error:
            self.last_error = str(error)
            return _OUTCOMES.get(type(error), Outcome.FAULT)

    def release(self, block: DeviceBuffer) -> None:
        """Free DRAM."""
        del self._blocks[block.address]
        self.dram.free(block)

    def _execute(self, address: int, count: int) -> Outcome:
        words = self._peek(address, count * INSTRUCTION_BYTES).view(np.uint64).reshape(-1, 2)
        if rows_of(words[-1:], Finish).size:
            self.dram.launch(address, count, RUN_SECONDS)
            return Outcome.FINISHED
        finish = Encoding.of(self.config).encode_all([Finish()])
        ended = np.concatenate([words, finish])  # the simulator requires FINISH
        block = self.dram.alloc(ended.nbytes)
        try:
            self.dram.write(block, ended)
            self.dram.launch(block.address, len(ended), RUN_SECONDS)
        finally:
            self.dram.free(block)
        return Outcome.IDLE

    def _peek(self, address: int, nbytes: int) -> Bytes:
        for start, block in list(self._blocks.items()):
            if start <= address and address + nbytes <= start + block.nbytes and nbytes:
                return self.dram.read(block, block.nbytes)[address - start :][:nbytes]
        raise DeviceError(f"{nbytes} bytes of instructions at {address:#x} are not in one buffer")


def _simulator(name: str, config: HardwareConfig, capabilities: Capabilities) -> Device:
    if name == "fsim":
        try:
            from vtaops.runtime.fsim import Fsim
        except ImportError as error:
            raise DeviceError(
                f"a virtual board needs the simulator, which is native code and not in the wheel "
                f"for boards ({error}); install vtaops as on a computer, not as on a board"
            ) from error
        return Fsim(config, capabilities=capabilities)
    return open_device(name, config)


@runtime_checkable
class Interruptible(Protocol):
    """A simulator whose launch another thread can stop."""

    def interrupt(self) -> None:
        """Stop the current launch."""


class Outcome(Enum):
    """How a run of the logic ended."""

    FINISHED = "FINISH executed"
    IDLE = "all executed, without FINISH"
    DEADLOCK = "the units wait for each other"
    FAULT = "an instruction is invalid"
    HANG = "nothing is known"


_OUTCOMES = {DeadlockError: Outcome.DEADLOCK, DeviceTimeout: Outcome.HANG}
"""Outcome for each error of the simulator; other errors are faults."""


class _Run:
    """One run of the simulator, in its own thread."""

    def __init__(self, board: VirtualBoard, address: int, count: int) -> None:
        self.outcome: Outcome | None = None
        self._board = board
        self._thread = threading.Thread(target=self._work, args=(address, count), daemon=True)
        atexit.register(self.abandon, board.dram)  # native code must end before the interpreter
        self._thread.start()

    def _work(self, address: int, count: int) -> None:
        self.outcome = self._board.execute(address, count)
        atexit.unregister(self.abandon)

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for the end of the run."""
        self._thread.join(seconds)

    def abandon(self, simulator: Device) -> None:
        """End the run as soon as the simulator can be stopped."""
        while self._thread.is_alive():
            if isinstance(simulator, Interruptible):
                simulator.interrupt()
            self._thread.join(0.01)


class VirtualMmio:
    """A mapped range of registers; every access is a 32-bit transfer."""

    def __init__(self, board: VirtualBoard, base: int, length: int) -> None:
        self._board, self._base, self._length = board, base, length

    def read(self, offset: int = 0) -> int:
        """Return a register."""
        logic, at = self._locate(offset)
        return logic.read(at)

    def write(self, offset: int, data: int) -> None:
        """Set a register."""
        if not 0 <= data < 1 << 32:
            raise OverflowError(f"{data} does not fit a 32-bit register")
        logic, at = self._locate(offset)
        logic.write(at, data)

    def _locate(self, offset: int) -> tuple[_Logic, int]:
        if offset % 4:
            raise MemoryError("Unaligned access: offset must be multiple of 4.")
        if not 0 <= offset < self._length:
            raise IndexError(f"offset {offset:#x} is outside the mapped {self._length:#x} bytes")
        return self._board.register(self._base + offset)


class VirtualBuffer(_Array):
    """Cached view of a block of DRAM; `flush` and `invalidate` copy between the two."""

    block: DeviceBuffer | None = None
    _board: VirtualBoard | None = None

    def attach(self, board: VirtualBoard, block: DeviceBuffer) -> None:
        """Make this the cached view of `block`."""
        self._board, self.block = board, block

    @property
    def physical_address(self) -> int:
        """Address of the first byte as seen by the logic."""
        return self._attached()[1].address

    def flush(self) -> None:
        """Copy the cache to DRAM."""
        board, block = self._attached()
        board.dram.write(block, self._bytes())

    def invalidate(self) -> None:
        """Copy DRAM to the cache."""
        board, block = self._attached()
        self._bytes()[:] = board.dram.read(block, self.nbytes)

    def freebuffer(self) -> None:
        """Free the block."""
        if self.block is not None and self._board is not None:
            self._board.release(self.block)
            self.block = None

    def _bytes(self) -> Bytes:
        return self.view(np.ndarray).reshape(-1).view(np.uint8)

    def _attached(self) -> tuple[VirtualBoard, DeviceBuffer]:
        if self._board is None or self.block is None:
            raise RuntimeError("this array is not an allocated buffer: freed, or a slice of one")
        return self._board, self.block


# ------------------------------------------------------------------------ registers


class _Logic:
    """The registers of a design, which start runs."""

    length = REGISTER_PAGE

    def __init__(self, board: VirtualBoard) -> None:
        self.board = board
        self.values: dict[int, int] = {}
        self.finished = False
        self.running = False

    def settle(self) -> None:
        """Record the end of a run."""
        with self.board.looking:
            outcome = self.board.outcome()
            if outcome is not None:
                self.ended(outcome)
                self.running = False

    def ended(self, outcome: Outcome) -> None:
        """Show the outcome of a run in the registers."""

    def reset(self) -> None:
        """Reset the state after the logic was programmed."""
        self.__init__(self.board)  # type: ignore[misc]

    def read(self, offset: int) -> int:
        """Return a register."""
        return self.values.get(offset, 0)

    def write(self, offset: int, data: int) -> None:
        """Set a register."""
        self.values[offset] = data


class _HlsLogic(_Logic):
    """Upstream's four cores; see `HlsRegisters`."""

    length = 4 * REGISTER_PAGE
    _LOAD, _COMPUTE, _STORE = REGISTER_PAGE, 2 * REGISTER_PAGE, 3 * REGISTER_PAGE
    _ORIGINS = tuple(page * REGISTER_PAGE + origin for page, origin in HlsRegisters.ORIGINS)

    def __init__(self, board: VirtualBoard) -> None:
        super().__init__(board)
        self._fetching = False
        self._stuck = False
        self._before = False  # whether the previous run had finished
        self._old: list[bool] = []  # values that the next reads of the done flag return

    def read(self, offset: int) -> int:
        self.settle()
        if offset == self._COMPUTE + HlsRegisters.COMPUTE_DONE:
            return int(self._old.pop() if self._old else self.finished)
        if offset == HlsRegisters.CONTROL:
            return HlsRegisters.START if self._stuck or self.running else HlsRegisters.IDLE
        return super().read(offset)

    def write(self, offset: int, data: int) -> None:
        super().write(offset, data)
        if offset == HlsRegisters.CONTROL and data & HlsRegisters.START:
            self._fetching = True
        running = all(
            self.values.get(core + HlsRegisters.CONTROL, 0) & HlsRegisters.AUTO_RESTART
            for core in (self._LOAD, self._COMPUTE, self._STORE)
        )
        if self._fetching and running:
            self._fetching = False
            self._run()

    def _run(self) -> None:
        self.settle()
        if self._stuck or self.running:
            return
        self._before = self.finished
        self.finished = False  # the first compute instruction clears the flag
        if any(self.values.get(origin) != 0 for origin in self._ORIGINS):
            self.board.last_error = "a DRAM base is not 0"
            self._stuck = True
            return
        address, count = (
            self.values[HlsRegisters.FETCH_ADDRESS],
            self.values[HlsRegisters.FETCH_COUNT],
        )
        self.running = True
        self.board.start(address, count)
        self.settle()

    def ended(self, outcome: Outcome) -> None:
        self.finished = outcome is Outcome.FINISHED
        self._stuck = outcome not in (Outcome.FINISHED, Outcome.IDLE)
        if self.board.faults.take(Fault.LATE_DONE):
            self._old = [self._before] * LATE_POLLS


class _RtlLogic(_Logic):
    """The control block of our RTL; see `RtlRegisters`."""

    def __init__(self, board: VirtualBoard) -> None:
        super().__init__(board)
        self._outcome = Outcome.IDLE
        self._late = 0
        self._counted_before = performance_of(board.dram)  # counted with earlier bitstreams

    def read(self, offset: int) -> int:
        self.settle()
        if offset == RtlRegisters.CONTROL:
            if self._late:
                self._late -= 1
                return 0
            quiet = not self.running and self._outcome is not Outcome.HANG
            running = RtlRegisters.RUNNING * self.running
            return running | RtlRegisters.FINISHED * self.finished | RtlRegisters.QUIET * quiet
        if offset == RtlRegisters.FAULTS:
            return int(self._outcome is Outcome.FAULT)
        if offset == RtlRegisters.TOKENS:
            return 0b10 if self._outcome is Outcome.DEADLOCK else 0
        return super().read(offset)

    def write(self, offset: int, data: int) -> None:
        super().write(offset, data)
        self.settle()
        if offset == RtlRegisters.CONTROL and data & RtlRegisters.LAUNCH and not self.running:
            if any(self.values.get(origin) != 0 for origin in RtlRegisters.ORIGINS):
                self._outcome = Outcome.HANG
                return
            address, count = (
                self.values.get(o, 0) for o in (RtlRegisters.ADDRESS, RtlRegisters.COUNT)
            )
            self._outcome, self.finished, self.running = Outcome.IDLE, False, True
            self.board.start(address, count)
            self.settle()

    def ended(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self.finished = outcome is Outcome.FINISHED
        self._count()
        if self.board.faults.take(Fault.LATE_DONE):
            self._late = LATE_POLLS

    def _count(self) -> None:
        """Set the performance counters if the simulator has any."""
        counted = performance_of(self.board.dram)
        if counted is None:
            return
        before = self._counted_before
        values = (counted - before if before else counted).as_dict()
        for name, (low, high) in RtlRegisters.counters().items():
            self.values[low], self.values[high] = values[name] & 0xFFFFFFFF, values[name] >> 32


class _AxiLogic(_Logic):
    """The registers of the simulated RTL itself, over AXI4-Lite."""

    def __init__(self, board: VirtualBoard) -> None:
        super().__init__(board)
        self._device = cast("Tsim", board.dram)
        self._device.reset_logic()

    def read(self, offset: int) -> int:
        if offset == RtlRegisters.CONTROL:
            self._device.advance(POLL_CYCLES)
        return self._device.read_register(offset)

    def write(self, offset: int, data: int) -> None:
        self._device.write_register(offset, data)
