"""Session: operators on arrays, with everything in between done and remembered.

Compiles an operator once for each shape, keeps the program in the memory of the device, packs, runs
and unpacks. The functions `conv2d`, `gemm` and `dense` are the methods of a default session.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
import numpy.typing as npt

from vtaops.compiler import compile
from vtaops.config import HardwareConfig
from vtaops.errors import DeviceError, ScheduleError, ShapeError
from vtaops.ops import Conv2d, Gemm, Operator
from vtaops.ops.base import Pair
from vtaops.program import Program, Statistics
from vtaops.runtime import Device, LoadedProgram, open_device
from vtaops.runtime.executor import DEFAULT_TIMEOUT
from vtaops.schedule import Tiling
from vtaops.tuner import COMPILED, Effort, tune

Int8Array = npt.NDArray[np.int8]

LOADED_PROGRAMS = 64
"""Programs that a session keeps in device memory; the least recently used one makes room."""


class Session:
    """A device, and the programs that run on it.

    Use it as a context manager, or call `close`. Calls from several threads take turns.

    Parameters
    ----------
    device : str or Device
        ``"fsim"``, ``"pynq://host:port"``, or any object that implements the `Device` protocol.
    config : HardwareConfig, str or Path
        Configuration of a device that is named; its name, or a JSON file.
    timeout : float
        Seconds that one launch may take.
    check_overflow : bool
        Whether an overflow of an int32 accumulator is an error (``"fsim"`` only; slower).
    search : "off", "fast" or "thorough"
        How tilings are found: by a bound on cycles, or by timing some dozen or a hundred compiled
        programs (seconds for each new shape; results are kept on disk).

    Raises
    ------
    ConfigError
        If there is no such configuration.
    ScheduleError
        If `search` is unknown.
    DeviceError
        If there is no such device, or it cannot be opened.

    Examples
    --------
    >>> with vtaops.Session() as session:
    ...     y = session.conv2d(x, w, padding=1, shift=8)
    ...     print(session.stats)
    """

    def __init__(
        self,
        device: str | Device = "fsim",
        config: HardwareConfig | str | Path = "pynq",
        *,
        timeout: float = DEFAULT_TIMEOUT,
        check_overflow: bool = False,
        search: Effort | Literal["off"] = "off",
    ) -> None:
        if isinstance(device, str):
            device = open_device(device, config, check_overflow=check_overflow)
        elif check_overflow:
            raise DeviceError("check_overflow needs a device that is named: Session('fsim')")
        if search not in ("off", *COMPILED):
            raise ScheduleError(f"search is {search!r}; it must be off, fast or thorough")
        self.device = device
        self._search = search
        self._timeout = timeout
        self._lock = threading.RLock()
        self._loaded: OrderedDict[tuple[Operator, Tiling | None], LoadedProgram] = OrderedDict()
        self._closed = False

    # ----------------------------------------------------------------- operators

    def conv2d(
        self,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        strides: Pair = 1,
        padding: int | tuple[int, int] | tuple[int, int, int, int] = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: tuple[int, int] | None = (0, 127),
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Convolve: ``int8(clip((conv(data, kernel) + bias) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (N, C, H, W)
            Input images.
        kernel : int8 array, shape (O, C, KH, KW)
            Filters.
        strides, dilation : int or (int, int)
            (height, width).
        padding : int, (int, int) or (int, int, int, int)
            Zeros around the input: one number, (height, width) or (top, left, bottom, right).
        groups : int
            Must be 1.
        bias : int32 array, shape (O,), optional
            Added to the accumulators before the shift.
        shift : int
            Arithmetic right shift, 0..31.
        clip : (int, int) or None
            Bounds of the result within int8; None stores the low 8 bits.
        tiling : Tiling, optional
            How to cut the operator; by default the best by a bound on cycles.

        Returns
        -------
        int8 array, shape (N, O, OH, OW)

        Raises
        ------
        ShapeError
            If ranks, dtypes, channel counts or parameters do not fit.
        ScheduleError
            If the tiling does not fit.
        DeviceError
            If the device fails.
        """
        images = _int8("data", data, "NCHW")
        filters = _int8("kernel", kernel, "OIHW")
        if images.shape[1] != filters.shape[1] * groups:
            raise ShapeError(
                f"data has {images.shape[1]} channels (shape {images.shape}), kernel expects "
                f"{filters.shape[1] * groups} (shape {filters.shape}, groups {groups})"
            )
        op = Conv2d(
            batch=images.shape[0],
            in_channels=images.shape[1],
            out_channels=filters.shape[0],
            height=images.shape[2],
            width=images.shape[3],
            kernel=(filters.shape[2], filters.shape[3]),
            strides=strides,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bias is not None,
            shift=shift,
            clip=clip,
        )
        return self.run(op, images, filters, *_bias(bias, op.out_channels), tiling=tiling)

    def gemm(
        self,
        data: npt.ArrayLike,
        weight: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: tuple[int, int] | None = (0, 127),
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Multiply matrices: ``int8(clip((data @ weight.T + bias) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (M, K)
            Left operand.
        weight : int8 array, shape (N, K)
            Right operand, transposed.
        bias : int32 array, shape (N,), optional
            Added to the accumulators before the shift.
        shift, clip, tiling
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (M, N)

        Raises
        ------
        ShapeError, ScheduleError, DeviceError
            As `conv2d`.
        """
        left, right = _int8("data", data, "MK"), _int8("weight", weight, "NK")
        if left.shape[1] != right.shape[1]:
            raise ShapeError(
                f"data has shape {left.shape} and weight {right.shape}; their last extents must "
                f"be equal"
            )
        op = Gemm(
            m=left.shape[0],
            n=right.shape[0],
            k=left.shape[1],
            bias=bias is not None,
            shift=shift,
            clip=clip,
        )
        return self.run(op, left, right, *_bias(bias, op.n), tiling=tiling)

    dense = gemm

    def run(self, op: Operator, *arrays: npt.ArrayLike, tiling: Tiling | None = None) -> Int8Array:
        """Run an operator description on arrays; compiled at the first call for each shape.

        Raises
        ------
        ShapeError, ScheduleError, DeviceError
            As `conv2d`.
        """
        with self._lock:
            result = self._load(op, tiling).run(*arrays, timeout=self._timeout)
        return result.astype(np.int8, copy=False)

    def program(self, op: Operator, tiling: Tiling | None = None) -> Program:
        """Return the program that `run` executes for an operator."""
        with self._lock:
            return self._load(op, tiling).program

    def _load(self, op: Operator, tiling: Tiling | None) -> LoadedProgram:
        if self._closed:
            raise DeviceError("the session is closed; open a new one")
        key = op, tiling
        if key not in self._loaded:
            while len(self._loaded) >= LOADED_PROGRAMS:
                self._loaded.popitem(last=False)[1].close()
            chosen = tiling
            if chosen is None and self._search != "off":
                chosen = tune(op, self.device.config, self._search).tiling
            program = compile(op, self.device.config, chosen)
            self._loaded[key] = LoadedProgram(program, self.device)
        self._loaded.move_to_end(key)
        return self._loaded[key]

    # ---------------------------------------------------------------- statistics

    @property
    def stats(self) -> Statistics:
        """The counters of the device since the session began or `reset_stats`."""
        return self.device.stats()

    def reset_stats(self) -> None:
        """Set the counters to zero."""
        self.device.reset_stats()

    # ------------------------------------------------------------------ lifetime

    def close(self) -> None:
        """Free the device memory and release the device; calling it again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for loaded in self._loaded.values():
                loaded.close()
            self._loaded.clear()
            self.device.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


_default: Session | None = None
_default_lock = threading.Lock()


def default_session() -> Session:
    """Return the session of the plain functions: the functional simulator, configuration pynq."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Session()
        return _default


def conv2d(
    data: npt.ArrayLike,
    kernel: npt.ArrayLike,
    *,
    strides: Pair = 1,
    padding: int | tuple[int, int] | tuple[int, int, int, int] = 0,
    dilation: Pair = 1,
    groups: int = 1,
    bias: npt.ArrayLike | None = None,
    shift: int = 8,
    clip: tuple[int, int] | None = (0, 127),
    session: Session | None = None,
) -> Int8Array:
    """Convolve on a session, by default the functional simulator; see `Session.conv2d`."""
    return (session or default_session()).conv2d(
        data,
        kernel,
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
        bias=bias,
        shift=shift,
        clip=clip,
    )


def gemm(
    data: npt.ArrayLike,
    weight: npt.ArrayLike,
    *,
    bias: npt.ArrayLike | None = None,
    shift: int = 8,
    clip: tuple[int, int] | None = (0, 127),
    session: Session | None = None,
) -> Int8Array:
    """Multiply ``data @ weight.T`` on a session; see `Session.gemm`."""
    chosen = session or default_session()
    return chosen.gemm(data, weight, bias=bias, shift=shift, clip=clip)


dense = gemm
"""A dense layer is `gemm`: data (M, K), weight (N, K)."""


def _int8(name: str, array: npt.ArrayLike, axes: str) -> Int8Array:
    value = np.asarray(array)
    if value.dtype != np.int8:
        raise ShapeError(f"{name} has dtype {value.dtype}; VTA computes on int8")
    if value.ndim != len(axes):
        raise ShapeError(
            f"{name} has rank {value.ndim} (shape {value.shape}); it must have rank {len(axes)}: "
            f"{axes}"
        )
    if 0 in value.shape:
        raise ShapeError(f"{name} is empty (shape {value.shape}); every extent must be at least 1")
    return value


def _bias(bias: npt.ArrayLike | None, channels: int) -> tuple[npt.NDArray[np.int32], ...]:
    if bias is None:
        return ()
    value = np.asarray(bias)
    if value.dtype != np.int32 or value.shape != (channels,):
        raise ShapeError(
            f"bias has dtype {value.dtype} and shape {value.shape}; it must be int32 of shape "
            f"({channels},)"
        )
    return (value,)
