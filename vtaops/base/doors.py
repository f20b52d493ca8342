"""Doors: the calls from a room, or a file, up to one that is built on it.

Imports go one way, from later rooms to earlier ones. A few methods are implemented by a later room
or file: `Program.run` by the runtime, other methods of `Program` by other files of its room. They
call it through this table, by name, at call time; no other import runs upwards
(``tests/test_architecture.py``).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

DOORS = {
    "Operator.schedule": "vtaops.schedule.operators:schedule",
    "Operator.lower": "vtaops.schedule.flatten:flatten",
    "Program.disassemble": "vtaops.program.disassembly:disassemble",
    "Program.timeline": "vtaops.program.timing:simulate",
    "Program.verify": "vtaops.program.verifier:verify",
    "Program.prove": "vtaops.proof:prove",
    "Program.certified": "vtaops.proof:certified",
    "Program.save": "vtaops.program.file_format:save",
    "Program.load": "vtaops.program.file_format:load",
    "Model.save": "vtaops.model.artefact:save",
    "Model.export_c": "vtaops.model.export.bundle:export_c",
    "ModelReport.__str__": "vtaops.model.tables:text",
    "Program.run": "vtaops.runtime:run",
    "Program._repr_html_": "vtaops.program.html:program_html",
    "Statistics._repr_html_": "vtaops.program.html:statistics_html",
    "Timeline._repr_html_": "vtaops.program.timing.interactive:timeline_html",
}
"""Maps each method to the function that implements it."""


def door(method: str) -> Any:
    """Return the function behind a door."""
    module, _, name = DOORS[method].partition(":")
    return getattr(import_module(module), name)
