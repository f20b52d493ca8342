"""The ULX3S as its host sees it, without Verilog: UARTBone byte by byte, and fsim as VTA.

Written from LiteX's documentation of the protocol and the register map, not from the host's code.
"""

import os
import select
import socket
import threading
import tty
import zlib
from contextlib import suppress

import numpy as np

from vtaops.base.errors import VTAError
from vtaops.hardware.registers import RtlRegisters
from vtaops.hardware.ulx3s import ADDRESSES, MEMORY, REGISTERS, Ulx3sDesign
from vtaops.runtime.fsim import Fsim
from vtaops.runtime.uartbone import LinkError

MEMORY_BYTES = 1 << 20  # of 32 MiB: what tests use
PAGE = 4096
SILENCE = 0.25  # seconds in which a served board gives up a command that does not end


class FakeBoard:
    """A board, and the line to it; its faults are functions of the number of a byte.

    Parameters
    ----------
    config : HardwareConfig
        Of its VTA.

    Attributes
    ----------
    to_board, from_board : callable
        (number of the byte, byte) -> bytes that arrive instead.
    """

    patience = 0.0

    def __init__(self, config):
        self.identity = Ulx3sDesign(config).identity
        self.vta, self.tile = Fsim(config), config.block_in
        self.block = self.vta.alloc(MEMORY_BYTES - PAGE)
        assert self.block.address == PAGE
        self.sent = self.received = 0
        self.to_board = self.from_board = lambda number, byte: bytes([byte])
        self.answers = b""
        self.connections = self.most_lanes = 0
        self.switch_on()

    def switch_on(self):
        """Be as after power came: noise in the memory, registers at their reset values."""
        rng = np.random.default_rng(1)
        self.memory = rng.integers(0, 256, MEMORY_BYTES).astype(np.uint8)
        self.reset()

    def reset(self):
        self.crc = 0
        self.sdram_ready = False
        self.frame = bytearray()
        self.registers = dict.fromkeys(("fill_base", "fill_length", "lanes_count"), 0)
        self.lanes = None  # bytes, while the host fills tiles
        self.filled = False
        self.vta_registers = {}

    # ------------------------------------------------------------------ the line

    def connect(self):
        self.connections += 1
        self.answers = b""
        return self

    def write(self, data):
        for byte in data:
            for arrived in self.to_board(self.sent, byte):
                self.take(arrived)
            self.sent += 1

    def read(self, count, seconds=None):
        found, self.answers = self.answers[:count], self.answers[count:]
        if len(found) < count:  # silence, in which the bridge gives up
            self.frame.clear()
        return found

    def close(self):
        pass

    # ---------------------------------------------------------------- the board

    def take(self, byte):
        self.crc = zlib.crc32(bytes([byte]), self.crc)
        self.frame.append(byte)
        if len(self.frame) < 6:
            return
        command, count = self.frame[:2]
        address = 4 * int.from_bytes(self.frame[2:6], "big")
        if command in (1, 3):
            if len(self.frame) > 6 and (len(self.frame) - 6) % 4 == 0:
                word = int.from_bytes(self.frame[-4:], "big")
                done = (len(self.frame) - 6) // 4
                self.store(address + (4 * (done - 1) if command == 1 else 0), word)
                if done == count:
                    self.frame.clear()
            return
        self.frame.clear()
        if command in (2, 4):
            for index in range(count):
                word = self.load(address + (4 * index if command == 2 else 0))
                for out in word.to_bytes(4, "big"):
                    self.crc = zlib.crc32(bytes([out]), self.crc)
                    self.answers += self.from_board(self.received, out)
                    self.received += 1

    def load(self, address):
        if 0 <= address - MEMORY < MEMORY_BYTES:
            word = int(self.memory.view("<u4")[(address - MEMORY) // 4])
            return word if self.sdram_ready else 0xDEADDEAD
        if 0 <= address - REGISTERS < 4096:
            return self.vta_registers.get(address - REGISTERS, 0)
        for index, word in enumerate(self.identity):
            if address == ADDRESSES[f"identity_word{index}"]:
                return word
        if address == ADDRESSES["link_crc"]:
            return self.crc
        return int(address == ADDRESSES["fill_done"] and self.filled)

    def store(self, address, word):
        if 0 <= address - MEMORY < MEMORY_BYTES:
            if self.sdram_ready:
                self.memory.view("<u4")[(address - MEMORY) // 4] = word
        elif 0 <= address - REGISTERS < 4096:
            self.vta_registers[address - REGISTERS] = word
            if address == REGISTERS + RtlRegisters.CONTROL and word & RtlRegisters.LAUNCH:
                self.run()
        elif address == ADDRESSES["ctrl_reset"] and word & 1:
            self.reset()
        elif address == ADDRESSES["sdram_dfii_control"]:
            self.sdram_ready = bool(word & 1)
        elif address == ADDRESSES["fill_enable"]:
            self.lanes, self.filled = bytearray() if word & 1 else None, False
            self.fill()
        elif address == ADDRESSES["lanes_data"] and self.lanes is not None:
            self.lanes += word.to_bytes(4, "little")
            self.fill()
        else:
            for name in self.registers:
                if address == ADDRESSES[name]:
                    self.registers[name] = word

    def fill(self):
        """Write the tiles, once all lanes that the host sends are here."""
        base, length, count = self.registers.values()
        size = length // self.tile * count
        if self.lanes is not None and len(self.lanes) >= size:
            tiles = np.zeros((length // self.tile, self.tile), np.uint8)
            tiles[:, :count] = np.frombuffer(self.lanes[:size], np.uint8).reshape(len(tiles), count)
            self.memory[base : base + length] = tiles.reshape(-1)
            self.filled, self.most_lanes = True, max(self.most_lanes, count)

    def run(self):
        self.vta.write(self.block, self.memory[PAGE:])
        registers = self.vta_registers
        faults = 0
        try:
            place = registers.get(RtlRegisters.ADDRESS, 0), registers.get(RtlRegisters.COUNT, 0)
            self.vta.launch(*place, 5.0)
        except VTAError:
            faults = 1
        self.memory[PAGE:] = self.vta.read(self.block, self.block.nbytes)
        registers[RtlRegisters.CONTROL] = RtlRegisters.QUIET | RtlRegisters.FINISHED * (not faults)
        registers[RtlRegisters.FAULTS] = faults
        registers[RtlRegisters.CYCLES_LOW] = registers.get(RtlRegisters.CYCLES_LOW, 0) + 1000


class ServedBoard:
    """A fake board behind a TCP port, for the line itself."""

    def __init__(self, board):
        self.board = board
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.host = None
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                self.host, _ = self.server.accept()
            except OSError:  # closed
                return
            with self.host, suppress(OSError):  # unplugged
                while data := self.host.recv(4096):
                    self.board.write(data)
                    self.host.sendall(self.board.read(len(self.board.answers)))

    def unplug(self):
        """Close the connection of the host; another one may come."""
        self.host.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        if self.host is not None:
            self.host.close()
        self.thread.join(5)


class TerminalBoard:
    """A fake board behind a pseudo-terminal: ``path`` is where its host finds it."""

    def __init__(self, board):
        self.board = board
        self.master, self.terminal = os.openpty()
        self.path = os.ttyname(self.terminal)
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self):
        with suppress(OSError):  # closed
            while True:
                while not select.select([self.master], [], [], SILENCE)[0]:
                    self.board.frame.clear()
                self.board.write(os.read(self.master, 4096))
                answer = self.board.read(len(self.board.answers))
                while answer:
                    answer = answer[os.write(self.master, answer) :]

    def __enter__(self):
        tty.setraw(self.terminal)
        self.thread.start()
        return self

    def __exit__(self, *_):
        os.close(self.terminal)
        self.thread.join(5)
        os.close(self.master)


class EndlessTerminal(TerminalBoard):
    """Something behind a pseudo-terminal that sends without end."""

    def serve(self):
        with suppress(OSError):  # closed
            while not self.closing:
                if select.select([], [self.master], [], SILENCE)[1]:
                    os.write(self.master, bytes(64))

    closing = False

    def __exit__(self, *_):
        self.closing = True
        super().__exit__(*_)


class DeadLine:
    """A line that is there, with nobody at its other end."""

    patience = 0.0

    def write(self, data):
        pass

    def read(self, count, seconds=None):
        return b""

    def close(self):
        pass


class EndlessLine(DeadLine):
    """A line that never falls silent."""

    def read(self, count, seconds=None):
        return bytes(count)


class GoneLine(DeadLine):
    """A line that was pulled."""

    def write(self, data):
        raise LinkError("the line to the board is gone: it was pulled")
