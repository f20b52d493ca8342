"""Bitstream files, the manifest and the cache, and the commands for boards."""

import hashlib
import json
import re
import struct

import pytest
from helpers.tsim_support import needs_tools
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from trials.boards import bit_file, serving
from vtaops.base.cache import store
from vtaops.board import catalogue as catalogue_file
from vtaops.board.bitfile import BitFile, check_part, die, parse_bit_file, read_bit_file
from vtaops.board.catalogue import UNKNOWN, Catalogue, Entry
from vtaops.board.selftest import PUBLISHED_MS
from vtaops.cli import app
from vtaops.errors import ConfigError, DeviceError
from vtaops.hardware.registers import RegisterMap
from vtaops.machine.config import TARGETS
from vtaops.schedule.workloads import find

UPSTREAM = "0b24cdf9001d349512ab5fb34a0639056c87c8438dc3bce45be892ae43faf568"


# ------------------------------------------------------------------------------ bit files


def test_header_of_a_bit_file_written_by_hand():
    """Bytes as the Xilinx tools write them, without the code under test."""
    data = b"\xff" * 8 + b"\xaa\x99\x55\x66" + b"\x01\x02\x03\x04"
    content = (
        b"\x00\x09\x0f\xf0\x0f\xf0\x0f\xf0\x0f\xf0\x00\x00\x01"
        b"a\x00\x0cvta;UserID=\x00"
        b"b\x00\x0c7z020clg484\x00"
        b"c\x00\x0b2020/06/30\x00"
        b"d\x00\x0918:11:16\x00"
        b"e" + struct.pack(">I", len(data)) + data
    )
    parsed = parse_bit_file(content)
    assert parsed == BitFile("vta;UserID=", "7z020clg484", "2020/06/30", "18:11:16", data)
    assert parsed.to_bytes() == content
    assert parsed.die == "7z020"


@given(st.integers(0, 400), st.integers(1, 255))
def test_a_changed_header_is_refused_or_still_says_something_else(position, change):
    content = bytearray(bit_file().to_bytes())
    content[position] ^= change
    try:
        parsed = parse_bit_file(bytes(content))
    except DeviceError:
        return
    assert parsed != bit_file()
    assert parsed.to_bytes() == content


@pytest.mark.parametrize("length", [0, 1, 12, 13, 20, 60, 95, 120, 1000])
def test_truncated_files_are_refused(length, tmp_path):
    (tmp_path / "cut.bit").write_bytes(bit_file().to_bytes()[:length])
    with pytest.raises(DeviceError, match=r"cut\.bit: .*(truncated|not a \.bit file)"):
        read_bit_file(tmp_path / "cut.bit")


def test_data_without_a_sync_word_are_refused():
    content = BitFile("d", "7z020", "x", "y", bytes(100)).to_bytes()
    with pytest.raises(DeviceError, match="no sync word"):
        parse_bit_file(content)


def test_a_file_that_is_too_large_is_not_read_whole(monkeypatch, tmp_path):
    (tmp_path / "x.bit").write_bytes(bit_file().to_bytes())
    monkeypatch.setattr("vtaops.board.bitfile.MAX_BYTES", 100)
    with pytest.raises(DeviceError, match="more than 100"):
        read_bit_file(tmp_path / "x.bit")
    with pytest.raises(DeviceError, match="cannot read"):
        read_bit_file(tmp_path)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("xc7z020clg484-1", "7z020"),
        ("7z020clg400", "7z020"),
        ("xczu3eg-sbva484-1-e", "zu3eg"),
        ("xczu7ev-ffvc1156-2-e", "zu7ev"),
        ("xck26-sfvc784-2LV-c", "k26"),
        ("7z007sclg225", "7z007s"),
    ],
)
def test_dies(part, expected):
    assert die(part) == expected


def test_bitstreams_are_compared_by_die_not_by_package():
    check_part(bit_file("7z020clg400"), TARGETS["pynq"].device)
    for part in ("7z010clg400", "zu3eg-sbva484"):
        with pytest.raises(DeviceError, match="the board has xc7z020clg484-1"):
            check_part(bit_file(part), TARGETS["pynq"].device)
    with pytest.raises(DeviceError, match="not a Zynq"):
        die("5CSEBA6U23I7")


# ------------------------------------------------------------------------------ catalogue


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "own.bit"
    path.write_bytes(bit_file().to_bytes())
    return path


@pytest.fixture
def known(tmp_path, file):
    """A catalogue that knows the file."""
    made = Catalogue(tmp_path / "cache")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    made.entries["own"] = Entry("own", "pynq", "pynq", RegisterMap.RTL, digest, "made here")
    return made


