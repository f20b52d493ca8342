"""Reasons: why an operator of a network runs on the host, for programs and for people."""

from __future__ import annotations

from dataclasses import dataclass

HINTS = {
    "accumulator": "smaller weights or zero points",
    "boundary": "nothing: the host converts the inputs and outputs of the network",
    "channels": "one constant for all channels",
    "extension": "compile for hardware with the extension that it names",
    "between_floats": "put pairs around it; `vtaops quantize` does",
    "float": "put a pair after the operator that it reads; `vtaops quantize` does",
    "form": "another form of the operator; docs/supported.md lists those that VTA executes",
    "layout": "nothing: the host moves bytes; keep products next to each other",
    "neighbours": "nothing: it costs nothing where its neighbours run",
    "no_operator": "the host computes it; `vtaops report profile` shows what that costs",
    "not_quantized": "quantise the model: `vtaops quantize`",
    "rounding": "compile for hardware with the extension 'exact'",
    "scale": (
        "quantise the file again by `vtaops quantize --scales pow2`: every VTA has shifts; "
        "or compile for hardware with the extension 'post', such as pynq_ext"
    ),
    "scratchpad": "compile for hardware with larger scratchpads",
    "shape": "operands of equal shapes",
    "type": "quantise to int8",
    "window": "windows without dilation",
    "zero_point": "a zero point of 0: symmetric scales",
}
"""What helps, by the codes of reasons."""


@dataclass(frozen=True)
class Reason:
    """Why an operator runs on the host.

    Attributes
    ----------
    code : str
        One of `HINTS`.
    text : str
        A clause for people, with the numbers.
    """

    code: str
    text: str

    def __post_init__(self) -> None:
        assert self.code in HINTS, self.code
