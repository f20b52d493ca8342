"""The interactive space-time diagram as one self-contained HTML file.

Owns the page's data; the drawing code is ``spacetime.html`` beside this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from vtaops.program.disassembly import instruction_rows
from vtaops.program.html import page
from vtaops.program.timing import lanes
from vtaops.program.timing.timeline import IDLE, WAITS, Segment, Timeline


def interactive(
    timelines: Timeline | Sequence[Timeline],
    titles: Sequence[str] = (),
    window: tuple[int, int] | None = None,
) -> str:
    """Return a page that shows timelines one below the other, with zoom, pan and details.

    Parameters
    ----------
    timelines : Timeline or sequence of Timeline
        Results of `Program.timeline`.
    titles : sequence of str
        A title for each.
    window : (int, int), optional
        Initially visible cycles.
    """
    shown = [timelines] if isinstance(timelines, Timeline) else list(timelines)
    title = titles[0] if len(titles) == 1 else "Space-time diagram"
    ports = lanes.port_lanes(*shown)
    drawn = [
        _timeline_data(timeline, titles[number] if number < len(titles) > 1 else "", ports)
        for number, timeline in enumerate(shown)
    ]
    data = {
        "title": title,
        "lanes": [*lanes.LANES, *ports],
        "kinds": lanes.KIND_COLORS,
        "waits": lanes.WAIT_COLORS,
        "meaning": WAITS,
        "queues": lanes.TOKEN_COLORS,
        "window": window,
        "timelines": drawn,
    }
    return page(Path(__file__).with_name("spacetime.html"), title, data)


def timeline_html(timeline: Timeline) -> str:
    """Return the diagram in a frame, as a notebook shows it."""
    shown = escape(interactive(timeline), quote=True)
    return (
        f'<iframe srcdoc="{shown}" style="width:100%;height:{_FRAME_HEIGHT}px;border:0" '
        f'title="space-time diagram"></iframe>'
    )


def _timeline_data(timeline: Timeline, title: str, ports: Sequence[str]) -> dict[str, Any]:
    program = timeline.program
    cycles = max(1, timeline.cycles)
    moved = [_port_lane(timeline, name.removeprefix("port ")) for name in ports]
    works = [timeline.units[unit].work for unit in lanes.LANES]
    works += [sum(end - start for start, end, *_ in lane) for lane in moved]
    return {
        "title": lanes.headline(timeline, title),
        "cycles": timeline.cycles,
        "busy": [round(100 * work / cycles) for work in works],
        "segments": [_segments(timeline.segments[unit]) for unit in lanes.LANES] + moved,
        "layers": _layers(timeline),
        "tokens": [[t.queue, t.sender, t.receiver, t.sent, t.taken] for t in timeline.tokens],
        "events": [[e.dispatched, e.taken, e.start, e.end, e.completed] for e in timeline.events],
        "text": [" ".join(f"{i} {tokens}".split()) for _, i, tokens in instruction_rows(program)],
    }


def _segments(segments: Sequence[Segment]) -> list[list[Any]]:
    """Return what a unit does, without its idle time."""
    return [[s.start, s.end, s.kind, s.instruction] for s in segments if s.kind != IDLE]


_FRAME_HEIGHT = 480


def _layers(timeline: Timeline) -> list[list[Any]]:
    """Return (start, end, number, name) of each turn of a layer."""
    operators = timeline.program.operators
    if len(operators) < 2:
        return []
    turns = timeline.layer_spans()
    return [[start, end, number, operators[number].name] for number, start, end in turns]


def _port_lane(timeline: Timeline, use: str) -> list[list[Any]]:
    """Return the use of the port by kind of work; adjacent intervals are joined."""
    lane: list[list[Any]] = []
    grants = (g for g in timeline.grants if g.kind == use and g.end > g.start)
    for grant in sorted(grants, key=lambda g: g.start):
        kind = "fetch" if grant.unit == "fetch" else timeline.events[grant.instruction].kind
        if lane and lane[-1][1] == grant.start and lane[-1][2:] == [kind, grant.instruction]:
            lane[-1][1] = grant.end
        else:
            lane.append([grant.start, grant.end, kind, grant.instruction])
    return lane
