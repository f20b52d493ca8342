"""Static timing of a netlist of the 7 series, without placement: the longest paths of grade -1.

Cells have the delays of the data sheets and of Project X-Ray's timings; a net has a delay by its
loads. `PUBLISHED` holds paths that Vivado routed: how far the rule is from them.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtaops.board.zynq import place_and_route


def net_delay(loads: int) -> float:
    """Return how long a routed net takes on a -1 part, in ns."""
    return 0.45 + 0.12 * math.log2(max(loads, 1))


# ---------------------------------------------------------------------------- published paths


@dataclass(frozen=True)
class RoutedPath:
    """A critical path that Vivado routed on a part of grade -1, from a published report.

    Attributes
    ----------
    design : str
        Repository and part.
    cells : float
        Delay of its cells, ns.
    nets : tuple of int
        Loads of each net that leaves its slice.
    routed : float
        Delay of the whole path in the report, ns.
    """

    design: str
    cells: float
    nets: tuple[int, ...]
    routed: float

    @property
    def estimate(self) -> float:
        """Delay of the whole path by `net_delay`, ns."""
        return self.cells + sum(map(net_delay, self.nets))


AES = "theCow61/AES-Accelerator, xc7z020, 7 ns met"
PITAYA = "alex123go/RedPitaya_Acquisition, xc7z010, 5 ns missed"
PUBLISHED = (
    RoutedPath(AES, 3.127, (4, 32, 1, 3, 1), 6.822),
    RoutedPath(AES, 2.987, (4, 32, 2, 2), 6.203),
    RoutedPath(AES, 1.795, (15, 2, 1, 1, 2, 29, 8), 5.880),
    RoutedPath(PITAYA, 1.014, (10, 1, 5, 44, 26), 4.589),
    RoutedPath(PITAYA, 1.014, (10, 1, 5, 44, 26), 4.528),
)
"""The paths of four cells or more with less than 0.6 ns to spare in timing_summary_routed.rpt, of
commits d1433339a4bb (AMD's AXI DMA in it) and 7a5fcde409d9."""


# ------------------------------------------------------------------------------- the netlist

CLOCKS = {"C", "CLK", "CLKARDCLK", "CLKBWRCLK", "WCLK"}
FF_OUT, FF_SETUP = 0.518, {"D": 0.06, "CE": 0.205, "R": 0.524, "S": 0.524}
LUT, WIDE_MUX = 0.124, 0.25
CARRY_IN_OUT, CARRY_IN_SUM, CARRY_INIT = 0.114, 0.32, 0.58
CARRY_SUM, CARRY_OUT = 0.226, 0.45  # from S or DI: the sum of the same bit; everything above it
LUT_RAM_OUT, SHIFT_OUT, LUT_RAM_SETUP = 1.32, 1.61, 0.4
BLOCK_OUT, BLOCK_REGISTER_OUT, BLOCK_DATA, BLOCK_SETUP = 2.454, 0.882, 0.737, 0.566
BLOCK_PORT_A = re.compile("(DOP?|DIP?|ADDR|EN|WE|REGCE|RSTRAM|RSTREG)A")
DSP_P, DSP_M, DSP_COMBINATIONAL, DSP_CASCADE, DSP_C = 0.434, 2.305, 4.0, 1.65, 1.82
DSP_SETUP = {"B": 0.45, "D": 1.626}
DSP_A, DSP_A_TO_AD, DSP_A_TO_M = 0.362, 1.756, 1.93
DSP_INSIDE = {1: 1e3 / 464.25, 0: 1e3 / 257.47}
"""Periods by MREG of a DSP block whose inputs and product are registered: FMAX and
FMAX_MULT_NOMREG of grade -1, AMD DS187, table "DSP48E1 Switching Characteristics"."""

UNCERTAINTY, SKEW = 0.111, 0.148
CROSSING_UNCERTAINTY, CROSSING_SKEW = 0.189, 0.342
"""What a period loses to jitter and to the difference of two clock paths: the largest of the setup
paths in the reports of `PUBLISHED`, within a clock, and between two clocks of one PLL."""

Arc = tuple[int, float, bool]  # from a net, delay of the cell, whether the net is one of the fabric


@dataclass(frozen=True)
class End:
    """An input of a register: its net, the time that it must be there ahead, its cell and pin."""

    net: int
    setup: float
    cell: str
    pin: str


class Timing:
    """Longest paths of a mapped netlist.

    Parameters
    ----------
    module : dict
        A module of Yosys' JSON, flat, of cells of the 7 series.
    launch, capture : int, optional
        Nets of clocks: only paths from registers of the one, to registers of the other.
    """

    def __init__(
        self, module: dict[str, Any], launch: int | None = None, capture: int | None = None
    ) -> None:
        self.launch, self.capture = launch, capture
        self.lost = UNCERTAINTY + SKEW
        if launch != capture:
            self.lost = CROSSING_UNCERTAINTY + CROSSING_SKEW
        self.inside: dict[str, float] = {}
        self.loads: defaultdict[int, int] = defaultdict(int)
        self.starts: dict[int, float] = {}
        self.ends: list[End] = []
        self.arcs: defaultdict[int, list[Arc]] = defaultdict(list)
        self.names: dict[int, str] = {}
        self.before: dict[int, int] = {}
        self.arrival: dict[int, float] = {}
        self.outputs: dict[str, int] = {}
        for name, value in module["netnames"].items():
            for index, net in enumerate(value["bits"]):
                if isinstance(net, int) and _better(name, self.names.get(net)):
                    self.names[net] = f"{name}[{index}]" if len(value["bits"]) > 1 else name
        for name, cell in module["cells"].items():
            self._add(name, cell)
        for net in list(self.arcs):
            self._arrive(net)

    def _add(self, name: str, cell: dict[str, Any]) -> None:
        pins = {pin: [n for n in nets if isinstance(n, int)]
                for pin, nets in cell["connections"].items()}  # fmt: skip
        inputs = {pin for pin, way in cell["port_directions"].items() if way == "input"}
        for pin in inputs - CLOCKS:
            for net in pins[pin]:
                self.loads[net] += 1
        kind, raw = cell["type"], cell["connections"]
        clocks = {net for pin in pins.keys() & CLOCKS for net in pins[pin]}
        self.launches = self.launch is None or self.launch in clocks
        self.captures = self.capture is None or self.capture in clocks
        for prefix, handle in (
            ("FD", self._flip_flop), ("LUT", self._logic), ("INV", self._logic),
            ("MUXF", self._logic), ("CARRY4", self._carry), ("SRL", self._lut_memory),
            ("RAMB", self._block_memory), ("RAM", self._lut_memory), ("DSP48E1", self._dsp),
        ):  # fmt: skip
            if kind.startswith(prefix):
                handle(name, {**cell, "pins": pins, "raw": raw})
                return

    def _end(self, name: str, cell: dict[str, Any], pin: str, setup: float) -> None:
        if self.captures:
            self.ends += [End(net, setup, name, pin) for net in cell["pins"].get(pin, ())]

    def _start(self, nets: Iterable[int], delay: float) -> None:
        if self.launches:
            self.starts.update(dict.fromkeys(nets, delay))

    def _flip_flop(self, name: str, cell: dict[str, Any]) -> None:
        for net in cell["pins"]["Q"]:
            self._start([net], FF_OUT)
            self.outputs[name] = net
        for pin, setup in FF_SETUP.items():
            self._end(name, cell, pin, setup)

    def _logic(self, name: str, cell: dict[str, Any]) -> None:
        wide = cell["type"].startswith("MUXF")
        for pin, nets in cell["pins"].items():
            if pin != "O":  # what a wide multiplexer chooses from comes from its own slice
                fabric = not wide or pin == "S"
                self._connect(nets, cell["pins"]["O"], WIDE_MUX if wide else LUT, fabric)

    def _connect(
        self, sources: list[int], targets: list[int], delay: float, fabric: bool = True
    ) -> None:
        for target in targets:
            self.arcs[target] += [(source, delay, fabric) for source in sources]

    def _carry(self, name: str, cell: dict[str, Any]) -> None:
        raw = {pin: [n if isinstance(n, int) else None for n in nets]
               for pin, nets in cell["raw"].items()}  # fmt: skip
        for bit in range(4):
            for pin in ("O", "CO"):
                out = raw[pin][bit]
                if out is None:
                    continue
                for below in range(bit + 1):
                    own = pin == "O" and below == bit
                    for side in ("S", "DI"):
                        if (net := raw[side][below]) is not None:
                            self.arcs[out].append((net, CARRY_SUM if own else CARRY_OUT, True))
                through = CARRY_IN_OUT if pin == "CO" else CARRY_IN_SUM
                self.arcs[out] += [(n, through, False) for n in raw["CI"] if n is not None]
                self.arcs[out] += [(n, CARRY_INIT, True) for n in raw["CYINIT"] if n is not None]

    def _lut_memory(self, name: str, cell: dict[str, Any]) -> None:
        out = SHIFT_OUT if cell["type"].startswith("SRL") else LUT_RAM_OUT
        outputs = [pin for pin, way in cell["port_directions"].items() if way == "output"]
        for pin, nets in cell["pins"].items():
            if pin in outputs:
                self._start(nets, out)
            elif pin.startswith(("A", "DPRA")):
                for output in outputs:
                    self._connect(nets, cell["pins"][output], LUT)
            if pin not in CLOCKS and pin not in outputs:
                self._end(name, cell, pin, LUT_RAM_SETUP)

    def _block_memory(self, name: str, cell: dict[str, Any]) -> None:
        registered = any(_number(cell, f"DO{port}_REG") for port in "AB")
        simple = cell["parameters"].get("RAM_MODE") == "SDP"
        for pin, nets in cell["pins"].items():
            port = "A" if BLOCK_PORT_A.match(pin) else "B"
            if simple and pin.startswith("D"):  # port A reads and B writes, all of the word's bits
                port = "A" if pin.startswith("DO") else "B"
            clocks = cell["pins"].get("CLKARDCLK" if port == "A" else "CLKBWRCLK", ())
            self.launches = self.launch is None or self.launch in clocks
            self.captures = self.capture is None or self.capture in clocks
            if cell["port_directions"][pin] == "output":
                out = BLOCK_REGISTER_OUT if registered else BLOCK_OUT
                self._start(nets, out)
            elif pin not in CLOCKS:
                self._end(name, cell, pin, BLOCK_DATA if pin.startswith("DI") else BLOCK_SETUP)

    def _dsp(self, name: str, cell: dict[str, Any]) -> None:
        pins, p, m = cell["pins"], _number(cell, "PREG"), _number(cell, "MREG")
        for net in [*pins.get("P", ()), *pins.get("PCOUT", ())]:
            self._start([net], DSP_P if p else DSP_M if m else DSP_COMBINATIONAL)
            if not p:
                self.arcs[net] += [(n, DSP_CASCADE, False) for n in pins.get("PCIN", ())]
                if not _number(cell, "CREG"):
                    self.arcs[net] += [(n, DSP_C, True) for n in pins.get("C", ())]
        if p and self.launches and self.captures and cell["parameters"]["USE_MULT"] != "NONE":
            self.inside[name] = DSP_INSIDE[m]
        adder = cell["parameters"].get("USE_DPORT") == "TRUE" and _number(cell, "ADREG")
        a = DSP_A if _number(cell, "AREG") else DSP_A_TO_AD if adder else DSP_A_TO_M
        d = DSP_SETUP["B"] if _number(cell, "DREG") else DSP_SETUP["D"]
        for pin, setup in {**DSP_SETUP, "A": a, "D": d}.items():
            self._end(name, cell, pin, setup)
        for pin in pins:
            if pin.startswith(("CE", "RST")) or pin in ("INMODE", "OPMODE", "ALUMODE"):
                self._end(name, cell, pin, 0.5)

    # ---------------------------------------------------------------------------- paths

    def _wire(self, net: int, fabric: bool) -> float:
        return net_delay(self.loads[net]) if fabric else 0.0

    def _arrive(self, goal: int) -> None:
        stack = [goal]
        while stack:
            net = stack[-1]
            missing = [n for n, _, _ in self.arcs.get(net, ()) if n not in self.arrival]
            if net in self.arrival or not missing:
                stack.pop()
                self._settle(net)
            else:
                stack += missing

    def _settle(self, net: int) -> None:
        if net in self.arrival:
            return
        best = self.starts.get(net, -math.inf)
        for source, delay, fabric in self.arcs.get(net, ()):
            time = self.arrival[source] + self._wire(source, fabric) + delay
            if time > best:
                best, self.before[net] = time, source
        self.arrival[net] = best

    def period(self, end: End) -> float:
        """Return the clock period that an input of a register needs, in ns."""
        self._arrive(end.net)
        return self.arrival[end.net] + self._wire(end.net, True) + end.setup + self.lost

    def path(self, net: int) -> Iterator[int]:
        """Yield the nets of the longest path to a net, backwards."""
        while True:
            yield net
            if net not in self.before:
                return
            net = self.before[net]

    def longest(self, least: float) -> list[dict[str, Any]]:
        """Return the longest path between each two registers that needs `least` ns or more."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for end in sorted(self.ends, key=self.period, reverse=True):
            ns = self.period(end)
            if (rows and ns < least) or ns == -math.inf:
                break
            nets = list(self.path(end.net))
            target = self.names.get(self.outputs.get(end.cell, -1), end.cell)
            key = _register(self.names.get(nets[-1], "?")), f"{_register(target)}.{end.pin}"
            row = {"ns": round(ns, 2), "from": key[0], "to": key[1], "levels": len(nets) - 1,
                   "loads": [self.loads[net] for net in reversed(nets)], "ends": 0}  # fmt: skip
            rows.setdefault(key, row)["ends"] += 1
        return sorted([*rows.values(), *self._inside()], key=lambda row: -row["ns"])

    def _inside(self) -> Iterator[dict[str, Any]]:
        """Yield what the DSP blocks need between their own registers: the longest, once."""
        if self.inside:
            cell, ns = max(self.inside.items(), key=lambda item: item[1])
            yield {"ns": round(ns + self.lost, 2), "from": cell, "to": f"{cell}.P", "levels": 0,
                   "loads": [], "ends": len(self.inside)}  # fmt: skip


def _number(cell: dict[str, Any], parameter: str) -> int:
    value = cell["parameters"].get(parameter, 0)
    return int(value, 2) if isinstance(value, str) and set(value) <= {"0", "1"} else int(value)


def _better(name: str, known: str | None) -> bool:
    """Whether a name says more than the one that a net has: those of Yosys begin with $."""
    return known is None or (name.startswith("$"), len(name)) < (known.startswith("$"), len(known))


def _register(name: str) -> str:
    short = re.sub(r"\[\d+\]$", "", name).replace("design.shell.core.", "")
    return re.sub(r"^.*\$", "$", short) if short.startswith("$") else short


PINS = {"clk": "H16", "array_clk": "U18", "reset_n": "D19", "in": "D20", "out": "R14"}
"""Pins of the harness on the package clg400; the clocks' are pins of clocks."""
BUFFERS = ("IBUF", "BUFG")


def route(folder: Path, target_mhz: float) -> float:
    """Place and route ``netlist.json`` and return the slowest clock that nextpnr reports, MHz."""
    lines = "".join(
        f"set_property LOC {pin} [get_ports {name}]\n"
        f"set_property IOSTANDARD LVCMOS33 [get_ports {name}]\n"
        for name, pin in PINS.items()
    )
    (folder / "pins.xdc").write_text(lines)
    return min(place_and_route(folder, target_mhz, 1, "--xdc", "pins.xdc").values())


def clock_net(module: dict[str, Any], port: str) -> int:
    """Return the net of a clock behind the buffers of its pin."""
    net: int = module["ports"][port]["bits"][0]
    ends = [cell["connections"] for cell in module["cells"].values() if cell["type"] in BUFFERS]
    buffers = {pins["I"][0]: pins["O"][0] for pins in ends}
    while net in buffers:
        net = buffers[net]
    return net
