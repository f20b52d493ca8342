"""Boards: drivers, server, bitstreams and their builds, a virtual board, the acceptance test."""

from vtaops.board.bitfile import BitFile, read_bit_file
from vtaops.board.faults import Fault, Faults

__all__ = ["BitFile", "Fault", "Faults", "read_bit_file"]
