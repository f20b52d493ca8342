"""Progress of long work: who works tells how far it is, who waits says how that is shown.

Where nobody listens, telling costs nothing. Listeners are those of the calling thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Listener = Callable[[str, int, int, str], None]
"""Takes the name of the work, the steps that are done, all steps (0: unknown), and the step that is
under way."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener | None) -> Iterator[None]:
    """Let a listener hear what is told within."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def refined(work: str, find: Callable[[int], tuple[int, str]]) -> AbstractContextManager[None]:
    """Complete what is told of a work within: `find` maps what is done to all, and to its step."""
    listener = _listener.get()

    def told(name: str, done: int, total: int, step: str) -> None:
        assert listener is not None
        if name == work:
            total, step = find(done)
        listener(name, min(done, total), total, step)

    return heard_by(told if listener else None)


def tell(work: str, done: int, total: int = 0, step: str = "") -> None:
    """Tell the listener, if there is one, how far a work is."""
    if listener := _listener.get():
        listener(work, done, total, step)


def tracked(
    work: str, items: Sequence[T], name: Callable[[T], str] = lambda item: ""
) -> Iterator[T]:
    """Yield the items of a work, and tell each one before it is taken up."""
    for number, item in enumerate(items):
        tell(work, number, len(items), name(item))
        yield item
    tell(work, len(items), len(items))
