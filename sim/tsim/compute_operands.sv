// Compute unit, S1 and S2 (operands): a slot's micro-op is read from its scratchpad (S1), the loop
// offsets are added to its indices, and the elements are read (S2). Contains the micro-op scratchpad.
//
// Ports:   issue_*, slot, uop_index, offsets: the slots from S0. write, word: LOAD UOP.
//          inputs_en, weights_en: the input tile or weight tile of `operands` is read now, for
//          S3; inputs_all: also the input tiles after it.
//          out_valid, out_slot, operands: the slot that leaves S2; second_inp, second_wgt: the
//          operands of a pair's second product. occupied: S1, S2 hold a slot.
//          moves: the slot in S1 moves to S2.
//          splits: the slot in S2 stays for its second micro-op.
// Timing:  one slot per cycle, two cycles. A slot that reads the result of a MUL directly before it
//          stays in S2 for one cycle, and S0 and S1 wait with it.
// Pairs:   with the extension PAIRS, two micro-ops of a slot may write different accumulators. If the
//          next slot begins with the second one, that product is carried to it. Otherwise the slot
//          stays in S2 for a cycle and leaves as two slots. A slot that goes on with the accumulator of
//          the one before it does not overwrite.
module compute_operands
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                      clk,
    input  logic                      rst,
    input  logic                      issue_valid,
    output logic                      issue_ready,
    input  slot_t                     slot,
    input  logic [UOP_INDEX_BITS-1:0] uop_index,
    /* verilator lint_off UNUSEDSIGNAL */
    input  offsets_t                  offsets,  // the row is not used here
    /* verilator lint_on UNUSEDSIGNAL */
    input  load_write_t               write,
    input  logic [PORT_BITS-1:0]      word,
    output logic                      inputs_en,
    output logic                      inputs_all,
    output logic                      weights_en,
    output logic                      out_valid,
    output slot_t                     out_slot,
    output operands_t                 operands,
    output logic [INP_INDEX_BITS-1:0] second_inp,
    output logic [WGT_INDEX_BITS-1:0] second_wgt,
    output logic                      moves,
    output logic                      splits,
    output logic [2:1]                occupied
);
    slot_t slot1, slot2;
    operands_t operands2;
    /* verilator lint_off UNUSEDSIGNAL */
    offsets_t  offsets1;
    micro_op_t [UOP_READS-1:0] uops;  // the second and third only if a slot has two
    micro_op_t uop, next_uop;
    /* verilator lint_on UNUSEDSIGNAL */
    assign uop      = uops[0];
    assign next_uop = uops[UOP_READS > 1 ? 1 : 0];
    wire enters = issue_valid && issue_ready;
    logic held;  // the slot in S2 reads the result of a MUL directly before it
    operands_t second;  // of the second micro-op of the slot in S2
    assign {second_inp, second_wgt} = {second.inp, second.wgt};
    assign operands    = operands2;
    assign moves       = occupied[1] && issue_ready;
    assign inputs_en   = out_valid && (out_slot.gemm || out_slot.pools);
    assign inputs_all  = out_slot.windows || out_slot.pools;
    assign weights_en  = out_valid && out_slot.gemm;

    scratchpad #(.MEMORY(MEM_UOP), .WIDTH(UOP_BITS), .DEPTH(UOP_DEPTH), .PARTS(UOP_PARTS),
                 .SLOTS(UOP_SLOTS), .READ_SLOTS(UOP_READS), .BANKS(UOP_BANKS)) uop_mem (
        .clk, .rd_clk(clk), .in_step(1'b1), .rst, .write, .word, .tiles('0), .rd_en(enters && slot.data),
        .rd_all(slot.pair || UOP_READS == 1), .rd_index(uop_index), .rd_same(1'b0), .rd_held('0), .rd_after('0),
        .rd_data(uops));

    wire [ACC_INDEX_BITS-1:0] dst = uop.dst + offsets1.dst;
    wire [SRC_BITS-1:0]       src = uop.src + offsets1.src;

    // The slot in S1 reads the result of the one in S2; known a cycle ahead, because issue waits for
    // it. A micro-op leaves its block RAM late, so it is compared and not added.
    wire [ACC_INDEX_BITS-1:0] named = slot1.reads_src ? ACC_INDEX_BITS'(uop.src) : uop.dst;
    wire [ACC_INDEX_BITS-1:0] written =
        operands2.dst - (slot1.reads_src ? ACC_INDEX_BITS'(offsets1.src) : offsets1.dst);

    wire holds = !rst && moves && slot1.data && out_valid && out_slot.multiplies && named == written;

    always_ff @(posedge clk) begin
        if (rst) occupied <= '0;
        else if (issue_ready) occupied <= {occupied[1], enters};
        held <= holds;
        if (enters) slot1 <= slot;
        if (enters && slot.data) offsets1 <= offsets;
        if (moves) begin
            slot2         <= slot1;
            operands2.dst <= dst;
            operands2.acc <= slot1.reads_src ? ACC_INDEX_BITS'(src) : dst;
            operands2.inp <= INP_INDEX_BITS'(src);
            operands2.wgt <= uop.wgt + offsets1.wgt;
        end else if (HAS_PAIRS != 0 && splits) operands2 <= second;
    end

    if (HAS_PAIRS != 0) begin : g_pairs
        logic unlike;     // the two micro-ops of the slot in S2 leave as two slots
        logic may_split;  // they do, and neither has left
        logic carried;    // the second one's product is the next slot's
        logic adds_on;    // it goes on with the last accumulator of the slot before it
        logic alike;      // the last slot from S1 had one accumulator
        logic [ACC_INDEX_BITS-1:0] latest;  // and the last one of its accumulators, without offsets
        wire differ      = slot1.pair && uop.dst != next_uop.dst;
        wire carries     = differ && slot1.followed && next_uop.dst == uops[2].dst;
        wire then_splits = !rst && (moves ? differ && !carries : may_split && held);
        wire [ACC_INDEX_BITS-1:0] second_dst = next_uop.dst + offsets1.dst;
        assign splits = may_split && !held;
        always_ff @(posedge clk) begin
            may_split   <= then_splits;
            // !held && !splits, and occupied[2] && !held: much waits for them.
            issue_ready <= !holds && !then_splits;
            out_valid   <= !rst && !holds && (issue_ready ? occupied[1] : occupied[2]);
            if (moves) begin
                unlike  <= differ && !carries;
                carried <= carries;
                adds_on <= slot1.gemm && slot1.continues && alike && uop.dst == latest;
                alike   <= !differ;
                latest  <= next_uop.dst;
                second <= '{dst: second_dst, acc: second_dst, wgt: next_uop.wgt + offsets1.wgt,
                            inp: INP_INDEX_BITS'(next_uop.src + offsets1.src)};
            end else if (splits) adds_on <= 1'b0;
        end
        always_comb begin
            out_slot      = slot2;
            out_slot.pair      = slot2.pair && !unlike;
            out_slot.carries   = slot2.gemm && carried;
            out_slot.overwrite = slot2.overwrite && !adds_on;
            out_slot.last      = slot2.last && !splits;
        end
    end else begin : g_single
        assign issue_ready = !held;
        assign out_valid   = occupied[2] && !held;
        assign splits      = 1'b0;
        assign out_slot    = slot2;
        assign second      = '0;
    end
endmodule
