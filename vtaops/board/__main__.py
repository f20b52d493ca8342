"""``python -m vtaops.board``: serves a board, or a virtual one, until it is interrupted.

Needs only Python, NumPy and, on a board, PYNQ.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vtaops.board.bitfile import read_bit_file
from vtaops.board.faults import Fault, Faults
from vtaops.board.pynq_remote import DEFAULT_PORT as PYNQ_REMOTE_PORT
from vtaops.board.server import BoardServer
from vtaops.config import HardwareConfig
from vtaops.errors import DeviceError, VTAError
from vtaops.runtime.pynq import Accelerator, PynqInterface
from vtaops.runtime.registers import RegisterMap
from vtaops.runtime.wire import DEFAULT_PORT, read_secret

if TYPE_CHECKING:
    from vtaops.board.virtual import VirtualBoard

_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def main(arguments: list[str] | None = None) -> int:
    """Serve; return the exit code."""
    options = _parser().parse_args(arguments)
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, _SIGNALS
    )  # before there are threads to inherit it
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    try:
        if options.command == "virtual-remote":
            _serve_pynq_remote(options)
        else:
            _serve(options)
    except VTAError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0


def _serve(options: argparse.Namespace) -> None:
    with _server(options) as server:
        if options.bitstream is not None:
            server.program(_bitstream(options.bitstream))
        print(f"serving {options.config} at {server.address}", flush=True)
        signal.sigwait(_SIGNALS)


def _serve_pynq_remote(options: argparse.Namespace) -> None:
    try:
        from vtaops.board.virtual_remote import serve
    except ImportError as error:
        raise DeviceError(
            f"{error}; PYNQ_REMOTE=1 pip install pynq==4.0.0, in an environment of its own"
        ) from error
    board = _virtual_board(options, Faults())
    if options.bitstream is not None:
        board.program(_bitstream(options.bitstream))
    server, port = serve(board, options.host, options.port)
    print(f"serving {options.config} to PYNQ.remote at {options.host}:{port}", flush=True)
    signal.sigwait(_SIGNALS)
    server.stop(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vtaops.board",
        description=__doc__,
        epilog="Example: python3 -m vtaops.board serve --host 0.0.0.0 --secret-file secret.txt",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve the board that this runs on")
    virtual = commands.add_parser("virtual", help="serve a board that is simulated")
    remote = commands.add_parser("virtual-remote", help="the same for PYNQ's own client")
    for command in (serve, virtual, remote):
        command.add_argument("--config", default="pynq", help="configuration (default: pynq)")
        command.add_argument(
            "--register-map",
            choices=[design.value for design in RegisterMap],
            default=RegisterMap.HLS.value,
            help="design of the bitstream (default: hls)",
        )
        command.add_argument("--bitstream", type=Path, help="a .bit file to program first")
        command.add_argument("--host", default="127.0.0.1", help="where to listen")
        port = PYNQ_REMOTE_PORT if command is remote else DEFAULT_PORT
        command.add_argument("--port", type=int, default=port, help="0: any free one")
    for command in (serve, virtual):
        command.add_argument("--secret-file", type=Path, help="file that holds the shared secret")
    serve.add_argument(
        "--attach", action="store_true", help="the bitstream was programmed by other means"
    )
    for command in (virtual, remote):
        command.add_argument("--simulator", choices=("fsim", "tsim", "axi"), default="fsim")
    virtual.add_argument(
        "--fault",
        action="append",
        default=[],
        choices=[fault.value for fault in Fault],
        help="a fault to have once; may be given several times",
    )
    return parser


def _server(options: argparse.Namespace) -> BoardServer:
    config = HardwareConfig.load(options.config)
    design = RegisterMap(options.register_map)
    interface: PynqInterface | None = None
    faults: Faults | None = None
    if options.command == "virtual":
        faults = Faults()
        for name in options.fault:
            faults.inject(Fault(name))
        interface = _virtual_board(options, faults)
    accelerator = Accelerator(config, design, interface)
    if options.command == "serve" and options.attach:
        accelerator.attach()
    secret = read_secret(options.secret_file)
    return BoardServer(accelerator, options.host, options.port, secret=secret, faults=faults)


def _virtual_board(options: argparse.Namespace, faults: Faults) -> VirtualBoard:
    from vtaops.board.virtual import VirtualBoard

    config = HardwareConfig.load(options.config)
    return VirtualBoard(
        config, RegisterMap(options.register_map), faults, simulator=options.simulator
    )


def _bitstream(path: Path) -> bytes:
    return read_bit_file(path).to_bytes()


if __name__ == "__main__":
    sys.exit(main())
