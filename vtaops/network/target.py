"""The hardware for which a network is compiled, and the refusal of what it cannot execute."""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.base.reasons import Reason
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import Extension, HardwareConfig


@dataclass(frozen=True)
class Target:
    """The hardware for which a network is compiled."""

    config: HardwareConfig
    capabilities: Capabilities

    @property
    def scales(self) -> bool:
        """Whether it requantises by fixed-point scales instead of only by shifts."""
        return self.config.has(Extension.POST)

    @property
    def fine(self) -> bool:
        """Whether its fixed-point scales may be fine ones."""
        return self.config.has(Extension.EXACT)

    @property
    def stores_weights(self) -> bool:
        """Whether the bytes of stored results are those of weights: rows of a tile are pixels."""
        square = self.config.block_in == self.config.block_out
        return self.scales and square and self.config.batch == 1

    @property
    def tables(self) -> bool:
        """Whether it supports lookup tables for results."""
        return self.config.has(Extension.TABLE)


class NotOnVta(Exception):
    """VTA cannot execute a node, so the host does."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.reason = Reason(code, text)
        self.node = ""
        """The node's name, if it can be lowered alone and not among the others."""
