"""Style of tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.table import Table


def list_table(title: str, columns: Mapping[str, str], rows: Iterable[Iterable[Any]] = ()) -> Table:
    """Return a table for the terminal.

    Parameters
    ----------
    title : str
        Title of the table.
    columns : mapping
        Heading -> format of the values, which are then right-aligned; empty for text.
    rows : iterable
        Rows of values; None leaves a cell empty.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, form in columns.items():
        table.add_column(heading, justify="right" if form else "left", overflow="fold")
    for row in rows:
        cells = zip(row, columns.values(), strict=True)
        table.add_row(*("" if value is None else format(value, form) for value, form in cells))
    return table
