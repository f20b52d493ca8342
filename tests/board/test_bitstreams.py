"""Bitstream files, the manifest and the cache, and the commands for boards."""

import dataclasses
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
from vtaops.board.bitfile import BitFile, check_part, die, parse_bit_file, read_bit_file
from vtaops.board.catalogue import UNKNOWN, Catalogue, Entry
from vtaops.board.selftest import PUBLISHED_MS
from vtaops.cli import app
from vtaops.errors import ConfigError, DeviceError
from vtaops.hardware.registers import HlsRegisters, RegisterMap
from vtaops.machine.config import ISA_VERSION, TARGETS

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
    assert parsed.to_bin() == b"\xff" * 8 + b"\x66\x55\x99\xaa" + b"\x04\x03\x02\x01"


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


OWN = Entry("own", "pynq", "pynq", ISA_VERSION, RegisterMap.RTL, UNKNOWN, "made here")


def test_the_manifest_is_consistent(tmp_path):
    catalogue = Catalogue(tmp_path)
    assert catalogue.entry("pynq-hls-1x16").sha256 == UPSTREAM
    for entry in catalogue.entries.values():
        config = entry.hardware()
        assert config.target == entry.board
        assert entry.source


def test_added_files_are_found_again_and_checked(tmp_path, file):
    catalogue = Catalogue(tmp_path / "cache")
    added = catalogue.add(file, OWN)
    assert added.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    again = Catalogue(tmp_path / "cache")
    assert again.entry("own") == added
    path = again.verify("own")
    assert path.read_bytes() == file.read_bytes()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DeviceError, match="corrupted"):
        again.verify("own")
    path.unlink()
    with pytest.raises(DeviceError, match="not in the cache"):
        again.verify("own")


def test_a_file_with_another_checksum_is_not_added(tmp_path, file):
    catalogue = Catalogue(tmp_path / "cache")
    with pytest.raises(DeviceError, match=f"that of pynq-hls-1x16 is {UPSTREAM}"):
        catalogue.add(file, catalogue.entry("pynq-hls-1x16"))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pynq-rtl-1x16", "checksum of pynq-rtl-1x16 is unknown"),
        ("pynq-hls-1x16", "not in the cache"),
        ("pynq-hls-4x8-v1", "decodes instruction set 0.0.1"),
        ("nothing", "known ids"),
    ],
)
def test_what_cannot_be_trusted_or_used_is_refused(tmp_path, name, message):
    with pytest.raises(DeviceError, match=message):
        Catalogue(tmp_path).verify(name)


def _list(cache, *entries):
    """Write a user's list of bitstreams, with their files."""
    cache.mkdir(exist_ok=True)
    content = bit_file().to_bytes()
    digest = hashlib.sha256(content).hexdigest()
    (cache / f"{digest}.bit").write_bytes(content)
    listed = {entry.id: dataclasses.asdict(entry) | {"sha256": digest} for entry in entries}
    (cache / "additions.json").write_text(json.dumps(listed))
    return digest


def test_a_list_never_replaces_what_is_shipped(tmp_path):
    shipped = Catalogue(tmp_path).entries
    known, unknown = shipped["pynq-hls-1x16"], shipped["pynq-rtl-1x16"]
    false = {"config": "tiny", "register_map": RegisterMap.RTL, "source": "a stranger"}
    digest = _list(tmp_path, *(dataclasses.replace(one, **false) for one in (known, unknown)))
    found = Catalogue(tmp_path)
    assert found.entry(known.id) == known
    assert found.entry(unknown.id) == dataclasses.replace(unknown, sha256=digest)
    with pytest.raises(DeviceError, match="not in the cache"):
        found.verify(known.id)


def test_an_id_that_is_shipped_is_not_given_to_another_file(tmp_path, file):
    catalogue = Catalogue(tmp_path / "cache")
    for name in ("pynq-hls-1x16", "pynq-rtl-1x16"):
        with pytest.raises(DeviceError, match="that of another bitstream"):
            catalogue.add(file, dataclasses.replace(OWN, id=name))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("part", [".", "additions.json"])
