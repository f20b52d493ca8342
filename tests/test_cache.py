"""The caches on disk: damage, folders that cannot be written, processes and threads that share."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.tsim_support import needs_tools

import vtaops
from vtaops.base import cache
from vtaops.base.cache import (
    cache_directory,
    checksum_ok,
    get_or_build,
    make_private,
    store_code,
    trusted,
)
from vtaops.base.files import write_file
from vtaops.base.temporary import TemporaryFolder, sweep
from vtaops.errors import DeviceError
from vtaops.hardware import build
from vtaops.kernels import KernelCache

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
        found.append(get_or_build(tmp_path / "cache" / "thing.so", make).read_bytes())

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
    path = get_or_build(tmp_path / "thing.so", make)
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
    again = get_or_build(path, make)
    assert again.read_bytes() == whole
    assert len(made) == 2
    assert get_or_build(path, make) == again
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
        write = cache.replace_file

        def refuse(target: Path, content: bytes, mode: int) -> None:
            if tmp_path in target.parents:
                raise OSError(code, os.strerror(code))
            write(target, content, mode)

        monkeypatch.setattr(cache, "replace_file", refuse)
    first = get_or_build(path, make)
    assert first != path
    assert checksum_ok(first)
    assert get_or_build(path, make) == first
    assert len(made) == 1
    first.unlink()


def test_what_cannot_be_kept_leaves_what_was_there(monkeypatch, tmp_path):
    source, path = tmp_path / "new", tmp_path / "cache" / "thing.so"
    source.write_bytes(b"first")
    store_code(source, path)
    source.write_bytes(b"second")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store_code(source, path)
    assert path.read_bytes().startswith(b"first")
    assert [file.name for file in path.parent.iterdir()] == ["thing.so"]


def test_a_failed_build_leaves_nothing_and_may_be_tried_again(tmp_path, make):
    target = tmp_path / "thing.so"

    def fail(folder: Path) -> Path:
        (folder / "half").write_text("ha")
        raise DeviceError("no")

    with pytest.raises(DeviceError, match="no"):
        get_or_build(target, fail)
    assert not target.exists()
    assert get_or_build(target, make) == target


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


# ------------------------------------------------------------------------- other users


@pytest.fixture
def warnings_of(monkeypatch, caplog):
    cache._warn_of.cache_clear()
    return caplog


def others_can_write_the_file(path):
    path.chmod(0o666)


def others_can_write_the_folder(path):
    path.parent.chmod(0o777)


def a_group_can_write_the_folder(path):
    path.parent.chmod(0o770)


def another_owns_the_file(path):
    os.chown(path, 12345, -1)


def another_owns_the_folder(path):
    os.chown(path.parent, 12345, -1)


def others_can_write_a_folder_above(path):
    path.parent.parent.chmod(0o777)


def another_owns_a_folder_above(path):
    os.chown(path.parent.parent, 12345, -1)


def another_owns_a_link_to_the_folder(path):
    path.parent.rename(path.parent.parent / "other")
    path.parent.symlink_to("other")
    os.chown(path.parent, 12345, -1, follow_symlinks=False)


def another_owns_the_folder_of_a_link_on_the_way_to_the_folder(path):
    above = path.parent.parent
    path.parent.rename(above / "real")
    (above / "foreign").mkdir()
    (above / "foreign" / "link").symlink_to("../real")
    path.parent.symlink_to(above / "foreign" / "link")
    os.chown(above / "foreign", 12345, -1)


def a_link_to_what_others_can_write(path):
    other = path.parent.parent / "other"
    path.rename(other)
    other.chmod(0o666)
    path.symlink_to(other)


@pytest.mark.parametrize(
    "done",
    [
        others_can_write_the_file, others_can_write_the_folder, a_group_can_write_the_folder,
        another_owns_the_file, another_owns_the_folder, a_link_to_what_others_can_write,
        others_can_write_a_folder_above, another_owns_a_folder_above,
        another_owns_a_link_to_the_folder,
        another_owns_the_folder_of_a_link_on_the_way_to_the_folder,
    ],
)  # fmt: skip
def test_what_another_user_can_have_written_is_not_loaded(done, tmp_path, make, made, warnings_of):
    path = get_or_build(tmp_path / "cache" / "thing.so", make)
    assert trusted(path)
    if done.__name__.startswith("another") and os.geteuid():
        pytest.skip("only root can give files away")
    done(path)
    assert not trusted(path)
    assert not checksum_ok(path)
    found = get_or_build(path, make)
    assert len(made) == 2
    assert trusted(found)
    if "folder" in done.__name__:  # what is there stays, and the user is told
        assert found != path
        assert f"the cache {path.parent} is not used" in warnings_of.text
        assert "chmod go-w" in warnings_of.text
    else:
        assert found == path
    assert get_or_build(path, make) == found
    assert len(made) == 2


def test_links_and_sticky_folders_of_ones_own_are_no_obstacle(tmp_path, make, made):
    (tmp_path / "real").mkdir()
    (tmp_path / "real").chmod(0o1777)  # as /tmp
    (tmp_path / "link").symlink_to("./../" + tmp_path.name + "/real")
    path = get_or_build(tmp_path / "link" / ".." / "real" / "new" / "cache" / "thing.so", make)
    assert path.samefile(get_or_build(tmp_path / "link" / "new" / "cache" / "thing.so", make))
    assert len(made) == 1
    assert all(place.stat().st_mode & 0o777 == 0o700 for place in (path.parent, path.parents[1]))


def test_links_in_a_circle_lead_to_no_cache(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert not make_private(tmp_path / "a" / "cache")


@pytest.mark.parametrize(("members", "is_own"), [([], True), (["me"], True), (["you"], False)])
def test_the_group_of_one_user_is_not_other_users(tmp_path, monkeypatch, members, is_own):
    """Where each user has a group of his own, folders are often writable to it."""
    user = SimpleNamespace(pw_name="me", pw_gid=tmp_path.stat().st_gid)
    group = SimpleNamespace(gr_name="me", gr_mem=members)
    monkeypatch.setattr(cache.pwd, "getpwuid", lambda _: user)
    monkeypatch.setattr(cache.grp, "getgrgid", lambda _: group)
    cache._is_own_group.cache_clear()
    tmp_path.chmod(0o775)
    assert make_private(tmp_path / "cache") == is_own
    cache._is_own_group.cache_clear()


def test_code_built_where_others_could_change_it_is_not_stored(tmp_path):
    built = tmp_path / "open" / "thing.so"
    built.parent.mkdir()
    built.parent.chmod(0o777)
    built.write_bytes(b"code")
    with pytest.raises(OSError, match="Other users control its folder"):
        store_code(built, tmp_path / "cache" / "thing.so")


def test_users_who_configure_no_logging_are_told(tmp_path):
    """Python's last handler prints warnings, unless the package has a handler that does not."""
    tmp_path.chmod(0o777)
    command = "import sys; from pathlib import Path; from vtaops.base.cache import make_private; "
    command += "assert not make_private(Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", command, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert done.stderr.startswith(f"the cache {tmp_path} is not used")


