"""Named cards with their peak figures, from NVIDIA's data sheets and programming guide."""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.base.errors import UnsupportedError
from vtaops.kernels.cuda.target import CudaTarget


@dataclass(frozen=True)
class Card:
    """One card.

    Attributes
    ----------
    name, arch : str
        Name and compute capability.
    multiprocessors : int
        Number of multiprocessors.
    gigahertz : float
        Boost clock.
    lanes : int
        float32 multiply-adds of a multiprocessor per cycle.
    gigabytes_per_second : float
        Memory bandwidth.
    tensor : tuple of (str, float)
        Teraoperations per second of its tensor cores, by dtype of the operands; dense.
    """

    name: str
    arch: str
    multiprocessors: int
    gigahertz: float
    lanes: int
    gigabytes_per_second: float
    tensor: tuple[tuple[str, float], ...] = ()

    @property
    def cycles(self) -> float:
        """Cycles of all multiprocessors per second."""
        return self.multiprocessors * self.gigahertz * 1e9

    @property
    def target(self) -> CudaTarget:
        """The compilation target."""
        return CudaTarget(self.arch, multiprocessors=self.multiprocessors)


CARDS = {
    card.name: card
    for card in (
        # GeForce GTX 1080 whitepaper (2016), the card of Hu's article.
        Card("GTX 1080", "sm_61", 20, 1.733, 128, 320),
        # Tesla P100 (SXM2, 2016) and V100 (SXM2, 2018) data sheets, in the book's table of cards.
        Card("P100", "sm_60", 56, 1.48, 64, 732),
        Card("V100", "sm_70", 80, 1.53, 64, 900, (("float16", 125),)),
        # Tesla T4 data sheet (2019), the card of the book and of Colab.
        Card("T4", "sm_75", 40, 1.59, 64, 320, (("float16", 65), ("int8", 130))),
        # A100 80 GB data sheet (2021).
        Card("A100", "sm_80", 108, 1.41, 64, 2039, (("float16", 312), ("int8", 624))),
        # H100 SXM data sheet (2023).
        Card("H100", "sm_90", 132, 1.83, 128, 3350, (("float16", 989), ("int8", 1979))),
    )
}


def card(name: str) -> Card:
    """Return a card by name.

    Raises
    ------
    UnsupportedError
        If the name is unknown.
    """
    if name not in CARDS:
        raise UnsupportedError(f"unknown card {name!r}; the cards are {', '.join(CARDS)}")
    return CARDS[name]
