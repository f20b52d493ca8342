"""The page of whole networks: timelines of launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtaops.program.timing.interactive import interactive

if TYPE_CHECKING:
    from vtaops.model import Model


def network_page(*models: Model) -> str:
    """Return the timelines of all launches as one self-contained page.

    Several models, such as one network with and without an extension, are shown one below the
    other.
    """
    timelines, titles = [], []
    for model in models:
        name = f"{model.name} on {model.config.name}"
        for number, program in enumerate(model.programs, 1):
            timelines.append(program.timeline())
            titles.append(f"{name}, launch {number}" if len(model.programs) > 1 else name)
    return interactive(timelines, titles)
