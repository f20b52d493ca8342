"""The roofline: each operator's performance against the array and the DRAM port (matplotlib).

Multiply-accumulates per byte over the port on the horizontal axis, multiply-accumulates per cycle
on the vertical one, both logarithmic. No point lies above the port's slope or the array's ceiling.
The short line above a point is its own ceiling: its performance if the compute unit never waited,
since resets and vector ALU passes take cycles too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtaops.base.errors import ShapeError
from vtaops.base.quoting import figure_text
from vtaops.program.timing import Timeline
from vtaops.report.files import new_figure
from vtaops.report.style import rule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class RooflinePoint:
    """One operator, or several together.

    Attributes
    ----------
    name : str
        Label.
    macs : int
        Multiply-accumulates of its tile products.
    nbytes : int
        Bytes over the port, instructions included: in the busier direction, or in both together
        if they share a bandwidth.
    compute_cycles : int
        Cycles in which the compute unit works.
    cycles : int
        Total cycles, by the timing model.
    """

    name: str
    macs: int
    nbytes: int
    compute_cycles: int
    cycles: int

    @property
    def intensity(self) -> float:
        """Multiply-accumulates per byte."""
        return self.macs / max(1, self.nbytes)

    @property
    def macs_per_cycle(self) -> float:
        """Multiply-accumulates per cycle."""
        return self.macs / max(1, self.cycles)

    @property
    def ceiling(self) -> float:
        """Performance if the compute unit never waited."""
        return self.macs / max(1, self.compute_cycles)

    @staticmethod
    def of(name: str, timeline: Timeline) -> RooflinePoint:
        """Return the point of one program."""
        program, port = timeline.program, timeline.port
        beats = port.read_beats, port.write_beats
        shared = timeline.parameters.bandwidth is not None
        return RooflinePoint(
            name,
            program.stats().gemm_counter * program.config.macs_per_micro_op,
            (sum(beats) if shared else max(beats)) * port.width,
            timeline.units["compute"].work,
            timeline.cycles,
        )

    @staticmethod
    def total(name: str, points: Sequence[tuple[RooflinePoint, int]]) -> RooflinePoint:
        """Return the point of a network from (operator, occurrences) pairs."""
        figures = ("macs", "nbytes", "compute_cycles", "cycles")
        sums = (sum(getattr(point, figure) * n for point, n in points) for figure in figures)
        return RooflinePoint(name, *sums)


def roofline(
    points: Sequence[RooflinePoint],
    peak: float,
    bandwidth: float,
    total: RooflinePoint | None = None,
    title: str = "",
) -> Figure:
    """Draw the roofline of one configuration.

    Parameters
    ----------
    points : sequence of RooflinePoint
        The operators.
    peak : float
        Multiply-accumulates of the array per cycle (``HardwareConfig.macs_per_cycle``).
    bandwidth : float
        Bytes per cycle of the port, in the sense of ``RooflinePoint.nbytes``.
    total : RooflinePoint, optional
        The network as a whole.
    title : str
        Heading.

    Raises
    ------
    ShapeError
        If there are no points.
    UnsupportedError
        If matplotlib is not installed.
    """
    if not points:
        raise ShapeError("a roofline needs at least one operator")
    shown = [*points, total] if total else list(points)
    ridge = peak / bandwidth
    left = min(ridge / 3, *(0.6 * p.intensity for p in shown))
    right = 2.6 * max(ridge, *(p.intensity for p in shown))
    bottom, top = 0.6 * min(p.macs_per_cycle for p in shown), 1.3 * peak
    figure = new_figure(9, 6)
    axes = figure.add_subplot()
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    roof = [left, ridge, right], [left * bandwidth, peak, peak]
    axes.fill_between(*roof, 1e-9, color="#f3f5f7")
    axes.plot(*roof, color="#222222", linewidth=1.8)
    axes.text(0.99 * right, peak * 1.02, f"array: {peak:g}", ha="right", va="bottom", fontsize=9)
    middle = math.sqrt(max(left, bottom / bandwidth) * ridge)
    slope = _POINTS[1] / math.log(top / bottom) * math.log(right / left) / _POINTS[0]
    axes.text(
        middle, 1.03 * middle * bandwidth, f"port: {bandwidth:g} bytes a cycle", fontsize=9,
        rotation=math.degrees(math.atan(slope)), rotation_mode="anchor", ha="center", va="bottom",
    )  # fmt: skip
    for point in shown:
        star = point is total
        axes.scatter(
            point.intensity, point.macs_per_cycle, zorder=3, edgecolor="white",
            s=170 if star else 50, marker="*" if star else "o",
            color="#d9534f" if star else "#2e9e5b",
        )  # fmt: skip
        x = [0.955 * point.intensity, 1.047 * point.intensity]
        (own,) = axes.plot(x, [point.ceiling] * 2, color="#6b7680", linewidth=1.6, zorder=2)
    axes.legend([own], ["if the compute unit never waited"], loc="lower right", frameon=False)
    _label(axes, shown, peak, bandwidth)
    axes.set_xlabel("multiply-accumulates for each byte over the port (logarithmic)")
    axes.set_ylabel("multiply-accumulates for each cycle (logarithmic)")
    axes.set_title(figure_text(title), loc="left", fontsize=11)
    rule(axes)
    _number(axes)
    return figure


def _number(axes: Axes) -> None:
    """Write 1, 2, 5, 10, ... at the axes."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_tick_params(which="both", length=4)  # labels of both kinds in one line
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(lambda v, _: f"{v:g}" if f"{v:.0e}"[0] in "25" else "")