def put(file, catalogue, name):
    """Put the file of a bitstream into a cache, as a download does."""
    store(file.read_bytes(), catalogue.path(catalogue.entry(name)))


def test_the_manifest_is_consistent(tmp_path):
    catalogue = Catalogue(tmp_path)
    assert catalogue.entry("pynq-hls-1x16").sha256 == UPSTREAM
    for entry in catalogue.entries.values():
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", entry.id)
        assert entry.sha256 == UNKNOWN or re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
        assert bool(entry.url) == (entry.sha256 != UNKNOWN)
        config = entry.hardware()
        assert config.target == entry.board
        assert entry.source


def test_added_files_are_found_again_and_checked(known, file):
    put(file, known, "own")
    path = known.verify("own")
    assert path.read_bytes() == file.read_bytes()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DeviceError, match="corrupted"):
        known.verify("own")
    path.unlink()
    with pytest.raises(DeviceError, match="not in the cache"):
        known.verify("own")


def test_a_file_with_another_checksum_is_refused(tmp_path, file):
    catalogue = Catalogue(tmp_path / "cache")
    put(file, catalogue, "pynq-hls-1x16")
    with pytest.raises(DeviceError, match=f"that of pynq-hls-1x16 is {UPSTREAM}"):
        catalogue.verify("pynq-hls-1x16")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pynq-rtl-1x16", "no file of pynq-rtl-1x16 is published"),
        ("pynq-hls-1x16", "not in the cache"),
        ("nothing", "known ids"),
    ],
)
def test_what_cannot_be_trusted_or_used_is_refused(tmp_path, name, message):
    with pytest.raises(DeviceError, match=message):
        Catalogue(tmp_path).verify(name)


def test_a_list_in_the_cache_adds_nothing_to_what_is_shipped(tmp_path):
    """A stranger's folder, mode 0777, once replaced a shipped bitstream by such a file."""
    shipped = Catalogue(tmp_path).entries
    (tmp_path / "additions.json").write_text(json.dumps({"pynq-hls-1x16": {"config": "tiny"}}))
    assert Catalogue(tmp_path).entries == shipped


def test_a_cache_that_others_can_write_is_neither_read_nor_written(known, file):
    put(file, known, "own")
    path = known.verify("own")
    assert not (known.cache.stat().st_mode | path.stat().st_mode) & 0o077
    path.chmod(0o666)
    with pytest.raises(DeviceError, match="other users can write it"):
        known.verify("own")
    path.chmod(0o600)
    known.cache.chmod(0o777)
    for use in (
        lambda: known.verify("own"),
        lambda: known.fetch("pynq-hls-1x16"),
    ):
        with pytest.raises(DeviceError, match="other users can write it"):
            use()


# ------------------------------------------------------------------------------- commands


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("VTAOPS_BOARD_SECRET", raising=False)
    monkeypatch.delenv("VTAOPS_BOARD_SECRET_FILE", raising=False)

    def invoke(*arguments, code=0):
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.output

    return invoke


