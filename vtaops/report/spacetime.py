"""The space-time diagram: units as lanes, over cycles (matplotlib).

Bars are instructions, coloured by kind of work; hatched areas are waits, in the colour of the
awaited unit; arrows are tokens, from the pushing to the popping instruction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from vtaops.base.errors import ShapeError
from vtaops.base.quoting import figure_text
from vtaops.program.timing import IDLE, WAITS, Timeline, lanes
from vtaops.program.timing.timeline import Segment
from vtaops.report.files import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = {"fetch": 0.34, "load": 0.8, "compute": 0.8, "store": 0.8}
_MOST_TOKENS = 160  # arrows in one diagram; more would hide the bars
_NARROW = 0.0012  # of the width: shorter bars have no outline


def spacetime(
    timelines: Timeline | Sequence[Timeline],
    titles: Sequence[str] = (),
    window: tuple[int, int] | None = None,
) -> Figure:
    """Draw one or more timelines, one below the other, on one axis of cycles.

    Parameters
    ----------
    timelines : Timeline or sequence of Timeline
        Results of `Program.timeline`.
    titles : sequence of str
        A title for each.
    window : (int, int), optional
        First and last cycle to show; by default everything.

    Raises
    ------
    ShapeError
        If the window is empty.
    UnsupportedError
        If matplotlib is not installed.
    """
    shown = [timelines] if isinstance(timelines, Timeline) else list(timelines)
    window = window or (0, max(timeline.cycles for timeline in shown))
    if not 0 <= window[0] < window[1]:
        raise ShapeError(
            f"the window is {window[0]}..{window[1]}; give two cycles, the first one smaller"
        )
    figure = new_figure(14, 0.9 + 2.7 * len(shown))
    grid = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    kinds: set[str] = set()
    for axes, timeline, title in zip(grid, shown, chain(titles, repeat("")), strict=False):
        kinds |= _draw(axes, timeline, window)
        axes.set_title(figure_text(lanes.headline(timeline, title)), loc="left", fontsize=11)
    grid[-1].set(xlim=window, xlabel="cycles")
    grid[-1].xaxis.set_major_formatter("{x:,.0f}")
    _legend(figure, kinds)
    return figure


def _spans(
    segments: Sequence[Segment], window: tuple[int, int]
) -> dict[str, list[tuple[int, int]]]:
    """Return (start, cycles) of what a unit does in a window, by kind."""
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for segment in segments:
        if segment.end > window[0] and segment.start < window[1] and segment.kind != IDLE:
            spans[segment.kind].append((segment.start, segment.cycles))
    return spans


def _draw(axes: Axes, timeline: Timeline, window: tuple[int, int]) -> set[str]:
    """Draw one timeline; return the kinds of work and of waits that appear."""
    first, last = window
    kinds: set[str] = set()
    for lane, unit in enumerate(lanes.LANES):
        height = _HEIGHT[unit]
        bars = _spans(timeline.segments[unit], window)
        for kind, spans in bars.items():
            _bars(axes, kind, spans, (lane - height / 2, height), last - first)
        kinds |= set(bars)
        share = 100 * timeline.units[unit].work / max(1, timeline.cycles)
        axes.text(1.005, lane, f"{share:.0f} %", transform=axes.get_yaxis_transform(), va="center")
    axes.text(1.005, -0.42, "busy", transform=axes.get_yaxis_transform(), fontsize=8)
    visible = [t for t in timeline.tokens if t.taken >= first and t.sent <= last]
    if len(visible) <= _MOST_TOKENS:
        _arrows(axes, visible)
    _labels(axes, timeline, window)
    axes.set_ylim(len(lanes.LANES) - 0.45, -0.45)
    axes.set_yticks(range(len(lanes.LANES)), lanes.LANES)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return kinds


def _bars(
    axes: Axes,
    kind: str,
    spans: list[tuple[int, int]],
    place: tuple[float, float],
    width: int,
) -> None:
    if kind in WAITS:
        axes.broken_barh(spans, place, linewidth=0, **_hatched(kind))
        return
    lines = [0.6 * (cycles > _NARROW * width) for _, cycles in spans]
    color = lanes.KIND_COLORS[kind]
    axes.broken_barh(spans, place, facecolor=color, edgecolor="white", linewidth=lines)


def _arrows(axes: Axes, tokens: Sequence[Any]) -> None:
    for token in tokens:
        sender, receiver = (lanes.LANES.index(unit) for unit in token.queue.split(">"))
        down = 1 if receiver > sender else -1
        axes.annotate(
            "",
            xy=(token.taken, receiver - down * _HEIGHT[lanes.LANES[receiver]] / 2),
            xytext=(token.sent, sender + down * _HEIGHT[lanes.LANES[sender]] / 2),
            arrowprops={
                "arrowstyle": "-|>,head_length=0.35,head_width=0.16",
                "color": lanes.TOKEN_COLORS[token.queue],
                "linewidth": 0.9,
                "shrinkA": 0,
                "shrinkB": 0,
            },
            annotation_clip=True,
        )


def _labels(axes: Axes, timeline: Timeline, window: tuple[int, int]) -> None:
    """Write the kind on every bar that is wide enough."""
    first, last = window
    for lane, unit in enumerate(lanes.LANES):
        for segment in timeline.segments[unit]:
            start, end = max(segment.start, first), min(segment.end, last)
            if segment.busy and end - start > (0.009 * len(segment.kind) + 0.004) * (last - first):
                axes.text(
                    (start + end) / 2, lane, segment.kind, ha="center", va="center", fontsize=8,
                    color="white", clip_on=True,
                )  # fmt: skip


def _legend(figure: Figure, kinds: set[str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=color, label=kind)
        for kind, color in lanes.KIND_COLORS.items()
        if kind in kinds
    ]
    handles += [
        Patch(label=f"waits: {cause}", **_hatched(cause))
        for cause in lanes.WAIT_COLORS
        if cause in kinds
    ]
    handles += [
        Line2D([], [], color=color, label=queue.replace(">", " → "))
        for queue, color in lanes.TOKEN_COLORS.items()
    ]
    columns = min(len(handles), 9)
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )


def _hatched(cause: str) -> dict[str, Any]:
    """Return the drawing style of a wait."""
    color = lanes.WAIT_COLORS[cause]
    return {"facecolor": (color, 0.12), "edgecolor": (color, 0.65), "hatch": "////"}
