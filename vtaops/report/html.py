"""HTML fragments that Jupyter shows for programs, statistics and timelines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

from vtaops.program import Program, Statistics
from vtaops.program.disassembly import instruction_rows
from vtaops.program.timing import Timeline
from vtaops.report.interactive import interactive
from vtaops.report.statistics import MEANING

_SHOWN = 24  # instructions of a program
_FRAME_HEIGHT = 480


def program_html(program: Program) -> str:
    """Return a program's summary, buffers, and first instructions."""
    config = program.config
    head = (
        f"<b>Program</b> for {escape(config.bitstream_id)} ({escape(config.name)}): "
        f"{len(program):,} instructions, {len(program.micro_ops):,} micro-ops, "
        f"{program.dram_nbytes:,} bytes of DRAM"
    )
    buffers = (
        (b.name, b.role.value, "x".join(map(str, b.shape)), b.dtype, b.layout.text, f"{b.nbytes:,}")
        for b in program.buffers
    )
    listing = ((str(n), *row) for n, row in enumerate(islice(instruction_rows(program), _SHOWN)))
    rest = len(program) - _SHOWN
    return (
        f"<p>{head}</p>"
        + html_table(("buffer", "role", "shape", "dtype", "layout", "bytes"), buffers)
        + "<details><summary>instructions</summary>"
        + html_table(("", "unit", "instruction", "tokens"), listing, monospace=True)
        + (f"<p>and {rest:,} more</p>" if rest > 0 else "")
        + "</details>"
    )


def statistics_html(statistics: Statistics) -> str:
    """Return the counters as a table with their meaning."""
    rows = ((name, f"{value:,}", MEANING[name]) for name, value in statistics.as_dict().items())
    return html_table(("statistic", "value", "meaning"), rows, right=1)


def timeline_html(timeline: Timeline) -> str:
    """Return the interactive space-time diagram in a frame."""
    page = escape(interactive(timeline), quote=True)
    return (
        f'<iframe srcdoc="{page}" style="width:100%;height:{_FRAME_HEIGHT}px;border:0" '
        f'title="space-time diagram"></iframe>'
    )


def html_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: int = -1,
    monospace: bool = False,
) -> str:
    """Return a table; the column `right` is right-aligned."""

    def cell(tag: str, column: int, text: str) -> str:
        align = "right" if column == right else "left"
        return f'<{tag} style="text-align:{align}">{escape(text)}</{tag}>'

    def row(tag: str, texts: Sequence[str]) -> str:
        return "<tr>" + "".join(cell(tag, n, text) for n, text in enumerate(texts)) + "</tr>"

    style = ' style="font-family:monospace"' if monospace else ""
    body = "".join(row("td", texts) for texts in rows)
    return f"<table{style}><thead>{row('th', head)}</thead><tbody>{body}</tbody></table>"
