"""What each constant of the tilings of fused operators is worth: cycles with other values.

    python -m benchmarks turn_constants

MobileNet on `pynq_ext` and on `pynq`; the constants are those of `vtaops.schedule.turns`.
"""

from __future__ import annotations

from rich.console import Console

from benchmarks.options import figure_table
from trials.networks import mobilenet_v1
from vtaops import compile_model
from vtaops.schedule import turns

CONFIGS = ("pynq_ext", "pynq")
OTHERS = {
    "_SLACK": (1.2, 2.0),
    "_ALONE": (1.0, 4.0),
    "_LATE": (4, 12),
    "_PER_TILE": (8, 32),
    "_WEIGHTS": (0.7, 0.95),
    "_ROWS": (0.5, 0.8),
    "_MOST_ROWS": (8,),
    "_MOST_BLOCKS": (6,),
    "_PER_PIECE": (0, 16),
    "_HALVES": (0.97, 1.0),
}


def cycles() -> list[int]:
    """Return the cycles of MobileNet on each configuration."""
    turns._choices.cache_clear()
    models = (compile_model(mobilenet_v1(), name, prove=False, check=False) for name in CONFIGS)
    return [sum(region.program.cycles() for region in model.regions) for model in models]


def main() -> None:
    """Compile with each constant changed alone."""
    base = cycles()
    table = figure_table("Cycles with another value", ["constant", "value"], CONFIGS)
    for name, values in OTHERS.items():
        kept = getattr(turns, name)
        for value in values:
            setattr(turns, name, value)
            found = [f"{new / old - 1:+.2%}" for new, old in zip(cycles(), base, strict=True)]
            table.add_row(name, f"{value} for {kept:.3g}", *found)
        setattr(turns, name, kept)
    Console().print(table)
