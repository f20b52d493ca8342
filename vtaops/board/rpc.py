"""A device over TVM's RPC, for users of TVM's sessions and trackers.

The server is TVM's; the calls of `vtaops.runtime.Device` are functions registered by name. The
order of the tutorials applies: connect, program the FPGA, upload a program, run. TVM's RPC has no
authentication, lets any client run any code, and has no wheels for Zynq-7000; for boards, use
`vtaops.board.server`.

    python -m vtaops.board.rpc --device fsim --port 9091
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import socket
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import rpc
from tvm.rpc import server as tvm_server

from vtaops.base.errors import ConfigError, DeviceError, UnsupportedError, VTAError, raising
from vtaops.base.files import read_file
from vtaops.base.temporary import TemporaryFolder
from vtaops.board.bitfile import MAX_BYTES, check_part, parse_bit_file
from vtaops.board.server import is_loopback
from vtaops.hardware.performance import TsimPerformance
from vtaops.hardware.registers import RegisterMap
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import HardwareConfig
from vtaops.program import Program, Statistics
from vtaops.runtime import Device, DeviceBuffer, LoadedProgram, ResidentPrograms, open_device
from vtaops.runtime.arguments import as_bytes, as_extent, as_launch, as_nbytes
from vtaops.runtime.device import ConfiguredDevice, CountingDevice, capabilities_of
from vtaops.runtime.pynq import Accelerator, PynqDevice
from vtaops.runtime.wire import error_of, parse_address

DEFAULT_PORT = 9091
BOARDS = ("pynq", "virtual")
"""Devices whose logic is programmed: this board, and a simulated one."""

_ERROR = re.compile(r"vtaops error (\w+): (.*?) \[end of error\]", re.DOTALL)


# -------------------------------------------------------------------------------- server


class _Server:
    """Functions of one session and its device; each session runs in its own process.

    Parameters
    ----------
    name : str
        One of `BOARDS`, or a name for `open_device`.
    config : HardwareConfig
        Configuration of the device.
    register_map : RegisterMap
        Register map of a board's bitstream.
    """

    def __init__(self, name: str, config: HardwareConfig, register_map: RegisterMap) -> None:
        self._name, self._config, self._register_map = name, config, register_map
        self._buffers: dict[int, DeviceBuffer] = {}  # by address

    def register(self) -> None:
        """Register the functions with TVM."""
        for name in vars(_Server):
            if not name.startswith("_") and name != "register":
                function = _marked(getattr(self, name))
                tvm_ffi.register_global_func(f"vtaops.board.rpc.{name}", function, override=True)

    def info(self) -> str:
        """Return the server's description, which clients check, as JSON."""
        config = self._config
        return json.dumps(
            {
                "device": self._name,
                "config": config.to_dict(),
                "config_name": config.name,
                "fingerprint": config.fingerprint,
                "capabilities": asdict(capabilities_of(self._device)),
                "pid": os.getpid(),
            }
        )

    def program_fpga(self, bitstream: bytes) -> None:
        """Program the logic with the bytes of a ``.bit`` file."""
        check_part(parse_bit_file(bytes(bitstream)), self._config.board.device)
        with TemporaryFolder() as folder:
            path = folder / "vtaops.bit"
            path.write_bytes(bytes(bitstream))
            self._accelerator.program(path)

    def alloc(self, nbytes: int) -> int:
        """Allocate a buffer; return its address."""
        buffer = self._device.alloc(nbytes)
        self._buffers[buffer.address] = buffer
        return buffer.address

    def free(self, address: int) -> None:
        """Release the buffer at an address."""
        self._device.free(self._buffer(address))
        del self._buffers[address]

    def write(self, address: int, image: bytes) -> None:
        """Copy bytes to the buffer at an address."""
        self._device.write(self._buffer(address), np.frombuffer(bytes(image), np.uint8))

    def read(self, address: int, nbytes: int) -> bytes:
        """Return the first bytes of the buffer at an address."""
        return self._device.read(self._buffer(address), nbytes).tobytes()

    def launch(self, address: int, count: int, timeout: float) -> None:
        """Run instructions."""
        self._device.launch(address, count, timeout)

    def stats(self) -> str:
        """Return the counters as JSON."""
        return json.dumps(self._device.stats().as_dict())

    def performance(self) -> str:
        """Return the cycle counts as JSON."""
        if not isinstance(self._device, CountingDevice):
            raise UnsupportedError(f"device {self._name!r} counts no cycles")
        return json.dumps(self._device.performance().as_dict())

    def reset_stats(self) -> None:
        """Set the counters to zero."""
        self._device.reset_stats()

    def _buffer(self, address: int) -> DeviceBuffer:
        if address not in self._buffers:
            raise DeviceError(f"no buffer is allocated at {address:#x} in this session")
        return self._buffers[address]

    @cached_property
    def _device(self) -> Device:
        if self._name in BOARDS:
            return PynqDevice(self._accelerator)
        return open_device(self._name, self._config)

    @cached_property
    def _accelerator(self) -> Accelerator:
        if self._name not in BOARDS:
            raise DeviceError(f"device {self._name!r} has no logic to program")
        interface = None
        if self._name == "virtual":
            from vtaops.board.virtual import VirtualBoard

            interface = VirtualBoard(self._config, self._register_map)
        return Accelerator(self._config, self._register_map, interface)


