"""TsimPerformance: the performance counters of the RTL, in the order of its registers.

Also measures the time of a launch on the host, which needs no counters.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from dataclasses import dataclass, fields
from statistics import median

from vtaops.base.counts import Counts


@dataclass(frozen=True)
class TsimPerformance(Counts):
    """Cycles of one or more launches, by cause.

    Each cycle of a unit belongs to exactly one class: busy, stalled by a cause, or idle (no
    instruction). The classes of a unit sum to the cycles in which the device was active, which is
    slightly more than `cycles`, because `cycles` ends with FINISH.

    Attributes
    ----------
    cycles : int
        From launch to FINISH.
    instructions : int
        Instructions that were dispatched.
    fetch_stall_queue : int
        Cycles in which an instruction waited because the queue of its unit was full.
    load_busy, load_stall_token, load_stall_dram, load_idle : int
        Load unit: writes its scratchpads; waits for a token from the compute unit; waits for DRAM.
    compute_gemm, compute_alu : int
        Compute unit: cycles in which GEMM (resets included) or ALU micro-ops were issued.
    compute_load : int
        Cycles in which only the data of a LOAD UOP, ACC or ACC_8BIT were written.
    compute_stall_load_token, compute_stall_store_token : int
        Waits for a token from the load unit; from the store unit.
    compute_stall_dram : int
        Waits for the data of a LOAD UOP, ACC or ACC_8BIT.
    compute_drain : int
        Waits for its pipeline, or executes an instruction that only passes tokens.
    compute_idle : int
        Has no instruction.
    store_busy, store_stall_token, store_stall_dram, store_idle : int
        Store unit: sends a port word; waits for a token from the compute unit; waits for DRAM.
    port_read_bursts, port_read_beats, port_read_stall : int
        Read requests; port words read; cycles in which a request was not accepted.
    port_write_bursts, port_write_beats : int
        Write requests and port words written.
    inp_elements, wgt_elements, acc_elements, uop_elements, out_elements : int
        Elements moved between DRAM and each scratchpad, padding excluded.
    gemm_ops, alu_ops : int
        Micro-op executions of GEMM (resets excluded) and ALU instructions.
    """

    cycles: int = 0
    instructions: int = 0
    fetch_stall_queue: int = 0
    load_busy: int = 0
    load_stall_token: int = 0
    load_stall_dram: int = 0
    load_idle: int = 0
    compute_gemm: int = 0
    compute_alu: int = 0
    compute_load: int = 0
    compute_stall_load_token: int = 0
    compute_stall_store_token: int = 0
    compute_stall_dram: int = 0
    compute_drain: int = 0
    compute_idle: int = 0
    store_busy: int = 0
    store_stall_token: int = 0
    store_stall_dram: int = 0
    store_idle: int = 0
    port_read_bursts: int = 0
    port_read_beats: int = 0
    port_read_stall: int = 0
    port_write_bursts: int = 0
    port_write_beats: int = 0
    inp_elements: int = 0
    wgt_elements: int = 0
    acc_elements: int = 0
    uop_elements: int = 0
    out_elements: int = 0
    gemm_ops: int = 0
    alu_ops: int = 0

    @property
    def compute_bound(self) -> int:
        """Lower bound on the cycles of the compute unit: the micro-ops that it issued."""
        return self.compute_gemm + self.compute_alu

    @property
    def compute_utilization(self) -> float:
        """Share of `cycles` in which the compute unit issued micro-ops."""
        return self.compute_bound / self.cycles if self.cycles else 0.0


COUNTERS = tuple(f.name for f in fields(TsimPerformance) if f.name != "cycles")
"""Names of the counters, in the order of their registers."""


def launch_seconds(launch: Callable[[], object], repeats: int) -> float:
    """Return the median duration of calls of `launch`, in seconds."""
    return median(timeit.repeat(launch, number=1, repeat=max(1, repeats)))
