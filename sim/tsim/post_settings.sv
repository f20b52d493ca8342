// Settings of the extension POST: the values set by the instruction POST, passed along with the slots
// to which they apply. A POST takes effect when it becomes the current instruction, so for the next
// one, until another POST or FINISH. Without the extension, everything is zero.
//
// Ports:   next_insn, next_moves: the instruction that becomes the current one; finished: FINISH
//          executes. row_factor_*: increments of the parameter row by an instruction's loops, and row:
//          their current sum. enters, moves: a slot enters S1, moves to S2.
//          set: the settings of the slot in the last stage.
// Timing:  follows the pipeline.
module post_settings
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                     clk,
    input  logic                     rst,
    input  logic [INSN_BITS-1:0]     next_insn,
    input  logic                     next_moves,
    input  logic                     finished,
    output logic [POST_ROW_BITS-1:0] row_factor_out,
    output logic [POST_ROW_BITS-1:0] row_factor_in,
    input  logic [POST_ROW_BITS-1:0] row,
    input  logic                     enters,
    input  logic                     moves,
    output post_slot_t               set
);
    if (HAS_POST != 0) begin : g_post
        /* verilator lint_off UNUSEDSIGNAL */
        post_t next_post, post;
        wire [INSN_BITS-1:0] post_bits = post;
        /* verilator lint_on UNUSEDSIGNAL */
        assign next_post      = next_insn;
        assign row_factor_out = post.row_factor_out;
        assign row_factor_in  = post.row_factor_in;
        always_ff @(posedge clk) begin
            if (rst || finished) post <= '0;
            else if (next_moves && next_post.opcode == OP_POST) post <= next_post;
        end

        // S1 and S2 may be held; after them, all slots move in every cycle.
        post_slot_t p [1:COMPUTE_DEPTH];
        always_ff @(posedge clk) begin
            if (enters)
                p[1] <= '{enable: post.enable, use_bias: post.use_bias, use_scale: post.use_scale,
                          round_half: post.round_half, multiplier: post.multiplier,
                          shift: post.shift, zero_point: post.zero_point, low: post.low,
                          high: post.high, row: post.row + row,
                          fine: HAS_EXACT != 0 ? post_bits[FINE_BIT +: 2] : '0,
                          use_table: HAS_TABLE != 0 && post_bits[USE_TABLE_BIT],
                          table_index: HAS_TABLE != 0 ? post_bits[TABLE_INDEX_BIT +: TABLE_INDEX_BITS]
                                                      : '0};
            if (moves) p[2] <= p[1];
            for (int i = 3; i <= COMPUTE_DEPTH; i++) p[i] <= p[i-1];
        end
        assign set = p[COMPUTE_DEPTH];
    end else begin : g_no_post
        assign {row_factor_out, row_factor_in, set} = '0;
        wire unused_post = ^{clk, rst, next_insn, next_moves, finished, row, enters, moves};
    end
endmodule