def test_kernels_of_other_users_are_not_read(tmp_path, monkeypatch, warnings_of):
    monkeypatch.delenv("VTAOPS_KERNEL_CACHE", raising=False)
    op, config = vtaops.Gemm(m=3, n=5, k=7), vtaops.HardwareConfig.load("tiny")
    kernels = KernelCache(tmp_path / "kernels")
    kernels.directory.mkdir(mode=0o777)
    kernels.directory.chmod(0o777)
    with pytest.raises(OSError, match="only this user controls"):
        cache.store(b"", kernels.path(op, config))
    assert list(kernels.directory.iterdir()) == []


def test_a_lock_that_is_a_link_is_not_followed(tmp_path, make):
    target = tmp_path / "diary"
    target.write_text("dear diary")
    (tmp_path / "thing.lock").symlink_to(target)
    assert checksum_ok(get_or_build(tmp_path / "thing.so", make))
    assert target.read_text() == "dear diary"


def test_who_waits_for_another_process_is_told(tmp_path, make, monkeypatch):
    monkeypatch.setattr(cache, "PATIENCE", 0)
    told = threading.Event()
    messages = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())
            told.set()

    handler = Handler()
    cache._log.addHandler(handler)
    lock = os.open(tmp_path / "thing.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    waiting = threading.Thread(target=get_or_build, args=(tmp_path / "thing.so", make))
    waiting.start()
    assert told.wait(60)
    os.close(lock)
    waiting.join(60)
    cache._log.removeHandler(handler)
    assert checksum_ok(tmp_path / "thing.so")
    assert messages == [f"waiting for another process, which makes {tmp_path}/thing.so"]


# ------------------------------------------------------------------------- killed processes

KILLED = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
from vtaops.base.files import write_file
from vtaops.base.temporary import TemporaryFolder

folder = Path(sys.argv[1])
kept = TemporaryFolder(folder)
(kept.path / "half").write_text("ha")
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
write_file(folder / "file", b"new")
"""


def test_what_a_killed_process_leaves_is_swept_and_what_a_living_one_has_is_not(tmp_path):
    (tmp_path / "file").write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "file").read_text() == "old"
    left = {path.name for path in tmp_path.iterdir()} - {"file"}
    assert len(left) == 2
    with TemporaryFolder(tmp_path) as living:
        sweep(tmp_path, "vtaops-*.tmp")
        assert living.is_dir()
        write_file(tmp_path / "file", b"new")
        assert sorted(tmp_path.iterdir()) == [tmp_path / "file", living]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "new"


def test_a_folder_that_is_swept_before_it_is_opened_is_made_again(tmp_path, monkeypatch):
    """Another process may sweep it in between: it has no lock yet."""
    opened, swept = os.open, []

    def late(path, *given, **named):
        if Path(path).parent == tmp_path and not swept:
            swept.append(path)
            Path(path).rmdir()
        return opened(path, *given, **named)

    monkeypatch.setattr(os, "open", late)
    with TemporaryFolder(tmp_path) as folder:
        assert folder.is_dir()
        assert [folder] != swept


def test_names_with_patterns_sweep_their_own_temporaries_only(tmp_path):
    (tmp_path / ".file.0.tmp").write_text("of another file")
    write_file(tmp_path / "[a-z]*", b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".file.0.tmp", "[a-z]*"]


def test_a_forked_child_deletes_nothing_of_its_parent(tmp_path):
    code = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from vtaops.base.cache import _scratch
from vtaops.base.temporary import TemporaryFolder
kept, scratch = TemporaryFolder(Path(sys.argv[1])), _scratch()
with TemporaryFolder(Path(sys.argv[1])) as inner:
    child = os.fork()
    if not child:
        own = _scratch()
        assert own != scratch and own.is_dir()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
    assert inner.is_dir()
assert kept.path.is_dir() and scratch.is_dir() and not inner.is_dir()
"""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        check=True, env=os.environ | {"TMPDIR": str(temporary)},
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == [temporary]
    assert list(temporary.iterdir()) == []  # each of them its own at its end
