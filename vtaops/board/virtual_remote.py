"""The virtual board behind the gRPC protocol of PYNQ.remote, for the unmodified ``pynq`` client.

The messages come from the ``pynq`` package (4.0.0), which must be installed together with grpcio.
That package needs NumPy below 2, so use a separate environment. It serves files (a dictionary, and
the FPGA manager), registers and buffers, but no GPIO, interrupts or RF clocks.

    python -m vtaops.board virtual-remote --port 7967
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import PurePosixPath
from typing import Any

import grpc
import numpy as np
from pynq.remote import (
    buffer_pb2,
    buffer_pb2_grpc,
    mmio_pb2,
    mmio_pb2_grpc,
    remote_device_pb2,
    remote_device_pb2_grpc,
)

from vtaops.board.pynq_remote import DEFAULT_PORT, FPGA_MANAGER
from vtaops.board.virtual import VirtualBoard, VirtualBuffer

FIRMWARE = "/lib/firmware"

_CHUNK_BYTES = 2 << 20
_MAX_FILE_BYTES = 64 << 20
_MAX_BUFFER_BYTES = 256 << 20


class RemoteFiles(remote_device_pb2_grpc.RemoteDeviceServicer):  # type: ignore[misc]
    """Files that the client reads and writes; writing the name of a firmware programs it."""

    def __init__(self, board: VirtualBoard) -> None:
        self._board = board
        self._files = {
            "/proc/version": b"Linux version 6.1 (armv7l-linux)",
            "/proc/device-tree/chosen/pynq_board": b"Virtual\0",
            f"{FPGA_MANAGER}/state": b"operating\n",
            f"{FPGA_MANAGER}/flags": b"0\n",
        }

    def existsfile(self, request: Any, context: Any) -> Any:
        """Report whether a file exists."""
        there = request.file_path in self._files
        return remote_device_pb2.ExistsFileResponse(exists=there)

    def readfile(self, request: Any, context: Any) -> Iterator[Any]:
        """Send a file in chunks."""
        if request.file_path not in self._files:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no file {request.file_path}")
        for piece in _pieces(self._files[request.file_path]):
            yield remote_device_pb2.ReadFileResponse(data=piece)

    def writefile(self, requests: Iterator[Any], context: Any) -> Any:
        """Receive a file in chunks."""
        path, content = "", b""
        for request in requests:
            path, content = request.file_path, content + request.data
            if len(content) > _MAX_FILE_BYTES:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the file is too large")
        self._files[path] = content
        if path == f"{FPGA_MANAGER}/firmware":
            self._program(content.decode(errors="replace").strip(), context)
        return remote_device_pb2.WriteFileResponse()

    def _program(self, name: str, context: Any) -> None:
        firmware = self._files.get(str(PurePosixPath(FIRMWARE) / name))
        if firmware is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no firmware {name}")
        try:
            self._board.program_bin(firmware or b"")
        except Exception as error:
            self._files[f"{FPGA_MANAGER}/state"] = b"write error\n"
            context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
        self._files[f"{FPGA_MANAGER}/state"] = b"operating\n"

    def set_bitstream_attrs(self, request: Any, context: Any) -> Any:
        """Accept the call, which has no effect."""
        return remote_device_pb2.SetBitstreamAttrsResponse(status=True)

    def set_pl_clk(self, request: Any, context: Any) -> Any:
        """Accept the call; the simulator has no clock."""
        return remote_device_pb2.SetPlClkResponse(status=True)

    def shutdown(self, request: Any, context: Any) -> Any:
        """Accept the call; the design has no shutdown managers."""
        return remote_device_pb2.ShutdownResponse(status=True)


class RemoteRegisters(mmio_pb2_grpc.MmioServicer):  # type: ignore[misc]
    """Register ranges; each access is one message."""

    def __init__(self, board: VirtualBoard) -> None:
        self._board = board
        self._ranges: dict[str, Any] = {}
        self._ids = map(str, itertools.count(1))

    def get_mmio(self, request: Any, context: Any) -> Any:
        """Map a range."""
        identity = next(self._ids)
        self._ranges[identity] = self._board.MMIO(request.base_addr, request.length)
        return mmio_pb2.GetMmioResponse(status=True, mmio_id=identity)

    def read(self, request: Any, context: Any) -> Any:
        """Read one register."""

        def act() -> dict[str, int]:
            return {"data": self._ranges[request.mmio_id].read(request.offset)}

        return _answered(mmio_pb2.ReadResponse, act)

    def write(self, request: Any, context: Any) -> Any:
        """Write consecutive registers."""

        def act() -> dict[str, int]:
            for index, value in enumerate(np.frombuffer(request.data, "<u4")):
                self._ranges[request.mmio_id].write(request.offset + 4 * index, int(value))
            return {}

        return _answered(mmio_pb2.WriteResponse, act)


class RemoteBuffers(buffer_pb2_grpc.RemoteBufferServicer):  # type: ignore[misc]
    """The board's contiguous memory as its processor sees it."""

    def __init__(self, board: VirtualBoard) -> None:
        self._board = board
        self._buffers: dict[str, VirtualBuffer] = {}
        self._ids = map(str, itertools.count(1))
        self._lock = threading.Lock()

    def allocate(self, request: Any, context: Any) -> Any:
        """Allocate a buffer; the client ignores messages, so a failure aborts the call."""
        if not 0 < request.size <= _MAX_BUFFER_BYTES:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"cannot give {request.size} bytes")
        with self._lock:
            identity = next(self._ids)
            try:
                buffer = self._board.allocate((request.size,), np.uint8, cacheable=1)
            except Exception as error:
                context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
            self._buffers[identity] = buffer
        return buffer_pb2.AllocateResponse(buffer_id=identity)

    def write(self, requests: Iterator[Any], context: Any) -> Any:
        """Receive the bytes of a buffer in chunks, from its start."""
        offset = 0
        for request in requests:
            image, data = self._buffers[request.buffer_id], request.data
            if offset + len(data) > image.nbytes:
                return buffer_pb2.BufferWriteResponse(msg="beyond the end of the buffer")
            image[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
            offset += len(data)
        return buffer_pb2.BufferWriteResponse()

    def read(self, request: Any, context: Any) -> Iterator[Any]:
        """Send the bytes of a buffer in chunks."""
        for piece in _pieces(self._buffers[request.buffer_id].tobytes()):
            yield buffer_pb2.BufferReadResponse(data=piece)

    def flush(self, request: Any, context: Any) -> Any:
        """Copy the cache to DRAM."""
        self._buffers[request.buffer_id].flush()
        return buffer_pb2.FlushResponse()

    def invalidate(self, request: Any, context: Any) -> Any:
        """Copy DRAM to the cache."""
        self._buffers[request.buffer_id].invalidate()
        return buffer_pb2.InvalidateResponse()

    def freebuffer(self, request: Any, context: Any) -> Any:
        """Free a buffer."""
        with self._lock:
            self._buffers.pop(request.buffer_id).freebuffer()
        return buffer_pb2.FreeBufferResponse()

    def physical_address(self, request: Any, context: Any) -> Any:
        """Return a buffer's address as seen by the logic."""
        address = self._buffers[request.buffer_id].physical_address
        return buffer_pb2.AddressResponse(address=address)

    def virtual_address(self, request: Any, context: Any) -> Any:
        """Return a buffer's address on the board's processor, which no client can use."""
        return buffer_pb2.AddressResponse(
            address=self._buffers[request.buffer_id].ctypes.data & 0xFFFFFFFF
        )

    def cacheable(self, request: Any, context: Any) -> Any:
        """Report that buffers are cached."""
        return buffer_pb2.CacheableResponse(cacheable=True)


def serve(board: VirtualBoard, host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> Any:
    """Serve a virtual board; return the server and its port. Stop it with ``server.stop(0)``."""
    server = grpc.server(
        futures.ThreadPoolExecutor(8),
        options=[("grpc.max_receive_message_length", _MAX_FILE_BYTES)],
    )
    remote_device_pb2_grpc.add_RemoteDeviceServicer_to_server(RemoteFiles(board), server)
    mmio_pb2_grpc.add_MmioServicer_to_server(RemoteRegisters(board), server)
    buffer_pb2_grpc.add_RemoteBufferServicer_to_server(RemoteBuffers(board), server)
    chosen = server.add_insecure_port(f"{host}:{port}")
    server.start()
    return server, chosen


def _pieces(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), _CHUNK_BYTES):
        yield content[start : start + _CHUNK_BYTES]


def _answered(response: Callable[..., Any], act: Callable[[], dict[str, int]]) -> Any:
    """Return `act`'s result, or its error in the form that the client expects."""
    try:
        return response(status=True, **act())
    except Exception as error:
        return response(status=False, msg=f"{type(error).__name__}: {error}")
