"""Export to the trace event format of Chrome, which Perfetto (ui.perfetto.dev) opens.

One cycle is shown as one microsecond; tokens are flow arrows.
"""

from __future__ import annotations

from typing import Any

from vtaops.machine.isa import tokens_text
from vtaops.program.disassembly import instruction_text
from vtaops.program.timing import IDLE, WAITS, Timeline
from vtaops.report.style import LANES

_THREADS = (*LANES, "port read", "port write")


def chrome_trace(timeline: Timeline, name: str = "vtaops") -> dict[str, Any]:
    """Return a timeline as the JSON object of a trace file.

    Parameters
    ----------
    timeline : Timeline
        Result of `Program.timeline`.
    name : str
        Name of the process in the viewer.
    """
    program = timeline.program
    texts = [
        f"{instruction_text(program, i, int(r))} {tokens_text(i)}".strip()
        for i, r in zip(program, program.relocations, strict=True)
    ]
    records: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": name}}
    ]
    for tid, thread in enumerate(_THREADS, 1):
        meta = {"ph": "M", "pid": 1, "tid": tid}
        records.append({**meta, "name": "thread_name", "args": {"name": thread}})
        records.append({**meta, "name": "thread_sort_index", "args": {"sort_index": tid}})

    segments = [(LANES.index(s.unit) + 1, s) for unit in LANES for s in timeline.segments[unit]]
    grants = [(_THREADS.index(f"port {g.kind}") + 1, g) for g in timeline.grants]
    for tid, s in (*segments, *grants):
        if s.kind == IDLE or s.end == s.start:
            continue
        waits = s.kind in WAITS
        records.append(
            {
                "ph": "X",
                "pid": 1,
                "tid": tid,
                "ts": s.start,
                "dur": s.end - s.start,
                "name": f"waits: {s.kind}" if waits else f"{s.unit}" if tid > 4 else s.kind,
                "cat": "wait" if waits else "port" if tid > 4 else "work",
                "args": {"instruction": s.instruction, "text": texts[s.instruction]},
            }
        )
    for number, token in enumerate(timeline.tokens):
        sender, receiver = (LANES.index(unit) + 1 for unit in token.queue.split(">"))
        shared = {"pid": 1, "cat": "token", "name": token.queue, "id": number}
        # A flow is bound to the slices around its ends: those of the two instructions.
        sent = timeline.events[token.sender].end - 1
        taken = timeline.events[token.receiver].start
        records.append({**shared, "ph": "s", "tid": sender, "ts": sent})
        records.append({**shared, "ph": "f", "bp": "e", "tid": receiver, "ts": taken})
    return {
        "traceEvents": records,
        "displayTimeUnit": "ms",
        "otherData": {"unit": "1 us is 1 cycle", "cycles": timeline.cycles},
    }
