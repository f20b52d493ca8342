"""How every diagram shows a timeline: its lanes from top to bottom, their colours, its heading."""

from __future__ import annotations

from vtaops.program.timing.timeline import Timeline

LANES = ("fetch", "load", "compute", "store")
"""Units, from top to bottom."""

PORT_LANES = ("port read", "port write", "port weights")
"""Use of the DRAM ports, below the units; `port_lanes` selects those of a timeline."""


def port_lanes(*timelines: Timeline) -> tuple[str, ...]:
    """Return the lanes of the ports that any of the timelines has."""
    return PORT_LANES[: 2 + max(timeline.program.config.weight_port for timeline in timelines)]


KIND_COLORS = {
    "fetch": "#7f7f7f",
    "load inp": "#4c9be8",
    "load wgt": "#7b61c9",
    "load uop": "#5f6b7a",
    "load acc": "#17a2b8",
    "gemm": "#2e9e5b",
    "reset": "#a9d8a0",
    "alu": "#f39c34",
    "store": "#d9534f",
    "control": "#222222",
}
"""Colour of each kind of work."""

WAIT_COLORS = {
    "instruction": "#c8c8c8",
    "load token": "#4c9be8",
    "compute token": "#2e9e5b",
    "store token": "#d9534f",
    "dram": "#8d6e63",
    "pipeline": "#9e9e9e",
    "queue full": "#9e9e9e",
}
"""Hatching colour of each cause of waiting: that of the awaited unit."""

TOKEN_COLORS = {
    "load>compute": "#1f6fb8",
    "compute>load": "#1d7a43",
    "compute>store": "#c77514",
    "store>compute": "#b02a2a",
}
"""Colour of the tokens of each queue."""


def headline(timeline: Timeline, title: str = "") -> str:
    """Return the heading of a timeline: title, cycles, GEMM array utilization."""
    text = f"{timeline.cycles:,} cycles, GEMM array {100 * timeline.gemm_utilization:.0f} % used"
    return f"{title}: {text}" if title else text
