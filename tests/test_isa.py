"""The instruction set: golden words, bit layouts of upstream, ranges, round trips, text."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtaops import HardwareConfig
from vtaops.cli.hardware import layout_table
from vtaops.errors import EncodingError
from vtaops.machine.config import Extension, Memory
from vtaops.machine.isa import (
    INSTRUCTIONS,
    Alu,
    AluOp,
    Depthwise,
    Encoding,
    Finish,
    Gemm,
    Load,
    MicroOp,
    Opcode,
    Pool,
    Post,
    Store,
    Unit,
    array_to_words,
    field_widths,
    words_to_array,
)
from vtaops.machine.text import disassemble, tokens_text

DEFAULT = Encoding.of(HardwareConfig())
CONFIGS = {name: HardwareConfig.load(name) for name in HardwareConfig.names()}
CONFIGS["shallow-uop"] = HardwareConfig(log_uop_buff_size=8)
CONFIGS["shallow-acc"] = HardwareConfig(log_acc_buff_size=15)
CONFIGS["deep-inp"] = HardwareConfig(log_inp_buff_size=20, log_wgt_buff_size=9, log_acc_buff_size=7)
DISTINCT = {
    (str(Encoding.of(config).slots), len(config.memories)): (name, config)
    for name, config in CONFIGS.items()
}
NAMES, DISTINCT_CONFIGS = zip(*DISTINCT.values(), strict=True)
every_encoding = pytest.mark.parametrize("config", DISTINCT_CONFIGS, ids=NAMES)

# Reference 8.5: a whole program of standalone-vta (16x16) and two words of lenet5_conv1_relu,
# most significant digit first, with the meaning that the reference gives in words.
GOLDEN = {
    0x00000001000100010000004000000000: Load(
        memory=Memory.UOP, dram_base=4096, y_size=1, x_size=1, x_stride=1
    ),
    0x000000000000080000200008002000A2: Gemm(
        push_prev=1, reset=1, uop_begin=0, uop_end=1, iter_out=1, iter_in=16, dst_factor_in=1
    ),
    0x00000010001000010000000400000110: Load(
        pop_next=1, memory=Memory.INP, dram_base=256, y_size=1, x_size=16, x_stride=16
    ),
    0x000000010001000100000000800000C0: Load(
        push_next=1, memory=Memory.WGT, dram_base=32, y_size=1, x_size=1, x_stride=1
    ),
    0x00000001000100010000004004000408: Load(
        pop_prev=1, memory=Memory.UOP, sram_base=1, dram_base=4097, y_size=1, x_size=1, x_stride=1
    ),
    0x00000002000008000020000800400142: Gemm(
        push_next=1, uop_begin=1, uop_end=2, iter_out=1, iter_in=16,
        dst_factor_in=1, src_factor_in=1,
    ),
    0x00000010001000010000000C00000229: Store(
        pop_prev=1, push_prev=1, memory=Memory.OUT, dram_base=768, y_size=1, x_size=16, x_stride=16
    ),
    0x00000000000000000000000000000140: Load(push_next=1, memory=Memory.INP),
    0x00000000000000000000000000000018: Load(pop_prev=1, pop_next=1, memory=Memory.UOP),
    0x00000000000000000000000000000003: Finish(),
    0x00009002040008100020018800800344: Alu(
        push_next=1, uop_begin=3, uop_end=4, iter_out=49, iter_in=16, dst_factor_out=16,
        dst_factor_in=1, src_factor_out=16, src_factor_in=1, alu_op=AluOp.MAX, use_imm=1, imm=0,
    ),
    0x00000002080008100020018800600102: Gemm(
        uop_begin=1, uop_end=3, iter_out=49, iter_in=16, dst_factor_out=16, dst_factor_in=1,
        src_factor_out=32, src_factor_in=1,
    ),
}  # fmt: skip


def spans(cls, config):
    """Field name -> (first bit, last bit)."""
    slots = Encoding.of(config).slots[cls]
    return {slot.name: (slot.offset, slot.offset + slot.width - 1) for slot in slots}


# ---------------------------------------------------------------------------- golden words


@pytest.mark.parametrize("word", GOLDEN, ids=lambda w: f"{w:032x}")
def test_golden_words(word):
    assert DEFAULT.decode(word) == GOLDEN[word]
    assert DEFAULT.encode(GOLDEN[word]) == word


def test_units_of_the_golden_program():
    units = [DEFAULT.decode(word).unit for word in list(GOLDEN)[:10]]
    load, compute, store = Unit
    assert units == [compute, compute, load, load, compute, compute, store, load, compute, compute]


def test_constants_of_the_isa():
    assert {o.name: o.value for o in Opcode} == {
        "LOAD": 0, "STORE": 1, "GEMM": 2, "FINISH": 3, "ALU": 4, "POST": 5, "DEPTHWISE": 6,
        "POOL": 7,
    }  # fmt: skip
    assert {m.name: m.value for m in Memory} == {
        "UOP": 0, "WGT": 1, "INP": 2, "ACC": 3, "OUT": 4, "ACC_8BIT": 5, "POST": 6,
        "TABLE": 7,
    }  # fmt: skip
    assert {a.name: a.value for a in AluOp} == {"MIN": 0, "MAX": 1, "ADD": 2, "SHR": 3, "MUL": 4}
    assert [cls.opcode for cls in INSTRUCTIONS] == [*range(5)]


# ----------------------------------------------------------------------------- bit layouts


@every_encoding
def test_memory_instructions_never_depend_on_the_configuration(config):
    expected = {
        "pop_prev": (3, 3), "pop_next": (4, 4), "push_prev": (5, 5), "push_next": (6, 6),
        "memory": (7, 9), "sram_base": (10, 25), "dram_base": (26, 57),
        "y_size": (64, 79), "x_size": (80, 95), "x_stride": (96, 111),
        "y_pad_top": (112, 115), "y_pad_bottom": (116, 119),
        "x_pad_left": (120, 123), "x_pad_right": (124, 127),
    }  # fmt: skip
    own = {"forward": (63, 63), "nibbles": (62, 62)}
    added = {name: span for name, span in own.items() if config.has(Extension(name))}
    assert spans(Load, config) == expected | added
    assert spans(Store, config) == expected


def test_gemm_and_alu_of_the_default_configuration():
    config = HardwareConfig()
    common = {
        "pop_prev": (3, 3), "pop_next": (4, 4), "push_prev": (5, 5), "push_next": (6, 6),
        "reset": (7, 7), "uop_begin": (8, 20), "uop_end": (21, 34), "iter_out": (35, 48),
        "iter_in": (49, 62), "dst_factor_out": (64, 74), "dst_factor_in": (75, 85),
        "src_factor_out": (86, 96), "src_factor_in": (97, 107),
    }  # fmt: skip
    assert spans(Gemm, config) == common | {
        "wgt_factor_out": (108, 117), "wgt_factor_in": (118, 127),
    }  # fmt: skip
    assert spans(Alu, config) == common | {
        "alu_op": (108, 110), "use_imm": (111, 111), "imm": (112, 127),
    }  # fmt: skip
    assert spans(MicroOp, config) == {"dst": (0, 10), "src": (11, 21), "wgt": (22, 31)}
    assert spans(Finish, config) == {
        "pop_prev": (3, 3), "pop_next": (4, 4), "push_prev": (5, 5), "push_next": (6, 6),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("config", "cls", "expected"),
    [  # Reference 1.4 (the packing trap) and 1.5: what a C compiler makes of the bit fields.
        (HardwareConfig(log_block=5, log_wgt_buff_size=20), Alu,
         {"alu_op": (104, 106), "use_imm": (107, 107), "imm": (108, 123)}),
        (HardwareConfig(log_acc_buff_size=15), Alu,
         {"dst_factor_out": (64, 72), "dst_factor_in": (73, 81), "alu_op": (100, 102),
          "imm": (104, 119)}),
        (HardwareConfig(log_uop_buff_size=8), Gemm,
         {"dst_factor_out": (49, 59), "dst_factor_in": (64, 74), "src_factor_in": (86, 96),
          "wgt_factor_in": (107, 116)}),
        (HardwareConfig(log_uop_buff_size=8), Alu,
         {"dst_factor_out": (49, 59), "dst_factor_in": (64, 74), "alu_op": (97, 99),
          "use_imm": (100, 100), "imm": (101, 116)}),
        (HardwareConfig(log_acc_buff_size=15), MicroOp,  # A = 9 < I = 11: src has I bits
         {"dst": (0, 8), "src": (9, 19), "wgt": (20, 29)}),
        (HardwareConfig(log_inp_buff_size=13), MicroOp,  # A = 11 > I = 9: src has A bits
         {"dst": (0, 10), "src": (11, 21), "wgt": (22, 31)}),
    ],
)  # fmt: skip
def test_layouts_of_other_depths(config, cls, expected):
    assert expected.items() <= spans(cls, config).items()


@every_encoding
def test_general_positions_of_word_0(config):
    """Reference 2.3: uop_bgn @8; uop_end @8+U; iter_out @9+2U; iter_in @23+2U."""
    u = config.uop.log_depth
    for cls in (Gemm, Alu):
        first = {name: span[0] for name, span in spans(cls, config).items()}
        assert first["uop_begin"] == 8
        assert first["uop_end"] == 8 + u
        assert first["iter_out"] == 9 + 2 * u
        assert first["iter_in"] == 23 + 2 * u


@every_encoding
def test_fields_neither_overlap_nor_cross_a_word(config):
    for cls, slots in Encoding.of(config).slots.items():
        unit, size, used = (32, 32, 0) if cls is MicroOp else (64, 128, 0b111)
        for slot in slots:
            mask = ((1 << slot.width) - 1) << slot.offset
            assert used & mask == 0, slot
            assert slot.offset // unit == (slot.offset + slot.width - 1) // unit, slot
            used |= mask
        assert used < 1 << size
        present = (None, *config.extensions)
        assert [slot.name for slot in slots] == [
            f.name for f in fields(cls) if f.metadata["extension"] in present
        ]


@every_encoding
def test_field_widths_are_the_depths(config):
    widths = field_widths(config)
    assert 1 << widths["U"] == config.uop.depth
    assert 1 << widths["A"] == config.acc.depth
    assert widths["U+1"] == widths["U"] + 1
    assert widths["S"] == max(widths["A"], widths["I"])


# ---------------------------------------------------------------------------------- ranges


def all_slots():
    for cls in INSTRUCTIONS:
        for slot in DEFAULT.slots[cls]:
            yield pytest.param(cls, slot, id=f"{cls.__name__}.{slot.name}")


@pytest.mark.parametrize(("cls", "slot"), [*all_slots()])
def test_both_ends_of_every_field(cls, slot):
    if slot.name == "imm":
        low, high = -32768, 32767
    else:
        low, high = 0, 2**slot.width - 1
    for value in (low, high):
        if (slot.name == "memory" and value > 5) or (slot.name == "alu_op" and value > 4):
            continue  # encodes, but means nothing: see test_words_that_mean_nothing
        instruction = cls(**{slot.name: value})
        assert DEFAULT.decode(DEFAULT.encode(instruction)) == instruction
    for value in (low - 1, high + 1):
        with pytest.raises(
            EncodingError,
            match=f"{cls.__name__.upper()} field {slot.name} is {value}; "
            rf"its {slot.width} bits hold {low}\.\.{high}",
        ):
            DEFAULT.encode(cls(**{slot.name: value}))


def test_micro_op_ranges():
    top = [2047, 2047, 1023]
    assert DEFAULT.encode_micro_ops([top]).tolist() == [0xFFFFFFFF]
    for column, name in enumerate(("dst", "src", "wgt")):
        for value in (-1, top[column] + 1):
            row = [0, 0, 0]
            row[column] = value
            with pytest.raises(EncodingError, match=f"micro-op field {name} is {value}; its"):
                DEFAULT.encode_micro_ops([[1, 2, 3], row])


@pytest.mark.parametrize("opcode", [5, 6, 7])
def test_invalid_opcodes(opcode):
    with pytest.raises(EncodingError, match=rf"opcode {opcode}; valid are 0, 1, 2, 3, 4"):
        DEFAULT.decode(opcode)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (6 << 7, r"memory 6; valid values are UOP 0, WGT 1, INP 2, ACC 3, OUT 4, ACC_8BIT 5"),
        (7 << 7 | 1, "memory 7; valid values"),
        (5 << 108 | 4, r"alu_op 5; valid values are MIN 0, MAX 1, ADD 2, SHR 3, MUL 4"),
        (7 << 108 | 4, "alu_op 7; valid values"),
    ],
)
def test_words_that_mean_nothing(word, message):
    with pytest.raises(EncodingError, match=message):
        DEFAULT.decode(word)


# ------------------------------------------------------------------------------ round trips


EXTENDED = HardwareConfig.load("pynq_ext")


def test_extensions_leave_upstreams_words_as_they_are():
    for word in GOLDEN:
        assert Encoding.of(EXTENDED).decode(word) == DEFAULT.decode(word)
    assert EXTENDED.fingerprint != HardwareConfig.load("pynq").fingerprint


def test_where_the_extensions_lie():
    product = Gemm(uop_end=1, iter_out=1, iter_in=1, overwrite=1)
    word = Encoding.of(EXTENDED).encode(product)
    assert word == DEFAULT.encode(replace(product, overwrite=0)) | 1 << 63
    post = Post(enable=1, use_scale=1, shift=63, zero_point=-1, low=-128, row=31, row_factor_in=2)
    word = Encoding.of(EXTENDED).encode(post)
    assert word == 5 | 1 << 7 | 1 << 9 | 63 << 27 | 0xFF << 33 | 0x80 << 41 | 31 << 57 | 2 << 69
    assert Encoding.of(EXTENDED).decode(word) == post
    text = " ".join(disassemble(post).split())
    assert text == "POST * scale + -1 clip -128..0 row 31 +0,+2 with shift=63"
    assert disassemble(Post()).split() == ["POST", "off"]
    assert disassemble(product).endswith(" overwrite")


def test_a_table_is_named_behind_all_other_fields_of_post():
    without = replace(EXTENDED, extensions=("post",))
    post = Post(enable=1, multiplier=1, low=-128, high=127, use_table=1, table_index=1)
    word = Encoding.of(EXTENDED).encode(post)
    plain = replace(post, use_table=0, table_index=0)
    assert word == Encoding.of(without).encode(plain) | 0b11 << 74
    assert Encoding.of(EXTENDED).decode(word) == post
    assert disassemble(post).endswith(" clip -128..127 table 1")
    load = Encoding.of(EXTENDED).encode(Load(memory=Memory.TABLE))
    with pytest.raises(EncodingError, match=r"memory 7; .* POST 6$"):
        Encoding.of(without).decode(load)


def test_a_product_of_windows_is_a_gemm_with_another_opcode():
    loops = {"uop_end": 2, "iter_out": 3, "iter_in": 4, "src_factor_in": 1, "overwrite": 1}
    encoding = Encoding.of(EXTENDED)
    word = encoding.encode(Depthwise(**loops))
    assert word == encoding.encode(Gemm(**loops)) | 0b100
    assert encoding.decode(word) == Depthwise(**loops) != Gemm(**loops)
    assert disassemble(Depthwise(**loops)).startswith("DEPTHWISE uop 0..2 loops 3x4")
    alone = Encoding.of(replace(EXTENDED, extensions=("depthwise",)))
    with pytest.raises(EncodingError, match=r"opcode 5; valid are 0, 1, 2, 3, 4, 6"):
        alone.decode(5)


def test_a_pool_has_the_fields_of_a_gemm_up_to_the_weights():
    loops = {"uop_end": 2, "iter_out": 3, "iter_in": 4, "dst_factor_in": 1, "src_factor_in": 2}
    encoding = Encoding.of(EXTENDED)
    word = encoding.encode(Pool(**loops, tiles=3, overwrite=1))
    assert word == encoding.encode(Gemm(**loops)) | 0b101 | 3 << 108 | 1 << 110
    assert encoding.decode(word) == Pool(**loops, tiles=3, overwrite=1)
    text = "POOL      uop 0..2 loops 3x4 dst +0,+1 src +0,+2 tiles 3 overwrite"
    assert disassemble(Pool(**loops, tiles=3, overwrite=1)) == text
    assert disassemble(Pool(**loops, tiles=1)).endswith("tiles 1")


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Pool(tiles=1), "POOL is not an instruction of the configuration 'pynq'"),
        (Depthwise(), "DEPTHWISE is not an instruction of the configuration 'pynq'"),
        (Gemm(overwrite=1), "GEMM field overwrite .* lacks the extension 'overwrite'"),
        (Post(use_table=1), "POST is not an instruction of the configuration 'pynq'"),
        (Post(), r"POST is not an instruction of the configuration .*, whose extensions are \(\)"),
    ],
)
def test_plain_hardware_has_no_extensions(instruction, message):
    plain = Encoding.of(HardwareConfig.load("pynq"))
    with pytest.raises(EncodingError, match=message):
        plain.encode(instruction)
    with pytest.raises(EncodingError, match=message):
        plain.encode_all([instruction])
    word = Encoding.of(EXTENDED).encode(Load(memory=Memory.POST))
    for foreign in (5, 6, 7, word):
        with pytest.raises(EncodingError):
            plain.decode(foreign)


@st.composite
def instructions_of(draw, config):
    cls = draw(st.sampled_from(Encoding.of(config).instructions))
    limits = {"memory": len(config.memories), "alu_op": len(AluOp)}
    values = {}
    for slot in Encoding.of(config).slots[cls]:
        allowed = range(limits[slot.name]) if slot.name in limits else slot.range
        values[slot.name] = draw(
            st.one_of(
                st.integers(allowed.start, allowed.stop - 1),
                st.sampled_from([allowed.start, allowed.stop - 1]),
            )
        )
    return cls(**values)


@every_encoding
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_decode_is_the_inverse_of_encode(config, data):
    encoding = Encoding.of(config)
    instruction = data.draw(instructions_of(config))
    word = encoding.encode(instruction)
    assert 0 <= word < 1 << 128
    assert encoding.decode(word) == instruction


@every_encoding
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_many_instructions_at_once(config, data):
    encoding = Encoding.of(config)
    program = data.draw(st.lists(instructions_of(config), max_size=8))
    words = encoding.encode_all(program)
    expected = [encoding.encode(i) for i in program]
    assert array_to_words(words) == expected
    assert encoding.decode_all(words) == program
    for instruction, word in zip(program, expected, strict=True):
        assert not word & encoding.reserved_bits(type(instruction))


def test_many_instructions_are_checked_like_one():
    good, bad = Load(memory=2), Load(memory=2, y_size=1 << 16)
    with pytest.raises(EncodingError, match=r"LOAD field y_size is 65536; its 16 bits hold"):
        DEFAULT.encode_all([good, bad])
    words = [DEFAULT.encode(good), 5 << 108 | 4]
    with pytest.raises(EncodingError, match=r"alu_op 5; valid values"):
        DEFAULT.decode_all(words_to_array(words))
    with pytest.raises(EncodingError, match="opcode 7"):
        DEFAULT.decode_all(words_to_array([*words[:1], 7]))


@every_encoding
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_columns_equal_decode(config, data):
    encoding = Encoding.of(config)
    program = data.draw(st.lists(instructions_of(config), max_size=8))
    for cls in INSTRUCTIONS:
        chosen = [i for i in program if type(i) is cls]
        words = words_to_array([encoding.encode(i) for i in chosen])
        columns = encoding.columns(words, cls)
        assert [*columns] == [slot.name for slot in encoding.slots[cls]]
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        decoded = [cls(**dict(zip(columns, row, strict=True))) for row in rows]
        assert decoded == chosen


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**128 - 1), max_size=5))
def test_words_and_arrays(words):
    array = words_to_array(words)
    assert array.shape == (len(words), 2)
    assert array.dtype == np.uint64
    assert array_to_words(array) == words
    assert array.astype("<u8").tobytes() == b"".join(w.to_bytes(16, "little") for w in words)


@every_encoding
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_micro_ops_round_trip(config, data):
    encoding = Encoding.of(config)
    slots = encoding.slots[MicroOp]
    row = st.tuples(*(st.integers(0, slot.range.stop - 1) for slot in slots))
    rows = data.draw(st.lists(row, max_size=6))
    words = encoding.encode_micro_ops(rows)
    assert words.dtype == np.uint32
    assert encoding.decode_micro_ops(words).tolist() == [list(r) for r in rows]
    expected = [sum(v << s.offset for v, s in zip(r, slots, strict=True)) for r in rows]
    assert words.tolist() == expected


def test_reserved_bits_are_ignored_by_decode():
    word = next(iter(GOLDEN))
    assert DEFAULT.decode(word | 1 << 63) == DEFAULT.decode(word)


# ------------------------------------------------------------------------------- properties


def test_sram_size_counts_padding():
    load = Load(
        memory=Memory.INP, y_size=3, x_size=5, x_stride=9,
        y_pad_top=1, y_pad_bottom=2, x_pad_left=3, x_pad_right=4,
    )  # fmt: skip
    assert load.sram_row == 12
    assert load.sram_size == 6 * 12
    assert Load(memory=Memory.INP, y_size=3, x_pad_left=3, y_pad_top=1).sram_size == 0


def test_iterations():
    assert Gemm(uop_begin=2, uop_end=5, iter_out=7, iter_in=11).iterations == 3 * 77
    assert Gemm(uop_begin=5, uop_end=2, iter_out=7, iter_in=11).iterations == 0


@pytest.mark.parametrize(
    ("instruction", "unit"),
    [
        (Load(memory=Memory.INP), Unit.LOAD),
        (Load(memory=Memory.WGT), Unit.LOAD),
        (Load(memory=Memory.UOP), Unit.COMPUTE),
        (Load(memory=Memory.ACC), Unit.COMPUTE),
        (Load(memory=Memory.ACC_8BIT), Unit.COMPUTE),
        (Gemm(), Unit.COMPUTE),
        (Alu(), Unit.COMPUTE),
        (Finish(), Unit.COMPUTE),
        (Store(memory=Memory.OUT), Unit.STORE),
    ],
)
def test_units(instruction, unit):
    assert instruction.unit is unit


# ------------------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("instruction", "text", "tokens"),
    [
        (
            Load(pop_next=1, push_next=1, memory=Memory.INP, sram_base=4, dram_base=9, y_size=2,
                 x_size=3, x_stride=14, y_pad_top=1, x_pad_right=2),
            "LOAD INP  sram 4 dram 9 2x3 stride 14 pad top 1 right 2",
            "pop_next push_next",
        ),
        (Load(push_next=1, memory=Memory.WGT), "LOAD WGT  nop", "push_next"),
        (
            Store(pop_prev=1, push_prev=1, memory=Memory.OUT, x_size=16, y_size=1, x_stride=16),
            "STORE OUT sram 0 dram 0 1x16 stride 16",
            "pop_prev push_prev",
        ),
        (
            Gemm(uop_end=2, iter_out=3, iter_in=4, dst_factor_out=5, dst_factor_in=6,
                 src_factor_out=7, src_factor_in=8, wgt_factor_out=9, wgt_factor_in=10),
            "GEMM      uop 0..2 loops 3x4 dst +5,+6 src +7,+8 wgt +9,+10",
            "",
        ),
        (Gemm(reset=1, uop_end=1, iter_out=1, iter_in=16, dst_factor_in=1),
         "RESET     uop 0..1 loops 1x16 dst +0,+1", ""),
        (Alu(uop_end=1, iter_out=1, iter_in=2, dst_factor_in=1, alu_op=AluOp.SHR, use_imm=1,
             imm=-8), "SHR       uop 0..1 loops 1x2 dst +0,+1 imm -8", ""),
        (Alu(uop_end=1, iter_out=1, iter_in=2, src_factor_in=3, alu_op=AluOp.ADD),
         "ADD       uop 0..1 loops 1x2 dst +0,+0 src +0,+3", ""),
        (Finish(pop_prev=1, pop_next=1), "FINISH", "pop_prev pop_next"),
    ],
)  # fmt: skip
def test_text(instruction, text, tokens):
    assert disassemble(instruction) == text
    assert tokens_text(instruction) == tokens


@every_encoding
def test_layout_table_lists_every_field_once(config):
    text = layout_table(config)
    sections = text.split("### ")[1:]
    added = [cls.__name__ for cls in Encoding.of(config).instructions[len(INSTRUCTIONS) :]]
    assert added == [
        name for name in ("Post", "Depthwise", "Pool") if name.lower() in config.extensions
    ]
    expected = ["Load", "Store", "Gemm", "Finish", "Alu", *added, "MicroOp"]
    assert [s.split("\n")[0] for s in sections] == expected
    for section, (cls, slots) in zip(sections, Encoding.of(config).slots.items(), strict=True):
        rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
        assert len(rows) == len(slots) + (cls is not MicroOp)


@pytest.mark.parametrize("value", [2.5, 1 << 70, -(1 << 70), None, "3", [1], float("nan")])
def test_what_is_no_integer_is_refused_by_both_encoders(value):
    good = Load(memory=Memory.INP, sram_base=1, dram_base=2, x_size=3, y_size=1, x_stride=3)
    bad = replace(good, x_size=value)
    for encode in (DEFAULT.encode, lambda instruction: DEFAULT.encode_all([good, instruction])):
        with pytest.raises(EncodingError, match="x_size"):
            encode(bad)


def test_integers_of_other_types_are_encoded_alike():
    good = Load(memory=Memory.INP, sram_base=1, dram_base=2, x_size=3, y_size=1, x_stride=3)
    for value in (3.0, np.int16(3), np.uint64(3)):
        same = replace(good, x_size=value)
        assert DEFAULT.encode(same) == DEFAULT.encode(good)
        assert np.array_equal(DEFAULT.encode_all([same]), DEFAULT.encode_all([good]))
