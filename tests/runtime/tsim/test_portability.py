"""The sources are plain enough for other tools: Yosys' own front end, slang, memory compilers."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from helpers.tsim_support import needs_yosys

from vtaops import HardwareConfig
from vtaops.hardware.rtl import axi_sources, sources
from vtaops.hardware.synthesis import READ_SLANG, execute_yosys
from vtaops.runtime.tsim import RtlParameters, systemverilog_package

CONFIGS = ("tiny", "pynq", "pynq_ext")


@needs_yosys
@pytest.mark.parametrize("name", CONFIGS)
def test_the_package_parses_in_the_front_end_of_yosys(name, tmp_path):
    package = systemverilog_package(HardwareConfig.load(name), RtlParameters())
    (tmp_path / "vta_pkg.sv").write_text(package)
    execute_yosys("read_verilog -sv vta_pkg.sv", tmp_path)


@needs_yosys
def test_halves_of_a_product_have_no_sign_in_the_front_end_slang(tmp_path):
    """It extends a part of what is signed by its sign, which IEEE 1800 says it has not."""
    package = systemverilog_package(HardwareConfig.load("tiny"), RtlParameters())
    (tmp_path / "vta_pkg.sv").write_text(package)
    alu = next(path for path in sources() if path.name == "vector_alu.sv")
    (tmp_path / alu.name).write_bytes(alu.read_bytes())
    execute_yosys(
        f"{READ_SLANG} --top vector_alu vta_pkg.sv {alu.name}; select -assert-min 1 t:$mul; "
        "select -assert-none t:$mul r:A_SIGNED=1 %i",
        tmp_path,
    )


@pytest.mark.skipif(find_spec("pyslang") is None, reason="pyslang is not installed (extra: slang)")
@pytest.mark.parametrize("name", CONFIGS)
def test_slang_has_nothing_to_complain_about(name):
    from pyslang import ast, syntax

    compilation = ast.Compilation()
    parameters = RtlParameters(address_bits=32)  # the default of vta_axi.v
    text = systemverilog_package(HardwareConfig.load(name), parameters)
    compilation.addSyntaxTree(syntax.SyntaxTree.fromText(text))
    for path in [*sources(), *axi_sources()]:
        compilation.addSyntaxTree(syntax.SyntaxTree.fromFile(str(path)))
    found = [d for d in compilation.getAllDiagnostics() if d.isError()]
    assert [str(d.code) for d in found] == []


def test_memories_stand_in_two_modules():
    """What becomes block RAM is written nowhere else: a memory compiler's macros go there."""
    found = {path.name for path in [*sources(), *axi_sources()] if "ram_style" in path.read_text()}
    assert found == {"sram.sv", "fifo.sv"}
