"""Progress reporting for long-running work.

Reporting is free without a listener. Each thread has its own listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Listener = Callable[[str, int, int, str], None]
"""Called with the name of the work, steps done, total steps (0: unknown), and the current step."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def progress_listener(listener: Listener | None) -> Iterator[None]:
    """Register `listener` for progress reports within the context."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def report_progress(work: str, done: int, total: int = 0, step: str = "") -> None:
    """Report progress to the listener, if any."""
    if listener := _listener.get():
        listener(work, done, total, step)


def tracked(
    work: str, items: Sequence[T], name: Callable[[T], str] = lambda item: ""
) -> Iterator[T]:
    """Yield items, reporting progress before each."""
    for number, item in enumerate(items):
        report_progress(work, number, len(items), name(item))
        yield item
    report_progress(work, len(items), len(items))
