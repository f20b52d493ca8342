"""Style of tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table


def new_table(title: str, left: Sequence[str], right: Sequence[str], dim: Sequence[str]) -> Table:
    """Return an empty table for the terminal with columns of names, numbers and remarks."""
    table = Table(title=title, title_justify="left", show_header=True, header_style="bold")
    for column in left:
        table.add_column(column, overflow="fold")
    for column in right:
        table.add_column(column, justify="right", overflow="fold")
    for column in dim:
        table.add_column(column, style="dim", overflow="fold")
    return table
