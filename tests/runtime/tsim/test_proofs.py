"""Properties of blocks of the RTL hold always, by the proofs of `trials.proofs`.

That a proof means something is tested too: of each block wrong versions are made, which must fail.
"""

import pytest
from helpers.tsim_support import needs_yosys

from trials.proofs import BLOCKS, PROVEN, prove, refute
from vtaops.errors import DeviceError

pytestmark = needs_yosys


@pytest.mark.parametrize(("block", "parameters"), PROVEN)
def test_properties_hold_always(block, parameters, tmp_path):
    prove(block, BLOCKS[block], tmp_path, **parameters)


QUICK = {"AHEAD": 0}
"""Parameters that leave less to prove, where what is wrong shows with them."""

WRONG = [
    ("axi_halves", "next ^ !in_length[0]", "next"),
    ("axi_halves", "8'd1, SHIFT'(0)}", "8'd0, SHIFT'(0)}"),
    ("axi_halves", "done & wanted;", "2'b00;"),
    ("axi_halves", "in_valid && !known", "in_valid"),
    ("axi_halves", "in_length - first - 8'd1", "in_length - first"),
    ("axi_halves", "single ? {turn, !turn} : 2'b11", "2'b11"),
    ("token_queue", "count == BITS'(CAPACITY)", "count == BITS'(CAPACITY - 1)"),
    ("token_queue", "pushed && !popped && !overflow", "pushed && !popped"),
    ("token_queue", "if (popped && !pushed)", "if (popped)"),
    ("token_queue", "(popped ? many : any)", "any"),
    ("token_queue", "32'(count) > 2", "32'(count) > 1"),
    ("fifo", "in_ready = !count[BITS]", "in_ready = 1'b1"),
    ("fifo", "in_ready = !count[BITS]", "in_ready = count == '0"),
    ("fifo", "(!out_valid || out_ready)", "1'b1"),
    ("fifo", "(!out_valid || out_ready)", "!out_valid"),
    ("fifo", "if (fetch) head <=", "if (push) head <="),
    ("fifo", "out_data <= mem[head]", "out_data <= mem[tail]"),
    ("fifo", "else if (out_ready) out_valid", "else out_valid"),
    ("row_cut", "last[CUT_BITS] ? blocks + 1'b1", "last[CUT_BITS] ? blocks"),
    ("row_cut", "? |length.bursts", "? 1'b0"),
    ("row_cut", "- 1'b1 + {1'b0, address}", "+ {1'b0, address}"),
    (
        "burst_generator",
        "next.rows == 16'd1;\n                row_bytes",
        "1'b1;\n                row_bytes",
    ),
    ("burst_generator", "first.ends_row && rows_left == 16'd2", "first.ends_row", QUICK),
    ("burst_generator", "!several && last_row", "!several", QUICK),
    ("burst_generator", "left_behind[32:LOG_BURST+1]", "left_behind[32:LOG_BURST+2]", QUICK),
    ("burst_generator", "behind_next + stride_bytes[CUT_BITS-1:0]", "behind_next", QUICK),
    ("burst_generator", "next_valid && (!req_valid || ends_block)", "next_valid && !active"),
    ("burst_generator", "if (!pending) begin", "if (start_valid) begin"),
    ("dram_port", "any && room &&", "any &&"),
    ("dram_port", "(!rd_req_valid || rd_req_ready)", "1'b1"),
    ("dram_port", "wire retire = rd_valid && rd_last", "wire retire = rd_valid"),
    ("dram_port", "rd_req_client <= chosen", "rd_req_client <= first"),
    (
        "dram_port",
        "first <= chosen == CLIENT_BITS'(CLIENTS - 1) ? '0 : chosen + 1'b1",
        "first <= '0",
    ),
    ("dram_port", "'0 : chosen + 1'b1;", "'0 : chosen;"),
    ("dram_port", "CLIENT_BITS'(c) >= first", "CLIENT_BITS'(c) > first"),
    (
        "dram_port",
        "for (int c = CLIENTS - 1; c >= 0; c--) if",
        "for (int c = 0; c < CLIENTS; c++) if",
    ),
    ("dram_port", "asks[c] && !granted", "client_valid[c] && !granted"),
    ("dram_port", "if (!held[c]) waiting", "if (client_valid[c]) waiting"),
    ("dram_port", "held[c] ? waiting[c] : client_req", "client_req"),
    ("burst_credit", "(CREDIT_BITS+1)'(DEPTH)", "(CREDIT_BITS+1)'(DEPTH + 2)"),
    ("fetch", "burst_credit #(.DEPTH(DEPTH))", "burst_credit #(.DEPTH(DEPTH + 2))"),
    ("fetch", "(req_ready && room)", "(req_ready)"),
    (
        "tensor_load",
        "burst_credit #(.DEPTH(LOAD_BUFFER_BEATS))",
        "burst_credit #(.DEPTH(LOAD_BUFFER_BEATS + 2))",
    ),
    ("burst_credit", "!spare[CREDIT_BITS]", "1'b1"),
    ("burst_credit", "'(beats_of(kept))", "'(beats_of(fired))"),
    ("burst_credit", "unreserved_more - needed_kept", "unreserved - needed_kept"),
    ("burst_credit", "{spare_more, spare_more - needed_fired}", "{spare_more, spare_more}"),
    ("tensor_load", "begun == TOP ? of.y_pad_top", "begun == LEFT ? of.y_pad_top"),
    ("burst_generator", "waiting_second <= start_second", "waiting_second <= start_cut"),
    (
        "tensor_load",
        "assign req_valid   = bursts_valid && room",
        "assign req_valid   = bursts_valid",
    ),
    ("tensor_load", "burst_ready = req_ready && room", "burst_ready = req_ready"),
    ("tensor_load", "is_beat && beat_valid;", "is_beat;"),
    ("tensor_load", "part + 1'b1 == last_part", "1'b1"),
    ("compute_load", ".BEYOND(UOP_SLOTS)", ".BEYOND(1)"),
    (
        "compute_load",
        "18'(first) < 18'(then_insn.uop_end)",
        "18'(first) + 18'd1 < 18'(then_insn.uop_end)",
    ),
    (
        "compute_load",
        "!uop_in_use : !then_loops && then_empty",
        "!uop_in_use : then_empty",
    ),
    (
        "compute_load",
        "!uop_in_use : !then_loops && then_empty",
        "!uop_in_use : !then_loops",
    ),
    (
        "compute_load",
        "done ? unretired + 1'b1 : unretired - 1'b1",
        "done ? 2'd1 : unretired - 1'b1",
    ),
    ("compute_decode", "(!next_starts || load_start_ready)", "1'b1"),
    ("compute_decode", "else if (load_start_ready) next_starts <= 1'b0", ""),
    ("compute_decode", "next_ready) && !tokens_missing", "next_ready) && !load_token_missing"),
    ("compute_decode", "if (next_free) next_starts", "if (next_moves) next_starts"),
    ("scratchpad", "rd_index == held_index", "1'b1"),
    ("scratchpad", " && (held_all || !rd_all)", ""),
    ("scratchpad", "(reads || held) && !overwritten", "(reads || held)"),
    ("scratchpad", "(reads || held) && !overwritten", "reads && !overwritten"),
    ("scratchpad", "reads ? touches_read", "held ? touches_read"),
    ("scratchpad", "BITS'(w - r)", "BITS'(r - w)"),
    ("scratchpad", "held <= !rst && ", "held <= "),
    ("axi_bursts", "!hold && ", ""),
    ("axi_bursts", "else if (out_ready) out_valid", "else if (out_ready || hold) out_valid"),
    ("axi_bursts", "if (accept != complete)", "if (accept || complete)"),
    ("axi_words", "left == LENGTH_BITS'(2)", "left == LENGTH_BITS'(1)"),
    ("axi_words", "next == LENGTH_BITS'(1)", "1'b0"),
    ("axi_words", "!some || sent && out_last", "!some || sent"),
    ("axi_words", "!some || sent && out_last", "sent && out_last"),
    ("axi_words", "<= {next_valid, next_valid", "<= {1'b1, next_valid"),
    ("axi_control", "csr_we        = write && whole", "csr_we        = write"),
    ("axi_control", "read_held && !write &&", "read_held &&"),
    ("axi_control", "data_held && (!s_axi_bvalid || s_axi_bready)", "data_held"),
    ("axi_control", "address_held && data_held &&", "address_held &&"),
    ("axi_shell", "hold = stopping || core_reset || fault", "hold = stopping || core_reset"),
    ("axi_shell", "hold = stopping || core_reset || fault", "hold = stopping || fault"),
    ("axi_shell", "reads_idle && weights_idle && writes_idle", "reads_idle && weights_idle"),
    ("axi_shell", "responded && m_axi_bresp[ERROR_BIT]", "1'b0"),
    ("axi_shell", "wr_req_valid && lengths_ready", "wr_req_valid"),
]
"""Blocks, a part of their text, what takes its place in a wrong version, perhaps parameters."""

