"""A board under a Linux without PYNQ: files stand in for /dev/mem and /proc/iomem."""

import numpy as np
import pytest

from vtaops import HardwareConfig
from vtaops.board.__main__ import main
from vtaops.board.linux import LinuxBoard
from vtaops.board.pynq import Accelerator, PynqDevice
from vtaops.errors import DeviceError
from vtaops.hardware.registers import RegisterMap

CONFIG = HardwareConfig.load("pynq")
AT, SIZE = 0x1E00_0000, 1 << 16


MEMORY = f"{AT:#x}+{SIZE:#x}"


@pytest.fixture
def root(tmp_path):
    """A system with memory that Linux leaves, and a page of registers that count up from 7."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "proc").mkdir()
    facts = "00000000-1dffffff : System RAM\n  00008000-007fffff : Kernel code\n"
    (tmp_path / "proc/iomem").write_text(facts)
    with (tmp_path / "dev/mem").open("wb") as mem:
        mem.seek(CONFIG.board.register_base)
        mem.write(np.arange(7, 7 + 1024, dtype="<u4").tobytes())
    return tmp_path


def test_a_device_reads_and_writes_the_memory_at_its_address(root):
    device = PynqDevice(
        accelerator := Accelerator(CONFIG, RegisterMap.RTL, LinuxBoard(MEMORY, root))
    )
    accelerator.attach()
    first, second = device.alloc(5000), device.alloc(100)
    data = np.arange(5000).astype(np.uint8)
    device.write(first, data)
    assert AT < first.address < first.address + 5000 <= second.address < AT + SIZE
    with (root / "dev/mem").open("r+b") as mem:
        mem.seek(first.address)
        assert mem.read(5000) == data.tobytes()
        mem.seek(second.address)
        mem.write(b"\x09")
    assert device.read(second, 2).tolist() == [9, 0]


def test_memory_ends_and_is_given_back(root):
    device = PynqDevice(
        accelerator := Accelerator(CONFIG, RegisterMap.RTL, LinuxBoard(MEMORY, root))
    )
    accelerator.attach()
    whole = device.alloc(SIZE - 4 * 4096)
    with pytest.raises(DeviceError, match="no room for 16384 bytes in 0x1e000000"):
        device.alloc(SIZE // 4)
    device.free(whole)
    device.alloc(SIZE // 4)


def test_memory_that_vta_cannot_use(root):
    for memory, told in (
        ("0x1dfff000+0x2000", r"is memory that Linux uses \(00000000-1dffffff\).* mem=479M"),
        (f"{AT + 8:#x}+0x1000", "has 4,096 bytes at 0x1e000008; .* at a multiple of 4096"),
        (f"{AT:#x}+0x0", "has 0 bytes at 0x1e000000; VTA needs some"),
    ):
        with pytest.raises(DeviceError, match=told):
            LinuxBoard(memory, root)


def test_registers_are_words_at_their_address(root):
    page = LinuxBoard(MEMORY, root).MMIO(CONFIG.board.register_base, 4096)
    assert [page.read(0), page.read(8)] == [7, 9]
    page.write(8, 0xFFFF_FFFF)
    with (root / "dev/mem").open("rb") as mem:
        mem.seek(CONFIG.board.register_base + 8)
        assert mem.read(8) == b"\xff\xff\xff\xff\x0a\0\0\0"


def test_what_is_missing_is_named(root, capsys):
    assert main(["serve", "--memory", "no_such_device"]) == 1
    assert "cannot use the memory no_such_device" in capsys.readouterr().err
    with pytest.raises(DeviceError, match=r"x\.bit: without PYNQ the boot loader programs"):
        LinuxBoard(MEMORY, root).Bitstream("x.bit")