def test_a_list_that_others_could_have_written_is_not_read(tmp_path, part):
    cache = tmp_path / "cache"
    _list(cache, OWN)
    assert Catalogue(cache).verify("own")
    (cache / part).chmod(0o777)
    with pytest.raises(ConfigError, match="other users can write it"):
        Catalogue(cache)


def test_a_cache_that_others_can_write_is_neither_read_nor_written(tmp_path, file):
    cache = tmp_path / "cache"
    catalogue = Catalogue(cache)
    path = catalogue.verify(catalogue.add(file, OWN).id)
    assert not (cache.stat().st_mode | path.stat().st_mode) & 0o077
    path.chmod(0o666)
    with pytest.raises(DeviceError, match="other users can write it"):
        catalogue.verify("own")
    path.chmod(0o600)
    cache.chmod(0o777)
    for use in (
        lambda: catalogue.verify("own"),
        lambda: catalogue.add(file, OWN),
        lambda: catalogue.fetch("pynq-hls-1x16"),
    ):
        with pytest.raises(DeviceError, match="other users can write it"):
            use()


def test_a_file_for_another_board_is_not_added(tmp_path):
    (tmp_path / "x.bit").write_bytes(bit_file("zu3eg-sbva484").to_bytes())
    with pytest.raises(DeviceError, match="zu3eg"):
        Catalogue(tmp_path).add(tmp_path / "x.bit", OWN)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../x"},
        {"board": "arty"},
        {"sha256": "../../x"},
        {"sha256": "A" * 64},
        {"register_map": "vcr"},
        {"source": 3},
    ],
)
def test_bad_entries(change):
    values = {name: getattr(OWN, name) for name in Entry.__dataclass_fields__}
    with pytest.raises(ConfigError, match="not described correctly"):
        Entry(**{**values, **change})


def test_damaged_lists_are_named(tmp_path):
    (tmp_path / "additions.json").write_text("[")
    with pytest.raises(ConfigError, match=r"additions\.json is damaged"):
        Catalogue(tmp_path)
    (tmp_path / "manifest.toml").write_text("[[bitstream]]\nid = 'x'\n")
    with pytest.raises(ConfigError, match="a bitstream has the keys"):
        Catalogue(tmp_path / "cache", tmp_path / "manifest.toml")
    (tmp_path / "manifest.toml").write_text("[[")
    with pytest.raises(ConfigError, match="cannot read the manifest"):
        Catalogue(tmp_path / "cache", tmp_path / "manifest.toml")


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


