"""Compilation of descriptions and schedules to verified programs; search for tilings."""

from vtaops.compiler.driver import compile, emit, timed_tiling

__all__ = ["compile", "emit", "timed_tiling"]
