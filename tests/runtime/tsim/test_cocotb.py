"""The AXI shell between bus models that nobody here wrote: cocotb, cocotbext-axi, Verilator."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from helpers.tsim_support import needs_tools

from trials.rtl_trials import PARAMETERS, PLAIN, drawn
from vtaops.hardware.build import find_tools
from vtaops.hardware.rtl import AXI_TOP_MODULE, axi_sources, sources, systemverilog_package
from vtaops.machine.config import MICRO_OP_BYTES, PAGE_BYTES, Memory
from vtaops.machine.isa import Encoding, Finish, Load, Store, words_to_array
from vtaops.runtime.executor import relocate

MISSING = [name for name in ("cocotb", "cocotbext") if find_spec(name) is None]
MISSING += [name for name in ("perl", "make") if shutil.which(name) is None]

pytestmark = [
    needs_tools,
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} missing (extra: cocotb)"),
]


def placed(program, arrays):
    """Return the memory before a program, and where its code and its output lie."""
    image = bytearray(PAGE_BYTES)  # address 0 is nobody's

    def place(data):
        address = len(image)
        image.extend(bytes(data))
        image.extend(bytes(-len(image) % PAGE_BYTES))
        return address

    inputs = dict(zip((buffer.name for buffer in program.inputs), arrays, strict=True))
    arena = place(bytes(max(1, program.arena_nbytes)))
    micro_ops = place(program.micro_ops.tobytes() or bytes(MICRO_OP_BYTES))
    addresses = []
    for buffer in program.buffers:
        if buffer.offset is not None:
            addresses.append(arena + buffer.offset)
        elif buffer.name in inputs:
            addresses.append(place(buffer.pack(inputs[buffer.name]).tobytes()))
        else:
            addresses.append(place(bytes(buffer.nbytes)))
    code = place(relocate(program, addresses, micro_ops).tobytes())
    (output,) = program.outputs
    return image, place, code, addresses[program.buffers.index(output)], output


def test_the_shell_meets_foreign_models_of_its_buses(tmp_path):
    from cocotb_tools.runner import get_runner

    program, arrays, expected = drawn(PLAIN, 1)
    image, place, code, target, output = placed(program, arrays)
    encoding = Encoding.of(PLAIN)
    beyond = (1 << 20) // PLAIN.wgt.element_bytes
    lost = [
        place(words_to_array([encoding.encode(insn) for insn in (one, Finish())]).tobytes())
        for one in (
            Load(memory=Memory.WGT, dram_base=beyond, y_size=9, x_size=1, x_stride=9),
            Store(memory=Memory.OUT, dram_base=8 * beyond, y_size=9, x_size=1, x_stride=9),
        )
    ]
    content = np.frombuffer(bytes(image), np.uint8)
    np.savez(tmp_path / "case.npz", image=content, code=code, count=len(program), lost=lost)

    package = tmp_path / "vta_pkg.sv"
    package.write_text(systemverilog_package(PLAIN, PARAMETERS))
    tools = find_tools()
    environment = {
        "VERILATOR_ROOT": str(tools.verilator_root),
        "PATH": f"{tools.verilator.parent}:{os.environ['PATH']}",
        "CASE": str(tmp_path / "case.npz"),
        "RESULT": str(tmp_path / "result.npy"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        # The makefile of the wheel names no option of GCC for its precompiled header. A model that
        # runs some thousand cycles needs no optimisation.
        "MAKEFLAGS": "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        runner = get_runner("verilator")
        runner.build(
            sources=[package, *sources(), *axi_sources()],
            hdl_toplevel=AXI_TOP_MODULE,
            parameters={"PORT_BYTES": PARAMETERS.port_bytes,
                        "ADDRESS_BITS": PARAMETERS.address_bits},
            build_args=["-Wno-lint", "-Wno-style", "--unroll-count", "4096"],
            build_dir=tmp_path / "build",
            timescale=("1ns", "1ps"),
        )  # fmt: skip
        runner.test(  # exits where a test fails
            hdl_toplevel=AXI_TOP_MODULE,
            test_module="helpers.cocotb_axi",
            build_dir=tmp_path / "build",
            test_dir=tmp_path,
            extra_env=environment,
        )
    found = np.load(tmp_path / "result.npy")[target : target + output.nbytes]
    np.testing.assert_array_equal(output.unpack(found), expected)
