// Compute unit, decode: passes instructions to the pipeline. An instruction from the command queue
// becomes `next` (its tokens are taken, and a LOAD requests its data), then `current` (it issues one
// slot per cycle).
//
// Ports:   insn_*: instructions; load_token_*, store_token_*: tokens of the two neighbours.
//          next, next_moves: the next instruction becomes the current one in this cycle.
//          load_start_*: the next instruction is a LOAD that may request its data, next_block.
//          origins: only those of the memories that this unit loads are used.
//          current_*: the instruction that issues, then_*: in the next cycle; ends_current: it issues
//          its last slot.
//          queued: the queue has an instruction, and waiting_*: it waits for this token.
//          holding: there is a next or a current instruction.
// Timing:  one instruction per cycle.
module compute_decode
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                 clk,
    input  logic                 rst,
    input  logic                 insn_valid,
    output logic                 insn_ready,
    input  logic [INSN_BITS-1:0] insn,
    /* verilator lint_off UNUSEDSIGNAL */
    input  origins_t             origins,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic                 load_token_available,
    output logic                 load_token_pop,
    input  logic                 store_token_available,
    output logic                 store_token_pop,
    output command_t             next,
    output block_t               next_block,
    output logic                 next_moves,
    output logic                 load_start_valid,
    input  logic                 load_start_ready,
    output logic                 current_valid,
    output command_t             current,
    output logic                 then_valid,
    output command_t             then_current,
    input  logic                 ends_current,
    output logic                 waiting_load_token,
    output logic                 waiting_store_token,
    output logic                 queued,
    output logic                 holding
);
    logic head_valid, head_taken, next_valid;
    logic next_idle;    // !next_valid, of few loads
    logic next_starts;  // the next instruction is a LOAD that has not started
    logic [INSN_BITS-1:0] head, next_insn;
    block_t block;
    /* verilator lint_off UNUSEDSIGNAL */
    load_t in_load;
    /* verilator lint_on UNUSEDSIGNAL */
    assign in_load = insn;

    typedef enum logic [1:0] {IN_UOP, IN_ACC, IN_ACC_8BIT} place_t;
    logic [1:0] in_place;
    assign in_place = in_load.memory == MEM_UOP ? IN_UOP
                    : in_load.memory == MEM_ACC ? IN_ACC : IN_ACC_8BIT;
    localparam logic [3:0][3:0] LOG_BYTES = {
        {2{4'($clog2(OUT_BYTES))}}, 4'($clog2(ACC_BYTES)), 4'($clog2(UOP_BYTES))};

    command_queue #(.LOG_BYTES(LOG_BYTES)) commands (
        .clk, .rst, .in_valid(insn_valid), .in_ready(insn_ready), .in_insn(insn),
        .in_moves(in_load.opcode == OP_LOAD), .in_place,
        .in_origins({{3{origins.acc}}, origins.uop}),
        .out_valid(head_valid), .out_ready(head_taken), .out_insn(head), .out_block(block));

    // Opcode and tokens have the same bits in all instructions.
    /* verilator lint_off UNUSEDSIGNAL */
    gemm_t head_fields;
    load_t load;
    /* verilator lint_on UNUSEDSIGNAL */
    assign head_fields = head;
    assign load        = head;

    wire load_token_missing  = head_fields.pop_prev && !load_token_available;
    wire store_token_missing = head_fields.pop_next && !store_token_available;
    wire tokens_missing      = load_token_missing || store_token_missing;
    wire next_ready          = (!current_valid || ends_current)
                               && (!next_starts || load_start_ready);
    wire next_free           = !next_valid || next_ready;
    wire enter_next          = head_valid && head_taken;
    assign head_taken       = (next_idle || next_ready) && !tokens_missing;
    assign load_token_pop   = enter_next && head_fields.pop_prev;
    assign store_token_pop  = enter_next && head_fields.pop_next;
    assign load_start_valid = next_starts;
    assign next_moves       = next_valid && next_ready;

    wire loops = 32'(head_fields.uop_end) > 32'(head_fields.uop_begin)
                 && head_fields.iter_in != '0 && head_fields.iter_out != '0;
    // The kind of an instruction, which controls its progress, is known when it becomes `next`.
    kind_t head_kind, next_kind;
    assign next = '{insn: next_insn, kind: next_kind};
    always_comb begin
        case (head_fields.opcode)
            OP_GEMM, OP_ALU: head_kind = loops ? KIND_LOOP : KIND_OTHER;
            OP_DEPTHWISE:    head_kind = HAS_DEPTHWISE != 0 && loops ? KIND_LOOP : KIND_OTHER;
            OP_POOL:         head_kind = HAS_POOL != 0 && loops ? KIND_LOOP : KIND_OTHER;
            OP_LOAD:         head_kind = load.x_size != '0 ? KIND_LOAD : KIND_OTHER;
            default:         head_kind = KIND_OTHER;
        endcase
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            next_valid    <= 1'b0;
            next_idle     <= 1'b1;
            next_starts   <= 1'b0;
            current_valid <= 1'b0;
        end else begin
            if (next_free) {next_valid, next_idle} <= {enter_next, !enter_next};
            if (next_free) next_starts <= enter_next && head_kind == KIND_LOAD;
            else if (load_start_ready) next_starts <= 1'b0;
            current_valid <= then_valid;
        end
        // Whether an instruction enters is known late; if not, this does no harm.
        if (next_free) begin
            next_insn  <= head;
            next_kind  <= head_kind;
            next_block <= block;
        end
        current <= then_current;
    end
    assign then_valid   = next_moves || current_valid && !ends_current;
    assign then_current = next_moves ? next : current;

    assign waiting_load_token  = head_valid && load_token_missing;
    assign waiting_store_token = head_valid && store_token_missing;
    assign queued              = head_valid;
    assign holding             = next_valid || current_valid;
endmodule
