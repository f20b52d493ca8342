"""TimingParameters: every number of the timing model, with its source.

The defaults describe this project's RTL (``sim/tsim``) as run by the device ``tsim``; the benchmark
``python -m benchmarks layers --rtl`` compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from vtaops.base.errors import ConfigError
from vtaops.machine.config import PORT_BYTES, HardwareConfig
from vtaops.program.timing.pipeline import compute_depth


@dataclass(frozen=True)
class Sdram:
    """A single-data-rate SDRAM behind LiteDRAM, at the clock of the accelerator.

    It transfers one word per cycle. The gap between two bursts is 3 cycles if the bank changes,
    `activate` cycles to open a row, plus `precharge` to close another first, and about
    `cas_latency` if the direction changes, as observed in the commands at the pins (docs/board.md).

    Attributes
    ----------
    word_bytes : int
        Width of its data bus.
    page_bytes : int
        Bytes of a row in one bank; the next ones are in the next of four banks.
    cas_latency : int
        Cycles from a read to its word.
    precharge, activate, refresh : int
        Cycles to close a row, to open one, and for a refresh (tRP, tRCD, tRFC).
    refresh_interval : int
        Cycles between refreshes, which close all rows.
    most_bursts : int
        Maximum bursts in one direction while the other one waits.
    return_latency : int
        Cycles from a word at the SDRAM to its beat, which are part of
        ``TimingParameters.dram_latency``.
    write_latency : int
        Cycles from the last word of a store at the SDRAM to its acknowledgement.
    """

    cas_latency: int
    precharge: int
    activate: int
    refresh: int
    refresh_interval: int
    word_bytes: int = 2
    page_bytes: int = 1024
    most_bursts: int = 16
    return_latency: int = 8
    write_latency: int = 4


@dataclass(frozen=True)
class TimingParameters:
    """Latencies, widths, intervals and overheads of one implementation of VTA.

    Cycles are those of the accelerator's clock. A *beat* is one word of the DRAM port.

    Attributes
    ----------
    port_bytes : int or None
        Bytes of a beat, for reads and for writes. None: the bus of the configuration's board
        (``vtaops.machine.config.TARGETS``).
    bandwidth : float or None
        Bytes per cycle of the DRAM, reads and writes together; as many for a port of the weights.
        None: no limit but a beat per cycle
        in each direction.
    sdram : Sdram or None
        Chip behind the port, served burst by burst; estimates use `bandwidth` instead.
    saved_beats : int
        Beats that an idle DRAM of limited bandwidth accumulates (``dram.h``).
    dram_latency : int
        Cycles from a request to its first beat, and from the last beat of a store to its
        acknowledgement. Default: that of the device ``tsim``.
    request_latency : int
        Cycles of a read request to the DRAM: the port's request register (``dram_port.sv``).
    buffer_latency : int
        Cycles of the data through the client's buffer (``fifo.sv``).
    load_window : int
        Maximum beats in flight per load engine (``RtlParameters.load_buffer_beats``).
    outstanding : int
        Maximum bursts that are read at a time over a port (``RtlParameters.outstanding``).
    burst_beats : int
        Beats of the longest burst, and of the aligned blocks that a burst does not cross
        (``RtlParameters.burst_beats``, ``burst_generator.sv``).
    fetch_bursts : int
        Bursts that the fetch reads ahead (``fetch.sv``: a buffer of four).
    command_depth : int
        Instructions queued before each unit, including the two in output registers of the queue
        (``RtlParameters.command_depth`` + 2).
    dispatch_latency : int
        Cycles through a command queue (``command_queue.sv``).
    loads_in_flight : int
        Loads of one engine between their tokens and their completion (``tensor_load.sv``: four
        queued, one at the head, one in execution).
    loads_in_order : int
        Loads of both engines, where weights have a port of their own, between their tokens and
        their completion in order (``load_unit.sv``: 16 queued, one at the head).
    stores_in_flight : int
        Stores between their tokens and their last acknowledgement (``store_unit.sv``: four queued,
        one at the head, one in execution); at least 2.
    load_fill : int
        Cycles from the start of a load to its first write, without data (``tensor_load.sv``).
    gemm_interval, alu_interval, alu_tensor_interval : int
        Cycles between micro-ops: GEMM and reset; ALU with an immediate; ALU with a tensor operand,
        which reads two tiles from one port (``compute_unit.sv``).
    compute_fill : int
        Cycles from taking the tokens of a compute instruction to its first micro-op, through
        ``next`` and ``current``; hidden while the previous instruction still issues.
    compute_depth : int or None
        Pipeline stages after the issue: the cycles from an instruction's last micro-op to its
        completion. None: those of our RTL for the configuration (`pipeline.compute_depth`).
    store_fill : int
        Cycles from the start of a store to its first beat (``store_unit.sv``).
    store_words : int
        Beats between the output scratchpad and the port: the maximum still waiting there when the
        next store starts (``store_unit.sv``).
    write_bursts : int
        Store bursts that the DRAM queues: later ones wait until one of these is written
        (``dram.h``). Only relevant with a limited bandwidth.
    store_drain : int
        Cycles from the last acknowledgement of a store to its token.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    port_bytes: int | None = None
    bandwidth: float | None = None
    saved_beats: int = 4
    dram_latency: int = 32
    request_latency: int = 1
    buffer_latency: int = 2
    load_window: int = 256
    outstanding: int = 32
    burst_beats: int = 16
    fetch_bursts: int = 4
    command_depth: int = 514
    dispatch_latency: int = 3
    loads_in_flight: int = 6
    loads_in_order: int = 17
    stores_in_flight: int = 6
    load_fill: int = 3
    gemm_interval: int = 1
    alu_interval: int = 1
    alu_tensor_interval: int = 2
    compute_fill: int = 2
    compute_depth: int | None = None
    store_fill: int = 4
    store_words: int = 8
    write_bursts: int = 64
    store_drain: int = 2
    sdram: Sdram | None = None

    def __post_init__(self) -> None:
        self._check_integers()
        if self.bandwidth is not None and not 0 < self.bandwidth < math.inf:
            raise ConfigError(f"bandwidth is {self.bandwidth}; give bytes per cycle above 0")
        if self.port_bytes not in (None, *PORT_BYTES):
            raise ConfigError(f"port_bytes is {self.port_bytes}; it must be 8, 16, 32 or 64")
        if self.burst_beats > self.load_window:
            raise ConfigError(
                f"burst_beats is {self.burst_beats}; it must not exceed load_window "
                f"({self.load_window})"
            )

        if self.sdram and self.sdram.return_latency > self.dram_latency:
            raise ConfigError(
                f"dram_latency is {self.dram_latency}; it includes the return_latency of the SDRAM "
                f"({self.sdram.return_latency})"
            )

    def _check_integers(self) -> None:
        for f in fields(self):
            value, least = getattr(self, f.name), _LEAST.get(f.name, 1)
            if f.name in ("bandwidth", "sdram") or value is f.default:
                continue
            if type(value) is not int or value < least:
                raise ConfigError(
                    f"{f.name} is {value!r}; it must be an integer of at least {least}"
                )

    def port_width(self, config: HardwareConfig) -> int:
        """Return the bytes of a beat on `config`."""
        return self.port_bytes or config.port_width

    def pipeline_depth(self, config: HardwareConfig) -> int:
        """Return the compute pipeline stages after the issue for `config`."""
        return compute_depth(config) if self.compute_depth is None else self.compute_depth


_ZERO = (
    *("dram_latency", "request_latency", "buffer_latency", "dispatch_latency", "load_fill"),
    *("compute_fill", "compute_depth", "store_fill", "store_drain"),
)
_LEAST = {"stores_in_flight": 2, **dict.fromkeys(_ZERO, 0)}
"""Minimum of integers for which it is not 1."""
