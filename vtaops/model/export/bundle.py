"""The files of a bundle: the blob, headers that describe model and hardware, and the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtaops.base.data import data_directory
from vtaops.base.errors import ConfigError, ProgramError, raising
from vtaops.base.files import write_folder
from vtaops.base.quoting import c_string, c_text
from vtaops.graph import Tensor
from vtaops.hardware.build import VERILATOR_OPTIONS, model_defines
from vtaops.hardware.registers import REGISTER_PAGE, HlsRegisters, RtlRegisters
from vtaops.hardware.rtl import RtlParameters, harness, rtl_design
from vtaops.hardware.ulx3s import ADDRESSES, BAUD, MEMORY_BYTES, Ulx3sDesign
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Encoding, Load
from vtaops.model.export.blob import BufferKind
from vtaops.model.export.regions import add_region, dram_field
from vtaops.model.export.state import add_buffers, add_rows, ends, growing_state
from vtaops.model.export.steps import add_node
from vtaops.model.export.values import Values
from vtaops.model.model import Model
from vtaops.program.region import HostStage
from vtaops.runtime.fsim import limits_of, sizes_of, slots_of

STACK_NBYTES = 2816
"""Stack that `vta_run` needs in addition to the device's; tests measure it."""


@dataclass(frozen=True)
class Bundle:
    """Figures of an exported bundle.

    Attributes
    ----------
    folder : Path
        Folder of the bundle.
    blob_nbytes, arena_nbytes, device_nbytes : int
        Size of the constant data; memory on the processor; memory on the device.
    launches : int
        Number of launches per run.
    """

    folder: Path
    blob_nbytes: int
    arena_nbytes: int
    device_nbytes: int
    launches: int


def export_c(
    model: Model, folder: Path, more: Mapping[str, bytes] | None = None, *, force: bool
) -> Bundle:
    """Write a model, and more files, as a folder of C; see `vtaops.Model.export_c`."""
    bundle, files = bundle_files(model, folder)
    with raising(ProgramError, f"cannot write a bundle to {folder}", OSError, ValueError):
        write_folder(folder, {**files, **(more or {})}, force=force)
    return bundle


def bundle_files(model: Model, folder: Path) -> tuple[Bundle, dict[str, bytes]]:
    """Return a bundle's figures, and its files by path within the folder.

    Raises
    ------
    UnsupportedError
        If a part of the model has no C code; the message names it.
    """
    values = _values(model)
    data, blob = values.finished(config_word(model.config), dram_field(model.config)), values.blob
    device = sum(row[3] for row in blob.buffers if row[0] != BufferKind.PART)
    bundle = Bundle(folder, len(data), blob.arena(), device, len(blob.programs))
    files = {
        "model.bin": data,
        "model.h": _model_header(model, bundle, values.inputs, values.outputs).encode(),
        "hardware.h": _hardware_header(model.config).encode(),
        "fsim/fsim_config.inc": _fsim_config(model.config, model.capabilities).encode(),
    }
    for path in _sources("sim/c", "*"):
        files[path.name] = path.read_bytes()
    for path in _sources("sim/fsim", "*pp"):
        if path.name not in ("module.cpp", "baseline.cpp", "baseline.hpp"):
            files[f"fsim/{path.name}"] = path.read_bytes()
    with suppress(ConfigError):  # the scratchpads are too small for the port of the RTL
        files |= _rtl(model.config)
    return bundle, files


def _rtl(config: HardwareConfig) -> dict[str, bytes]:
    """Return the RTL, the C++ around its model, and what Verilator is told about both."""
    parameters = RtlParameters(port_bytes=config.port_width)
    design = rtl_design(config, parameters, axi=False)
    files = design.files | {path.name: path.read_bytes() for path in harness()}
    options = [f"--top-module {design.top}", *VERILATOR_OPTIONS, *design.files, ""]
    flags = ["-DVERILATOR=1", "-DVL_TIME_CONTEXT", "-DVM_TRACE=0"]
    flags += [*model_defines(config, parameters), ""]
    files |= {"options.f": "\n".join(options).encode(), "flags": "\n".join(flags).encode()}
    return {f"tsim/{name}": content for name, content in files.items()}


def config_word(config: HardwareConfig) -> int:
    """Return the first 32 bits of a fingerprint, by which blobs and devices are matched."""
    return int(config.fingerprint[:8], 16)


def _sources(folder: str, pattern: str) -> list[Path]:
    return sorted(path for path in data_directory(folder).glob(pattern) if path.is_file())


def _values(model: Model) -> Values:
    """Return the values of a model after all its stages."""
    growing = growing_state(model)
    values = Values(*ends(model.graph, growing))
    state = add_buffers(growing, values)
    nodes = {node.name: node for node in model.graph.nodes}
    arena = max((program.arena_nbytes for program in model.programs), default=0)
    shared = values.blob.buffer(BufferKind.PLAIN, arena) if arena else 0
    for stage in model.stages:
        if isinstance(stage, HostStage):
            for name in stage.nodes:
                add_node(nodes[name], values)
        else:
            add_region(stage, model.graph, values, shared, state)
    add_rows(model.graph, growing, state, values)
    return values


# ------------------------------------------------------------------------------- headers


_TENSOR = """
/* One input or output: real value = scale * (value - zero_point) where it is int8. */
typedef struct vta_tensor {
  const char *name, *dtype;
  uint32_t nbytes, rank, shape[8];
  float scale;
  int32_t zero_point;
} vta_tensor;"""

