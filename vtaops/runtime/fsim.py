"""Fsim: the functional simulator behind the `Device` protocol.

The simulator is written in C++ (``sim/fsim``, the module ``vtaops._fsim``). This file passes it the
geometry and bit positions of a configuration, and words its errors; it computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import vtaops._fsim as _fsim
from vtaops.base.errors import DeadlockError, DeviceError, DeviceTimeout, EncodingError, NoRoom
from vtaops.base.forks import ForkLock
from vtaops.base.shapes import Array, Bytes
from vtaops.machine.capabilities import FSIM, Capabilities, Feature, find
from vtaops.machine.config import (
    INSTRUCTION_BYTES,
    POST_ROWS,
    TABLES,
    WINDOW_TILES,
    Extension,
    HardwareConfig,
)
from vtaops.machine.isa import OPCODE_BITS, WORD_BITS, Encoding, MicroOp
from vtaops.machine.text import disassemble
from vtaops.program.statistics import Statistics
from vtaops.runtime.arguments import as_bytes, as_integer, as_nbytes
from vtaops.runtime.device import ConfiguredDevice, DeviceBuffer

_ERRORS = {
    "device": DeviceError,
    "deadlock": DeadlockError,
    "timeout": DeviceTimeout,
    "no room": NoRoom,
}


def available_kernels() -> list[str]:
    """Return the names of the kernels that this CPU can run, fastest first."""
    return list(_fsim.available_kernels())


class Fsim(ConfiguredDevice):
    """Simulate VTA bit for bit, checking every access and reporting deadlocks at once.

    Shifts use the full 32-bit operand: a right shift by 31 or more gives the sign, a negative
    amount shifts left, and a left shift by 32 or more gives 0. Additions and products wrap as in
    int32. An instruction stream is copied when it is launched. It must end with FINISH, which must
    be the last instruction to complete, and must leave no token behind.

    A device may be used from several threads: calls are serialized, and the GIL is released while
    one runs. Use it as a context manager, or call `close`.

    Parameters
    ----------
    config : HardwareConfig, str or Path
        The configuration, its name, or the path of its JSON file.
    seed : int, optional
        Without a seed, units run in a fixed order that depends only on the tokens: the compute unit
        first, load and store only when the compute unit or the end of the program needs them.
        Scratchpads start with zeros and keep their contents between launches.
        With a seed (0..2**64-1), each step runs a random unit among those that can continue, at a
        random pace, and each launch starts with random scratchpads. A program that misses a token
        or reads undefined data then gives different results for different seeds.
    check_overflow : bool
        Fail if a GEMM accumulation, or an ADD or MUL of the ALU, overflows int32. Slow.
    kernel : str
        Inner loops: ``"auto"`` for the fastest, or one of `available_kernels`.
    capabilities : Capabilities or str
        Implementation to imitate, or its name. Using a capability that it lacks is an error; if
        it has a separate output memory, STORE reads that instead of the accumulators. The default
        lacks nothing, like upstream's simulator.

    Raises
    ------
    ConfigError
        If the configuration does not exist.
    DeviceError
        If the CPU cannot run the kernels, or the seed is out of range.
    """

    def __init__(
        self,
        config: HardwareConfig | str | Path = "pynq",
        *,
        seed: int | None = None,
        check_overflow: bool = False,
        kernel: str = "auto",
        capabilities: Capabilities | str = FSIM,
    ) -> None:
        super().__init__(config)
        if seed is not None:
            seed = as_integer("seed", seed, 0, (1 << 64) - 1)
        if check_overflow and kernel != "auto":
            raise DeviceError(
                f"kernels {kernel!r} cannot detect overflow; leave kernel='auto' with "
                f"check_overflow=True"
            )
        self._seed = seed
        self._launches = 0
        self._turn = ForkLock()
        self.capabilities = find(capabilities)
        self._encoding = Encoding.of(self._config)
        with _translate_errors(self._encoding):
            self._native = _fsim.Device(
                sizes=sizes_of(self._config),
                slots=slots_of(self._encoding),
                seed=seed,
                check_overflow=check_overflow,
                kernel=kernel,
                limits=limits_of(self.capabilities),
            )

    @property
    def kernel(self) -> str:
        """Name of the inner loops in use; ``"checked"`` if they detect overflow."""
        name: str = self._native.kernel
        return name

    def alloc(self, nbytes: int) -> DeviceBuffer:
        """Allocate `nbytes` of zeroed DRAM; accesses beyond the last byte are errors.

        The first buffer of a device is at address 4096. At least one page after each buffer stays
        unused, and addresses are reused as late as possible.

        Raises
        ------
        NoRoom
            If there is not enough memory.
        DeviceError
            If the size is not positive.
        """
        buffer: DeviceBuffer = self._call(self._native.alloc, as_nbytes(nbytes))
        return buffer

    def free(self, buffer: DeviceBuffer) -> None:
        """Release a buffer.

        Raises
        ------
        DeviceError
            If the buffer is not allocated on this device.
        """
        self._call(self._native.free, _own(buffer))

    def write(self, buffer: DeviceBuffer, data: Array) -> None:
        """Copy the bytes of an array, in C order, to the start of a buffer.

        Raises
        ------
        DeviceError
            If the data exceed the buffer, or it is not allocated on this device.
        """
        self._call(self._native.write, _own(buffer), as_bytes(data))

    def read(self, buffer: DeviceBuffer, nbytes: int) -> Bytes:
        """Return the first `nbytes` of a buffer.

        Raises
        ------
        DeviceError
            If `nbytes` exceeds the buffer, or it is not allocated on this device.
        """
        own = _own(buffer)
        nbytes = as_integer("the number of bytes to read", nbytes, 0, own.nbytes)
        image: Bytes = self._call(self._native.read, own, nbytes)
        return image

    def _launch(self, address: int, count: int, timeout: float, pinned: int, since: int) -> int:
        """Run a program; see `vtaops.runtime.Device.launch`.

        Raises
        ------
        DeadlockError
            If no unit can continue; the message lists the tokens and what each unit waits for.
        DeviceTimeout
            If the launch takes longer than `timeout` seconds.
        DeviceError
            If an instruction is invalid or accesses memory out of bounds (the message names it), if
            FINISH is missing or does not complete last, or if tokens remain at the end.
        """
        with self._turn:  # with a seed every launch begins with random scratchpads
            left_out = pinned if since == self._launches and self._seed is None else 0
            self._launches += 1
            self._call(
                self._native.launch,
                address + left_out * INSTRUCTION_BYTES,
                count - left_out,
                timeout,
            )
            return self._launches

    def interrupt(self) -> None:
        """Stop a launch in another thread, which then raises a `DeviceError`."""
        self._native.interrupt()

    def stats(self) -> Statistics:
        """Return the counters of all instructions executed since the last `reset_stats`."""
        return Statistics(**self._call(self._native.stats))

    def reset_stats(self) -> None:
        self._call(self._native.reset_stats)

    def close(self) -> None:
        """Free the DRAM after the current launch; any later call but `close` is an error."""
        self._native.close()

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        with _translate_errors(self._encoding):
            return method(*arguments)

    def __repr__(self) -> str:
        return f"Fsim({self._config.name!r}, seed={self._seed}, kernel={self.kernel!r})"


def _own(buffer: DeviceBuffer) -> Any:
    if not isinstance(buffer, _fsim.Buffer):
        raise DeviceError(
            f"{buffer!r} does not belong to a functional simulator; use one that `alloc` returned"
        )
    return buffer


def sizes_of(config: HardwareConfig) -> dict[str, int]:
    """Return the geometry of a configuration, with the names used in ``sim/fsim/geometry.hpp``."""
    return {
        "batch": config.batch,
        "block": config.block_in,
        "uop_depth": config.uop.depth,
        "inp_depth": config.inp.depth,
        "wgt_depth": config.wgt.depth,
        "acc_depth": config.acc.depth,
        "post_rows": POST_ROWS if config.has(Extension.POST) else 0,
        "tables": TABLES if config.has(Extension.TABLE) else 0,
        "window_tiles": WINDOW_TILES if config.has(Extension.DEPTHWISE) else 0,
        "window_channels": config.window_channels,
        "pools": int(config.has(Extension.POOL)),
        "pairs": int(config.has(Extension.PAIRS)),
    }


def limits_of(capabilities: Capabilities) -> dict[str, int]:
    """Return an implementation's limits, with the names used in ``sim/fsim/limits.hpp``."""
    flags = {feature.value: capabilities.has(feature) for feature in Feature}
    del flags["far_shift"]  # only compilers use it
    return {
        **flags,
        "micro_ops": capabilities.micro_ops,
        "token_capacity": capabilities.token_capacity,
        "separate_out": capabilities.separate_out,
    }


def slots_of(encoding: Encoding) -> dict[str, dict[str, tuple[int, int, bool]]]:
    """Return the offset, width and signedness of each field, by instruction and field name."""
    table = {
        cls.__name__: {slot.name: (slot.offset, slot.width, slot.signed) for slot in slots}
        for cls, slots in encoding.slots.items()
    }
    for name, slots in table.items():
        if name != MicroOp.__name__:
            slots["opcode"] = (0, OPCODE_BITS, False)
    return table


@contextmanager
def _translate_errors(encoding: Encoding) -> Iterator[None]:
    """Convert simulator faults to vtaops errors that name the failing instruction."""
    try:
        yield
    except _fsim.Fault as fault:
        kind, text, references = fault.args
        names = [
            f"instruction {index} ({_instruction_text(encoding, low | high << WORD_BITS)})"
            for index, low, high in references
        ]
        raise _ERRORS[kind](text.format(*names) if names else text) from None


def _instruction_text(encoding: Encoding, word: int) -> str:
    try:
        return " ".join(disassemble(encoding.decode(word)).split())
    except EncodingError:
        return f"word {word:032x}"
