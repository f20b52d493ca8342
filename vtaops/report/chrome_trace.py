"""Export to Chrome's trace event format, for Perfetto (ui.perfetto.dev).

One cycle is shown as one microsecond; tokens are flow arrows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vtaops.program.disassembly import instruction_rows
from vtaops.program.timing import IDLE, WAITS, Timeline
from vtaops.program.timing.lanes import LANES, PORT_LANES, port_lanes

_THREADS = (*LANES, *PORT_LANES)

Record = dict[str, Any]


def chrome_trace(timeline: Timeline, name: str = "vtaops") -> dict[str, Any]:
    """Convert a timeline to the JSON object of a trace file.

    Parameters
    ----------
    timeline : Timeline
        Result of `Program.timeline`.
    name : str
        Name of the process in the viewer.
    """
    return {
        "traceEvents": [*_names(timeline, name), *_slices(timeline), *_flows(timeline)],
        "displayTimeUnit": "ms",
        "otherData": {"unit": "1 us is 1 cycle", "cycles": timeline.cycles},
    }


def _names(timeline: Timeline, name: str) -> Iterator[Record]:
    yield {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": name}}
    for tid, thread in enumerate((*LANES, *port_lanes(timeline)), 1):
        meta = {"ph": "M", "pid": 1, "tid": tid}
        yield {**meta, "name": "thread_name", "args": {"name": thread}}
        yield {**meta, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _slices(timeline: Timeline) -> Iterator[Record]:
    """Yield the activity of units and the users of the port."""
    rows = list(instruction_rows(timeline.program))
    work = [(s.unit, s.kind, s) for unit in LANES for s in timeline.segments[unit]]
    port = [(f"port {s.kind}", s.unit, s) for s in timeline.grants]
    for thread, name, s in (*work, *port):
        if s.kind == IDLE or s.end == s.start:
            continue
        waits = s.kind in WAITS
        _, text, tokens = rows[s.instruction]
        yield {
            "ph": "X",
            "pid": 1,
            "tid": _THREADS.index(thread) + 1,
            "ts": s.start,
            "dur": s.end - s.start,
            "name": f"waits: {name}" if waits else name,
            "cat": "wait" if waits else "port" if thread in PORT_LANES else "work",
            "args": {"instruction": s.instruction, "text": f"{text} {tokens}".strip()},
        }


def _flows(timeline: Timeline) -> Iterator[Record]:
    """Yield tokens; a flow is bound to the slices of the two instructions at its ends."""
    for number, token in enumerate(timeline.tokens):
        sender, receiver = (LANES.index(unit) + 1 for unit in token.queue.split(">"))
        shared = {"pid": 1, "cat": "token", "name": token.queue, "id": number}
        sent = timeline.events[token.sender].end - 1
        end = timeline.events[token.receiver].start
        yield {**shared, "ph": "s", "tid": sender, "ts": sent}
        yield {**shared, "ph": "f", "bp": "e", "tid": receiver, "ts": end}