_FUNCTIONS = """
/* Load the model into a device; again after an error and a reset of the device. */
int vta_model_init(const vta_device *device);
/* Run the model once, loading it first if it is not loaded on this device. */
int vta_model_run(const vta_device *device, const void *const *inputs,
                  void *const *outputs);
/* Forget the rows that runs have written to the state on the device: begin again. */
int vta_model_reset(void);"""


def guarded(name: str, about: str, lines: Sequence[str]) -> str:
    """Return a header of C."""
    return "\n".join(
        [f"/* {about} */", f"#ifndef {name}", f"#define {name}", "", *lines, "", "#endif", ""]
    )


def _model_header(
    model: Model, bundle: Bundle, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> str:
    """Return ``model.h``: the inputs and outputs, and the memory that the model needs."""
    lines = [
        '#include "vta.h"',
        "",
        f"#define VTA_MODEL_NAME {c_string(model.name)}",
        f"#define VTA_MODEL_HARDWARE {c_string(model.config.name)}",
        f"#define VTA_ARENA_NBYTES {bundle.arena_nbytes}u /* on this processor */",
        f"#define VTA_STACK_NBYTES {STACK_NBYTES}u /* on this processor, at most, in vta_run */",
        f"#define VTA_DEVICE_NBYTES {bundle.device_nbytes}u /* plus up to a page per buffer */",
        "",
        f"#define VTA_INPUTS {len(inputs)}",
        f"#define VTA_OUTPUTS {len(outputs)}",
        *_tensors("INPUT", inputs),
        *_tensors("OUTPUT", outputs),
        _TENSOR,
        f"#define VTA_INPUT_TABLE {_table(inputs)}",
        f"#define VTA_OUTPUT_TABLE {_table(outputs)}",
        _FUNCTIONS,
    ]
    return guarded("VTA_MODEL_H", "Generated by vtaops: the model.", lines)


def _tensors(kind: str, tensors: Sequence[Tensor]) -> list[str]:
    return [
        f"#define VTA_{kind}_{number}_NBYTES {tensor.nbytes}u /* {c_text(tensor.name)} */"
        for number, tensor in enumerate(tensors)
    ]


def _table(tensors: Sequence[Tensor]) -> str:
    rows = []
    for tensor in tensors:
        shape = ", ".join(map(str, tensor.shape))
        sizes = f"{tensor.nbytes}u, {len(tensor.shape)}u, {{{shape}}}"
        scale = f"{tensor.scale:.9g}"
        scale += "f" if "." in scale or "e" in scale else ".0f"
        rows.append(
            f"{{{c_string(tensor.name)}, {c_string(tensor.dtype)}, {sizes}, {scale}, "
            f"{tensor.zero_point}}}"
        )
    return "{" + ", ".join(rows) + "}"


def _hardware_header(config: HardwareConfig) -> str:
    """Return ``hardware.h``: the configuration, and the control registers of both designs."""
    nothing = Encoding.of(config).encode_all([Load(memory=Memory.UOP)])
    words = ", ".join(f"0x{word:x}u" for word in nothing.view("<u4").reshape(-1).tolist())
    about = f"of the configuration {c_text(config.name)}"
    lines = [
        f"#define VTA_CONFIG 0x{config_word(config):08x}u /* {about} */",
        f"#define VTA_REGISTERS_AT 0x{config.board.register_base:x}u",
        f"#define VTA_REGISTER_PAGE 0x{REGISTER_PAGE:x}u",
        f"#define VTA_NOTHING {{{words}}} /* an instruction that does nothing */",
    ]
    for name, design in (("HLS", HlsRegisters), ("RTL", RtlRegisters)):
        lines += ["", f"/* {design.__name__} of vtaops.hardware.registers */"]
        lines += [
            f"#define VTA_{name}_{key} {_number(value)}"
            for key, value in vars(design).items()
            if key.isupper() and not isinstance(value[0] if isinstance(value, tuple) else 0, str)
        ]
    lines += ["", "/* the bus of a ULX3S, from vtaops.hardware.ulx3s */"]
    lines += [f"#define VTA_ULX3S_{key} {_number(value)}" for key, value in _ulx3s(config)]
    return guarded("VTA_HARDWARE_H", "Generated by vtaops: the hardware.", lines)


def _ulx3s(config: HardwareConfig) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the bus of a ULX3S."""
    yield from ((name.upper(), address) for name, address in ADDRESSES.items())
    yield from (("MEMORY_NBYTES", MEMORY_BYTES), ("BAUD", BAUD))
    yield "IDENTITY", Ulx3sDesign(config).identity
    for clock_mhz in (50, 100):  # the latency of the SDRAM depends on the clock
        design = Ulx3sDesign(config, clock_mhz)
        start = tuple((ADDRESSES[name], value) for name, value in design.sdram_start)
        yield f"SDRAM_START_CL{design.cas_latency}", start


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(map(_number, value)) + "}"
    return f"0x{value:x}u"


def _fsim_config(config: HardwareConfig, capabilities: Capabilities) -> str:
    """Return the functional simulator's configuration of the hardware as macro calls."""
    lines = [f"SIZE({name}, {value})" for name, value in sizes_of(config).items()]
    lines += [f"LIMIT({name}, {int(value)})" for name, value in limits_of(capabilities).items()]
    lines += [
        f'SLOT("{kind}", "{name}", {offset}, {width}, {int(signed)})'
        for kind, slots in slots_of(Encoding.of(config)).items()
        for name, (offset, width, signed) in slots.items()
    ]
    return "\n".join(lines) + "\n"
