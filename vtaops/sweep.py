"""Design-space sweeps: many hardware configurations times many workloads, by the timing model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from vtaops.compiler import compile
from vtaops.config import HardwareConfig
from vtaops.errors import ConfigError, VTAError
from vtaops.program.timing import TimingParameters, simulate
from vtaops.workloads import Workload


@dataclass(frozen=True)
class SweepPoint:
    """One configuration with what it reaches.

    Attributes
    ----------
    config : HardwareConfig
        The configuration.
    cycles : dict
        Workload -> cycles of one run; a workload that the configuration cannot run is missing.
    failures : dict
        Workload -> why it cannot run.
    total_cycles : int
        Cycles of all workloads, each as often as it occurs in its network.
    dram_nbytes : int
        DRAM traffic of the same.
    gemm_cycles : int
        Tile products of the same.
    """

    config: HardwareConfig
    cycles: dict[str, int]
    failures: dict[str, str]
    total_cycles: int
    dram_nbytes: int
    gemm_cycles: int

    @property
    def multipliers(self) -> int:
        """8-bit multipliers of the array."""
        return self.config.macs_per_cycle

    @property
    def sram_nbytes(self) -> int:
        """Bytes of all scratchpads."""
        c = self.config
        memories = (c.uop, c.inp, c.wgt, c.acc, c.out)
        return sum(memory.element_bytes * memory.depth for memory in memories)

    @property
    def utilization(self) -> float:
        """Share of the cycles in which the array forms a tile product."""
        return self.gemm_cycles / max(1, self.total_cycles)

    @property
    def complete(self) -> bool:
        """Whether all workloads run."""
        return not self.failures


def variants(
    base: HardwareConfig, axes: Mapping[str, Sequence[int]]
) -> tuple[list[HardwareConfig], dict[str, str]]:
    """Return all combinations of values of upstream's keys on a base configuration.

    Parameters
    ----------
    base : HardwareConfig
        Gives the values of all other keys.
    axes : mapping
        For example ``{"LOG_INP_BUFF_SIZE": [14, 15, 16]}``.

    Returns
    -------
    configs : list of HardwareConfig
        Named after what varies, for example ``"pynq INP_BUFF_SIZE 14"``.
    refused : dict
        Name -> why the combination cannot exist.

    Raises
    ------
    ConfigError
        If a key is unknown.
    """
    keys = base.to_dict()
    for key in axes:
        if key not in keys:
            raise ConfigError(f"unknown key {key!r}; known keys: {', '.join(keys)}")
    configs, refused = [], {}
    for values in product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        label = " ".join(f"{key.removeprefix('LOG_')}={value}" for key, value in chosen.items())
        name = f"{base.name} {label}".strip()
        try:
            configs.append(HardwareConfig.from_dict({**keys, **chosen}, name=name))
        except ConfigError as error:
            refused[name] = str(error)
    return configs, refused


def sweep(
    configs: Iterable[HardwareConfig],
    workloads: Sequence[Workload],
    timing: TimingParameters | None = None,
) -> Iterator[SweepPoint]:
    """Compile and time every workload on every configuration; yields a point per configuration.

    A published tiling belongs to its configuration, so each operator takes the default tiling.

    Parameters
    ----------
    configs : iterable of HardwareConfig
        The configurations.
    workloads : sequence of Workload
        The workloads.
    timing : TimingParameters, optional
        The machine; the port is by default that of the board of each configuration.
    """
    for config in configs:
        cycles: dict[str, int] = {}
        failures: dict[str, str] = {}
        total = nbytes = gemms = 0
        for workload in workloads:
            try:
                program = compile(workload.op, config)
                timeline = simulate(program, timing, events=False)
            except VTAError as error:
                failures[workload.name] = str(error)
                continue
            stats = program.stats()
            cycles[workload.name] = timeline.cycles
            total += workload.occurrences * timeline.cycles
            nbytes += workload.occurrences * stats.dram_nbytes
            gemms += workload.occurrences * stats.gemm_counter
        yield SweepPoint(config, cycles, failures, total, nbytes, gemms)


def pareto(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """Return the points that no other one beats in cycles, on-chip memory and multipliers.

    Points that do not run everything are left out.
    """

    def costs(point: SweepPoint) -> tuple[int, int, int]:
        return point.total_cycles, point.sram_nbytes, point.multipliers

    complete = [point for point in points if point.complete]
    return [
        point
        for point in complete
        if not any(
            all(a <= b for a, b in zip(costs(other), costs(point), strict=True))
            and costs(other) != costs(point)
            for other in complete
        )
    ]
