"""Descriptions and schedules to verified programs, and the search for tilings."""

from vtaops.compiler.driver import build, compile, emit, timed_tiling

__all__ = ["build", "compile", "emit", "timed_tiling"]
