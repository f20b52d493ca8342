"""Lowering: scheduled TIR to a Program."""

from vtaops.lowering.flatten import flatten
from vtaops.lowering.lower import lower

__all__ = ["flatten", "lower"]
