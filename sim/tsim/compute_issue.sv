// Compute unit, S0 (issue): splits the current instruction into slots, one per cycle. Each iteration of
// a GEMM, ALU or POOL instruction is one slot (two if the ALU takes a tensor operand: the first reads
// the source tile, the second the destination); any other instruction is a single slot that carries
// its tokens.
//
// Ports:   next, next_moves: the instruction that becomes the current one; current*: the one that
//          issues. load_complete: if it is a LOAD, its data are written.
//          issue_*: the stream of slots; a slot leaves when issue_valid and issue_ready are high.
//          uop_index, offsets: the index of its micro-op, and what to add to the indices in it.
//          row_factor_*: as in micro_op_sequencer. ends_current: the last slot leaves.
// Timing:  one slot per cycle, without a gap between instructions.
module compute_issue
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                      clk,
    input  logic                      rst,
    input  command_t                  next,
    input  logic                      next_moves,
    input  logic                      current_valid,
    input  command_t                  current,
    input  logic                      load_complete,
    output logic                      issue_valid,
    input  logic                      issue_ready,
    output slot_t                     slot,
    output logic [UOP_INDEX_BITS-1:0] uop_index,
    output offsets_t                  offsets,
    input  logic [POST_ROW_BITS-1:0]  row_factor_out,
    input  logic [POST_ROW_BITS-1:0]  row_factor_in,
    output logic                      ends_current
);
    /* verilator lint_off UNUSEDSIGNAL */
    gemm_t gemm;
    alu_t  alu, next_alu;
    pool_t pool;
    /* verilator lint_on UNUSEDSIGNAL */
    assign gemm = current.insn;
    assign alu  = current.insn;
    assign next_alu = next.insn;
    assign pool = current.insn;

    logic last_iteration, two_micro_ops, continues, followed;
    logic is_loop;  // current.kind == KIND_LOOP
    wire loops         = current_valid && is_loop;
    wire is_alu        = gemm.opcode == OP_ALU;
    wire pools         = HAS_POOL != 0 && gemm.opcode == OP_POOL;
    logic two_slots;      // for each micro-op
    logic ends_micro_op;  // the only one, or the second
    wire next_two      = next_alu.opcode == OP_ALU && !next_alu.use_imm;
    assign issue_valid = current_valid && (current.kind != KIND_LOAD || load_complete);

    // Whether the current instruction is a LOAD, and whether another one has its last slot here: the
    // instructions behind it, up to the command queue, move in the cycle in which it leaves.
    logic is_load, ending, then_last, enters_last;
    wire next_ending = next.kind == KIND_OTHER
                       || next.kind == KIND_LOOP && !next_two && enters_last;
    wire step_ending = !ends_micro_op ? last_iteration : !two_slots && then_last;
    assign ends_current = issue_ready && (ending || is_load && load_complete);
    always_ff @(posedge clk) begin
        if (rst) {is_load, ending} <= '0;
        else if (next_moves) begin
            is_load <= next.kind == KIND_LOAD;
            ending  <= next_ending;
        end else if (ends_current) {is_load, ending} <= '0;
        else if (loops && issue_ready) ending <= step_ending;
    end

    micro_op_sequencer sequencer (
        .clk, .load(next_moves && next.kind == KIND_LOOP), .insn(next.insn),
        .step(loops && ends_micro_op && issue_ready), .uop_index, .pair(two_micro_ops), .continues, .followed,
        .offsets, .row_factor_out, .row_factor_in, .last(last_iteration), .then_last, .enters_last);

    always_ff @(posedge clk) begin
        if (next_moves) begin
            is_loop       <= next.kind == KIND_LOOP;
            two_slots     <= next_two;
            ends_micro_op <= !next_two;
        end else if (loops && issue_ready && two_slots) ends_micro_op <= !ends_micro_op;
    end

    always_comb begin
        slot.data       = loops;
        slot.reads_src  = loops && !ends_micro_op;
        slot.writes     = loops && !slot.reads_src;
        slot.gemm       = loops && !is_alu && !pools && !gemm.reset;
        slot.pair       = loops && two_micro_ops;
        slot.continues  = HAS_PAIRS != 0 && continues;
        slot.followed   = HAS_PAIRS != 0 && followed;
        slot.carries    = 1'b0;
        slot.windows    = HAS_DEPTHWISE != 0 && gemm.opcode == OP_DEPTHWISE;
        slot.pools      = loops && pools;
        slot.tiles      = pool.tiles;
        slot.is_alu     = is_alu || pools;
        slot.reset      = gemm.reset;
        slot.overwrite  = HAS_OVERWRITE != 0 && slot.gemm && current.insn[OVERWRITE_BIT]
                          || slot.pools && pool.overwrite;
        slot.use_imm    = is_alu && alu.use_imm;
        slot.multiplies = slot.writes && is_alu && alu.alu_op == ALU_MUL;
        slot.alu_op     = is_alu ? alu.alu_op
                        : slot.pools && !pool.overwrite ? ALU_MAX : ALU_ADD;
        slot.imm        = alu.imm;
        slot.last       = ends_current;
        slot.push_prev  = gemm.push_prev;
        slot.push_next  = gemm.push_next;
        slot.finish     = gemm.opcode == OP_FINISH;
    end
endmodule
