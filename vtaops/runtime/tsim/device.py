"""Tsim: the cycle-accurate simulation of our RTL behind the `Device` protocol."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import numpy as np

from vtaops.base import errors
from vtaops.base.forks import ForkLock
from vtaops.base.progress import report_progress
from vtaops.base.shapes import Array, Bytes
from vtaops.hardware.build import build_model
from vtaops.hardware.performance import TsimPerformance
from vtaops.hardware.registers import RtlRegisters, names_of
from vtaops.hardware.rtl import FAULTS, RtlParameters
from vtaops.machine.capabilities import FULL
from vtaops.machine.config import DRAM_BYTES, INSTRUCTION_BYTES, HardwareConfig
from vtaops.program.statistics import Statistics
from vtaops.runtime import arguments
from vtaops.runtime.device import ConfiguredDevice, DeviceBuffer
from vtaops.runtime.pages import PageAllocator, whole_pages
from vtaops.runtime.tsim.model import NO_LIMIT, Result, RtlModel

DEFAULT_LATENCY = 32
"""Cycles from a read request to its first word: about the latency of a Zynq-7000's DRAM controller
for programmable logic at 100 MHz (assumed, not measured)."""

INTERFACES = ("port", "axi")

_CHUNK_CYCLES = 100_000  # between two checks of the clock
_CLIENTS = ("instruction fetch", "load unit", "compute unit", "store unit", "reading side")
_QUEUES = ("load to compute", "compute to load", "compute to store", "store to compute")


class Tsim(ConfiguredDevice):
    """Our RTL of VTA, simulated cycle by cycle.

    The model of a configuration is built on first use, which takes some seconds, and is cached.

    Scratchpads start with zeros and keep their contents between launches. Micro-op indices wrap at
    the depth of a scratchpad, as in hardware; loads and stores beyond it are reported. As on
    `Fsim`, FINISH must be the last instruction to complete, and no token may remain.

    A device may be used from several threads: calls are serialized, and the GIL is released while
    one runs. Use it as a context manager, or call `close`.

    Parameters
    ----------
    config : HardwareConfig, str or Path
        The configuration, its name, or the path of its JSON file.
    latency : int
        DRAM latency in cycles, at least 2.
    bandwidth : float, optional
        DRAM bandwidth in bytes per cycle, both directions together. The default is the bandwidth
        of the port.
    jitter_seed : int, optional
        Seed of irregular DRAM timing and token delays: cycle counts change, results must not.
    trace : str or Path, optional
        Waveform file to write, ``.vcd``; builds a second model.
    parameters : RtlParameters, optional
        All parameters of the RTL; by default its port is as wide as the configuration's.
    interface : {"port", "axi"}
        Connection from the RTL to the DRAM: direct, or through the AXI shell of ``sim/tsim/axi``
        to an AXI4 memory and AXI4-Lite registers, with the protocol checked in every cycle.

    Raises
    ------
    ConfigError
        If the configuration does not exist, or a parameter is invalid.
    DeviceError
        If Verilator or a C++ compiler is missing, or a build fails.
    """

    capabilities = FULL
    """What the RTL executes: the whole instruction set."""

    def __init__(
        self,
        config: HardwareConfig | str | Path = "pynq",
        *,
        latency: int = DEFAULT_LATENCY,
        bandwidth: float | None = None,
        jitter_seed: int | None = None,
        trace: str | Path | None = None,
        parameters: RtlParameters | None = None,
        interface: str = "port",
    ) -> None:
        super().__init__(config)
        if interface not in INTERFACES:
            raise errors.ConfigError(f"interface is {interface!r}; it must be one of {INTERFACES}")
        _check_memory(latency, bandwidth, jitter_seed)
        self._interface = interface
        self._parameters = parameters or RtlParameters(port_bytes=self._config.port_width)
        self._trace = Path(trace) if trace is not None else None
        library = _build(self._config, self._parameters, self._trace, interface == "axi")
        self._lock = ForkLock("the tsim device")
        self._model: RtlModel | None = RtlModel(library, latency, bandwidth or 0.0, jitter_seed)
        self._dram = PageAllocator(DRAM_BYTES, "the DRAM of tsim")
        self._performance = TsimPerformance()
        self._launches = 0

    # ------------------------------------------------------------------ Device protocol

    @property
    def parameters(self) -> RtlParameters:
        """The parameters that the RTL was built with."""
        return self._parameters

    def alloc(self, nbytes: int) -> DeviceBuffer:
        """Allocate `nbytes` of zeroed DRAM, followed by an unused page.

        Raises
        ------
        DeviceError
            If there is not enough memory, or the size is not positive.
        """
        with self._lock:
            model = self._open()
            buffer = self._dram.alloc(arguments.as_nbytes(nbytes))
            model.pages(buffer.address, whole_pages(buffer.nbytes), True)
            return buffer

    def free(self, buffer: DeviceBuffer) -> None:
        with self._lock:
            model = self._open()
            self._dram.remove(buffer)
            model.pages(buffer.address, whole_pages(buffer.nbytes), False)

    def write(self, buffer: DeviceBuffer, data: Array) -> None:
        image = arguments.as_bytes(data)
        with self._lock:
            model = self._open()
            self._dram.own(buffer, image.size)
            model.image[buffer.address : buffer.address + image.size] = image

    def read(self, buffer: DeviceBuffer, nbytes: int) -> Bytes:
        with self._lock:
            model = self._open()
            self._dram.own(buffer, nbytes)
            return np.array(model.image[buffer.address : buffer.address + nbytes])

    def _launch(self, address: int, count: int, timeout: float, pinned: int, since: int) -> int:
        """Run a program; see `vtaops.runtime.Device.launch`.

        Raises
        ------
        DeadlockError
            If no unit can continue; the message lists what each unit waits for.
        DeviceTimeout
            If it takes longer than `timeout` seconds of real time; the message gives the number of
            simulated cycles.
        DeviceError
            If the hardware reports a fault, an instruction accesses unallocated DRAM, FINISH is
            missing or does not complete last, or tokens remain at the end.
        """
        if address % INSTRUCTION_BYTES:
            raise errors.DeviceError(
                f"the instruction address is {address:#x}; it must be a multiple of "
                f"{INSTRUCTION_BYTES}"
            )
        with self._lock:
            if since == self._launches:
                address += pinned * INSTRUCTION_BYTES
                count -= pinned
            self._launches += 1
            model = self._open()
            model.reset()
            self._start_trace(model)
            model.csr_write(RtlRegisters.COUNT, count)
            model.csr_write(RtlRegisters.ADDRESS, address)
            model.csr_write(RtlRegisters.CONTROL, RtlRegisters.LAUNCH)
            deadline = time.monotonic() + timeout
            result, simulated = Result.RUNNING, 0
            while result == Result.RUNNING and time.monotonic() < deadline:
                result = model.run(_CHUNK_CYCLES)
                simulated += _CHUNK_CYCLES
                report_progress("simulate cycle", simulated)
            if self._parameters.performance_counters:
                self._performance += RtlRegisters.read_performance(model.csr_read)
            if result == Result.RUNNING:
                raise errors.DeviceTimeout(
                    f"FINISH was not reached within {timeout} s of real time, in which "
                    f"{simulated:,} cycles were simulated; a larger timeout= simulates more"
                )
            _raise_failure(model, result)
            return self._launches

    def stats(self) -> Statistics:
        """Return upstream's counters as counted by the hardware since the last `reset_stats`.

        Raises
        ------
        UnsupportedError
            If the RTL was built without counters.
        """
        p, config = self.performance(), self._config
        return Statistics(
            inp_load_nbytes=p.inp_elements * config.inp.element_bytes,
            wgt_load_nbytes=p.wgt_elements * config.wgt.element_bytes,
            acc_load_nbytes=p.acc_elements * config.acc.element_bytes,
            uop_load_nbytes=p.uop_elements * config.uop.element_bytes,
            out_store_nbytes=p.out_elements * config.out.element_bytes,
            gemm_counter=p.gemm_ops,
            alu_counter=p.alu_ops,
        )

    def reset_stats(self) -> None:
        with self._lock:
            self._open()
            self._performance = TsimPerformance()

    def close(self) -> None:
        """Free the device; any later call but `close` is an error."""
        with self._lock:
            if self._model is not None:
                self._model.close()
                self._model = None

    # ------------------------------------------------------------------ beyond the protocol

    def performance(self) -> TsimPerformance:
        """Return cycles by cause, summed over the launches since `reset_stats`.

        Raises
        ------
        UnsupportedError
            If the RTL was built without counters.
        """
        with self._lock:
            self._open()
            if not self._parameters.performance_counters:
                raise errors.UnsupportedError(
                    "this RTL was built without performance counters; build it with "
                    "RtlParameters(performance_counters=True)"
                )
            return self._performance

    def reset_logic(self) -> None:
        """Reset the RTL except scratchpads and DRAM; for drivers and experiments."""
        with self._lock:
            self._open().reset()

    def write_register(self, offset: int, value: int) -> None:
        """Write a control register (`RtlRegisters`), which takes some cycles."""
        with self._lock:
            self._open().csr_write(offset, value)

    def read_register(self, offset: int) -> int:
        """Read a control register (`RtlRegisters`); with interface "axi" this takes some cycles."""
        with self._lock:
            return int(self._open().csr_read(offset))

    def advance(self, cycles: int) -> None:
        """Simulate cycles; stop early if the hardware reports a fault or no unit can continue.

        Raises
        ------
        DeviceError
            If the RTL violates the AXI protocol.
        """
        with self._lock:
            model = self._open()
            model.run(cycles)
            _raise_violation(model)

    def __repr__(self) -> str:
        return (
            f"Tsim({self._config.name!r}, port_bytes={self._parameters.port_bytes}, "
            f"interface={self._interface!r})"
        )

    def _open(self) -> RtlModel:
        if self._model is None:
            raise errors.DeviceError("this tsim device is closed")
        return self._model

    def _start_trace(self, model: RtlModel) -> None:
        if self._trace is not None:
            model.trace(os.fsencode(self._trace), 0, NO_LIMIT)
            self._trace = None


def _check_memory(latency: int, bandwidth: float | None, jitter_seed: int | None) -> None:
    """Check the memory parameters.

    Raises
    ------
    ConfigError
        If a parameter is out of range; the message names it and its range.
    """
    arguments.as_integer("latency", latency, 2, (1 << 31) - 1, errors.ConfigError)
    if jitter_seed is not None:
        arguments.as_integer("jitter_seed", jitter_seed, 0, (1 << 64) - 1, errors.ConfigError)
    number = bandwidth is None or isinstance(bandwidth, int | float | np.number)
    if not number or (bandwidth is not None and not 0 < bandwidth < math.inf):
        raise errors.ConfigError(f"bandwidth is {bandwidth!r} bytes per cycle; it must be positive")


def _build(
    config: HardwareConfig, parameters: RtlParameters, trace: Path | None, axi: bool
) -> Path:
    if trace and not (trace.suffix == ".vcd" and trace.absolute().parent.is_dir()):
        raise errors.ConfigError(f"the trace file is {trace}; give one .vcd in an existing folder")
    return build_model(config, parameters, axi=axi, trace=trace is not None)


def _raise_violation(model: RtlModel) -> None:
    if violation := model.violation():
        raise errors.DeviceError(f"the RTL violated the AXI protocol: {violation.decode()}")


def _raise_failure(model: RtlModel, result: int) -> None:
    _raise_violation(model)
    if result == Result.FAULT:
        causes = names_of(model.csr_read(RtlRegisters.FAULTS), FAULTS.values())
        raise errors.DeviceError(f"the hardware reports a fault: {'; '.join(causes)}")
    if result == Result.BAD_ACCESS:
        raise errors.DeviceError(
            f"the {_CLIENTS[model.bad_client()]} accessed DRAM at {model.bad_address():#x}, which "
            "is not allocated"
        )
    tokens = model.csr_read(RtlRegisters.TOKENS)
    waits = names_of(tokens, RtlRegisters.WAITS)
    queues = names_of(tokens >> len(RtlRegisters.WAITS), _QUEUES)
    if waits:
        raise errors.DeadlockError(f"no unit can continue: {'; '.join(waits)}")
    if result == Result.STANDSTILL:
        raise errors.DeviceError("the program ended without FINISH")
    if queues:
        raise errors.DeviceError(f"tokens remain at the end: {', '.join(queues)}")