def test_commands_for_bitstreams(run, file, tmp_path):
    listed = json.loads(run("list", "bitstreams", "--json"))
    assert {"pynq-hls-1x16": False}.items() <= {e["id"]: e["in_cache"] for e in listed}.items()
    assert "pynq-hls-1x16" in run("list", "bitstreams")
    with pytest.raises(DeviceError, match="--accept"):
        run("bitstream", "add", file, "--id", "pynq-rtl-1x16")
    with pytest.raises(DeviceError, match="--board and --config"):
        run("bitstream", "add", file, "--id", "mine", "--accept")
    run("bitstream", "add", file, "--id", "pynq-rtl-1x16", "--accept")
    run("bitstream", "add", file, "--id", "mine", "--board", "pynq", "--config", "pynq", "--accept")
    assert "intact" in run("bitstream", "info", "pynq-rtl-1x16")
    facts = json.loads(run("bitstream", "info", file, "--json", "--to-bin", tmp_path / "x.bin"))
    assert facts["part"] == "7z020clg484"
    assert facts["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (tmp_path / "x.bin").read_bytes() == bit_file().to_bin()


def test_flash_and_look_at_a_board(run, file):
    with serving(flashed=False) as server:
        assert json.loads(run("board", "info", server.address, "--json"))["bitstream"] is None
        assert "built 2020/06/30" in run("flash", server.address, "--bitstream", file)
        assert "7z020clg484" in run("board", "info", server.address)
        run("bitstream", "add", file, "--id", "pynq-rtl-1x16", "--accept")
        with pytest.raises(ConfigError, match="started for hls"):
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
    monkeypatch.setattr("vtaops.board.selftest._fits", lambda name: name == "resnet18.C10")
    with serving(design=RegisterMap.RTL) as server:
        command = ("board", "test", server.address, "--no-speed", "--json")
        command += ("--operators", 4, "--programs", 3, "--seed", 5)
        report = json.loads(run(*command))
        assert report["seed"] == 5
        assert len(report["checks"]) == 4 + 1 + 10 + 2 + 1 + 4 + 3
        assert all(check["passed"] for check in report["checks"])
        assert report["checks"][-1]["name"] == "random program 2 of seed 5"

        def wrong(self, buffer, offset, nbytes):
            image = original(self, buffer, offset, nbytes)
            image[:1] ^= 1
            return image

        from vtaops.board.pynq import PynqDevice

        original = PynqDevice.read_at
        monkeypatch.setattr(PynqDevice, "read_at", wrong)
        checks = json.loads(run(*command, code=1))["checks"]
        assert {check["name"] for check in checks if check["passed"]} == {"registers after a run"}


def test_what_upstreams_bitstream_lacks_is_skipped(run, monkeypatch):
    monkeypatch.setattr("vtaops.board.selftest._fits", lambda name: False)
    with serving() as server:
        command = ("board", "test", server.address, "--no-speed", "--operators", 0)
        output = run(*command, "--programs", 6)
    assert "skipped ALU MUL with an immediate" in output
    assert "21 passed, 0 failed, 2 skipped; seed 0" in output


def test_registers_that_do_not_hold_what_was_written_are_named(run, monkeypatch):
    monkeypatch.setattr("vtaops.board.selftest._fits", lambda name: False)
    values = HlsRegisters.values
    monkeypatch.setattr(HlsRegisters, "values", lambda self: {**values(self), "fetch count": 1})
    with serving() as server:
        command = ("board", "test", server.address, "--no-speed", "--operators", 0)
        output = run(*command, "--programs", 0, code=1)
    assert "FAILED  registers after a run: fetch count is 1, not 6" in output


def test_a_board_that_dies_ends_the_test(run, monkeypatch):
    with serving() as server:

        def die(device, nbytes, rng):
            server.close()
            device.info()

        monkeypatch.setattr("vtaops.board.selftest._memory", die)
        command = ("board", "test", server.address, "--no-speed", "--timeout", 2)
        output = run(*command, code=1)
    assert "FAILED  memory, 1 bytes: " in output
    assert re.search(r"no longer answers; \d\d checks were not run", output)
    assert "0 passed, 2 failed" in output


def test_the_report_ends_with_the_speed_of_layers(run, monkeypatch):
    monkeypatch.setattr("vtaops.board.selftest._fits", lambda name: False)
    monkeypatch.setattr("vtaops.board.selftest.PUBLISHED_MS", {"resnet18.C10": 1.081})
    with serving() as server:
        command = ("board", "test", server.address, "--operators", 0, "--programs", 0)
        report = json.loads(run(*command, "--json"))
        assert "published GOPS" in run(*command)
    assert [layer["layer"] for layer in report["layers"]] == ["resnet18.C10"]


@needs_tools
def test_cycles_are_shown_where_the_logic_counts_them(run, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")  # where the model of the RTL may have been built
    monkeypatch.setattr("vtaops.board.selftest.PUBLISHED_MS", {"resnet18.C10": 1.081})
    with serving(design=RegisterMap.RTL, simulator="tsim") as server:
        command = ("board", "bench", server.address, "--repeats", 1)
        (layer,) = json.loads(run(*command, "--json"))["layers"]
        assert f"{layer['cycles']:,}" in run(*command)
        # The result of one run on the simulated RTL itself.
        layer_command = ("run", "conv2d", "--layer", "resnet18.C10", "--json", "--device")
        local = json.loads(run(*layer_command, "tsim"))["performance"]
        remote = json.loads(run(*layer_command, server.address))["performance"]
    assert layer["cycles"] == local["cycles"]
    assert remote == local


def test_bench_says_that_it_is_simulated(run, monkeypatch):
    monkeypatch.setattr("vtaops.board.selftest.PUBLISHED_MS", {"resnet18.C10": 1.081})
    with serving() as server:
        command = ("board", "bench", server.address, "--repeats", 2)
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
