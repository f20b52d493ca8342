"""Tiling: the partition of an operator into pieces that fit the scratchpads."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from vtaops.base.errors import ScheduleError
from vtaops.base.names import checked_call, checked_init

Operand = Literal["wgt", "inp"]
PaddingRule = Literal["multiply", "skip"]
Taps = Literal["all", "row", "one"]


@checked_init
@dataclass(frozen=True, repr=False)
class Tiling:
    """Blocking and virtual threads of one operator, in channels and pixels.

    Each virtual thread computes a tile of ``oc`` output channels and ``h`` x ``w`` output pixels
    and reads the input in steps of ``ic`` channels; threads share the scratchpads and hide each
    other's loads under computation. For a matrix product, ``oc`` counts columns of the result,
    ``ic`` the reduction, ``h`` its rows, and ``w`` is 1.

    Tiles need not divide the operator; the last ones are smaller.

    A load is omitted if its tile is still on chip: with enough tiles of an operand held at once,
    weights (or pixels) are loaded once while the other operand is swept.

    Parameters
    ----------
    oc, ic : int
        Output and input channels of a tile; multiples of the configuration's block.
    h, w : int
        Output rows and columns of a tile.
    oc_threads, h_threads : int
        Virtual threads over neighbouring tiles along the output channels or the rows.
    inp_tiles, wgt_tiles, acc_tiles : int
        Tiles of each operand that a thread holds at once. With two, one is loaded while the other
        is in use (double buffering), and the next output tile starts while the previous one is
        stored.
    keep : "wgt" or "inp"
        The operand whose tiles stay while the other's are swept: ``"wgt"`` visits all pixels for a
        block of output channels, ``"inp"`` all output channels for a block of pixels.
    padding : "multiply" or "skip"
        Treatment of products with the zeros around an image: skipping them takes fewer tile
        products and more instructions. Upstream multiplies.
    taps : "all", "row" or "one"
        The part of a convolution's kernel that one step multiplies: all, a row, or one tap. Parts
        let large or dilated kernels fit; pixels are then loaded for each part.

    Raises
    ------
    ScheduleError
        If a number is not a positive integer, or `keep`, `padding` or `taps` is invalid.
    ArgumentError
        If `oc` or `ic` is missing, or an argument is unknown.
    """

    oc: int
    ic: int
    h: int = 1
    w: int = 1
    oc_threads: int = 1
    h_threads: int = 1
    inp_tiles: int = 1
    wgt_tiles: int = 1
    acc_tiles: int = 1
    keep: Operand = "wgt"
    padding: PaddingRule = "multiply"
    taps: Taps = "all"

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in CHOICES:
                if value not in CHOICES[name]:
                    known = " or ".join(map(repr, CHOICES[name]))
                    raise ScheduleError(f"tiling {name} is {value!r}; it must be {known}")
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ScheduleError(f"tiling {name} is {value!r}; it must be a positive integer")
            if value >= 1 << 31:
                raise ScheduleError(f"tiling {name} has {value.bit_length()} bits; 31 are the most")

    @property
    def text(self) -> str:
        """The tiling in command-line syntax: ``oc=64,ic=16,...`` without defaults."""
        shown = {f.name: getattr(self, f.name) for f in fields(self)}
        defaults = {f.name: f.default for f in fields(self)}
        return ",".join(f"{k}={v}" for k, v in shown.items() if v != defaults[k])

    def __repr__(self) -> str:
        values = {f: getattr(self, f.name) for f in fields(self)}
        shown = [f"{f.name}={value!r}" for f, value in values.items() if value != f.default]
        return f"Tiling({', '.join(shown)})"

    @classmethod
    @checked_call
    def parse(cls, text: str) -> Tiling:
        """Parse a tiling; the inverse of `text`.

        Raises
        ------
        ScheduleError
            If the text is invalid; the message shows the syntax.
        """
        try:
            values: dict[str, Any] = dict(part.strip().split("=") for part in text.split(","))
            for name in values.keys() - CHOICES.keys():
                values[name] = int(values[name])
            return cls(**values)
        except ScheduleError:
            raise
        except (ValueError, TypeError) as error:
            raise ScheduleError(
                f"cannot read tiling {text!r}; write oc=128,ic=16,h=7,w=14,oc_threads=2,h_threads=1"
                f" (oc and ic are required)"
            ) from error

    @property
    def threads(self) -> int:
        """Number of virtual threads."""
        return self.oc_threads * self.h_threads


CHOICES: dict[str, tuple[str, ...]] = {
    "keep": get_args(Operand),
    "padding": get_args(PaddingRule),
    "taps": get_args(Taps),
}
"""Valid values of the non-numeric parameters."""