def publish(monkeypatch, file):
    """Let the manifest know the checksum of a file as that of our RTL."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    entries = [
        {**each, "sha256": digest} if each["id"] == "pynq-rtl-1x16" else each
        for each in catalogue_file._manifest()
    ]
    monkeypatch.setattr(catalogue_file, "_manifest", lambda: entries)


def test_bitstreams_are_listed(run, file, monkeypatch):
    listed = json.loads(run("list", "bitstreams", "--json"))
    assert {"pynq-hls-1x16": False}.items() <= {e["id"]: e["in_cache"] for e in listed}.items()
    assert "pynq-hls-1x16" in run("list", "bitstreams")
    publish(monkeypatch, file)
    put(file, Catalogue(), "pynq-rtl-1x16")
    listed = json.loads(run("list", "bitstreams", "--json"))
    assert {"pynq-rtl-1x16": True}.items() <= {e["id"]: e["in_cache"] for e in listed}.items()


def test_flash_a_board(run, file, monkeypatch):
    with serving(flashed=False) as server:
        assert "built 2020/06/30" in run("flash", server.address, "--bitstream", file)
        publish(monkeypatch, file)
        put(file, Catalogue(), "pynq-rtl-1x16")
        with pytest.raises(ConfigError, match=r"started for .* and hls"):
            run("flash", server.address, "--bitstream", "pynq-rtl-1x16")
        with pytest.raises(DeviceError, match="not in the cache"):
            run("flash", server.address)


def test_flash_refuses_another_part_before_it_sends_anything(run, tmp_path):
    (tmp_path / "x.bit").write_bytes(bit_file("7z010clg400").to_bytes())
    with serving(flashed=False) as server:
        with pytest.raises(DeviceError, match="7z010"):
            run("flash", server.address, "--bitstream", tmp_path / "x.bit")
        assert server.accelerator.generation == 0


def test_the_acceptance_test_passes_and_notices_a_wrong_board(run, monkeypatch):
    layers = {"resnet18.C10": find("resnet18.C10")}
    monkeypatch.setattr("vtaops.board.selftest.WORKLOADS", layers)
    with serving(design=RegisterMap.RTL) as server:
        command = ("board", "test", server.address, "--json")
        command += ("--operators", 4, "--programs", 3, "--seed", 5)
        report = json.loads(run(*command))
        assert report["seed"] == 5
        assert len(report["checks"]) == 4 + 10 + 2 + 1 + 4 + 3
        assert all(check["passed"] for check in report["checks"])
        assert report["checks"][-1]["name"] == "random program 2 of seed 5"

        def wrong(self, buffer, nbytes, offset=0):
            image = original(self, buffer, nbytes, offset)
            image[:1] ^= 1
            return image

        from vtaops.board.pynq import PynqDevice

        original = PynqDevice.read
        monkeypatch.setattr(PynqDevice, "read", wrong)
        checks = json.loads(run(*command, code=1))["checks"]
        assert not [check for check in checks if check["passed"]]


def test_what_upstreams_bitstream_lacks_is_skipped(run, monkeypatch):
    monkeypatch.setattr("vtaops.board.selftest.WORKLOADS", {})
    with serving() as server:
        command = ("board", "test", server.address, "--operators", 0)
        output = run(*command, "--programs", 6)
    assert "skipped ALU MUL with an immediate" in output
    assert "20 passed, 0 failed, 2 skipped; seed 0" in output


def test_a_board_that_dies_ends_the_test(run, monkeypatch):
    with serving() as server:

        def die(device, nbytes, rng):
            server.close()
            device.info()

        monkeypatch.setattr("vtaops.board.selftest._memory", die)
        command = ("board", "test", server.address)
        output = run(*command, code=1)
    assert "FAILED  memory, 1 bytes: " in output
    assert re.search(r"no longer answers; \d\d checks were not run", output)
    assert "0 passed, 2 failed" in output


def test_the_report_ends_with_the_speed_of_layers(run, monkeypatch):
    monkeypatch.setattr("vtaops.board.selftest.WORKLOADS", {})
    monkeypatch.setattr("vtaops.board.selftest.PUBLISHED_MS", {"resnet18.C10": 1.081})
    with serving() as server:
        command = ("board", "test", server.address, "--operators", 0, "--programs", 0)
        report = json.loads(run(*command, "--json"))
        assert "published GOPS" in run(*command)
    assert [layer["layer"] for layer in report["layers"]] == ["resnet18.C10"]
    assert report["board"]["bitstream"]["part"] == "7z020clg484"


@needs_tools
def test_cycles_are_shown_where_the_logic_counts_them(run, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")  # where the model of the RTL may have been built
    monkeypatch.setattr("vtaops.board.selftest.WORKLOADS", {})
    monkeypatch.setattr("vtaops.board.selftest.PUBLISHED_MS", {"resnet18.C10": 1.081})
    with serving(design=RegisterMap.RTL, simulator="tsim") as server:
        command = ("board", "test", server.address, "--operators", 0, "--programs", 0)
        (layer,) = json.loads(run(*command, "--json"))["layers"]
        assert f"{layer['cycles']:,}" in run(*command)
        # The result of one run on the simulated RTL itself.
        layer_command = ("run", "conv2d", "--layer", "resnet18.C10", "--json", "--device")
        local = json.loads(run(*layer_command, "tsim-axi"))["performance"]
        remote = json.loads(run(*layer_command, server.address))["performance"]
    assert layer["cycles"] == local["cycles"]
    assert remote == local


def test_speed_says_that_it_is_simulated(run, monkeypatch):
    monkeypatch.setattr("vtaops.board.selftest.WORKLOADS", {})
    monkeypatch.setattr("vtaops.board.selftest.PUBLISHED_MS", {"resnet18.C10": 1.081})
    with serving() as server:
        command = ("board", "test", server.address, "--operators", 0, "--programs", 0)
        report = json.loads(run(*command, "--json"))
        assert "those of this host" in run(*command)
    assert report["virtual"] is True
    (layer,) = report["layers"]
    assert layer["layer"] == "resnet18.C10"
    operations = 2 * 7 * 7 * 256 * 512
    assert layer["gops"] == pytest.approx(operations / layer["milliseconds"] / 1e6, rel=1e-6)
    assert layer["published_gops"] == pytest.approx(operations / 1.081e6)
    assert layer["cycles"] is None


def test_published_figures_are_those_of_ten_layers():
    assert sorted(PUBLISHED_MS) == sorted(f"resnet18.C{i}" for i in range(2, 12))
