"""Prove."""

from __future__ import annotations

import secrets
import time
from typing import Any

import numpy as np

from vtaops.program import Program, Role
from vtaops.prove.images import packed, unpacked
from vtaops.prove.machine import Machine
from vtaops.prove.operators import Operator, Unknown
from vtaops.prove.terms import Fields


def prove_program(program: Program, kind: str, parameters: Any, seed: int | None = None):
    fields = Fields(secrets.randbits(128) if seed is None else seed)
    given, images = {}, {}
    for buffer in program.inputs:
        given[buffer.name] = fields.symbols(buffer.shape, buffer.dtype)
        images[buffer.name] = packed(fields, buffer, given[buffer.name].value)
    wanted = Operator(fields, kind, parameters).result(given)
    t = time.process_time()
    machine = Machine(program, fields, images)
    machine.run()
    (output,) = program.outputs
    index = program.buffers.index(output)
    found = unpacked(output, machine.dram.terms_of(index))
    same = fields.keys(found) == fields.keys(np.broadcast_to(wanted.value, found.shape))
    return same, machine