PORTION = 6
"""Wrong versions that one process of Yosys refutes."""


def portions():
    """Yield a block, some of its wrong versions, and the parameters that it has."""
    groups = {}
    for block, right, wrong, *parameters in WRONG:
        groups.setdefault((block, bool(parameters)), []).append((right, wrong))
    for (block, quick), pairs in groups.items():
        for at in range(0, len(pairs), PORTION):
            case = block, pairs[at : at + PORTION], QUICK if quick else {}
            yield pytest.param(*case, id=f"{block}{'-quick' * quick}-{at}")


@pytest.mark.parametrize(("block", "pairs", "parameters"), [*portions()])
def test_wrong_blocks_fail_their_proof(block, pairs, parameters, tmp_path):
    assert [pair for pair in pairs if BLOCKS[block].count(pair[0]) != 1] == []
    refute(block, [BLOCKS[block].replace(*pair) for pair in pairs], tmp_path, **parameters)


def test_a_right_block_among_wrong_ones_is_found(tmp_path):
    right, wrong = BLOCKS["fifo"], BLOCKS["fifo"].replace("(!out_valid || out_ready)", "1'b1")
    with pytest.raises(DeviceError, match="proof did succeed"):
        refute("fifo", [wrong, right, wrong], tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("- BEATS_BITS'(address[CUT_BITS-1:SHIFT])", ""),
        ("{odd != '0, odd - 1'b1}", "odd"),
        ("(length.bursts == '0 || length.equal)", "length.equal"),
        ("(length.bursts == '0 || length.equal)", "length.bursts == '0"),
        ("ending.behind[CUT_BITS-1:0] == '0", "1'b0"),
    ],
)
def test_a_wrong_first_burst_fails_the_proof_of_a_row(right, wrong, tmp_path, monkeypatch):
    assert BLOCKS["stream_pkg"].count(right) == 1
    monkeypatch.setitem(BLOCKS, "stream_pkg", BLOCKS["stream_pkg"].replace(right, wrong))
    with pytest.raises(DeviceError, match="proof did fail"):
        prove("row_cut", BLOCKS["row_cut"], tmp_path)
