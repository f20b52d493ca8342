"""The tutorials' way to a board: connect, program the FPGA, upload, run, compare.

On a board, or on this machine, which simulates one then:

    python -m vtaops.board virtual pynq --programmed &
    python examples/board_tutorial.py pynq://127.0.0.1
"""

import argparse
from pathlib import Path

import numpy as np

import vtaops
from vtaops import Conv2d, Program, Statistics, Tiling
from vtaops.ops.reference import evaluate
from vtaops.runtime import Fsim, LoadedProgram
from vtaops.runtime.remote import RemoteDevice

# The ninth convolution of ResNet-18, as the tutorial on convolution schedules it.
OP = Conv2d(
    in_channels=256,
    out_channels=256,
    height=14,
    width=14,
    kernel=3,
    padding=1,
    shift=8,
    clip=(0, 127),
)
TILING = Tiling(oc=128, ic=16, h=7, w=14, oc_threads=2)


def run_there(
    address: str, bitstream: Path | None, program: Program, arrays: list[np.ndarray]
) -> tuple[np.ndarray, Statistics]:
    """Run on a board that `python3 -m vtaops.board serve` serves; return result and counters."""
    with RemoteDevice(address, program.config) as board:
        facts = board.info()
        print(f"connected: {facts['part']}, vtaops {facts['vtaops']} on {facts['machine']}")
        if bitstream is not None:
            board.program(bitstream.read_bytes(), facts["register_map"])
        with LoadedProgram(program, board) as loaded:
            return loaded.run(*arrays), board.stats()


def main() -> None:
    """Run the tutorial."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address", help="pynq://HOST[:PORT]")
    parser.add_argument("--bitstream", type=Path, help="a .bit file to program first")
    options = parser.parse_args()

    program = vtaops.compile(OP, "pynq", TILING)
    rng = np.random.default_rng(0)
    data = rng.integers(-128, 128, (1, 256, 14, 14)).astype(np.int8)
    kernel = rng.integers(-128, 128, (256, 256, 3, 3)).astype(np.int8)
    result, counters = run_there(options.address, options.bitstream, program, [data, kernel])

    np.testing.assert_array_equal(result, evaluate(OP, [data, kernel]))
    with Fsim(program.config) as simulator:
        np.testing.assert_array_equal(result, program.run(simulator, data, kernel))
        assert counters == simulator.stats()
    print("the same result as NumPy, result and counters of the functional simulator:")
    for name, value in counters.as_dict().items():
        print(f"{name:<16}: {value:>10}")


if __name__ == "__main__":
    main()
