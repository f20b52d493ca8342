"""Boards for tests: synthetic bitstreams, virtual boards, servers on ports of their own."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from trials.faults import Faults, FaultyServer, FaultyVirtualBoard
from vtaops import Conv2d, HardwareConfig
from vtaops.board import BitFile
from vtaops.board.pynq import Accelerator
from vtaops.hardware.registers import RegisterMap
from vtaops.ops.reference import evaluate, random_arguments

CONFIG = HardwareConfig.load("pynq")
OP = Conv2d(in_channels=32, out_channels=32, height=7, width=7, kernel=3, padding=1, shift=6)
ARRAYS = random_arguments(OP, np.random.default_rng(1))
EXPECTED = evaluate(OP, ARRAYS)


def bit_file(part: str = "7z020clg484", words: int = 1000) -> BitFile:
    data = b"\xff" * 32 + bytes.fromhex("aa995566") + bytes(range(256)) * (words // 64)
    return BitFile("vta;UserID=0XFFFFFFFF;Version=2018.3", part, "2020/06/30", "18:11:16", data)


def programmed(tmp_path, design=RegisterMap.HLS, config=CONFIG, **options):
    """Return a virtual board and its accelerator, programmed."""
    board = FaultyVirtualBoard(config, design, faults=Faults())
    accelerator = Accelerator(config, design, board, **options)
    path = tmp_path / "vta.bit"
    path.write_bytes(bit_file().to_bytes())
    accelerator.program(path)
    return board, accelerator


@contextmanager
def serving(*, design=RegisterMap.HLS, flashed=True, config=CONFIG, simulator="fsim", **options):
    """Serve a virtual board on a free port; yields the server, with `board` and `faults`."""
    faults = Faults()
    board = FaultyVirtualBoard(config, design, simulator, faults=faults)
    accelerator = Accelerator(config, design, board)
    with FaultyServer(accelerator, port=0, faults=faults, **options) as server:
        server.board = board
        if flashed:
            server.program(bit_file().to_bytes())
        yield server
