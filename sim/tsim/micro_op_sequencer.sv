// Micro-op sequencer: iterates over the two hardware loops and the micro-ops of a GEMM or ALU
// instruction (outer loop, inner loop, micro-ops innermost), and tracks the loops' index offsets.
//
// Ports:   load takes an instruction (with at least one iteration); step advances to the next
//          iteration. uop_index: the micro-op to read; offsets: what to add to its indices (modulo the
//          depth); pair: the next micro-op belongs to the same iteration (with the extension PAIRS, the
//          micro-ops of a product form pairs); continues, followed: others of the iteration came
//          before, and follow; last: this is the last iteration; then_last: the next one is;
//          enters_last: `insn` has only one. row_factor_*: those of the row of the extension POST,
//          taken with the instruction.
// Timing:  one iteration per cycle; load may coincide with the last step of the previous instruction.
module micro_op_sequencer
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                      clk,
    input  logic                      load,
    /* verilator lint_off UNUSEDSIGNAL */
    input  logic [INSN_BITS-1:0]      insn,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic                      step,
    output logic [UOP_INDEX_BITS-1:0] uop_index,
    output logic                      pair,
    output logic                      continues,
    output logic                      followed,
    output offsets_t                  offsets,
    input  logic [POST_ROW_BITS-1:0]  row_factor_out,
    input  logic [POST_ROW_BITS-1:0]  row_factor_in,
    output logic                      last,
    output logic                      then_last,
    output logic                      enters_last
);
    /* verilator lint_off UNUSEDSIGNAL */
    gemm_t gemm;
    alu_t  alu;
    /* verilator lint_on UNUSEDSIGNAL */
    assign gemm = insn;
    assign alu  = insn;
    wire is_alu = gemm.opcode == OP_ALU;

    logic [UOP_INDEX_BITS-1:0] uop_begin, uop_last;
    logic [13:0]               iter_in, left_in, left_out;
    offsets_t step_in, step_out;  // increments of the inner and of the outer loop
    offsets_t outer;              // the offsets at the start of the inner loop

    function automatic offsets_t sum(input offsets_t a, input offsets_t b);
        return '{row: a.row + b.row, wgt: a.wgt + b.wgt, src: a.src + b.src, dst: a.dst + b.dst};
    endfunction

    wire offsets_t factors_out = '{
        row: row_factor_out, wgt: gemm.wgt_factor_out, dst: gemm.dst_factor_out,
        src: is_alu ? SRC_BITS'(alu.src_factor_out) : SRC_BITS'(gemm.src_factor_out)};
    wire offsets_t factors_in = '{
        row: row_factor_in, wgt: gemm.wgt_factor_in, dst: gemm.dst_factor_in,
        src: is_alu ? SRC_BITS'(alu.src_factor_in) : SRC_BITS'(gemm.src_factor_in)};

    // `last` is a flip-flop, because much depends on it; so are its components.
    logic last_uop;            // no micro-op follows
    logic last_in, last_out;   // left_in == 1, left_out == 1
    logic only_uop, only_in;   // there is only one micro-op; iter_in == 1
    wire [UOP_INDEX_BITS-1:0] entering_last = UOP_INDEX_BITS'(gemm.uop_end - 1'b1);
    wire enters_single = UOP_INDEX_BITS'(gemm.uop_begin) == entering_last;
    wire enters_by_two = HAS_PAIRS != 0 && (gemm.opcode == OP_GEMM || gemm.opcode == OP_DEPTHWISE);
    wire enters_only_uop = enters_single
        || enters_by_two && UOP_INDEX_BITS'(gemm.uop_begin + 1'b1) == entering_last;

    logic by_two;         // the micro-ops form pairs
    logic single;         // except this one, which is the last
    logic begins_single;  // uop_begin == uop_last
    assign pair = by_two && !single;
    assign followed = !last_uop;
    wire [UOP_INDEX_BITS-1:0] following = uop_index + UOP_INDEX_BITS'(by_two ? 2 : 1);
    wire ends_single = following == uop_last;
    // The same components for the next iteration.
    wire turns = last_uop && last_in;  // the outer loop advances
    wire then_last_uop = last_uop ? only_uop
                       : ends_single || by_two && UOP_INDEX_BITS'(following + 1'b1) == uop_last;
    wire then_last_in  = !last_uop ? last_in : last_in ? only_in : left_in == 14'd2;
    wire then_last_out = turns ? left_out == 14'd2 : last_out;
    wire enters_only_in  = gemm.iter_in == 14'd1;
    wire enters_only_out = gemm.iter_out == 14'd1;
    assign then_last   = then_last_uop && then_last_in && then_last_out;
    assign enters_last = enters_only_uop && enters_only_in && enters_only_out;

    always_ff @(posedge clk) begin
        if (load) begin
            by_two        <= enters_by_two;
            continues     <= 1'b0;
            single        <= enters_single;
            begins_single <= enters_single;
            uop_begin    <= gemm.uop_begin;
            uop_last     <= entering_last;
            only_uop     <= enters_only_uop;
            last_uop     <= enters_only_uop;
            only_in      <= enters_only_in;
            last_in      <= enters_only_in;
            last_out     <= enters_only_out;
            last         <= enters_last;
            iter_in      <= gemm.iter_in;
            step_out     <= factors_out;
            step_in      <= factors_in;
            uop_index    <= gemm.uop_begin;
            left_in      <= gemm.iter_in;
            left_out     <= gemm.iter_out;
            {outer, offsets} <= '0;
        end else if (step) begin
            last_uop  <= then_last_uop;
            last_in   <= then_last_in;
            last_out  <= then_last_out;
            last      <= then_last;
            continues <= !last_uop;
            single    <= last_uop ? begins_single : ends_single;
            uop_index <= last_uop ? uop_begin : following;
            if (turns) begin
                left_in  <= iter_in;
                left_out <= left_out - 1'b1;
                offsets  <= sum(outer, step_out);
                outer    <= sum(outer, step_out);
            end else if (last_uop) begin
                left_in <= left_in - 1'b1;
                offsets <= sum(offsets, step_in);
            end
        end
    end
endmodule
