"""Blocks of the RTL alone, each against a few lines of Python that say what it should do."""

from __future__ import annotations

import ctypes
from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.tsim_support import needs_tools

from vtaops import HardwareConfig
from vtaops.hardware.build import build_library
from vtaops.hardware.rtl import RtlParameters, sources, systemverilog_package
from vtaops.machine.config import Memory
from vtaops.machine.isa import AluOp, Encoding, Load, words_to_array
from vtaops.program.timing.pipeline import tree_stages

pytestmark = needs_tools

CONFIG = replace(HardwareConfig.load("tiny"), extensions=("post", "table"))  # loads of all memories
PARAMETERS = RtlParameters(port_bytes=16, burst_beats=4)
# Of the 64 products of a tile: all in DSP blocks, or some from adders; two to a block, or one.
MULTIPLIERS = {
    "packed": PARAMETERS,
    "packed, some from adders": replace(PARAMETERS, dsp_multipliers=21),
    "single, some from adders": replace(PARAMETERS, dsp_multipliers=42, packed_multipliers=False),
}
GEMM_STAGES = 2 + tree_stages(CONFIG)
FOLDER = Path(__file__).parent / "rtl"


class Blocks:
    """The blocks as an object: ports by name, one clock."""

    def __init__(self, library: Path) -> None:
        self._lib = ctypes.CDLL(str(library))
        self._lib.blocks_new.restype = ctypes.c_void_p
        self._handle = ctypes.c_void_p(self._lib.blocks_new())
        self["rst"] = 1
        self.evaluate()  # the first evaluation of a model sees no edge
        self.clock()
        self["rst"] = 0

    def __setitem__(self, name: str, value: int | np.ndarray) -> None:
        is_array = isinstance(value, np.ndarray)
        data = value.tobytes() if is_array else int(value).to_bytes(8, "little")
        size = self._lib.blocks_write(self._handle, name.encode(), None, 1 << 30)
        assert size > 0, name
        assert not any(data[size:]), f"{value} does not fit {name}"
        self._lib.blocks_write(self._handle, name.encode(), data, min(size, len(data)))

    def array(self, name: str, dtype: str, count: int) -> np.ndarray:
        out = np.empty(count, dtype)
        size = self._lib.blocks_read(self._handle, name.encode(), out.ctypes, out.nbytes)
        assert size >= out.nbytes, name
        return out

    def __getitem__(self, name: str) -> int:
        buffer = (ctypes.c_uint8 * 8)()
        assert self._lib.blocks_read(self._handle, name.encode(), buffer, 8) > 0, name
        return int.from_bytes(bytes(buffer), "little")

    def evaluate(self) -> None:
        self._lib.blocks_eval(self._handle)

    def clock(self) -> None:
        self._lib.blocks_clock(self._handle)

    def close(self) -> None:
        self._lib.blocks_free(self._handle)


def open_blocks(parameters: RtlParameters) -> Blocks:
    names = {"stream_pkg", "token_queue", "fifo", "sram", "banked_sram", "row_cut"}
    names |= {"burst_generator", "burst_credit", "tensor_load", "dram_port", "vector_alu"}
    names |= {"gemm_core"}
    files = {path.name: path.read_bytes() for path in sources() if path.stem in names}
    files["vta_pkg.sv"] = systemverilog_package(CONFIG, parameters).encode()
    files |= {path.name: path.read_bytes() for path in FOLDER.glob("blocks.*")}
    return Blocks(build_library("blocks", files, "blocks.cpp"))


@pytest.fixture
def blocks():
    instance = open_blocks(PARAMETERS)
    yield instance
    instance.close()


@pytest.fixture(params=MULTIPLIERS.values(), ids=MULTIPLIERS)
def core(request):
    instance = open_blocks(request.param)
    instance["gemm_enable"] = (1 << GEMM_STAGES) - 1
    yield instance
    instance.close()


