"""The roofline: each operator's performance against the array and the DRAM port (matplotlib).

Multiply-accumulates per byte over the port on the horizontal axis, multiply-accumulates per cycle
on the vertical one, both logarithmic. No point lies above the port's slope or the array's ceiling.
The short line above a point is its own ceiling: its performance if the compute unit never waited,
since resets and vector ALU passes take cycles too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtaops.base.errors import ShapeError
from vtaops.base.quoting import figure_text
from vtaops.program.timing import Timeline
from vtaops.report.files import new_figure

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
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(left, right),
        ylim=(bottom, top),
        xlabel="multiply-accumulates for each byte over the port (logarithmic)",
        ylabel="multiply-accumulates for each cycle (logarithmic)",
    )
    roof = [left, ridge, right], [left * bandwidth, peak, peak]
    axes.fill_between(*roof, 1e-9, color="#f3f5f7")
    axes.plot(*roof, color="#222222", linewidth=1.8)
    axes.text(0.99 * right, peak * 1.02, f"array: {peak:g}", ha="right", va="bottom", fontsize=9)
    port = f" port: {bandwidth:g} bytes a cycle"
    axes.text(left, 1.03 * peak, port, ha="left", va="bottom", fontsize=9)
    _mark(axes, shown, total, peak)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    axes.set_title(figure_text(title), loc="left", fontsize=11)
    axes.grid(True, which="both", color="#e3e6e8", linewidth=0.6)
    axes.set_axisbelow(True)
    _number(axes)
    return figure


def _mark(
    axes: Axes, shown: Sequence[RooflinePoint], total: RooflinePoint | None, peak: float
) -> None:
    """Draw the points as numbers, and the network as a star."""
    for number, point in enumerate(shown, 1):
        star = point is total
        axes.scatter(
            point.intensity, point.macs_per_cycle, zorder=3, s=170 if star else 60,
            marker="*" if star else f"${number}$", color="#d9534f" if star else "#2e9e5b",
            label=figure_text(f"{point.name}  {100 * point.macs_per_cycle / peak:.0f} %"),
        )  # fmt: skip
        x = [0.955 * point.intensity, 1.047 * point.intensity]
        (own,) = axes.plot(x, [point.ceiling] * 2, color="#6b7680", linewidth=1.6, zorder=2)
    own.set_label("if the compute unit never waited")


def _number(axes: Axes) -> None:
    """Write 1, 2, 5, 10, ... at the axes."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_tick_params(which="both", length=4)  # labels of both kinds in one line
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(lambda v, _: f"{v:g}" if f"{v:.0e}"[0] in "25" else "")
