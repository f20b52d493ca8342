"""The caches on disk: damage, folders that cannot be written, processes and threads that share."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers.tsim_support import needs_tools

from vtaops import DeviceError
from vtaops.base.cache import cache_directory, intact, keep, obtain
from vtaops.hardware import build

CONTENT = b"machine code" * 100


@pytest.fixture
def made():
    """Count the calls of a maker."""
    return []


@pytest.fixture
def make(made):
    def make(folder: Path) -> Path:
        made.append(folder)
        (folder / "part").write_bytes(CONTENT)
        return folder / "part"

    return make


def test_the_folder_follows_the_convention(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for base, root in (
        (str(tmp_path), tmp_path),
        ("relative/folder", tmp_path / "home" / ".cache"),
        ("", tmp_path / "home" / ".cache"),
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", base)
        assert cache_directory("tsim") == root / "vtaops" / "tsim"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory("tsim") == tmp_path / "home" / ".cache" / "vtaops" / "tsim"

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    assert cache_directory("tsim").is_absolute()


def test_a_file_is_made_once_however_many_ask(tmp_path, make, made):
    barrier = threading.Barrier(8)
    found = []

    def ask() -> None:
        barrier.wait()
        found.append(obtain(tmp_path / "cache" / "thing.so", make).read_bytes())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [content[: len(CONTENT)] for content in found] == [CONTENT] * 8
    assert len(made) == 1
    assert not made[0].exists()


@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "one bit", "directory"])
def test_a_damaged_file_is_made_again(tmp_path, make, made, damage):
    path = obtain(tmp_path / "thing.so", make)
    whole = path.read_bytes()
    if damage == "directory":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(
            {
                "truncated": whole[: len(whole) // 2],
                "empty": b"",
                "garbage": b"\xa5" * len(whole),
                "one bit": bytes([whole[0] ^ 1]) + whole[1:],
            }[damage]
        )
    again = obtain(path, make)
    assert again.read_bytes() == whole
    assert len(made) == 2
    assert obtain(path, make) == again
    assert len(made) == 2


@pytest.mark.parametrize("fault", ["file in its place", "full disk", "read-only"])
def test_where_nothing_can_be_kept_the_process_keeps_its_own(
    monkeypatch, tmp_path, make, made, fault
):
    path = tmp_path / f"cache-{fault}" / "thing.so"
    if fault == "file in its place":
        path.parent.write_text("no folder")
    else:
        code = {"full disk": errno.ENOSPC, "read-only": errno.EROFS}[fault]
        copy = shutil.copyfile

        def refuse(source: Path, target: Path) -> Path:
            if tmp_path in Path(target).parents:
                raise OSError(code, os.strerror(code))
            return Path(copy(source, target))

        monkeypatch.setattr(shutil, "copyfile", refuse)
    first = obtain(path, make)
    assert first != path
    assert intact(first)
    assert obtain(path, make) == first
    assert len(made) == 1
    first.unlink()


def test_what_cannot_be_kept_leaves_what_was_there(monkeypatch, tmp_path):
    source, path = tmp_path / "new", tmp_path / "cache" / "thing.so"
    source.write_bytes(b"first")
    keep(source, path)
    source.write_bytes(b"second")

    def full(source: Path, target: Path) -> Path:
        target.write_bytes(b"sec")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space"):
        keep(source, path)
    assert path.read_bytes().startswith(b"first")
    assert [file.name for file in path.parent.iterdir()] == ["thing.so"]


def test_a_failed_build_leaves_nothing_and_may_be_tried_again(tmp_path, make):
    target = tmp_path / "thing.so"

    def fail(folder: Path) -> Path:
        (folder / "half").write_text("ha")
        raise DeviceError("no")

    with pytest.raises(DeviceError, match="no"):
        obtain(target, fail)
    assert not target.exists()
    assert obtain(target, make) == target


def test_a_build_without_room_for_it_is_a_clear_error(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def full(folder: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(DeviceError, match=r"cannot build a tsim model.*No space left"):
        build._cached("thing.so", full)


@needs_tools
def test_a_truncated_library_does_not_kill_a_process(monkeypatch, tmp_path):
    """The system's loader maps a library before it looks at it: SIGBUS, for every process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def make(folder: Path) -> Path:
        (folder / "answer.cpp").write_text('extern "C" int answer() { return 42; }')
        compiler = build.find_tools().compiler
        made = folder / "answer.so"
        command = [compiler, "-shared", "-fPIC", "-o", made, folder / "answer.cpp"]
        subprocess.run(command, check=True)
        return made

    library = build._cached("answer.so", make)
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 3])
    assert build._cached("answer.so", make) == library
    load = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).answer())"
    done = subprocess.run(
        [sys.executable, "-c", load, str(library)], capture_output=True, check=False
    )
    assert done.returncode == 42, done.stderr