def test_token_queue_counts_and_reports_the_token_that_it_loses(blocks):
    rng = np.random.default_rng(1)
    count, overflows = 0, 0
    for step in range(3000):
        likely = 0.7 if step // 100 % 2 else 0.3  # phases in which it fills and drains
        blocks.evaluate()
        assert blocks["token_available"] == (count > 0)
        push, pop = int(rng.random() < likely), int(count > 0 and rng.random() < 0.5)
        blocks["token_push"], blocks["token_pop"] = push, pop
        lost = bool(push and not pop and count == 5)
        overflows += lost
        blocks.clock()
        blocks.evaluate()
        assert blocks["token_overflow"] == lost
        count += push - pop - lost
    assert overflows > 10


def test_fifo_keeps_order_and_loses_nothing(blocks):
    rng = np.random.default_rng(2)
    model: deque[int] = deque()
    accepted = refused = 0
    for step in range(3000):
        likely = (0.2, 0.5, 0.9)[step // 100 % 3]
        blocks["in_valid"] = offer = int(rng.random() < 0.6)
        blocks["in_data"] = word = int(rng.integers(256))
        blocks["out_ready"] = take = int(rng.random() < likely)
        blocks.evaluate()
        if blocks["out_valid"]:
            assert blocks["out_data"] == model[0]
            if take:
                model.popleft()
        if offer and blocks["in_ready"]:
            model.append(word)
            accepted += 1
        refused += offer and not blocks["in_ready"]
        assert len(model) <= 5
        blocks.clock()
    assert accepted > 500
    assert refused > 50


def test_fifo_passes_a_word_per_cycle_with_a_latency_of_two(blocks):
    blocks["in_valid"] = blocks["out_ready"] = 1
    seen = []
    for word in range(20):
        blocks["in_data"] = word
        blocks.evaluate()
        assert blocks["in_ready"]
        seen.append(blocks["out_data"] if blocks["out_valid"] else None)
        blocks.clock()
    assert seen == [None, None, *range(18)]


def test_banked_sram_moves_consecutive_elements_from_any_index(blocks):
    rng = np.random.default_rng(3)
    memory = np.zeros((16, 2), np.uint8)
    for index in range(16):
        blocks["wr_index"], blocks["wr_slots"], blocks["wr_lanes"] = index, 1, 3
        blocks["wr_data"] = 0
        blocks.clock()
    for _ in range(500):
        slots, lanes, index = (int(v) for v in rng.integers(0, (16, 4, 16)))
        data = rng.integers(0, 256, (4, 2), np.uint8)
        read = int(rng.integers(16))
        blocks["wr_slots"], blocks["wr_lanes"], blocks["wr_index"] = slots, lanes, index
        blocks["wr_data"] = data.reshape(-1)
        blocks["rd_en"], blocks["rd_index"] = 1, read
        before = memory[np.arange(read, read + 4) % 16]
        blocks.clock()
        got = blocks.array("rd_data", "u1", 8).reshape(4, 2)
        np.testing.assert_array_equal(got, before)  # old data on a collision
        for slot in range(4):
            for lane in range(2):
                if slots >> slot & 1 and lanes >> lane & 1:
                    memory[(index + slot) % 16, lane] = data[slot, lane]


def test_burst_generator_covers_every_row_within_burst_boundaries(blocks):
    rng = np.random.default_rng(4)
    port, burst = PARAMETERS.port_bytes, PARAMETERS.burst_beats * PARAMETERS.port_bytes
    for _ in range(60):
        address, stride = (int(v) for v in rng.integers(0, 3000, 2))
        nbytes, rows = int(rng.integers(1, 400)), int(rng.integers(1, 5))
        blocks["block_valid"] = 1
        blocks["block_address"], blocks["block_row_bytes"] = address, nbytes
        blocks["block_stride_bytes"], blocks["block_rows"] = stride, rows
        blocks.evaluate()
        assert blocks["block_ready"]
        blocks.clock()
        blocks["block_valid"] = 0
        words = []
        while True:
            blocks["req_ready"] = int(rng.random() < 0.7)
            blocks.evaluate()
            if not blocks["req_valid"]:
                break
            if blocks["req_ready"]:
                first, beats = blocks["req_address"], blocks["req_beats"]
                assert first // burst == (first + beats * port - 1) // burst
                words += [first // port + beat for beat in range(beats)]
            blocks.clock()
        expected = []
        for row in range(rows):
            first = address + row * stride
            expected += range(first // port, (first + nbytes - 1) // port + 1)
        assert words == expected


def random_load(rng: np.random.Generator) -> Load:
    """Return a LOAD of any memory, with any padding (a table has none), within its scratchpad."""
    memory = Memory(int(rng.choice([m for m in Memory if m != Memory.OUT])))
    padded = memory != Memory.TABLE
    depth = CONFIG.scratchpad(memory).depth
    while True:
        pads = padded * rng.integers(0, 3, 4) * rng.integers(0, 2, 4)
        top, bottom, left, right = (int(v) for v in pads)
        load = Load(
            memory=memory,
            sram_base=int(rng.integers(0, min(30, depth))),
            dram_base=int(rng.integers(0, 60)),
            y_size=int(rng.integers(0, 4)),
            x_size=int(rng.integers(0, 9)),
            x_stride=int(rng.integers(0, 20)),
            y_pad_top=top,
            y_pad_bottom=bottom,
            x_pad_left=left,
            x_pad_right=right,
        )
        if load.sram_base + load.sram_size <= depth:
            return load


def expected_elements(load: Load, dram: np.ndarray) -> dict[int, bytes]:
    """Return what a LOAD writes: SRAM element -> the bytes that come from DRAM for it."""
    nbytes = CONFIG.dram_element_bytes(Memory(load.memory))
    rows = [[None] * load.sram_row] * load.y_pad_top
    for row in range(load.y_size):
        first = load.dram_base + row * load.x_stride
        data = [*range(first, first + load.x_size)]
        rows.append([*[None] * load.x_pad_left, *data, *[None] * load.x_pad_right])
    rows += [[None] * load.sram_row] * load.y_pad_bottom
    flat = [element for row in rows for element in row] if load.x_size else []
    return {
        load.sram_base + n: bytes(nbytes) if e is None else dram[e * nbytes :][:nbytes].tobytes()
        for n, e in enumerate(flat)
    }


def take_write(blocks: Blocks, written: dict[int, bytearray]) -> None:
    """Note the write of this cycle: a word's share of an element, or its several elements."""
    memory, index = Memory(blocks["load_wr_memory"]), blocks["load_wr_index"]
    nbytes, port = CONFIG.dram_element_bytes(memory), PARAMETERS.port_bytes
    word = blocks.array("load_wr_data", "u1", port).tobytes()
    part = blocks["load_wr_part"]
    for slot in range(8):
        if blocks["load_wr_slots"] >> slot & 1:
            place = (index + slot) % (1 << 16)  # the first slots may lie before element 0
            if blocks["load_wr_zero"]:
                written[place] = bytearray(nbytes)
            elif nbytes <= port:
                written[place] = bytearray(word[slot * nbytes :][:nbytes])
            else:
                element = written.setdefault(index, bytearray(nbytes))
                element[part * port : (part + 1) * port] = word


def test_tensor_load_writes_rows_and_their_padding(blocks):
    """Loads run on behind each other, with late data and forbidden writes, in order."""
    rng = np.random.default_rng(7)
    port, dram = PARAMETERS.port_bytes, rng.integers(0, 256, 1 << 16, np.uint8)
    loads = [random_load(rng) for _ in range(300)]
    encoding = Encoding.of(CONFIG)
    waiting, started, done = [*loads], deque(), 0
    words: deque[int] = deque()
    written: dict[int, bytearray] = {}
    loaded = 0
    for _ in range(40_000):
        if done == len(loads):
            break
        blocks["load_valid"] = offer = int(bool(waiting) and rng.random() < 0.8)
        if offer:
            blocks["load_insn"] = words_to_array([encoding.encode(waiting[0])])[0]
        blocks["load_req_ready"] = int(rng.random() < 0.6)
        blocks["load_data_valid"] = answer = int(bool(words) and rng.random() < 0.7)
        if answer:
            blocks["load_data"] = dram[words[0] * port :][:port]
        blocks["load_allow"] = int(rng.random() < 0.8)
        blocks.evaluate()
        assert not blocks["load_fault"]
        if answer:
            words.popleft()
        if offer and blocks["load_ready"]:
            started.append(waiting.pop(0))
        if blocks["load_req_valid"] and blocks["load_req_ready"]:
            first = blocks["load_req_address"] // port
            words += range(first, first + blocks["load_req_beats"])
        loaded += blocks["load_loaded"]
        if blocks["load_wr_valid"]:
            assert blocks["load_allow"]
            take_write(blocks, written)
        if blocks["load_done"]:
            load = started.popleft()
            assert {k: bytes(v) for k, v in written.items()} == expected_elements(load, dram), load
            assert loaded == load.x_size * load.y_size
            written, loaded, done = {}, 0, done + 1
        blocks.clock()
    assert done == len(loads)
    assert not words


def faults_of(blocks: Blocks, load: Load) -> int:
    """Return in how many cycles a LOAD of zeros faults."""
    blocks["load_insn"] = words_to_array([Encoding.of(CONFIG).encode(load)])[0]
    blocks["load_valid"] = blocks["load_allow"] = 1
    faults = 0
    for _ in range(12):
        blocks.evaluate()
        faults += blocks["load_fault"]
        blocks.clock()
        blocks["load_valid"] = 0
    return faults


PADDED = [memory for memory in Memory if memory not in (Memory.OUT, Memory.TABLE)]


@pytest.mark.parametrize("memory", PADDED, ids=lambda m: m.name)
def test_tensor_load_reports_what_lies_beyond_the_scratchpad(blocks, memory):
    depth = CONFIG.scratchpad(memory).depth
    for base, expected in ((depth - 2, False), (depth - 1, True)):
        load = Load(memory=memory, sram_base=base, y_pad_top=1, x_size=1, x_pad_left=1)
        assert bool(faults_of(blocks, load)) == expected


def test_tensor_load_reports_that_a_table_is_padded(blocks):
    assert faults_of(blocks, Load(memory=Memory.TABLE, y_pad_top=1, x_size=1))


def test_dram_port_gives_every_client_its_own_words_in_order(blocks):
    rng = np.random.default_rng(8)
    bursts = [[(int(a), int(n)) for a, n in rng.integers((0, 1), (900, 5), (80, 2))]
              for _ in range(3)]  # fmt: skip
    expected = [[word for a, n in client for word in range(a, a + n)] for client in bursts]
    received: list[list[int]] = [[], [], []]
    pending: list[deque[tuple[int, bool]]] = [deque(), deque(), deque()]  # (word, last) in memory
    under_way = 0
    for _ in range(20_000):
        if received == expected:
            break
        offers = [int(bool(client) and rng.random() < 0.7) for client in bursts]
        blocks["client_valid"] = sum(offer << c for c, offer in enumerate(offers))
        heads = [client[0] if client else (0, 0) for client in bursts]
        blocks["client_address"] = np.array([a * 16 for a, _ in heads], np.uint32)
        blocks["client_beats"] = sum(n << 8 * c for c, (_, n) in enumerate(heads))
        blocks["memory_ready"] = int(rng.random() < 0.6)
        full = [c for c in range(3) if pending[c]]
        answer = int(bool(full) and rng.random() < 0.7)
        blocks["rd_valid"] = answer
        if answer:  # words of different clients interleave
            client = int(rng.choice(full))
            word, last = pending[client].popleft()
            blocks["rd_client"], blocks["rd_last"] = client, int(last)
            blocks["rd_word"] = np.full(4, word, np.uint32)
        blocks.evaluate()
        assert blocks["port_reading"] == (under_way > 0)
        ready, valid = blocks["client_ready"], blocks["client_data_valid"]
        for c in range(3):
            if offers[c] and ready >> c & 1:
                bursts[c].pop(0)
                under_way += 1
            if valid >> c & 1:
                received[c].append(int(blocks.array("client_data", "u4", 4)[0]))
        if blocks["memory_valid"] and blocks["memory_ready"]:
            first, beats = blocks["memory_address"] // 16, blocks["memory_beats"]
            pending[blocks["memory_client"]] += [(first + n, n == beats - 1) for n in range(beats)]
        under_way -= int(bool(answer) and bool(blocks["rd_last"]))
        assert 0 <= under_way <= PARAMETERS.outstanding + 3  # one of each client may wait
        blocks.clock()
    assert received == expected


def test_dram_port_takes_clients_in_turn_and_stops_at_its_limit(blocks):
    blocks["client_valid"], blocks["memory_ready"] = 7, 1
    blocks["client_beats"] = 0x010101
    chosen = []
    for _ in range(PARAMETERS.outstanding + 5):  # nothing comes back
        blocks.clock()
        blocks.evaluate()
        chosen.append(blocks["memory_client"] if blocks["memory_valid"] else None)
    assert chosen == [n % 3 for n in range(PARAMETERS.outstanding)] + [None] * 5
    assert blocks["client_ready"] == 0  # one of each waits


EDGES = [sign * value for sign in (1, -1) for value in (0, 1, 2, 15, 16, 31, 32, 33, 1 << 16)]
EDGES += [2**31 - 1, -(2**31)]


def alu_reference(op: AluOp, x: int, y: int) -> int:
    exact = {
        AluOp.MIN: lambda: min(x, y),
        AluOp.MAX: lambda: max(x, y),
        AluOp.ADD: lambda: x + y,
        AluOp.MUL: lambda: x * y,
        AluOp.SHR: lambda: x >> y if y >= 0 else x << min(-y, 64),
    }[op]()
    return (exact + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("op", AluOp)
def test_vector_alu_equals_python_integers(blocks, op):
    rng = np.random.default_rng(5)
    lanes = CONFIG.acc.lanes
    pairs = [(x, y) for x in [*EDGES, 123456789, -987654321] for y in EDGES]
    pairs += rng.integers(-(2**31), 2**31, (64, 2)).tolist()
    pairs += [(0, 0)] * (-len(pairs) % lanes)
    blocks["alu_op"] = int(op)
    for first in range(0, len(pairs), lanes):
        group = pairs[first : first + lanes]
        x, y = np.array(group, np.int64).T.astype(np.int32)
        blocks["alu_x"], blocks["alu_y"] = x, y
        blocks.evaluate()
        port = "alu_result"
        if op == AluOp.MUL:  # its result is there a cycle later
            port = "alu_product"
            blocks.clock()
        got = blocks.array(port, "<i4", lanes).tolist()
        assert got == [alu_reference(op, *pair) for pair in group]


def sums(core: Blocks) -> np.ndarray:
    return core.array("sums", "<i4", CONFIG.acc.lanes).reshape(CONFIG.acc.shape)


def test_gemm_core_multiplies_a_tile_per_cycle(core):
    rng = np.random.default_rng(6)
    expected = []
    for step in range(100):
        extreme = step % 10 == 0  # all -128: the largest sum
        shapes = (CONFIG.inp.shape, CONFIG.wgt.shape)
        inp, wgt = (
            np.full(s, -128, np.int8) if extreme else rng.integers(-128, 128, s, np.int8)
            for s in shapes
        )
        expected.append(inp.astype(np.int64) @ wgt.astype(np.int64).T)
        core["inp"], core["wgt"] = inp, wgt
        core.clock()
        if step >= GEMM_STAGES - 1:
            np.testing.assert_array_equal(sums(core), expected[step - GEMM_STAGES + 1])


@pytest.mark.parametrize("lane", [0, 7], ids=["first", "last"])  # in a DSP block; from adders
@pytest.mark.parametrize("varied", [0, 1], ids=["low", "high"])
def test_neighbouring_products_do_not_disturb_each_other(core, lane, varied):
    """All inputs times all weights, beside the extreme weights of the neighbouring output."""
    everything = np.arange(-128, 128, dtype=np.int8)
    inp, wgt = np.zeros(CONFIG.inp.shape, np.int8), np.zeros(CONFIG.wgt.shape, np.int8)
    batches = len(inp)
    columns = everything.reshape(-1, len(wgt) // 2)  # as many weights as there are pairs
    expected, found = [], []
    for neighbour in (-128, 127):
        wgt[1 - varied :: 2, lane] = neighbour
        for weights in columns:
            wgt[varied::2, lane] = weights
            core["wgt"] = wgt
            for first in range(0, 256, batches):
                inp[:, lane] = everything[first : first + batches]
                expected.append(np.outer(inp[:, lane].astype(np.int32), wgt[:, lane]))
                core["inp"] = inp
                core.clock()
                found.append(sums(core).copy())
    late = GEMM_STAGES - 1
    np.testing.assert_array_equal(np.array(found[late:]), np.array(expected[: len(found) - late]))
