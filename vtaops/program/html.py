"""HTML: what Jupyter shows for programs and statistics, tables, and pages from templates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any

from vtaops.base.quoting import script_json
from vtaops.program.disassembly import COLUMNS, buffer_row, instruction_rows
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
    listing = (
        f"{number:>4}  {unit:<7}  {text}  {tokens}"
        for number, (unit, text, tokens) in enumerate(islice(instruction_rows(program), _SHOWN))
    )
    rest = len(program) - _SHOWN
    return (
        f"<p>{head}</p>"
        + html_table(COLUMNS, map(buffer_row, program.buffers))
        + f"<details><summary>instructions</summary><pre>{escape(chr(10).join(listing))}</pre>"
        + (f"<p>and {rest:,} more</p>" if rest > 0 else "")
        + "</details>"
    )


def statistics_html(statistics: Statistics) -> str:
    """Return the counters as a table with their meaning."""
    rows = ((name, f"{value:,}", MEANING[name]) for name, value in statistics.as_dict().items())
    return html_table(("statistic", "value", "meaning"), rows)


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = (
        "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
        for tag, texts in (("th", head), *(("td", row) for row in rows))
    )
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def page(template: Path, title: str, data: dict[str, Any]) -> str:
    """Return a self-contained page: a template filled with its data."""
    text = template.read_text(encoding="utf-8")
    shown = script_json(data)
    return Template(text).substitute(title=escape(title), data=shown)
