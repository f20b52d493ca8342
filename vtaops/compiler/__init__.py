"""Compilation of descriptions and schedules to verified programs; search for tilings."""

from vtaops.compiler.driver import compile, emit_operator
from vtaops.compiler.search import search

__all__ = ["compile", "emit_operator", "search"]
