// Compute unit, S1 and S2 (operands): a slot's micro-op is read from its scratchpad (S1), the offsets
// of the loops are added to its indices, and what they name is read (S2). Holds the micro-ops.
//
// Ports:   issue_*, slot, uop_index, offsets: the slots from S0. write, word: LOAD UOP.
//          inputs_en, weights_en: the input tile, the weight tile of `operands` is wanted now, for
//          S3; inputs_all: and the input tiles behind it.
//          out_valid, out_slot, operands: the slot that leaves S2. occupied: S1, S2 hold a slot.
//          moves: the slot in S1 goes to S2.
// Timing:  a slot per cycle, two cycles. A slot that reads what the MUL directly before it writes
//          stays in S2 for a cycle, and S0 and S1 wait with it.
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
    input  offsets_t                  offsets,  // the row means nothing here
    /* verilator lint_on UNUSEDSIGNAL */
    input  load_write_t               write,
    input  logic [PORT_BITS-1:0]      word,
    output logic                      inputs_en,
    output logic                      inputs_all,
    output logic                      weights_en,
    output logic                      out_valid,
    output slot_t                     out_slot,
    output operands_t                 operands,
    output logic                      moves,
    output logic [2:1]                occupied
);
    slot_t slot1;
    /* verilator lint_off UNUSEDSIGNAL */
    offsets_t  offsets1;
    micro_op_t uop;
    /* verilator lint_on UNUSEDSIGNAL */
    wire enters = issue_valid && issue_ready;
    logic may_hold;    // the slot in S1 moved into S2 behind a MUL: held if it reads the same
    logic [1:0] same;  // it does: the halves of the two indices are equal
    wire held = may_hold && &same;
    assign issue_ready = !held;
    assign moves       = occupied[1] && !held;
    assign out_valid   = occupied[2] && !held;
    assign inputs_en   = out_valid && (out_slot.gemm || out_slot.pools);
    assign inputs_all  = out_slot.windows || out_slot.pools;
    assign weights_en  = out_valid && out_slot.gemm;

    scratchpad #(.MEMORY(MEM_UOP), .WIDTH(UOP_BITS), .DEPTH(UOP_DEPTH), .PARTS(UOP_PARTS),
                 .SLOTS(UOP_SLOTS)) uop_mem (
        .clk, .rst, .write, .word, .element('0), .rd_en(enters && slot.data), .rd_all(1'b1),
        .rd_index(uop_index), .rd_data(uop));

    wire [ACC_INDEX_BITS-1:0] dst = uop.dst + offsets1.dst;
    wire [SRC_BITS-1:0]       src = uop.src + offsets1.src;

    // The slot in S1 reads what the one in S2 writes; known a cycle ahead: who issues waits for it.
    // A micro-op leaves its block RAM late, so it is compared, not added, and by halves.
    localparam logic [ACC_INDEX_BITS-1:0] LOW = ACC_INDEX_BITS'((1 << ACC_INDEX_BITS / 2) - 1);
    wire [ACC_INDEX_BITS-1:0] named = slot1.reads_src ? ACC_INDEX_BITS'(uop.src) : uop.dst;
    wire [ACC_INDEX_BITS-1:0] written =
        operands.dst - (slot1.reads_src ? ACC_INDEX_BITS'(offsets1.src) : offsets1.dst);
    wire [ACC_INDEX_BITS-1:0] differ = named ^ written;

    always_ff @(posedge clk) begin
        if (rst) occupied <= '0;
        else if (!held) occupied <= {occupied[1], enters};
        may_hold <= !rst && moves && slot1.data && out_valid && out_slot.multiplies;
        same <= {(differ & ~LOW) == '0, (differ & LOW) == '0};
        if (enters) slot1 <= slot;
        if (enters && slot.data) offsets1 <= offsets;
        if (moves) begin
            out_slot     <= slot1;
            operands.dst <= dst;
            operands.acc <= slot1.reads_src ? ACC_INDEX_BITS'(src) : dst;
            operands.inp <= INP_INDEX_BITS'(src);
            operands.wgt <= uop.wgt + offsets1.wgt;
        end
    end
endmodule
