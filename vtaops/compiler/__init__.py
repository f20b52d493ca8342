"""Compilation of descriptions and schedules to verified programs; search for tilings."""

from vtaops.compiler.driver import compile, compile_schedule, emit, timed_tiling

__all__ = ["compile", "compile_schedule", "emit", "timed_tiling"]
