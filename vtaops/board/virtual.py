"""VirtualBoard: a Zynq board as drivers see it, backed by a simulator.

It has the part of the ``pynq`` package's interface that `vtaops.board.pynq` uses: contiguous
memory with a cache that is not coherent with DRAM (a missing flush or invalidate gives wrong data),
pages of control registers, a clock, and an FPGA manager that accepts only ``.bit`` files for its
part. An access that would hang a real board's processor (registers of missing logic) is an error.

Imports no TVM.
"""

from __future__ import annotations

import atexit
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from vtaops.base.errors import ConfigError, DeadlockError, DeviceError, DeviceTimeout, raising
from vtaops.base.shapes import Bytes
from vtaops.board.bitfile import BitFile, check_part, parse_bit_file
from vtaops.board.linux import BoardMemory
from vtaops.hardware.registers import REGISTER_PAGE, HlsRegisters, RegisterMap, RtlRegisters
from vtaops.machine.capabilities import FSIM, HLS_2020
from vtaops.machine.config import INSTRUCTION_BYTES, HardwareConfig
from vtaops.machine.isa import Finish, rows_of
from vtaops.runtime.device import DeviceBuffer

if TYPE_CHECKING:
    from vtaops.runtime.fsim import Fsim

RUN_SECONDS = 60.0
"""Maximum simulation time of one run."""

POLL_CYCLES = 1000
"""Cycles of the simulated RTL between two polls by the processor."""

SHORT_RUN_SECONDS = 0.05
"""Runs up to this duration end before the register write that starts them returns."""

_GARBAGE = 0xA5  # new memory is not zero


class VirtualBoard:
    """A board without hardware.

    Parameters
    ----------
    config : HardwareConfig
        Configuration of its bitstreams; its target determines addresses and part.
    register_map : RegisterMap
        Register map of its bitstreams.
    simulator : "fsim" or "tsim"
        The functional simulator; or our RTL in its AXI shell, cycle by cycle, whose own registers
        the driver accesses.

    Raises
    ------
    ConfigError
        If "tsim" is combined with the register map of upstream's cores.
    """

    def __init__(
        self,
        config: HardwareConfig,
        register_map: RegisterMap = RegisterMap.HLS,
        simulator: str = "fsim",
    ) -> None:
        self.config = config
        self.Clocks = SimpleNamespace(fclk0_mhz=0.0)
        hls = register_map is RegisterMap.HLS
        self.dram: Any  # an Fsim, or a Tsim
        self._logic: Any
        if simulator == "fsim":
            self.dram = _fsim(config, hls)
            self._logic = (_HlsLogic if hls else _RtlLogic)(self)
        elif hls:
            raise ConfigError("simulator 'tsim' is our RTL; use register map 'rtl'")
        else:
            from vtaops.runtime.tsim import Tsim

            self.dram = Tsim(config, interface="axi")
            self._logic = _SimulatedLogic(self)
        self.programmed: BitFile | None = None
        self.blocks: dict[int, DeviceBuffer] = {}

    # ------------------------------------------------------------- interface of pynq

    def allocate(self, shape: Any, dtype: Any = "u4", *, cacheable: int = 0) -> Any:
        """Return contiguous cached memory, like ``pynq.allocate``, which also needs a bitstream."""
        if self.programmed is None:
            raise RuntimeError("Overlay is not downloaded")
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        block = self.dram.alloc(nbytes)
        self.blocks[block.address] = block
        garbage = np.full(nbytes, _GARBAGE, np.uint8).view(dtype)
        buffer = VirtualBuffer.of(garbage, shape, self, block, block.address)
        buffer.flush()
        return buffer

    def release(self, block: DeviceBuffer) -> None:
        """Free the block of an array."""
        del self.blocks[block.address]
        self.dram.free(block)

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
        self.programmed = None
        self._logic.reset()
        bit_file = parse_bit_file(content)
        check_part(bit_file, self.config.board.device)
        self.programmed = bit_file

    def register(self, address: int) -> tuple[Any, int]:
        """Return the logic at a physical address, and the offset within it."""
        offset = address - self.config.board.register_base
        if self.programmed is None or not 0 <= offset < self._logic.length:
            raise RuntimeError(f"bus error: nothing answers at address {address:#x}")
        return self._logic, offset


def _fsim(config: HardwareConfig, hls: bool) -> Fsim:
    text = (
        "a virtual board needs the simulator, which is native code and not in the wheel for "
        "boards; install vtaops as on a computer, not as on a board"
    )
    with raising(DeviceError, text, ImportError):
        from vtaops.runtime.fsim import Fsim
    return Fsim(config, capabilities=HLS_2020 if hls else FSIM)


class VirtualMmio:
    """A mapped range of registers; every access is a 32-bit transfer."""

    def __init__(self, board: VirtualBoard, base: int, length: int) -> None:
        self._board, self._base, self._length = board, base, length

    def read(self, offset: int = 0) -> int:
        """Return a register."""
        logic, at = self._locate(offset)
        return int(logic.read(at))

    def write(self, offset: int, data: int) -> None:
        """Set a register."""
        if not 0 <= data < 1 << 32:
            raise OverflowError(f"{data} does not fit a 32-bit register")
        logic, at = self._locate(offset)
        logic.write(at, data)

    def _locate(self, offset: int) -> tuple[Any, int]:
        if offset % 4 or not 0 <= offset < self._length:
            raise IndexError(f"no register at {offset:#x} of the mapped {self._length:#x} bytes")
        return self._board.register(self._base + offset)


