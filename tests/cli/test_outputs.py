"""What commands write: nothing is lost that was not named, and nothing half is left."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import vtaops
from trials import outputs
from vtaops import VTAError, cli
from vtaops.base.files import write_file, write_folder

WRITING = {
    **{line: f"y{suffix}" for line, suffix in outputs.FILES.items()},
    "judge tiny/first answer.txt --save": "y.npz",
}
"""Each option that names a file to write, and such a name."""


def path_of(command):
    """Return the words of a line that name a command, and the last, which is its option."""
    *words, option = command.split()
    count = 2 if words[0] in ("run", "report", "course", "bitstream", "hardware", "board") else 1
    return (*words[:count], option)


FOLDERS = {
    *map(path_of, (*outputs.FOLDERS, *outputs.GROWING)),
    ("fetch", "--output"),
    ("board", "build", "--output"),
}
"""Options that name a folder to write, or a file that grows."""


def call(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def options(group, words=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from options(command, (*words, name))
        else:
            for option in command.params:
                yield (*words, name, option.opts[0]), option


def test_every_option_of_what_is_written_is_in_the_list():
    """Those of files are known by their check; those of folders, which have none, by their name."""
    found = dict(options(typer.main.get_command(cli.app)))
    checked = {path for path, option in found.items() if "written" in _name(option.callback)}
    assert checked == {path_of(command) for command in WRITING} - FOLDERS
    assert {path for path, option in found.items() if "-o" in option.opts} <= checked | FOLDERS
    assert found.keys() >= FOLDERS


def _name(callback):
    return getattr(callback, "__qualname__", "")


@pytest.mark.parametrize("command", WRITING)
def test_a_missing_folder_is_named_before_any_work(command):
    """The files that would be read are not there either, and nothing complains of them."""
    path = f"some/folder/{WRITING[command]}"
    done = call(*command.split(), path)
    assert isinstance(done.exception, VTAError)
    message = f"cannot write '{path}': There is no folder 'some/folder'"
    assert str(done.exception) == message


@pytest.mark.parametrize("command", WRITING)
def test_a_wrong_suffix_is_refused_before_any_work(command, tmp_path):
    done = call(*command.split(), tmp_path / "y.wrong")
    assert isinstance(done.exception, VTAError)
    assert "its name must end in ." in str(done.exception)


READING = {
    "compile {} --output": ".vtam",
    "asm {} --output": ".vta",
    "quantize {} --calibration x.npy --output": ".onnx",
    "quantize x.onnx --calibration {} --output": ".onnx",
    "run model network.vtam --input {} --output": ".npz",
    "run op Gemm(m=2,n=2,k=2) --input {} --output": ".npy",
    "evaluate {} --data photos --output": ".html",
    "report profile {} --output": ".html",
    "report trace {} --output": ".json",
    "bitstream info {} --to-bin": ".bin",
    "sweep --model {} --output": ".html",
}
"""Commands that read and write a file, and the suffix of what they write."""


@pytest.mark.parametrize("way", ["same", "link", "hard link", "other spelling"])
@pytest.mark.parametrize("command", READING)
def test_no_command_writes_over_what_it_reads(command, way, tmp_path):
    given = tmp_path / f"given{READING[command]}"
    given.write_bytes(b"precious")
    other = tmp_path / f"other{READING[command]}"
    if way == "link":
        other.symlink_to(given)
    elif way == "hard link":
        other.hardlink_to(given)
    else:
        other = given if way == "same" else tmp_path / "." / ".." / tmp_path.name / given.name
    done = call(*command.format(given).split(), other)
    assert isinstance(done.exception, VTAError)
    assert "the command reads or writes it already" in str(done.exception)
    assert given.read_bytes() == b"precious"


def test_two_outputs_are_not_one_file(tmp_path):
    path = tmp_path / "front.csv"
    path.write_text("")
    done = call("sweep", "-o", path, "-o", path)
    assert "reads or writes it already" in str(done.exception)


def gemm(*output):
    return call("run", "op", "Gemm(m=2, n=2, k=2)", *output)


def test_links_are_followed_and_modes_kept(tmp_path):
    target, link = tmp_path / "kept" / "y.npy", tmp_path / "y.npy"
    target.parent.mkdir()
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    assert gemm("-o", link).exit_code == 0
    assert link.is_symlink()
    assert np.load(target).shape == (2, 2)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_links_in_a_circle_are_told_and_stay(tmp_path):
    (tmp_path / "y.npy").symlink_to("z.npy")
    (tmp_path / "z.npy").symlink_to("y.npy")
    assert "Too many levels of symbolic links" in str(gemm("-o", tmp_path / "y.npy").exception)
    assert (tmp_path / "y.npy").is_symlink()


def test_a_new_file_obeys_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "new", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_devices_are_written_to():
    before = Path("/dev/null").stat()
    assert gemm("-o", "/dev/null").exit_code == 0
    assert Path("/dev/null").stat().st_rdev == before.st_rdev
    if Path("/dev/full").exists():
        error = str(gemm("-o", "/dev/full").exception)
        assert error == "cannot write '/dev/full': No space left on device"


def test_pipes_are_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    done = gemm("--save", pipe)
    reader.join(20)
    assert done.exit_code == 0, done.output
    (tmp_path / "y.vta").write_bytes(got[0])
    assert len(vtaops.Program.load(tmp_path / "y.vta")) > 3
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_without_permission_stays(tmp_path):
    path = tmp_path / "y.npy"
    path.write_bytes(b"old")
    path.chmod(0o400)
    assert "Permission denied" in str(gemm("-o", path).exception)
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("option", ["-o", "--save"])
def test_results_are_written_whole_or_not_at_all(option, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / {"-o": "y.npy", "--save": "y.vta"}[option]
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in str(gemm(option, path).exception)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]


@pytest.mark.parametrize("command", ["hardware write pynq -o made", "demo --no-open -o made"])
def test_a_full_disk_is_told_in_one_line(command, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    found = CliRunner().invoke(cli.app, command.split())
    assert isinstance(found.exception, VTAError)
    assert str(found.exception).startswith("cannot write")
    assert str(found.exception).endswith(": No space left on device")
    assert [path for path in Path("made").rglob("*") if path.is_file()] == []


def test_a_folder_of_something_else_is_refused(tmp_path):
    files = {"Makefile": b"new", "src/main.c": b"new"}
    (tmp_path / "Makefile").write_bytes(b"mine")
    with pytest.raises(OSError, match="It has a Makefile of something else"):
        write_folder(tmp_path, files)
    assert (tmp_path / "Makefile").read_bytes() == b"mine"
    write_folder(tmp_path, files, force=True)
    write_folder(tmp_path, files)  # its own
    assert (tmp_path / "src" / "main.c").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("hardware write pynq -o", "build.tcl"),
        ("demo -o", "image.npy"),
        ("board build ulx3s -o", "build"),
        ("fetch mlperf-tiny -o", "vww_96_int8.tflite"),
    ],
)
def test_folders_with_files_of_the_user_are_refused(command, name, tmp_path):
    (tmp_path / name).write_bytes(b"mine")
    done = call(*command.split(), tmp_path)
    assert isinstance(done.exception, VTAError)
    assert name in str(done.exception)
    assert "--force" in str(done.exception)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"mine"]


def test_nothing_is_lost_that_was_not_named(tmp_path):
    """One command against whatever may be where it writes; `trials/outputs.py` tries all."""
    words = ["outputs", "--only", "run op Gemm(m=2,n=2,k=2) --save", "--state", tmp_path / "state"]
    done = subprocess.run(
        [sys.executable, "-m", "trials", *map(str, words)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def shell(command, **how):
    line = command.replace("vtaops", f"{sys.executable} -m vtaops", 1)
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, **how)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("vtaops list configs >&-", 1, "error: cannot write the output: standard output is closed"),
        ("vtaops list configs > /dev/full", 1, "cannot write the output: No space left on device"),
        ("vtaops --help | true; exit ${PIPESTATUS[0]}", 141, ""),
        ("vtaops list configs --json | true; exit ${PIPESTATUS[0]}", 141, ""),
        ("vtaops disasm /nowhere.vta", 1, "error: "),
    ],
)
def test_a_bad_end_is_one_line_and_the_right_code(line, code, said):
    done = shell(line)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == bool(said)


def test_little_is_imported_before_an_interruption_is_told():
    code = "import sys; known = {*sys.modules}; import vtaops; print({*sys.modules} - known)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for heavy in ("ast", "pathlib", "re", "typing", "numpy"):
        assert f"'{heavy}'" not in done.stdout


@pytest.mark.parametrize("module", ["typer", "rich.console", "numpy"])
def test_an_interruption_during_imports_leaves_no_traceback(module, tmp_path):
    name = module.partition(".")[0]
    (tmp_path / f"{name}.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise RuntimeError('still here')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = shell("vtaops --version", env=environment)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
