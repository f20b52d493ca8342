"""Six programs as text that a person can read: ``tests/golden``, with comments behind ``;``.

Where a listing differs, the program has changed: say in the commit what it gains, and write the
listing anew by hand, comments included.
"""

from pathlib import Path

import pytest

import vtaops
from vtaops import Conv2d, Gemm, MaxPool2d, Tiling

GOLDEN = Path(__file__).parent.parent / "golden"

PIXELS = {"in_channels": 16, "out_channels": 16, "clip": (0, 127)}
LAYER = {**PIXELS, "height": 6, "width": 6, "kernel": 3, "padding": 1}
HALVES = Tiling(oc=16, ic=16, h=3, w=6, acc_tiles=2, padding="multiply")

PROGRAMS = {
    "gemm": (Gemm(m=4, n=16, k=32, shift=6, clip=(0, 127)), "pynq", Tiling(oc=16, ic=16, h=4)),
    "conv2d": (Conv2d(**LAYER, shift=8), "pynq", HALVES),
    "max_pool": (
        MaxPool2d(channels=16, height=6, width=6, kernel=2, stride=2),
        "pynq",
        Tiling(oc=16, ic=16, h=3, w=3),
    ),
    "residual_sum": (
        Conv2d(**PIXELS, height=4, width=4, kernel=1, shift=6, bias=True, residual=True),
        "pynq",
        Tiling(oc=16, ic=16, h=4, w=4),
    ),
    "scales": (Conv2d(**LAYER, bias=True, scales=True, shift=0), "pynq_ext", HALVES),
    "virtual_threads": (
        Gemm(m=16, n=32, k=32, shift=6, clip=(0, 127)),
        "pynq",
        Tiling(oc=16, ic=32, h=8, oc_threads=2),
    ),
}


def listing(op, config, tiling):
    """What the program does: its text from the table of buffers on."""
    text = vtaops.compile(op, config, tiling).disassemble()
    return text[text.index("buffers\n") :].splitlines()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_reads_as_its_listing(name):
    lines = (GOLDEN / f"{name}.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith(";")] == listing(*PROGRAMS[name])


def test_every_listing_has_a_program():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {*PROGRAMS}
