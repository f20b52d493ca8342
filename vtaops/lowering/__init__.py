"""Lowering: scheduled TIR to fragments (`emit`), and fragments to a Program (`link`)."""

from vtaops.lowering.emission.emit import Fragment, emit
from vtaops.lowering.linking.link import Part, Place, assemble, bind, link, whole
from vtaops.lowering.options import Border, Capacity, LoweringOptions
from vtaops.lowering.parsing.convolution import convolution_tree
from vtaops.schedule.flatten import flatten

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
