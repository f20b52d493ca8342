// Micro-op sequencer: walks the two hardware loops and the micro-ops of one GEMM or ALU
// instruction (outer loop, inner loop, micro-ops innermost) and keeps the loops' index offsets.
//
// Ports:   load takes an instruction (at least one iteration); step goes to the next iteration.
//          uop_index: the micro-op to read; *_offset: what to add to its indices (modulo the
//          depth); last: this is the last iteration. row_*: the same for the row of the extension
//          POST, whose factors are taken with the instruction.
// Timing:  one iteration per cycle; load may coincide with the last step of the instruction before.
module micro_op_sequencer
    import vta_pkg::*;
(
    input  logic                      clk,
    input  logic                      load,
    /* verilator lint_off UNUSEDSIGNAL */
    input  logic [INSN_BITS-1:0]      insn,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic                      step,
    output logic [UOP_INDEX_BITS-1:0] uop_index,
    output logic [ACC_INDEX_BITS-1:0] dst_offset,
    output logic [SRC_BITS-1:0]       src_offset,
    output logic [WGT_INDEX_BITS-1:0] wgt_offset,
    input  logic [POST_ROW_BITS-1:0]  row_factor_out,
    input  logic [POST_ROW_BITS-1:0]  row_factor_in,
    output logic [POST_ROW_BITS-1:0]  row_offset,
    output logic                      last
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
    logic [ACC_INDEX_BITS-1:0] dst_step_out, dst_step_in, dst_outer;
    logic [SRC_BITS-1:0]       src_step_out, src_step_in, src_outer;
    logic [WGT_INDEX_BITS-1:0] wgt_step_out, wgt_step_in, wgt_outer;

    logic [POST_ROW_BITS-1:0]  row_step_out, row_step_in, row_outer;

    wire last_uop = uop_index == uop_last;
    wire last_in  = left_in == 14'd1;
    wire last_out = left_out == 14'd1;
    assign last = last_uop && last_in && last_out;

    always_ff @(posedge clk) begin
        if (load) begin
            uop_begin    <= gemm.uop_begin;
            uop_last     <= UOP_INDEX_BITS'(gemm.uop_end - 1'b1);
            iter_in      <= gemm.iter_in;
            dst_step_out <= gemm.dst_factor_out;
            dst_step_in  <= gemm.dst_factor_in;
            src_step_out <= is_alu ? SRC_BITS'(alu.src_factor_out) : SRC_BITS'(gemm.src_factor_out);
            src_step_in  <= is_alu ? SRC_BITS'(alu.src_factor_in) : SRC_BITS'(gemm.src_factor_in);
            wgt_step_out <= gemm.wgt_factor_out;
            wgt_step_in  <= gemm.wgt_factor_in;
            uop_index    <= gemm.uop_begin;
            left_in      <= gemm.iter_in;
            left_out     <= gemm.iter_out;
            {dst_outer, dst_offset} <= '0;
            {src_outer, src_offset} <= '0;
            {wgt_outer, wgt_offset} <= '0;
            row_step_out <= row_factor_out;
            row_step_in  <= row_factor_in;
            {row_outer, row_offset} <= '0;
        end else if (step) begin
            if (!last_uop) uop_index <= uop_index + 1'b1;
            else begin
                uop_index <= uop_begin;
                if (!last_in) begin
                    left_in    <= left_in - 1'b1;
                    dst_offset <= dst_offset + dst_step_in;
                    src_offset <= src_offset + src_step_in;
                    wgt_offset <= wgt_offset + wgt_step_in;
                    row_offset <= row_offset + row_step_in;
                end else begin
                    left_in    <= iter_in;
                    left_out   <= left_out - 1'b1;
                    dst_offset <= dst_outer + dst_step_out;
                    dst_outer  <= dst_outer + dst_step_out;
                    src_offset <= src_outer + src_step_out;
                    src_outer  <= src_outer + src_step_out;
                    wgt_offset <= wgt_outer + wgt_step_out;
                    wgt_outer  <= wgt_outer + wgt_step_out;
                    row_offset <= row_outer + row_step_out;
                    row_outer  <= row_outer + row_step_out;
                end
            end
        end
    end
endmodule
