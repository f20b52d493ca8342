"""HardwareConfig: every constraint of the ISA, upstream's keys, derived geometry, identity."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtaops import HardwareConfig, Session
from vtaops.board.pynq import Accelerator
from vtaops.errors import ConfigError, DeviceError
from vtaops.machine.config import TARGETS, Extension, Memory

# What upstream's vta_config.json holds for the Pynq board.
UPSTREAM_PYNQ = {
    "TARGET": "pynq",
    "HW_VER": "0.0.2",
    "LOG_INP_WIDTH": 3,
    "LOG_WGT_WIDTH": 3,
    "LOG_ACC_WIDTH": 5,
    "LOG_BATCH": 0,
    "LOG_BLOCK": 4,
    "LOG_UOP_BUFF_SIZE": 15,
    "LOG_INP_BUFF_SIZE": 15,
    "LOG_WGT_BUFF_SIZE": 18,
    "LOG_ACC_BUFF_SIZE": 17,
}
UPSTREAM_DERIVED = {
    "LOG_BLOCK_IN": 4,
    "LOG_BLOCK_OUT": 4,
    "LOG_OUT_WIDTH": 3,
    "LOG_OUT_BUFF_SIZE": 15,
}


# ------------------------------------------------------------------------------- geometry


def test_default_geometry_is_that_of_upstream():
    config = HardwareConfig()
    assert (config.batch, config.block_in, config.block_out) == (1, 16, 16)
    assert config.macs_per_cycle == 256
    expected = {  # element shape, dtype, element bytes, depth, log depth
        "uop": ((), "uint32", 4, 8192, 13),
        "inp": ((1, 16), "int8", 16, 2048, 11),
        "wgt": ((16, 16), "int8", 256, 1024, 10),
        "acc": ((1, 16), "int32", 64, 2048, 11),
        "out": ((1, 16), "int8", 16, 2048, 11),
    }
    for name, values in expected.items():
        pad = getattr(config, name)
        assert (pad.shape, pad.dtype, pad.element_bytes, pad.depth, pad.log_depth) == values
        assert config.scratchpad(pad.memory) is pad
    assert config.wgt.lanes == 256
    assert config.uop.lanes == 1


def test_acc_8bit_shares_the_accumulators_but_not_their_dram_element():
    config = HardwareConfig.load("pynq")
    assert config.scratchpad(Memory.ACC_8BIT) is config.acc
    assert config.dram_element_bytes(Memory.ACC_8BIT) == 16
    assert config.dram_element_bytes(Memory.ACC) == 64


@pytest.mark.parametrize(
    ("changes", "depths"),
    [
        ({"log_batch": 2, "log_block": 3, "log_inp_buff_size": 16, "log_wgt_buff_size": 16,
          "log_acc_buff_size": 18}, (2048, 1024, 2048)),
        ({"log_block": 5, "log_wgt_buff_size": 20}, (1024, 1024, 1024)),
        ({"log_acc_buff_size": 15}, (2048, 1024, 512)),
    ],
)  # fmt: skip
def test_depths_follow_the_tile(changes, depths):
    config = HardwareConfig(**changes)
    assert (config.inp.depth, config.wgt.depth, config.acc.depth) == depths
    assert config.out.depth == config.acc.depth


def test_board_parameters_follow_the_target():
    assert HardwareConfig(target="pynq").board.clock_mhz == 100
    assert HardwareConfig(target="ultra96").board.bus_bits == 128


# --------------------------------------------------------------------------- constraints


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # Packing rules of the ISA, each with its numbers.
        ({"log_uop_buff_size": 16}, r"37 \+ 2U = 37 \+ 2\*14 = 65 bits exceed the 64 bits of GEMM"),
        (
            {"log_inp_buff_size": 16},
            r"2\(A \+ I \+ W\) = 2\*\(11 \+ 12 \+ 10\) = 66 bits exceed the 64 bits of GEMM word 1",
        ),
        (
            {"log_acc_buff_size": 18, "log_inp_buff_size": 14},
            r"4A \+ 20 = 4\*12 \+ 20 = 68 bits exceed the 64 bits of ALU word 1",
        ),
        (
            {"log_acc_buff_size": 17, "log_inp_buff_size": 14, "log_wgt_buff_size": 19},
            r"A \+ max\(A, I\) \+ W = 11 \+ 11 \+ 11 = 33 bits exceed the 32 bits of a micro-op",
        ),
        # SRAM addresses and sizes.
        (
            {"log_inp_buff_size": 21, "log_wgt_buff_size": 9, "log_acc_buff_size": 7},
            r"LOG_INP_BUFF_SIZE gives 131072 elements .* 2..65536, which sram_base reaches",
        ),
        ({"log_wgt_buff_size": 8}, r"LOG_WGT_BUFF_SIZE gives 1 elements of 256 bytes"),
        ({"log_inp_buff_size": 3}, r"LOG_INP_BUFF_SIZE gives 0 elements of 16 bytes"),
        ({"log_acc_buff_size": 6}, r"LOG_ACC_BUFF_SIZE gives 1 elements of 64 bytes"),
        ({"log_uop_buff_size": 2}, r"LOG_UOP_BUFF_SIZE gives 1 elements of 4 bytes"),
        # Element against page and bus.
        (
            {"log_block": 7, "log_wgt_buff_size": 24},
            r"one WGT element has 16384 bytes; it must .* fit a page of 4096",
        ),
        ({"log_batch": 7}, r"one ACC element has 8192 bytes; it must .* fit a page"),
        ({"log_block": 2}, r"one INP element has 4 bytes; it must fill the 8 bytes .*'sim'"),
        (
            {"log_block": 3, "target": "ultra96"},
            r"one INP element has 8 bytes; it must fill the 16 bytes .* 'ultra96'",
        ),
        # Arithmetic.
        ({"log_inp_width": 2}, r"LOG_INP_WIDTH is 2; it must be 3: .* int8"),
        ({"log_wgt_width": 4}, r"LOG_WGT_WIDTH is 4; it must be 3: .* int8"),
        ({"log_acc_width": 4}, r"LOG_ACC_WIDTH is 4; it must be 5: .* int32"),
        # Types and ranges.
        ({"log_block": -1}, r"LOG_BLOCK is -1; it must be an integer in 0\.\.30"),
        ({"log_block": 31}, r"LOG_BLOCK is 31; it must be an integer in 0\.\.30"),
        ({"log_batch": True}, r"LOG_BATCH is True; it must be an integer"),
        ({"log_batch": 0.0}, r"LOG_BATCH is 0.0; it must be an integer"),
        ({"log_uop_buff_size": "15"}, r"LOG_UOP_BUFF_SIZE is '15'; it must be an integer"),
        ({"hw_ver": 2}, r"HW_VER is 2; it must be a string"),
        ({"target": "vcu118"}, r"TARGET is 'vcu118'; it must be one of sim, tsim, pynq"),
    ],
)  # fmt: skip
def test_impossible_configurations_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        HardwareConfig(**changes)


def test_the_default_sits_exactly_at_the_limits():
    """One step back from each refused packing exists: the inequalities are not too strict."""
    HardwareConfig(log_uop_buff_size=15)
    HardwareConfig(log_acc_buff_size=17, log_inp_buff_size=14)
    HardwareConfig(log_inp_buff_size=20, log_wgt_buff_size=9, log_acc_buff_size=7)  # I = 16


log = st.integers(0, 30)


@given(log_batch=st.integers(0, 8), log_block=st.integers(0, 8), uop=log, inp=log, wgt=log, acc=log)
def test_every_accepted_configuration_fits_the_instruction_words(
    log_batch, log_block, uop, inp, wgt, acc
):
    """The inequalities of reference 1.4, computed here from the bytes."""
    bits_of = {"u": 2, "i": log_batch + log_block, "w": 2 * log_block,
               "a": log_batch + log_block + 2}  # fmt: skip
    u, i, w, a = (size - bits_of[n] for n, size in (("u", uop), ("i", inp), ("w", wgt), ("a", acc)))
    possible = (
        37 + 2 * u <= 64
        and 2 * (a + i + w) <= 64
        and 4 * a + 20 <= 64
        and a + max(a, i) + w <= 32
        and all(1 <= depth <= 16 for depth in (u, i, w, a))
        and 3 <= log_batch + log_block <= 10
        and 2 * log_block in range(3, 13)
    )
    try:
        HardwareConfig(
            log_batch=log_batch, log_block=log_block, log_uop_buff_size=uop,
            log_inp_buff_size=inp, log_wgt_buff_size=wgt, log_acc_buff_size=acc,
        )  # fmt: skip
        accepted = True
    except ConfigError:
        accepted = False
    assert accepted == possible


# -------------------------------------------------------------------------------- reading


def test_all_shipped_configurations_load():
    names = HardwareConfig.names()
    assert {"fsim", "tsim", "pynq", "ultra96", "zcu104", "tiny"} <= {*names}
    for name in names:
        config = HardwareConfig.load(name)
        assert config.name == name
        assert config.target in TARGETS


@pytest.mark.parametrize("name", [n for n in HardwareConfig.names() if "_i8w8a32_" in n])
def test_files_named_after_a_bitstream_describe_it(name):
    assert HardwareConfig.load(name).bitstream_id == name


def test_upstream_keys():
    assert HardwareConfig.from_dict(UPSTREAM_PYNQ) == HardwareConfig.load("pynq")
    assert HardwareConfig.from_dict({}) == HardwareConfig()
    assert HardwareConfig.from_dict({"HW_FREQ": 100, "HW_CLK_TARGET": 8}) == HardwareConfig()
    assert HardwareConfig.load("pynq").to_dict() == UPSTREAM_PYNQ


def test_derived_keys_must_agree():
    assert HardwareConfig.from_dict(UPSTREAM_PYNQ | UPSTREAM_DERIVED) == HardwareConfig.load("pynq")
    for key, value in UPSTREAM_DERIVED.items():
        with pytest.raises(ConfigError, match=f"{key} is {value + 1}, .* imply {value}"):
            HardwareConfig.from_dict(UPSTREAM_PYNQ | {key: value + 1})


def test_unknown_keys_are_refused():
    with pytest.raises(ConfigError, match=r"unknown key 'LOG_BLOK'.*known keys: TARGET, HW_VER"):
        HardwareConfig.from_dict({"LOG_BLOK": 4})


@pytest.mark.parametrize("name", HardwareConfig.names())
def test_to_dict_is_the_inverse_of_from_dict(name):
    config = HardwareConfig.load(name)
    assert HardwareConfig.from_dict(config.to_dict(), name=name) == config


def test_load_from_a_file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(UPSTREAM_PYNQ | {"LOG_UOP_BUFF_SIZE": 13}))
    config = HardwareConfig.load(path)
    assert (config.name, config.uop.depth) == ("mine", 2048)
    assert HardwareConfig.load(str(path)) == config


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "cannot read .*broken.json as JSON"),
        (b"", "cannot read .* as JSON"),
        (b"\xff\xfe{}", "cannot read .* as JSON"),
        (b"[]", "holds a JSON list; a configuration is an object"),
        (b"3", "holds a JSON int"),
        (b'{"LOG_BLOCK": null}', "LOG_BLOCK is None"),
        (b'{"TARGET": ["sim"]}', r"TARGET is \['sim'\]; it must be a string"),
    ],
)
def test_malformed_files_are_refused(tmp_path, content, message):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        HardwareConfig.load(path)


@pytest.mark.parametrize("source", ["nowhere", "pynq.json", "/does/not/exist.json", "", "../pynq"])
def test_missing_configurations_name_what_exists(source):
    with pytest.raises(ConfigError, match=r"no hardware configuration .*give one of .*pynq"):
        HardwareConfig.load(source)


# ------------------------------------------------------------------------------- identity


def test_bitstream_ids_of_upstream():
    assert HardwareConfig.load("pynq").bitstream_id == "1x16_i8w8a32_15_15_18_17"
    batched = HardwareConfig(
        log_batch=2, log_block=3, log_inp_buff_size=16, log_wgt_buff_size=16, log_acc_buff_size=18
    )
    assert batched.bitstream_id == "4x8_i8w8a32_15_16_16_18"


def test_fingerprint_covers_what_a_program_depends_on_and_nothing_else():
    base = HardwareConfig()
    assert len(base.fingerprint) == 16
    assert int(base.fingerprint, 16) >= 0
    for same in (
        HardwareConfig(target="pynq"),
        HardwareConfig(hw_ver="0.0.1"),
        HardwareConfig(name="other"),
    ):
        assert same.fingerprint == base.fingerprint
    changed = [
        HardwareConfig(log_uop_buff_size=14),
        HardwareConfig(log_inp_buff_size=14),
        HardwareConfig(log_wgt_buff_size=17),
        HardwareConfig(log_acc_buff_size=16),
        HardwareConfig(log_batch=1),
        HardwareConfig(log_block=5, log_wgt_buff_size=20),
    ]
    assert len({config.fingerprint for config in [base, *changed]}) == 7


def test_equality_ignores_the_name_only():
    assert HardwareConfig(name="a") == HardwareConfig(name="b")
    assert hash(HardwareConfig(name="a")) == hash(HardwareConfig(name="b"))
    assert HardwareConfig(target="pynq") != HardwareConfig(target="sim")


def test_a_configuration_is_immutable():
    with pytest.raises(AttributeError):
        HardwareConfig().log_block = 5


def test_windows_need_four_parts_of_two_channels():
    narrow = {"log_block": 2, "log_batch": 1, "extensions": ("depthwise",)}
    with pytest.raises(
        ConfigError, match=r"'depthwise' mixes a quarter .* tiles of 4 are too narrow"
    ):
        HardwareConfig(**narrow)
    assert HardwareConfig(extensions=("depthwise",)).window_channels == 4


def test_tables_need_the_post_processing():
    with pytest.raises(ConfigError, match=r"EXTENSIONS is \['pool', 'table'\]; .* needs 'post'"):
        HardwareConfig(extensions=("table", "pool"))
    tables = HardwareConfig(extensions=("table", "post")).table
    assert (tables.depth, tables.element_bytes, tables.log_depth) == (2, 256, 1)


def test_programs_do_not_depend_on_the_ports():
    one = HardwareConfig()
    for name in ("weight_port", "split_port"):
        two = HardwareConfig(**{name: 1})
        assert one.fingerprint == two.fingerprint
        assert one != two == HardwareConfig.from_dict(two.to_dict())
        assert name.upper() not in one.to_dict()
        with pytest.raises(ConfigError, match=f"{name.upper()} is 2; it must be 0 or 1"):
            HardwareConfig(**{name: 2})
    wide = HardwareConfig(port_bytes=16)
    assert (one.port_width, wide.port_width) == (8, 16)
    assert wide.fingerprint == one.fingerprint
    assert HardwareConfig.from_dict(wide.to_dict()) == wide
    for value in (9, True, "8", -8):
        with pytest.raises(ConfigError, match=r"PORT_BYTES is .* must be 0, 8, 16, 32 or 64"):
            HardwareConfig(port_bytes=value)


@pytest.mark.parametrize("value", [-2, [-2], None, "4", 1.5, 10**30])
@pytest.mark.parametrize("extension", Extension)
def test_types_are_checked_before_what_follows_from_them(extension, value):
    with pytest.raises(ConfigError, match="LOG_BLOCK is"):
        HardwareConfig(log_block=value, extensions=(extension,))


@pytest.mark.parametrize("target", ["de10nano", "intelfocl"])
def test_upstream_targets_without_a_driver_are_read(target):
    """Programs for them are compiled and run on simulators; what would reach a device says why."""
    config = HardwareConfig.from_dict({"TARGET": target, "HW_VER": "0.0.2"}, target)
    assert config.to_dict()["TARGET"] == target
    assert config.board.no_driver
    a = np.arange(256).astype(np.int8).reshape(16, 16)
    with Session("fsim", config) as session, Session("fsim", HardwareConfig()) as other:
        np.testing.assert_array_equal(session.matmul(a, a, shift=8), other.matmul(a, a, shift=8))
    with pytest.raises(DeviceError, match=f"target '{target}', for which vtaops has no dri"):
        Accelerator(config)
