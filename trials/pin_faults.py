"""Random faults at the pins of a ULX3S: is a wrong result ever accepted, is the next one right.

Each injection picks a kind, a random cycle of a product, and a length; the product must be right or
an error, and the next one right. The board is simulated at its pins (`vtaops.board.virtual_ulx3s`).
"""

from __future__ import annotations

import numpy as np

from trials.campaign import Campaign, Result
from trials.pins import PinBoard, PinFault, PinLine
from vtaops import HardwareConfig, Session
from vtaops.errors import DeviceError
from vtaops.hardware.ulx3s import DEFAULT_CLOCK_MHZ
from vtaops.runtime.ulx3s import Ulx3s

CONFIG = "tiny"
LONGEST = {PinFault.RESET: 8, PinFault.STARVE_REFRESH: 60_000}
"""Cycles of a fault; 200, the cycles of five bytes, where not said otherwise."""

THREE_LANES = (64, 3)
"""Rows and depth of a product whose input has zeros in five of eight lanes, which are not sent."""

PORTION = 10
"""Faults of a case, on one board."""


def product(session: Session, rng: np.random.Generator, rows: int = 2, depth: int = 32) -> None:
    """Form a product at the pins.

    Raises
    ------
    AssertionError
        If it is wrong.
    """
    x = rng.integers(-128, 128, (rows, depth), dtype=np.int8)
    w = rng.integers(-128, 128, (16, depth), dtype=np.int8)
    sums = (x.astype(np.int32) @ w.T.astype(np.int32)) >> 6
    np.testing.assert_array_equal(
        session.gemm(x, w, shift=6), np.clip(sums, -128, 127).astype(np.int8)
    )


class Bench:
    """A board at its pins, and its host, which opens its line anew when it notices a fault."""

    def __init__(self, seed: int) -> None:
        self.rng, self.lines = np.random.default_rng(seed), 0
        self.open()

    def open(self) -> None:
        """Start a board; find out how many cycles a product takes."""
        config = HardwareConfig.load(CONFIG)
        self.board = PinBoard(config, DEFAULT_CLOCK_MHZ)
        self.session = Session(Ulx3s(config, "pins", connect=self.connect), timeout=1e6)
        self.form()
        begin = self.board.cycles
        self.form()
        self.length = self.board.cycles - begin

    def form(self) -> None:
        """Form a product, which must be right."""
        product(self.session, self.rng, *THREE_LANES)

    def connect(self) -> PinLine:
        """Count how often the host opens its line."""
        self.lines += 1
        return PinLine(self.board)

    def close(self) -> None:
        """Stop the board."""
        self.session.close()
        self.board.close()

    def disturb(self, fault: PinFault) -> dict[str, float]:
        """Disturb a product; return what happened."""
        cycles = int(self.rng.integers(1, LONGEST.get(fault, 200)))
        self.board.disturb(fault, int(self.rng.integers(self.length)), cycles)
        before, found = self.lines, {"faults": 1}
        try:
            self.form()
            found["right"] = 1
        except DeviceError:
            found["error"] = 1
        if fault is PinFault.STARVE_REFRESH:  # the board may have stopped, as it should
            self.close()
            self.open()
        else:
            self.form()
        return found | {"noticed": "error" in found or self.lines > before}


def trial(case: str) -> Result:
    """Disturb a board a few times; a wrong product raises."""
    bench = Bench(int(case))
    counts: dict[str, dict[str, float]] = {}
    for number in range(PORTION):
        fault = [*PinFault][(int(case) * PORTION + number) % len(PinFault)]
        row = counts.setdefault(fault.name, {})
        for key, count in bench.disturb(fault).items():
            row[key] = row.get(key, 0) + count
    bench.close()
    return {"counts": counts, "failed": []}


CAMPAIGN = Campaign(lambda count: [str(n) for n in range(-(-count // PORTION))], trial, count=200)
