"""Check an instruction stream against what the hardware can execute.

The verifier checks programs, but a board sees only a stream of words. Instead of returning a wrong
result, it refuses an instruction that it would execute differently.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import UnsupportedError
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import HardwareConfig
from vtaops.program.features import first_unsupported
from vtaops.program.statistics import Statistics, count_instructions


def check_instructions(
    config: HardwareConfig, words: npt.NDArray[np.uint64], capabilities: Capabilities
) -> None:
    """Reject an instruction stream that the hardware would execute differently.

    Parameters
    ----------
    config : HardwareConfig
        The configuration that the instructions are encoded for.
    words : ndarray of uint64, shape (n, 2)
        Low and high half of each instruction.
    capabilities : Capabilities
        Capabilities of the hardware.

    Raises
    ------
    UnsupportedError
        If an instruction is not supported; the message names it and gives the reason.
    """
    found = first_unsupported(config, words, capabilities)
    if found is not None:
        raise UnsupportedError(
            f"instruction {found[0]} {found[1]}, so this hardware does not support it; "
            f"compile the program for it"
        )


class CheckedStreams:
    """Cache of a board's instruction streams: check and count each one once."""

    def __init__(self) -> None:
        self._counted: dict[bytes, Statistics] = {}

    def count(
        self, config: HardwareConfig, words: npt.NDArray[np.uint64], capabilities: Capabilities
    ) -> Statistics:
        """Return the counters of a stream; see `check_instructions` for parameters and errors."""
        digest = hashlib.sha256(words.tobytes()).digest()
        if digest not in self._counted:
            check_instructions(config, words, capabilities)
            self._counted[digest] = count_instructions(config, words)
        return self._counted[digest]
