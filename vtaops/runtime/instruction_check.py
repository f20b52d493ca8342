"""The check of an instruction stream against what hardware can execute.

The verifier checks programs; a board sees a stream of words only. It refuses an instruction that it
would execute differently, instead of returning a wrong result.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vtaops.capabilities import Capabilities
from vtaops.config import HardwareConfig, Memory
from vtaops.errors import UnsupportedError
from vtaops.isa import Alu, AluOp, Encoding, Instruction, Load, rows_of

_PADS = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")
_SHORT_SHIFT = 15  # immediates that 5 signed bits hold, in both directions


def check_instructions(
    config: HardwareConfig, words: npt.NDArray[np.uint64], capabilities: Capabilities
) -> None:
    """Refuse an instruction stream that the hardware would execute differently.

    Parameters
    ----------
    config : HardwareConfig
        The configuration that the instructions are encoded for.
    words : ndarray of uint64, shape (n, 2)
        Low and high half of each instruction.
    capabilities : Capabilities
        What the hardware has.

    Raises
    ------
    UnsupportedError
        Naming an instruction that is not supported, and why.
    """
    able = capabilities
    rows, loads = _columns(config, words, Load)
    memory = loads["memory"]
    padded = (loads["x_size"] > 0) & (sum(loads[name] for name in _PADS) > 0)
    widens = (loads["x_size"] > 0) & (memory == Memory.ACC_8BIT)
    acc = (memory == Memory.ACC) | (memory == Memory.ACC_8BIT)
    _refuse(
        able,
        rows,
        (able.acc_8bit, widens, "loads 8-bit data"),
        (able.acc_padding, padded & acc, "pads accumulators"),
        (able.weight_padding, padded & (memory == Memory.WGT), "pads weights"),
    )
    rows, alu = _columns(config, words, Alu)
    shift = alu["alu_op"] == AluOp.SHR
    immediate = alu["use_imm"] == 1
    long = shift & immediate & (np.abs(alu["imm"]) > _SHORT_SHIFT)
    _refuse(
        able,
        rows,
        (able.mul, alu["alu_op"] == AluOp.MUL, "multiplies in the ALU"),
        (able.long_shift, long, f"shifts by more than {_SHORT_SHIFT}"),
        (able.tensor_shift, shift & ~immediate, "shifts by a tile"),
    )


def _columns(
    config: HardwareConfig, words: npt.NDArray[np.uint64], cls: type[Instruction]
) -> tuple[npt.NDArray[np.intp], dict[str, npt.NDArray[np.int64]]]:
    rows = rows_of(words, cls)
    return rows, Encoding.of(config).columns(words[rows], cls)


def _refuse(
    capabilities: Capabilities,
    rows: npt.NDArray[np.intp],
    *rules: tuple[bool, npt.NDArray[np.bool_], str],
) -> None:
    for able, concerned, what in rules:
        if not able and concerned.any():
            raise UnsupportedError(
                f"instruction {rows[int(concerned.argmax())]} {what}, which this hardware "
                f"({capabilities.name}) does not support; compile the program for it"
            )
