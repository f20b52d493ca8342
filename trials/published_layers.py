"""Every convolution of published networks, compiled by default on every shipped configuration.

A case is a configuration and a layer; shipped configurations of equal geometry are one. It fails if
the layer is refused. Counted are layers, those that are computed in parts of their kernel, and the
seconds of CPU for the tiling and the compilation with verification.
"""

from __future__ import annotations

import time
from functools import cache

import vtaops
from trials.campaign import Campaign, Result, result
from trials.published import published, transposed
from vtaops import HardwareConfig, VTAError
from vtaops.ops import Operator
from vtaops.schedule import default_tiling


@cache
def layers() -> dict[str, Operator]:
    """Return all layers by their texts."""
    return {repr(op): op for op in [*published(), *transposed()]}


def cases(count: int) -> list[str]:
    """Return so many cases, those of a layer beside each other."""
    configs = {c.fingerprint: c.name for c in map(HardwareConfig.load, HardwareConfig.names())}
    return [f"{config}/{layer}" for layer in layers() for config in configs.values()][:count]


def trial(case: str) -> Result:
    """Compile one layer."""
    config, _, layer = case.partition("/")
    op, start = layers()[layer], time.process_time()
    try:
        tiling = default_tiling(op, HardwareConfig.load(config))
        vtaops.compile(op, config, tiling)
    except VTAError as error:
        return result(config, str(error), layers=1)
    seconds = time.process_time() - start
    return result(config, layers=1, parts=tiling.taps != "all", seconds=seconds)


CAMPAIGN = Campaign(cases, trial, count=10**6)
