"""Colours and order of everything that the diagrams show; one place for all of them."""

from __future__ import annotations

LANES = ("fetch", "load", "compute", "store")
"""Units, from top to bottom."""

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
"""Colour of the hatching of each cause of waiting: that of the unit that is waited for."""

TOKEN_COLORS = {
    "load>compute": "#1f6fb8",
    "compute>load": "#1d7a43",
    "compute>store": "#c77514",
    "store>compute": "#b02a2a",
}
"""Colour of the tokens of each queue."""
