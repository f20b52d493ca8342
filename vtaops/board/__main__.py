"""``python -m vtaops.board``: serve a board, or a virtual one, until it is interrupted.

Needs only Python, NumPy and, on a board, PYNQ or memory that Linux leaves unused. With typer
installed, ``vtaops board serve`` and ``vtaops board virtual`` do the same.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from vtaops.base.errors import VTAError
from vtaops.board.bitfile import blank_bit_file, read_bit_file
from vtaops.board.pynq import DEFAULT_CLOCK_MHZ, Accelerator
from vtaops.board.server import BoardServer
from vtaops.hardware.registers import RegisterMap
from vtaops.machine.config import TARGETS, HardwareConfig
from vtaops.runtime.wire import DEFAULT_PORT, read_secret

_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def main(arguments: list[str] | None = None) -> int:
    """Serve and return the exit code."""
    options = _parser().parse_args(arguments)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # before threads inherit it
    logging.captureWarnings(True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    try:
        options.serve(options)
    except VTAError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0


def _serve(options: argparse.Namespace) -> None:
    config, registers = HardwareConfig.load(options.config), RegisterMap(options.register_map)
    interface: Any = None  # the package `pynq`
    if options.simulator:
        from vtaops.board.virtual import VirtualBoard

        interface = VirtualBoard(config, registers, options.simulator)
    elif options.memory:
        from vtaops.board.linux import LinuxBoard

        interface = LinuxBoard(options.memory)
    accelerator = Accelerator(config, registers, interface, clock_mhz=options.clock_mhz)
    if options.attach or options.memory:
        accelerator.attach()
    secret = read_secret(options.secret_file)
    with BoardServer(accelerator, options.host, options.port, secret=secret) as server:
        if options.bitstream is not None:
            server.program(read_bit_file(options.bitstream).to_bytes())
        elif options.programmed:
            server.program(blank_bit_file(config.board.device).to_bytes())
        print(f"serving {options.config} at {server.address}", flush=True)
        signal.sigwait(_SIGNALS)


def _serve_ulx3s(options: argparse.Namespace) -> None:
    from vtaops.board.virtual_ulx3s import VirtualUlx3s, listen, open_terminal

    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)  # its one thread never waits for them
    config = HardwareConfig.load(options.config)
    print("building the simulator of the board: a minute, the first time", file=sys.stderr)
    with VirtualUlx3s(config, options.clock_mhz) as board, suppress(KeyboardInterrupt):
        line: Any
        if options.terminal:
            line, place = open_terminal()
        else:
            line = listen(options.port)
            place = f"127.0.0.1:{line.getsockname()[1]}"
        print(f"ulx3s://{place}", flush=True)
        board.serve(line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m vtaops.board", description=__doc__)
    commands = parser.add_subparsers(required=True)
    serve = commands.add_parser(
        "serve",
        help="serve this board",
        epilog="Example: vtaops board serve --host 0.0.0.0 --secret-file secret.txt",
    )
    virtual = commands.add_parser(
        "virtual",
        help="serve a simulated board",
        epilog="Example: vtaops board virtual pynq --programmed, or ulx3s --config tiny",
    )
    boards = virtual.add_subparsers(required=True)
    pynq = boards.add_parser("pynq", help="a Pynq behind the board server")
    ulx3s = boards.add_parser("ulx3s", help="a ULX3S, simulated at its pins")
    for command in (serve, pynq):
        command.add_argument("--config", default="pynq", help="configuration (default: pynq)")
        command.add_argument(
            "--register-map",
            choices=[design.value for design in RegisterMap],
            default=RegisterMap.HLS.value,
            help="register map of the bitstream (default: hls)",
        )
        command.add_argument("--bitstream", type=Path, help="a .bit file to program first")
        command.add_argument("--host", default="127.0.0.1", help="address to listen on")
        command.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 picks a free port")
        command.add_argument("--secret-file", type=Path, help="file that holds the shared secret")
    serve.add_argument(
        "--attach", action="store_true", help="the bitstream was programmed by other means"
    )
    serve.add_argument(
        "--memory",
        metavar="MEMORY",
        help="on a Linux without PYNQ: address and bytes that Linux leaves unused, as "
        "0x1e000000+0x2000000; implies --attach",
    )
    serve.add_argument(
        "--clock-mhz",
        type=float,
        default=DEFAULT_CLOCK_MHZ,
        help="clock of the logic (default: 100)",
    )
    serve.set_defaults(serve=_serve, simulator=None, programmed=False)
    pynq.add_argument("--simulator", choices=("fsim", "tsim"), default="fsim")
    pynq.add_argument(
        "--programmed", action="store_true", help="start as if a bitstream were in the logic"
    )
    pynq.set_defaults(serve=_serve, attach=False, memory=None, clock_mhz=DEFAULT_CLOCK_MHZ)
    ulx3s.add_argument("--config", default="ulx3s", help="configuration (default: ulx3s)")
    ulx3s.add_argument(
        "--clock-mhz",
        type=float,
        default=float(TARGETS["ulx3s"].clock_mhz),
        help="clock for which the system is built; the SDRAM's latency in cycles depends on it",
    )
    ulx3s.add_argument("--port", type=int, default=3101, help="0 picks a free port")
    ulx3s.add_argument("--terminal", action="store_true", help="serve on a pseudo-terminal instead")
    ulx3s.set_defaults(serve=_serve_ulx3s)
    return parser


if __name__ == "__main__":
    sys.exit(main())