def _marked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Preserve the type of errors, because TVM transports only their text."""

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except VTAError as error:
            text = f"vtaops error {type(error).__name__}: {error} [end of error]"
            raise RuntimeError(text) from None

    return call


def start_server(
    device: str = "fsim",
    config: HardwareConfig | str | Path = "pynq",
    *,
    register_map: RegisterMap = RegisterMap.HLS,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    tracker: tuple[str, int] | None = None,
    key: str = "vta",
) -> int:
    """Serve from threads of this process until it ends; each session runs in its own process.

    Parameters
    ----------
    device : str
        ``"pynq"``, ``"virtual"``, or a name for `vtaops.runtime.open_device`.
    config : HardwareConfig, str or Path
        Configuration of the device.
    register_map : RegisterMap
        Register map of a board's bitstream.
    host, port : str, int
        Address to listen on; uses the first free port of the hundred from `port` on. Any client
        can run any code, so an address that other machines can reach causes a warning.
    tracker : (str, int), optional
        Address of a tracker to register with.
    key : str
        Name by which a tracker offers this server.

    Returns
    -------
    int
        Port of the server.
    """
    if not is_loopback(host):
        warnings.warn(
            f"TVM's RPC at {host} lets whoever can connect run any code on this machine; keep it "
            f"on 127.0.0.1 behind an SSH tunnel, or serve with python -m vtaops.board",
            stacklevel=2,
        )
    _Server(device, HardwareConfig.of(config), register_map).register()
    _survive_crashes()
    state = tvm_server.PopenRPCServerState(
        host, port, port + 100, tracker_addr=tracker, key=key, custom_addr=host, silent=True
    )
    return int(state.port)


def _survive_crashes() -> None:
    """Keep TVM's listening thread alive when a session crashes; it would end with its port open."""
    if hasattr(tvm_server._serving, "survives"):
        return
    serving = tvm_server._serving

    def survivor(stream: Any, address: Any, options: Any, library: Any) -> None:
        folder = Path.cwd()
        try:
            serving(stream, address, options, library)
        except RuntimeError as error:
            logging.getLogger("vtaops.board.rpc").warning(
                "session of %s crashed: %s", address, error
            )
            os.chdir(folder)
            stream.close()

    survivor.survives = True  # type: ignore[attr-defined]
    tvm_server._serving = survivor


# -------------------------------------------------------------------------------- client


@dataclass(frozen=True, eq=False)
class RpcBuffer:
    """A block of DRAM of the device behind a server."""

    address: int
    nbytes: int


