"""Boards: the server that runs on one, bitstreams, and a virtual board that stands in for one."""

from vtaops.board.bitfile import BitFile, read_bit_file
from vtaops.board.faults import Fault, Faults

__all__ = ["BitFile", "Fault", "Faults", "read_bit_file"]
