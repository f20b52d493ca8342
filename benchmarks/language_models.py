"""Where the cycles of a token go, in the shapes of known language models with random weights.

    python -m benchmarks language_models --json build/language_models.json
    python -m benchmarks language_models --only stories260K

All of a token is counted, with a full cache: norms, rotations, attention, gates, and the scores of
all tokens, by the timing model. The host's part (a row of the embedding, the new rows of the cache,
the draw of the next token) is not. Cycles do not depend on the numbers, so that random weights do.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import vtaops
from benchmarks.options import Kept, Only, chosen, read_json, show, write_rows
from vtaops.language import DecoderWeights
from vtaops.language.floats import FloatModel
from vtaops.language.step import token_step
from vtaops.machine.config import Extension
from vtaops.program import Program
from vtaops.program.timing import simulate

CONFIGS = ("pynq_ext", "pynq_512", "pynq_512_nibbles")
MHZ = 100
CALIBRATED = 4
"""Tokens whose ranges calibrate a model; cycles do not depend on them."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, as its authors published them."""

    layers: int
    width: int
    hidden: int
    heads: int
    shared: int
    tokens: int
    length: int

    def weights(self) -> DecoderWeights:
        """Return random weights."""
        rng, keys = np.random.default_rng(0), self.width // self.heads * self.shared
        width, hidden, tokens = self.width, self.hidden, self.tokens

        def drawn(*shape: int) -> np.ndarray[Any, Any]:
            values = rng.standard_normal(shape, np.float32)
            return values / np.float32(np.sqrt(shape[-1]))

        shapes = {
            "q": (width, width), "k": (keys, width), "v": (keys, width), "o": (width, width),
            "w1": (hidden, width), "w2": (width, hidden), "w3": (hidden, width),
        }  # fmt: skip
        ones = np.ones(width, np.float32)
        layers = tuple(
            {name: drawn(*shape) for name, shape in shapes.items()} | {"na": ones, "nf": ones}
            for _ in range(self.layers)
        )
        table = drawn(tokens, width)
        sizes = self.heads, self.shared, self.length
        return DecoderWeights(*sizes, table, table, ones, layers)


SHAPES = {
    "stories260K": Shape(5, 64, 172, 8, 4, 512, 512),
    "stories15M": Shape(6, 288, 768, 6, 6, 32000, 256),
    "SmolLM2-135M": Shape(30, 576, 1536, 9, 3, 49152, 256),
}
CASES = [f"{name}/{config}" for name in SHAPES for config in CONFIGS]
PARTS = {
    "scores": "scores",
    "layers": "flat|[vo]\\d|gate|up|down",
    "cache": "past_dots|past_mix",
    "softmax": "parts",
    "norms": "n[af]\\d|last",
}
"""Parts of a token, by the names of nodes."""


def part_of(name: str) -> str:
    """Return the part of a token that a node belongs to."""
    return next((part for part, names in PARTS.items() if re.match(names, name)), "rest")


def parts(program: Program) -> dict[str, int]:
    """Return the cycles of each part: those until the array ends its last instruction."""
    found: Counter[str] = Counter()
    for number, begin, end in simulate(program, events=True).layer_spans():
        found[part_of(program.operators[number].name)] += end - begin
    return dict(found)


def measured(shape: Shape, config: str) -> dict[str, Any]:
    """Return the figures of a token."""
    weights = shape.weights()
    floats = FloatModel(weights)
    for token in range(CALIBRATED):
        floats.step(token)
    hardware = vtaops.HardwareConfig.load(config)
    bits = 4 if hardware.has(Extension.NIBBLES) else 8
    model = vtaops.compile_model(
        token_step(weights, floats.reach, bits=bits), hardware, prove=False
    )
    cycles, (program,) = model.cycles(), model.programs
    port = program.config.port_width * MHZ / 1e3
    return {
        "cycles": cycles,
        "tokens_s": MHZ * 1e6 / cycles,
        "tokens_s_gb": MHZ * 1e6 / cycles / port,
        "parts": parts(program),
    }


def main(
    only: Only = [],  # noqa: B006
    json_file: Kept = Path("build/language_models.json"),
) -> None:
    """Compile what is not in the file, print the table, write the file."""
    rows = read_json(json_file, {})
    for case in chosen(CASES, only):
        if case not in rows:
            name, config = case.split("/")
            rows[case] = measured(SHAPES[name], config)
            write_rows(json_file, rows)
    for row in rows.values():
        row |= row["parts"]
    columns = {"cycles": "cycles", "tokens_s": "tokens/s", "tokens_s_gb": "for each GB/s"}
    columns |= {part: part for part in (*PARTS, "rest")}
    show(f"A token at {MHZ} MHz, by the timing model", rows, columns, "model/configuration")
