"""CUDA kernels without a GPU: run thread by thread, check every access, and count."""

from vtaops.kernels.cuda.emulate.cards import CARDS, Card, card
from vtaops.kernels.cuda.emulate.emulator import (
    IN_ORDER,
    REVERSED,
    Emulated,
    KernelFault,
    Traffic,
    compiler,
)
from vtaops.kernels.cuda.emulate.profile import Profile, profile

__all__ = [
    "CARDS",
    "IN_ORDER",
    "REVERSED",
    "Card",
    "Emulated",
    "KernelFault",
    "Profile",
    "Traffic",
    "card",
    "compiler",
    "profile",
]
