"""Boards: drivers, server, bitstreams and their builds, a virtual board, the acceptance test."""

from vtaops.board.bitfile import BitFile, read_bit_file

__all__ = ["BitFile", "read_bit_file"]