class VirtualBuffer(BoardMemory):
    """Cached view of a block of DRAM; `flush` and `invalidate` copy between the two."""

    def flush(self) -> None:
        """Copy the cache to DRAM."""
        self.board.dram.write(self.block, self._bytes())

    def invalidate(self) -> None:
        """Copy DRAM to the cache."""
        self._bytes()[:] = self.board.dram.read(self.block, self.nbytes)

    def _bytes(self) -> Bytes:
        return self.view(np.ndarray).reshape(-1).view(np.uint8)


# ------------------------------------------------------------------------ registers


class _SimulatedLogic:
    """The registers of the simulated RTL itself, over AXI4-Lite."""

    length = REGISTER_PAGE

    def __init__(self, board: VirtualBoard) -> None:
        self._board = board

    def reset(self) -> None:
        self._board.dram.reset_logic()

    def read(self, offset: int) -> int:
        if offset == RtlRegisters.CONTROL:
            self._board.dram.advance(POLL_CYCLES)
        return int(self._board.dram.read_register(offset))

    def write(self, offset: int, data: int) -> None:
        self._board.dram.write_register(offset, data)


class _Run(threading.Thread):
    """A run of the functional simulator."""

    finished = False
    error: DeviceError | None = None

    def __init__(self, board: VirtualBoard, address: int = 0, count: int = 0) -> None:
        super().__init__(daemon=True)
        self._board, self._task = board, (address, count)

    def begin(self) -> None:
        """Start it, and wait for the end of a short one."""
        atexit.register(self.end)  # native code must end before the interpreter
        self.start()
        self.join(SHORT_RUN_SECONDS)

    def run(self) -> None:
        try:
            if self._has_finish(*self._task):
                self._board.dram.launch(*self._task, RUN_SECONDS)
                self.finished = True
        except DeviceError as error:
            self.error = error
        finally:
            atexit.unregister(self.end)

    def _has_finish(self, address: int, count: int) -> bool:
        """Whether a program ends with FINISH; that of the driver which does not does nothing."""
        last = address + (count - 1) * INSTRUCTION_BYTES
        for start, block in [*self._board.blocks.items()]:
            if start <= last <= start + block.nbytes - INSTRUCTION_BYTES:
                words = self._board.dram.read(block, block.nbytes)[last - start :]
                word = words[:INSTRUCTION_BYTES].view(np.uint64).reshape(1, 2)
                return bool(rows_of(word, Finish).size)
        raise DeviceError(f"no memory holds the instruction at {last:#x}")

    def end(self) -> None:
        """Stop it."""
        while self.is_alive():
            self._board.dram.interrupt()
            self.join(0.01)


class _ModelledLogic:
    """Registers that start runs of the functional simulator."""

    length = REGISTER_PAGE

    def __init__(self, board: VirtualBoard) -> None:
        self._board, self._run = board, _Run(board)
        self._values: dict[int, int] = {}

    def reset(self) -> None:
        self._run.end()
        self._values, self._run = {}, _Run(self._board)

    def read(self, offset: int) -> int:
        return self._values.get(offset, 0)

    def write(self, offset: int, data: int) -> None:
        self._values[offset] = data

    @property
    def _running(self) -> bool:
        return self._run.is_alive()

    @property
    def _finished(self) -> bool:
        return not self._running and self._run.finished

    def _launch(self, address: int, count: int) -> None:
        self._run = _Run(self._board, self._values[address], self._values[count])
        self._run.begin()


class _HlsLogic(_ModelledLogic):
    """Upstream's four cores; see `HlsRegisters`."""

    length = 4 * REGISTER_PAGE

    def read(self, offset: int) -> int:
        if offset == 2 * REGISTER_PAGE + HlsRegisters.COMPUTE_DONE:
            return int(self._finished)
        if offset == HlsRegisters.CONTROL:
            busy = self._running or self._run.error is not None
            return HlsRegisters.START if busy else HlsRegisters.IDLE
        return super().read(offset)

    def write(self, offset: int, data: int) -> None:
        super().write(offset, data)
        fetch, *others = (
            self._values.get(core * REGISTER_PAGE + HlsRegisters.CONTROL, 0) for core in range(4)
        )
        if fetch & HlsRegisters.START and all(x & HlsRegisters.AUTO_RESTART for x in others):
            self._values[HlsRegisters.CONTROL] = 0
            if not self._running and self._run.error is None:
                self._launch(HlsRegisters.FETCH_ADDRESS, HlsRegisters.FETCH_COUNT)


class _RtlLogic(_ModelledLogic):
    """The control block of our RTL; see `RtlRegisters`."""

    def read(self, offset: int) -> int:
        error, running = self._run.error, self._running
        hang, deadlock = isinstance(error, DeviceTimeout), isinstance(error, DeadlockError)
        if offset == RtlRegisters.CONTROL:
            state = RtlRegisters.RUNNING * running | RtlRegisters.FINISHED * self._finished
            return state | RtlRegisters.QUIET * (not (running or hang))
        special = {
            RtlRegisters.FAULTS: int(error is not None and not deadlock and not hang),
            RtlRegisters.TOKENS: 0b10 * deadlock,
        }
        return special.get(offset, super().read(offset))

    def write(self, offset: int, data: int) -> None:
        super().write(offset, data)
        if offset == RtlRegisters.CONTROL and data & RtlRegisters.LAUNCH and not self._running:
            self._launch(RtlRegisters.ADDRESS, RtlRegisters.COUNT)
