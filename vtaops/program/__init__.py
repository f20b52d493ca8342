"""Programs as data: representation, file format, statistics, assembly text, verifier."""

from vtaops.program.assembly import assemble
from vtaops.program.builder import ProgramBuilder
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Buffer, OperatorRecord, Program, Role
from vtaops.program.statistics import Statistics

__all__ = [
    "MICRO_OPS",
    "NO_BUFFER",
    "Buffer",
    "OperatorRecord",
    "Program",
    "ProgramBuilder",
    "Role",
    "Statistics",
    "assemble",
]