class RpcSession(ConfiguredDevice):
    """A device behind TVM's RPC: a session with the functions of this file.

    Use it as a context manager, or drop it: TVM ends the session with the last reference.

    Parameters
    ----------
    session : tvm.rpc.RPCSession
        Session from `connect`, ``tvm.rpc.connect`` or a tracker.
    config : HardwareConfig, str or Path, optional
        Required configuration of the device.

    Attributes
    ----------
    sent_bytes, received_bytes : int
        Bytes of buffers transferred so far: programs, parameters and inputs; outputs.

    Raises
    ------
    ConfigError
        If the device has another configuration.
    DeviceError
        If the server was not started by `start_server`.
    """

    def __init__(self, session: Any, config: HardwareConfig | str | Path | None = None) -> None:
        self.session = session
        self.sent_bytes = 0
        self.received_bytes = 0
        self._info = json.loads(self._call("info"))
        super().__init__(HardwareConfig.from_dict(self._info["config"], self._info["config_name"]))
        self.capabilities = Capabilities(**self._info["capabilities"])
        wanted = None if config is None else HardwareConfig.of(config).fingerprint
        for expected in (self._info["fingerprint"], wanted):
            if expected not in (None, self.config.fingerprint):
                raise ConfigError(
                    f"the server has configuration {self.config.bitstream_id} "
                    f"({self._info['fingerprint']}), not {expected}"
                )

    @property
    def info(self) -> dict[str, Any]:
        """The server's own description."""
        return dict(self._info)

    def program_fpga(self, bitstream: str | Path) -> None:
        """Program the logic of a board with a ``.bit`` file.

        Raises
        ------
        DeviceError
            If the file cannot be read or is for another part, or the device cannot be programmed.
        """
        with raising(DeviceError, f"cannot read {bitstream}", OSError):
            content = read_file(bitstream, MAX_BYTES)
        self._call("program_fpga", content)

    @cached_property
    def residents(self) -> ResidentPrograms:
        """Programs that this session keeps on the device: ``model.run(image, session=remote)``."""
        return ResidentPrograms(self)

    def load(
        self, program: Program, parameters: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> Callable[..., npt.NDArray[np.generic] | Any]:
        """Upload a program; return a function that runs it on its inputs, like `Program.run`.

        Parameters
        ----------
        program : Program
            The program.
        parameters : mapping, optional
            DRAM images of the inputs that are the same in all runs, by buffer name. They are sent
            now, and the function takes the other inputs.

        Raises
        ------
        ConfigError
            If the program was compiled for another configuration.
        DeviceError
            If the device does not have enough memory.
        """
        return LoadedProgram(program, self, parameters).run

    def alloc(self, nbytes: int) -> DeviceBuffer:
        nbytes = as_nbytes(nbytes)
        return RpcBuffer(self._call("alloc", nbytes), nbytes)

    def free(self, buffer: DeviceBuffer) -> None:
        self._call("free", buffer.address)

    def write(self, buffer: DeviceBuffer, data: npt.NDArray[np.generic]) -> None:
        image = as_bytes(data).tobytes()
        self._call("write", buffer.address, image)
        self.sent_bytes += len(image)

    def read(self, buffer: DeviceBuffer, nbytes: int) -> npt.NDArray[np.uint8]:
        nbytes, _ = as_extent(buffer, nbytes)
        image = bytearray(self._call("read", buffer.address, nbytes))
        self.received_bytes += nbytes
        return np.frombuffer(image, np.uint8)

    def launch(self, insn_address: int, count: int, timeout: float) -> None:
        self._call("launch", *as_launch(insn_address, count, timeout))

    def stats(self) -> Statistics:
        return Statistics(**json.loads(self._call("stats")))

    def performance(self) -> TsimPerformance:
        """Return cycles by cause, counted by the logic since `reset_stats`.

        Raises
        ------
        UnsupportedError
            If the device has no cycle counters.
        """
        return TsimPerformance(**json.loads(self._call("performance")))

    def reset_stats(self) -> None:
        self._call("reset_stats")

    def close(self) -> None:
        """End the session; a tracker may offer the device again."""
        self.session = None

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            return self.session.get_function(f"vtaops.board.rpc.{name}")(*arguments)
        except Exception as error:
            found = _ERROR.search(str(error))
            if found is None:
                raise DeviceError(f"TVM's RPC failed in {name}: {_last_line(error)}") from error
            raise error_of(found[1], found[2]) from error


def connect(
    host: str,
    port: int = DEFAULT_PORT,
    config: HardwareConfig | str | Path | None = None,
    *,
    key: str = "vta",
    timeout: float = 10.0,
    session_timeout: float = 0,
) -> RpcSession:
    """Open a session.

    Parameters
    ----------
    host, port : str, int
        Address of the server.
    config : HardwareConfig, str or Path, optional
        Required configuration of the device.
    key : str
        The key with which the server was started.
    timeout : float
        Seconds within which the server must accept; TVM itself would wait forever.
    session_timeout : float
        Seconds after which the server ends the session; 0 for no limit.

    Raises
    ------
    ConfigError
        If the device has another configuration.
    DeviceError
        If the server cannot be reached.
    """
    with raising(DeviceError, f"no RPC server at {host}:{port}", Exception, told=_last_line):
        with socket.create_connection((host, port), timeout):
            pass
        session = rpc.connect(host, port, key, session_timeout=session_timeout)
    return RpcSession(session, config)


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def main() -> None:
    """Serve until the process is interrupted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="fsim", help="pynq, virtual, fsim, tsim")
    parser.add_argument("--config", default="pynq")
    parser.add_argument("--register-map", default="hls", choices=[d.value for d in RegisterMap])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--tracker", help="HOST:PORT of a tracker to register with")
    parser.add_argument("--key", default="vta", help="name by which a tracker offers this server")
    options = parser.parse_args()
    tracker = parse_address(options.tracker) if options.tracker else None
    port = start_server(
        options.device,
        options.config,
        register_map=RegisterMap(options.register_map),
        host=options.host,
        port=options.port,
        tracker=tracker,
        key=options.key,
    )
    print(f"serving {options.device} at {options.host}:{port}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
