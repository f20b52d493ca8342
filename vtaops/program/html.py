"""HTML: what Jupyter shows for programs and statistics, tables, and pages from templates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any

from vtaops.base.quoting import script_json
from vtaops.program.disassembly import instruction_rows
from vtaops.program.program import Program
from vtaops.program.statistics import MEANING, Statistics

_SHOWN = 24  # instructions of a program


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


def page(template: Path, title: str, data: dict[str, Any]) -> str:
    """Return a self-contained page: a template filled with its data."""
    text = template.read_text(encoding="utf-8")
    shown = script_json(data)
    return Template(text).substitute(title=escape(title), data=shown)
