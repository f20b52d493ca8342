"""What other vendors' tools do to a netlist by themselves, and Yosys and nextpnr do not.

Netlists are those of Yosys's ``write_json`` for a Lattice ECP5.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from vtaops.base.errors import DeviceError


def _natural(load: tuple[str, str, int]) -> list[tuple[int, int, str]]:
    """Order names by the numbers in them, so that loads of one lane stand together."""
    pieces = re.split(r"(\d+)", load[0])
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in pieces]


class Replication:
    """Copies what drives more than `limit` loads: flip-flops, look-up tables, and pairs of them.

    Loads are dealt to the copies in the order of their names. The inputs of a driver thereby get
    more loads, so it is repeated until nothing drives too many.

    Parameters
    ----------
    module : dict
        The module as `write_json` of Yosys writes it; changed in place.
    limit : int
        Loads that one driver may have.
    """

    COPIED = ("TRELLIS_FF", "LUT4", "PFUMX")

    def __init__(self, module: dict[str, Any], limit: int) -> None:
        self.cells: dict[str, dict[str, Any]] = module["cells"]
        self.nets: dict[str, dict[str, Any]] = module["netnames"]
        self.driver: dict[int, tuple[str, str, int]] = {}
        self.loads: defaultdict[int, list[tuple[str, str, int]]] = defaultdict(list)
        self.limit, self.copies = limit, 0
        for name in self.cells:
            self._enter(name)
        self.next_bit = max(self.driver) + 1
        clocks = {bit for c in self.cells.values() for bit in c["connections"].get("CLK", ())}
        while crowded := [
            bit
            for bit, (name, _, _) in self.driver.items()
            if len(self.loads[bit]) > limit
            and bit not in clocks
            and self.cells[name]["type"] in self.COPIED
        ]:
            for bit in crowded:
                self._split(bit)

    def _enter(self, name: str) -> None:
        cell = self.cells[name]
        for port, bits in cell["connections"].items():
            for index, bit in enumerate(bits):
                if isinstance(bit, str):  # a constant
                    continue
                if cell["port_directions"][port] == "output":
                    self.driver[bit] = name, port, index
                else:
                    self.loads[bit].append((name, port, index))

    def _copy(self, bit: int) -> int:
        """Copy the cell that drives a net; return the net of the copy."""
        name, port, index = self.driver[bit]
        cell = copy.deepcopy(self.cells[name])
        self.copies += 1
        new, self.next_bit = self.next_bit, self.next_bit + 1
        cell["connections"][port][index] = new
        if cell["type"] == "PFUMX":  # it stands in one slice with its two look-up tables
            for table in ("ALUT", "BLUT"):
                cell["connections"][table] = [self._copy(cell["connections"][table][0])]
        title = f"{name}$copy{self.copies}"
        self.cells[title] = cell
        self.nets[title] = {"hide_name": 1, "bits": [new], "attributes": {}}
        self._enter(title)
        return new

    def _split(self, bit: int) -> None:
        loads = sorted(self.loads[bit], key=_natural)
        groups = math.ceil(len(loads) / self.limit)
        size = math.ceil(len(loads) / groups)
        self.loads[bit] = loads[:size]
        for begin in range(size, len(loads), size):
            new = self._copy(bit)
            self.loads[new] = loads[begin : begin + size]
            for name, port, index in self.loads[new]:
                self.cells[name]["connections"][port][index] = new


FACTOR_BITS = 18
"""Of a multiplier (``MULT18X18D``); a product has twice as many."""


def align(module: dict[str, Any]) -> int:
    """Move the factors of signed multipliers to the top of their inputs, in place.

    Yosys extends a factor of 8 bits by ten copies of its sign, each a wire into the block. At the
    top it needs none: the bits below are constants, and the product lies as much higher.

    Returns
    -------
    int
        Wires saved.
    """
    saved = 0
    for cell in module["cells"].values():
        pins = cell["connections"]
        if cell["type"] != "MULT18X18D" or pins["SIGNEDA"] != ["1"] or pins["SIGNEDB"] != ["1"]:
            continue
        total = _raise(pins, "A") + _raise(pins, "B")
        products = [pins.pop(f"P{i}") for i in range(2 * FACTOR_BITS)]
        for i, bit in enumerate(products[: 2 * FACTOR_BITS - total]):
            pins[f"P{i + total}"] = bit
        for i in range(total):
            del cell["port_directions"][f"P{i}"]
        saved += total
    return saved


def _raise(pins: dict[str, Any], port: str) -> int:
    """Move the factor at a port to its top; return by how many bits."""
    bits = [pins[f"{port}{i}"] for i in range(FACTOR_BITS)]
    up = 0  # copies of the sign
    while up < FACTOR_BITS - 1 and bits[-1 - up] == bits[-2 - up]:
        up += 1
    for i, bit in enumerate([["0"]] * up + bits[: FACTOR_BITS - up]):
        pins[f"{port}{i}"] = bit
    return up


_BUSES = {
    "DP16KD": {
        **dict.fromkeys(("ADA", "ADB"), 14),
        **dict.fromkeys(("DIA", "DIB", "DOA", "DOB"), 18),
        **dict.fromkeys(("CLKA", "CEA", "WEA", "CEB", "WEB"), 1),
    },
    "MULT18X18D": {"A": 18, "B": 18, "P": 36, "SIGNEDA": 1, "SIGNEDB": 1},
}
"""Blocks of an ECP5: their pins by bus."""


def for_simulation(module: dict[str, Any]) -> None:
    """Give block RAMs and multipliers buses for pins, as ``cells.v`` has them, in place.

    Cells get numbers for names: those of copies are names of nets too, which Yosys refuses to read.

    Raises
    ------
    DeviceError
        If a block is used in a way that ``cells.v`` does not describe.
    """
    pins_of = (cell["connections"].values() for cell in module["cells"].values())
    used = (bit for pins in pins_of for bits in pins for bit in bits if isinstance(bit, int))
    unused = itertools.count(1 + max(used))
    for name, cell in module["cells"].items():
        if cell["type"] == "DP16KD" and not _is_plain(cell["connections"], cell["parameters"]):
            raise DeviceError(
                f"the block RAM {name} is used in a way that has no model: {cell['parameters']}"
            )
        if cell["type"] in _BUSES:
            _group(cell, unused)
    real = (cell for cell in module["cells"].values() if cell["type"] != "$scopeinfo")
    module["cells"] = {f"cell{number}": cell for number, cell in enumerate(real)}
    module["netnames"] = {n: net for n, net in module["netnames"].items() if n in module["ports"]}


def _group(cell: dict[str, Any], unused: Iterator[int]) -> None:
    """Give a cell buses for pins; those that it lacks are connected to nothing."""
    buses, pins = _BUSES[cell["type"]], cell["connections"]
    cell["connections"] = {
        bus: [
            bit
            for pin in ([bus] if width == 1 else [f"{bus}{i}" for i in range(width)])
            for bit in pins.get(pin) or [next(unused)]
        ]
        for bus, width in buses.items()
    }
    cell["type"] += "_"
    cell["parameters"] = {k: v for k, v in cell["parameters"].items() if k.startswith("DATA_W")}
    cell["port_directions"] = {
        bus: "output" if bus in ("P", "DOA", "DOB") else "input" for bus in buses
    }


def _is_plain(pins: dict[str, list[Any]], values: dict[str, str]) -> bool:
    """Whether a block RAM has one clock, no reset, no register behind it, and begins empty."""
    widths = [int(values[f"DATA_WIDTH_{port}"], 2) for port in "AB"]
    return (
        set(widths) <= {9, 18, 36}
        and (36 in widths) <= (widths[0] == 36)
        and pins["CLKA"] == pins["CLKB"]
        and all(pins[pin] == ["0"] for pin in ("RSTA", "RSTB", "CSA0", "CSB0"))
        and all(values[f"REGMODE_{port}"] == "NOREG" for port in "AB")
        and values.get("WRITEMODE_A", "READBEFOREWRITE") == "READBEFOREWRITE"
        and not any("1" in value for key, value in values.items() if key.startswith("INITVAL"))
    )
