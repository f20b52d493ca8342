"""Compilation of descriptions and schedules to verified programs; search for tilings."""

from vtaops.compiler.driver import build, compile, emit, timed_tiling

__all__ = ["build", "compile", "emit", "timed_tiling"]
