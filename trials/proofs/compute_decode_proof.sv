// compute_decode and compute_issue, together: what compute_load may assume of them. A LOAD begins
// once, when it is the next instruction, so those before it have issued or are the current one; at
// most two have begun and not retired, and one retires only when it is complete. An instruction takes
// the tokens that it names, once, when they are there, and stays until it has moved on.
module compute_decode_proof
    import vta_pkg::*, stream_pkg::*;
(
    input logic                     clk,
    input logic                     rst,
    input logic                     insn_valid,
    input logic [INSN_BITS-1:0]     insn,
    input origins_t                 origins,
    input logic                     load_token_available,
    input logic                     store_token_available,
    input logic                     load_start_ready,
    input logic                     load_complete,
    input logic                     issue_ready,
    input logic [POST_ROW_BITS-1:0] row_factor_out,
    input logic [POST_ROW_BITS-1:0] row_factor_in
);
    logic insn_ready, load_token_pop, store_token_pop, next_moves, load_start_valid, current_valid;
    logic then_valid, ends_current, waiting_load_token, waiting_store_token, queued, holding, issue_valid;
    command_t next, current, then_current;
    block_t next_block;
    slot_t slot;
    logic [UOP_INDEX_BITS-1:0] uop_index;
    offsets_t offsets;
    compute_decode dut (.*);
    compute_issue issue (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    // The specification: LOADs begun and retired, and the number of instructions behind each stage.
    typedef logic [7:0] number_t;
    number_t begun, retired, entered, moved, ended;
    wire begins  = load_start_valid && load_start_ready;
    wire retires = ends_current && current.kind == KIND_LOAD;
    always_ff @(posedge clk) begin
        begun   <= rst ? '0 : begun + number_t'(begins);
        retired <= rst ? '0 : retired + number_t'(retires);
        entered <= rst ? '0 : entered + number_t'(dut.enter_next);
        moved   <= rst ? '0 : moved + number_t'(next_moves);
        ended   <= rst ? '0 : ended + number_t'(ends_current);
    end

    logic next_stays, current_stays;
    command_t was_next, was_current;
    block_t was_block;
    always_ff @(posedge clk) begin
        next_stays    <= !rst && dut.next_valid && !next_moves;
        current_stays <= !rst && current_valid && !ends_current;
        was_next      <= next;
        was_block     <= dut.enter_next ? dut.block : next_block;
        was_current   <= next_moves ? next : current;
    end
    gemm_t head;
    assign head = dut.head;

    always_comb begin
        assume (started || rst);
        if (started) begin
            assert (entered - moved == number_t'(dut.next_valid));
            assert (moved - ended == number_t'(current_valid));
            assert (begun - retired
                    == number_t'(dut.next_valid && next.kind == KIND_LOAD && !dut.next_starts)
                     + number_t'(current_valid && current.kind == KIND_LOAD));
            assert (dut.next_idle == !dut.next_valid);
            assert (!dut.next_starts || dut.next_valid && next.kind == KIND_LOAD);
            assert (!begins || begun - retired < 8'd2 && dut.next_valid && next.kind == KIND_LOAD);
            assert (!retires || load_complete);
            assert (!current_valid || current.kind != KIND_LOAD || !slot.data);
            assert (load_token_pop == (dut.enter_next && head.pop_prev));
            assert (store_token_pop == (dut.enter_next && head.pop_next));
            assert (!load_token_pop || load_token_available);
            assert (!store_token_pop || store_token_available);
            assert (!next_stays || dut.next_valid && next == was_next);
            assert (!dut.next_valid || next_block == was_block);
            assert (!current_stays || current_valid && current == was_current);
            assert (!current_valid || issue.is_loop == (current.kind == KIND_LOOP));
            assert (issue.is_load == (current_valid && current.kind == KIND_LOAD));
            assert (!issue.ending || current_valid && current.kind != KIND_LOAD);
        end
    end
endmodule
