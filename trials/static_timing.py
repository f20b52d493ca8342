"""Static timing of a netlist of the 7 series, without placement: its longest paths.

Cells have the delays of data sheets and public timings, of the 7 series or of UltraScale+; a
net has a delay by its loads. `PUBLISHED` and `FASTER` hold paths that Vivado routed: how far the
rules are from them.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtaops.board.zynq import place_and_route

# --------------------------------------------------------------------------- delays of the parts


@dataclass(frozen=True)
class Delays:
    """Delays of the cells of a part, in ns, and of its nets.

    Attributes
    ----------
    net_least, net_doubling : float
        Of a routed net of one load, and more for each doubling of its loads.
    ff_out, ff_setup, lut, wide_mux : float or dict
        Of a flip-flop, from its clock and by its input; of a look-up table; of a wide multiplexer.
    carry_in_out, carry_in_sum, carry_init, carry_sum, carry_out : float
        Through four bits of a carry chain from the ones below; from the fabric below the first bit;
        from S or DI to the sum of the same bit; to everything above it.
    lut_ram_out, shift_out, lut_ram_setup : float
        Of memories in look-up tables.
    block_out, block_register_out, block_data, block_setup : float
        Of a block RAM, without and with its output register; setup of its data, of all else.
    dsp_p, dsp_m, dsp_combinational, dsp_cascade, dsp_c : float
        Of a DSP block: its output behind P, M or no register; from PCIN, from C.
    dsp_setup, dsp_a, dsp_a_to_ad, dsp_a_to_m, dsp_enable : float or dict
        Setup of its inputs; of A with a register, in front of AD and of M; of enables and resets.
    dsp_inside : dict
        Periods by MREG of a DSP block whose inputs and product are registered.
    uncertainty, skew, crossing_uncertainty, crossing_skew : float
        What a period loses to jitter and to the difference of two clock paths, within a clock, and
        between two clocks of one PLL.
    """

    net_least: float
    net_doubling: float
    ff_out: float
    ff_setup: Mapping[str, float]
    lut: float
    wide_mux: float
    carry_in_out: float
    carry_in_sum: float
    carry_init: float
    carry_sum: float
    carry_out: float
    lut_ram_out: float
    shift_out: float
    lut_ram_setup: float
    block_out: float
    block_register_out: float
    block_data: float
    block_setup: float
    dsp_p: float
    dsp_m: float
    dsp_combinational: float
    dsp_cascade: float
    dsp_c: float
    dsp_setup: Mapping[str, float]
    dsp_a: float
    dsp_a_to_ad: float
    dsp_a_to_m: float
    dsp_enable: float
    dsp_inside: Mapping[int, float]
    uncertainty: float
    skew: float
    crossing_uncertainty: float = 0.189
    crossing_skew: float = 0.342

    def net(self, loads: int) -> float:
        """Return how long a routed net takes."""
        return self.net_least + self.net_doubling * math.log2(max(loads, 1))


SEVEN_SERIES = Delays(
    net_least=0.45,
    net_doubling=0.12,
    ff_out=0.518,
    ff_setup={"D": 0.06, "CE": 0.205, "R": 0.524, "S": 0.524},
    lut=0.124,
    wide_mux=0.25,
    carry_in_out=0.114,
    carry_in_sum=0.32,
    carry_init=0.58,
    carry_sum=0.226,
    carry_out=0.45,
    lut_ram_out=1.32,
    shift_out=1.61,
    lut_ram_setup=0.4,
    block_out=2.454,
    block_register_out=0.882,
    block_data=0.737,
    block_setup=0.566,
    dsp_p=0.434,
    dsp_m=2.305,
    dsp_combinational=4.0,
    dsp_cascade=1.65,
    dsp_c=1.82,
    dsp_setup={"B": 0.45, "D": 1.626},
    dsp_a=0.362,
    dsp_a_to_ad=1.756,
    dsp_a_to_m=1.93,
    dsp_enable=0.5,
    dsp_inside={1: 1e3 / 464.25, 0: 1e3 / 257.47},
    uncertainty=0.111,
    skew=0.148,
)
"""Grade -1: data sheets and Project X-Ray. Inside of a DSP block: FMAX and FMAX_MULT_NOMREG of AMD
DS187, table "DSP48E1 Switching Characteristics". Clocks: the largest figures of the setup paths in
the reports of `PUBLISHED`."""

ULTRASCALE_PLUS = Delays(
    net_least=0.2,
    net_doubling=0.055,
    ff_out=0.081,
    ff_setup={"D": 0.025, "CE": 0.061, "R": 0.061, "S": 0.061},
    lut=0.1,
    wide_mux=0.109,
    carry_in_out=0.059,
    carry_in_sum=0.142,
    carry_init=0.206,
    carry_sum=0.241,
    carry_out=0.217,
    lut_ram_out=0.312,
    shift_out=0.312,
    lut_ram_setup=0.18,
    block_out=1.003,
    block_register_out=0.229,
    block_data=0.313,
    block_setup=0.445,
    dsp_p=0.28,
    dsp_m=0.91,
    dsp_combinational=1.62,
    dsp_cascade=0.7,
    dsp_c=0.7,
    dsp_setup={"B": 0.3, "D": 1.45},
    dsp_a=0.3,
    dsp_a_to_ad=1.45,
    dsp_a_to_m=1.45,
    dsp_enable=0.22,
    dsp_inside={1: 1.15, 0: 1.73},
    uncertainty=0.061,
    skew=0.106,
)
"""Grade -2 at 0.85 V. Cells: the largest delays of AMD's RapidWright, ``timing/ultrascaleplus`` at
commit 325baa006242, made for an xcvu3p-2; but 0.1 for a look-up table, whose six inputs have 0.035
to 0.15: the 20 in published paths have 0.081 on average. Two CARRY4 are a CARRY8. DSP blocks: the
same repository at 492fa3fd50c5 (``dump_all_dsp_delay``); what leaves register M unregistered, and
what is between registers, by the parts of a block that Vivado reports for a -1
(gussmith23/lakeroad-evaluation, pow.futil-ultrascale). Nets: above those of `FASTER`, and 5 % above
eleven of a dense 512-bit design (ZipCPU/wb2axip issue 74, alexforencich/verilog-axi issue 13: a
VU9P at 250 MHz, its grade is not told). Clocks: that report; nothing is published for two clocks of
one PLL, so those of `SEVEN_SERIES` stay."""


# ---------------------------------------------------------------------------- published paths


@dataclass(frozen=True)
class RoutedPath:
    """A critical path that Vivado routed, from a published report.

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
    delays : Delays
        Those of its part.
    """

    design: str
    cells: float
    nets: tuple[int, ...]
    routed: float
    delays: Delays = SEVEN_SERIES

    @property
    def estimate(self) -> float:
        """Delay of the whole path by the rule for nets, ns."""
        return self.cells + sum(map(self.delays.net, self.nets))


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

RAPIDWRIGHT = "rapidwright.io/docs, RWRoute, xcvu3p-2"
FASTER = (
    RoutedPath(f"{RAPIDWRIGHT}, 2 ns met", 0.817, (1, 1, 324, 2), 1.846, ULTRASCALE_PLUS),
    RoutedPath(f"{RAPIDWRIGHT}, 3 ns met", 0.804, (21, 2, 19, 4, 8, 2, 2), 2.331, ULTRASCALE_PLUS),
)
"""Critical paths of the Vivado reports that AMD shows there: a MicroBlaze, and a random design."""


# ------------------------------------------------------------------------------- the netlist

CLOCKS = {"C", "CLK", "CLKARDCLK", "CLKBWRCLK", "WCLK"}
BLOCK_PORT_A = re.compile("(DOP?|DIP?|ADDR|EN|WE|REGCE|RSTRAM|RSTREG)A")

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
    delays : Delays
        Those of the part.
    """

    def __init__(
        self,
        module: dict[str, Any],
        launch: int | None = None,
        capture: int | None = None,
        delays: Delays | None = None,
    ) -> None:
        self.delays = delays or SEVEN_SERIES
        self.launch, self.capture = launch, capture
        self.lost = self.delays.uncertainty + self.delays.skew
        if launch != capture:
            self.lost = self.delays.crossing_uncertainty + self.delays.crossing_skew
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
            self._start([net], self.delays.ff_out)
            self.outputs[name] = net
        for pin, setup in self.delays.ff_setup.items():
            self._end(name, cell, pin, setup)

    def _logic(self, name: str, cell: dict[str, Any]) -> None:
        wide = cell["type"].startswith("MUXF")
        for pin, nets in cell["pins"].items():
            if pin != "O":  # what a wide multiplexer chooses from comes from its own slice
                fabric = not wide or pin == "S"
                self._connect(
                    nets,
                    cell["pins"]["O"],
                    self.delays.wide_mux if wide else self.delays.lut,
                    fabric,
                )

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
                            self.arcs[out].append(
                                (net, self.delays.carry_sum if own else self.delays.carry_out, True)
                            )
                through = self.delays.carry_in_out if pin == "CO" else self.delays.carry_in_sum
                self.arcs[out] += [(n, through, False) for n in raw["CI"] if n is not None]
                self.arcs[out] += [
                    (n, self.delays.carry_init, True) for n in raw["CYINIT"] if n is not None
                ]

    def _lut_memory(self, name: str, cell: dict[str, Any]) -> None:
        out = self.delays.shift_out if cell["type"].startswith("SRL") else self.delays.lut_ram_out
        outputs = [pin for pin, way in cell["port_directions"].items() if way == "output"]
        for pin, nets in cell["pins"].items():
            if pin in outputs:
                self._start(nets, out)
            elif pin.startswith(("A", "DPRA")):
                for output in outputs:
                    self._connect(nets, cell["pins"][output], self.delays.lut)
            if pin not in CLOCKS and pin not in outputs:
                self._end(name, cell, pin, self.delays.lut_ram_setup)

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
                out = self.delays.block_register_out if registered else self.delays.block_out
                self._start(nets, out)
            elif pin not in CLOCKS:
                self._end(
                    name,
                    cell,
                    pin,
                    self.delays.block_data if pin.startswith("DI") else self.delays.block_setup,
                )

    def _dsp(self, name: str, cell: dict[str, Any]) -> None:
        pins, p, m = cell["pins"], _number(cell, "PREG"), _number(cell, "MREG")
        for net in [*pins.get("P", ()), *pins.get("PCOUT", ())]:
            self._start(
                [net],
                self.delays.dsp_p
                if p
                else self.delays.dsp_m
                if m
                else self.delays.dsp_combinational,
            )
            if not p:
                self.arcs[net] += [
                    (n, self.delays.dsp_cascade, False) for n in pins.get("PCIN", ())
                ]
                if not _number(cell, "CREG"):
                    self.arcs[net] += [(n, self.delays.dsp_c, True) for n in pins.get("C", ())]
        if p and self.launches and self.captures and cell["parameters"]["USE_MULT"] != "NONE":
            self.inside[name] = self.delays.dsp_inside[m]
        adder = cell["parameters"].get("USE_DPORT") == "TRUE" and _number(cell, "ADREG")
        a = (
            self.delays.dsp_a
            if _number(cell, "AREG")
            else self.delays.dsp_a_to_ad
            if adder
            else self.delays.dsp_a_to_m
        )
        d = self.delays.dsp_setup["B"] if _number(cell, "DREG") else self.delays.dsp_setup["D"]
        for pin, setup in {**self.delays.dsp_setup, "A": a, "D": d}.items():
            self._end(name, cell, pin, setup)
        for pin in pins:
            if pin.startswith(("CE", "RST")) or pin in ("INMODE", "OPMODE", "ALUMODE"):
                self._end(name, cell, pin, self.delays.dsp_enable)

    # ---------------------------------------------------------------------------- paths

    def _wire(self, net: int, fabric: bool) -> float:
        return self.delays.net(self.loads[net]) if fabric else 0.0

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