_OFFSETS = (
    (8, -3), (8, -14), (8, 7), (-8, -3), (-8, -14), (-8, 7), (8, 15), (-8, 15), (8, -25), (-8, -25),
    (8, -36),
)  # fmt: skip
_POINTS = 560, 370  # of the axes, in typographic points: enough to see what overlaps


Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""

CROWDED = 12
"""With more points than this, labels without space are omitted."""


def _label(axes: Axes, points: Sequence[RooflinePoint], peak: float, bandwidth: float) -> None:
    """Label each point if space allows, avoiding the roof."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()

    def place(intensity: float, macs_per_cycle: float) -> tuple[float, float]:
        x = math.log(intensity / left) / math.log(right / left)
        y = math.log(macs_per_cycle / bottom) / math.log(top / bottom)
        return x * _POINTS[0], y * _POINTS[1]

    along = [left * (right / left) ** (step / 200) for step in range(201)]
    taken = [_around(*place(at, min(peak, at * bandwidth)), 2) for at in along]
    places = [place(point.intensity, point.macs_per_cycle) for point in points]
    taken += [_around(x, y, 5) for x, y in places]
    for point, (x, y) in zip(points, places, strict=True):
        text = f"{point.name}  {100 * point.macs_per_cycle / peak:.0f} %"
        offset = _room(text, x, y, taken)
        if offset is None and len(points) > CROWDED:
            continue
        dx, dy = offset or _OFFSETS[-1]
        taken.append(_box(text, x, y, dx, dy))
        axes.annotate(
            text, (point.intensity, point.macs_per_cycle), xytext=(dx, dy), fontsize=8,
            textcoords="offset points", ha="left" if dx > 0 else "right",
        )  # fmt: skip


def _room(text: str, x: float, y: float, taken: Sequence[Box]) -> tuple[int, int] | None:
    """Return the first offset at which a label covers nothing in `taken`, or None."""
    for dx, dy in _OFFSETS:
        box = _box(text, x, y, dx, dy)
        if not any(_overlap(box, other) for other in taken):
            return dx, dy
    return None


def _around(x: float, y: float, reach: float) -> Box:
    return x - reach, y - reach, x + reach, y + reach


def _box(text: str, x: float, y: float, dx: float, dy: float) -> Box:
    """Return the area that a label at an offset from a point covers."""
    start = x + dx - (0 if dx > 0 else 4.6 * len(text))
    return start, y + dy - 1, start + 4.6 * len(text), y + dy + 8


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
