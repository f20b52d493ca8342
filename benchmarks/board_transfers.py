"""What a call on a remote board costs beside the run itself: bytes, messages, time.

    python -m benchmarks board_transfers --json board_transfers.json

Virtual board in this process, loopback: the figures show the cost of the protocol, not of a board.
Wall-clock medians, in milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.options import Json, median_seconds, show, write_json
from vtaops import HardwareConfig, Session
from vtaops.board import BitFile
from vtaops.board.pynq import Accelerator
from vtaops.board.server import BoardServer
from vtaops.board.virtual import VirtualBoard
from vtaops.ops.reference import random_arguments
from vtaops.runtime import LoadedProgram
from vtaops.runtime.remote import RemoteDevice
from vtaops.schedule.workloads import find

LAYERS = ("resnet18.C2", "resnet18.C8", "resnet18.C11")
MEBIBYTES = 16


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    """Return the median milliseconds of wall time of a call."""
    return 1e3 * median_seconds(call, repeats, time.perf_counter)


def measure_layer(device: RemoteDevice, name: str, repeats: int) -> dict[str, Any]:
    """Return bytes and times of the first and of repeated calls, and of fsim without network."""
    op = find(name).op
    arrays = random_arguments(op, np.random.default_rng(0))
    program = Session("fsim", device.config).program(op)
    with Session("fsim", device.config) as local:
        local.run(op, *arrays)
        on_fsim = milliseconds(lambda: local.run(op, *arrays), repeats)
    before = device.sent_bytes
    with LoadedProgram(program, device) as loaded:
        start = time.perf_counter()
        loaded.run(*arrays)
        first = 1e3 * (time.perf_counter() - start)
        first_bytes, before = device.sent_bytes - before, device.sent_bytes
        loaded.run(*arrays)
        repeated_bytes = device.sent_bytes - before
        repeated = milliseconds(lambda: loaded.run(*arrays), repeats)
        launch = milliseconds(loaded.launch, repeats)
    return {
        "first_call_bytes": first_bytes,
        "repeated_call_bytes": repeated_bytes,
        "first_call_ms": first,
        "repeated_call_ms": repeated,
        "launch_ms": launch,
        "fsim_call_ms": on_fsim,
    }


def measure_transfers(device: RemoteDevice, repeats: int) -> dict[str, float]:
    """Return the duration of an empty message and the rates of large transfers."""
    size = MEBIBYTES << 20
    data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    buffer = device.alloc(size)
    upload = milliseconds(lambda: device.write(buffer, data), repeats)
    download = milliseconds(lambda: device.read(buffer, size), repeats)
    device.free(buffer)
    return {
        "message_ms": milliseconds(device.reset_stats, 100 * repeats),
        "upload_mb_per_s": size / upload / 1e3,
        "download_mb_per_s": size / download / 1e3,
    }


def main(
    repeats: Annotated[int, typer.Option()] = 15,
    json_file: Json = None,
) -> None:
    """Measure three layers and plain transfers."""
    config = HardwareConfig.load("pynq")
    accelerator = Accelerator(config, interface=VirtualBoard(config))
    bitstream = BitFile("vta", "7z020clg484", "", "", bytes.fromhex("aa995566") * 64).to_bytes()
    with BoardServer(accelerator, port=0) as server, RemoteDevice(server.address) as device:
        device.program(bitstream, "hls")
        layers = {name: measure_layer(device, name, repeats) for name in LAYERS}
        transfers = measure_transfers(device, repeats)
    show("Calls on a virtual board over loopback", layers, of="layer")
    show("Transfers", {"all": transfers})
    write_json(json_file, {"layers": layers, "transfers": transfers})
