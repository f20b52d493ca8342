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
from vtaops.program.timing import IDLE, WAITS, Timeline
from vtaops.program.timing.lanes import KIND_COLORS, LANES, TOKEN_COLORS, WAIT_COLORS, headline
from vtaops.program.timing.timeline import Segment
from vtaops.report.files import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = {"fetch": 0.34, "load": 0.8, "compute": 0.8, "store": 0.8}
_MOST_TOKENS = 160  # arrows in one diagram
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
    first, last = window or (0, max(timeline.cycles for timeline in shown))
    if not 0 <= first < last:
        raise ShapeError(f"the window is {first}..{last}; give two cycles, the first one smaller")
    figure = new_figure(14, 0.9 + 2.7 * len(shown))
    grid = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    kinds: set[str] = set()
    for axes, timeline, title in zip(grid, shown, chain(titles, repeat("")), strict=False):
        right: dict[str, Any] = {"x": 1.005, "transform": axes.get_yaxis_transform()}
        axes.text(y=-0.42, s="busy", fontsize=8, **right)
        for lane, unit in enumerate(LANES):
            kinds |= _draw_unit(axes, lane, timeline.segments[unit], first, last)
            share = 100 * timeline.units[unit].work / max(1, timeline.cycles)
            axes.text(y=lane, s=f"{share:.0f} %", va="center", **right)
        _draw_tokens(axes, timeline.tokens, first, last)
        axes.set_ylim(len(LANES) - 0.45, -0.45)
        axes.set_yticks(range(len(LANES)), LANES)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_title(figure_text(headline(timeline, title)), loc="left", fontsize=11)
    grid[-1].set(xlim=(first, last), xlabel="cycles")
    grid[-1].xaxis.set_major_formatter("{x:,.0f}")
    _legend(figure, kinds)
    return figure


def _draw_unit(
    axes: Axes, lane: int, segments: Sequence[Segment], first: int, last: int
) -> set[str]:
    """Draw what a unit does in a window, with its kind on bars that are wide enough."""
    width, height = last - first, _HEIGHT[LANES[lane]]
    by_kind: dict[str, list[Segment]] = defaultdict(list)
    for segment in segments:
        start, end = max(segment.start, first), min(segment.end, last)
        if start < end and segment.kind != IDLE:
            by_kind[segment.kind].append(segment)
        if segment.busy and end - start > (0.009 * len(segment.kind) + 0.004) * width:
            axes.text(
                (start + end) / 2, lane, segment.kind, ha="center", va="center", fontsize=8,
                color="white", clip_on=True,
            )  # fmt: skip
    for kind, alike in by_kind.items():
        lines = [0.6 * (kind not in WAITS and each.cycles > _NARROW * width) for each in alike]
        spans = [(each.start, each.cycles) for each in alike]
        style = {"edgecolor": "white", **_style(kind), "linewidth": lines}
        axes.broken_barh(spans, (lane - height / 2, height), **style)
    return {*by_kind}


def _draw_tokens(axes: Axes, tokens: Sequence[Any], first: int, last: int) -> None:
    """Draw the tokens in a window as arrows, unless these would hide the bars."""
    shown = [token for token in tokens if token.taken >= first and token.sent <= last]
    for token in shown if len(shown) <= _MOST_TOKENS else ():
        sender, receiver = (LANES.index(unit) for unit in token.queue.split(">"))
        down = 1 if receiver > sender else -1
        axes.annotate(
            "",
            xy=(token.taken, receiver - down * _HEIGHT[LANES[receiver]] / 2),
            xytext=(token.sent, sender + down * _HEIGHT[LANES[sender]] / 2),
            arrowprops={
                "arrowstyle": "-|>,head_length=0.35,head_width=0.16",
                "color": TOKEN_COLORS[token.queue],
                "linewidth": 0.9,
                "shrinkA": 0,
                "shrinkB": 0,
            },
            annotation_clip=True,
        )


def _legend(figure: Figure, kinds: set[str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shown = [kind for kind in (*KIND_COLORS, *WAIT_COLORS) if kind in kinds]
    handles: list[Any] = [
        Patch(label=f"waits: {kind}" if kind in WAITS else kind, **_style(kind)) for kind in shown
    ]
    handles += [
        Line2D([], [], color=color, label=queue.replace(">", " → "))
        for queue, color in TOKEN_COLORS.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=9, fontsize=8, frameon=False)


def _style(kind: str) -> dict[str, Any]:
    """Return the colours of a kind of work, or of a wait."""
    if kind not in WAITS:
        return {"facecolor": KIND_COLORS[kind]}
    color = WAIT_COLORS[kind]
    return {"facecolor": (color, 0.12), "edgecolor": (color, 0.65), "hatch": "////"}
