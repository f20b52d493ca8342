"""Netlist optimizations that Yosys and nextpnr lack but other vendors' tools perform.

Netlists are those that Yosys's ``write_json`` produces for a Lattice ECP5.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections import defaultdict
from typing import Any


def _natural(load: tuple[str, str, int]) -> list[int | str]:
    """Order names by the numbers in them, so that the loads of a lane are adjacent."""
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", load[0])]


class Replication:
    """Duplicate drivers with more than `limit` loads: flip-flops, LUTs, and pairs of them.

    Loads are distributed over the copies in the order of their names. Each copy adds a load to the
    inputs of its driver, so the process repeats until no driver exceeds the limit.

    Parameters
    ----------
    module : dict
        The module as Yosys's ``write_json`` represents it; changed in place.
    limit : int
        Maximum number of loads per driver.
    """

    COPIED = ("TRELLIS_FF", "LUT4", "PFUMX")

    def __init__(self, module: dict[str, Any], limit: int) -> None:
        self.cells: dict[str, dict[str, Any]] = module["cells"]
        self.nets: dict[str, dict[str, Any]] = module["netnames"]
        self.driver: dict[int, tuple[str, str]] = {}
        self.loads: defaultdict[int, list[tuple[str, str, int]]] = defaultdict(list)
        self.limit, self.copies = limit, 0
        for name in self.cells:
            self._enter(name)
        self.bits = itertools.count(max(self.driver) + 1)
        clocks = {bit for c in self.cells.values() for bit in c["connections"].get("CLK", ())}
        while crowded := [
            bit
            for bit, (name, _) in self.driver.items()
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
                    self.driver[bit] = name, port
                else:
                    self.loads[bit].append((name, port, index))

    def _copy(self, bit: int) -> int:
        """Copy the cell that drives a net; return the net of the copy."""
        name, port = self.driver[bit]
        cell, new = copy.deepcopy(self.cells[name]), next(self.bits)
        self.copies += 1
        cell["connections"][port] = [new]  # these cells have one output
        if cell["type"] == "PFUMX":  # shares a slice with its two look-up tables
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
"""Input width of a multiplier (``MULT18X18D``); its product is twice as wide."""


def align(module: dict[str, Any]) -> int:
    """Move the factors of signed multipliers to the top of their inputs, in place.

    Yosys sign-extends an 8-bit factor with ten copies of its sign bit, each of which is a wire into
    the block. A factor at the top of the input needs no such wires: the lower bits are constant,
    and the product is shifted accordingly.

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
    """Move the factor at a port to the top; return the shift in bits."""
    bits = [pins[f"{port}{i}"] for i in range(FACTOR_BITS)]
    up = 0  # copies of the sign bit
    while up < FACTOR_BITS - 1 and bits[-1 - up] == bits[-2 - up]:
        up += 1
    for i, bit in enumerate([["0"]] * up + bits[: FACTOR_BITS - up]):
        pins[f"{port}{i}"] = bit
    return up
