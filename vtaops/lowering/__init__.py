"""Lowering: scheduled TIR to a Program."""

from vtaops.lowering.flatten import flatten
from vtaops.lowering.lower import lower
from vtaops.lowering.scratchpads import Capacity

__all__ = ["Capacity", "flatten", "lower"]
