"""Lowering: scheduled TIR to fragments (`emit`), and fragments to a Program (`link`)."""

from vtaops.lowering.convolution import convolution_tree
from vtaops.lowering.emit import Fragment, emit
from vtaops.lowering.flatten import flatten
from vtaops.lowering.link import Part, Place, assemble, bind, link, whole
from vtaops.lowering.options import Border, Capacity, LoweringOptions

__all__ = [
    "Border",
    "Capacity",
    "Fragment",
    "LoweringOptions",
    "Part",
    "Place",
    "assemble",
    "bind",
    "convolution_tree",
    "emit",
    "flatten",
    "link",
    "whole",
]
