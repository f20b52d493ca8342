// The compute unit's reads of the input and weight scratchpads, in the form required by these. With
// the extension PAIRS, both scratchpads and the GEMM core run at twice the frequency of clk: the first
// product of a pair is read in the first half of a cycle of clk, the second in the second half.
//
// Ports:   inputs_en, weights_en: a tile of each is read now; inputs_all: also the input tiles after
//          it; pair: also a second tile of each. inp_read*, wgt_read*: the reads; with PAIRS in the
//          form of HOLD = 2 of the scratchpad.
//          second_half: the second half of a cycle of clk, for logic clocked by array_clk.
// Timing:  combinational; with PAIRS a read is half a cycle of clk late, a second one a full cycle.
module operand_reads
    import vta_pkg::*;
(
    input  logic                      clk,
    input  logic                      array_clk,
    input  logic                      rst,
    output logic                      second_half,
    input  logic                      inputs_en,
    input  logic                      inputs_all,
    input  logic                      weights_en,
    input  logic                      pair,
    input  logic [INP_INDEX_BITS-1:0] inp_index,
    input  logic [INP_INDEX_BITS-1:0] second_inp_index,
    input  logic [WGT_INDEX_BITS-1:0] wgt_index,
    input  logic [WGT_INDEX_BITS-1:0] second_wgt_index,
    output logic                      inp_read,
    output logic                      inp_read_all,
    output logic [INP_INDEX_BITS-1:0] inp_read_index,
    output logic                      inp_same,
    output logic                      wgt_read,
    output logic [WGT_INDEX_BITS-1:0] wgt_read_index,
    output logic                      wgt_same
);
    if (HAS_PAIRS != 0) begin : g_pairs
        // `odd` changes with clk, `followed` half a cycle later.
        logic odd, followed;
        wire reads_inp = inputs_en && (!second_half || pair);
        wire reads_wgt = weights_en && (!second_half || pair);
        wire [INP_INDEX_BITS-1:0] next_inp = second_half ? second_inp_index : inp_index;
        wire [WGT_INDEX_BITS-1:0] next_wgt = second_half ? second_wgt_index : wgt_index;
        always_ff @(posedge clk) odd <= !rst && !odd;
        always_ff @(posedge array_clk) begin
            followed       <= odd;
            second_half    <= odd != followed;
            inp_read       <= reads_inp;
            wgt_read       <= reads_wgt;
            inp_read_all   <= inputs_all;
            inp_same       <= next_inp == inp_read_index;
            wgt_same       <= next_wgt == wgt_read_index;
            if (reads_inp) inp_read_index <= next_inp;
            if (reads_wgt) wgt_read_index <= next_wgt;
        end
    end else begin : g_single
        assign second_half    = 1'b0;
        assign inp_read       = inputs_en;
        assign wgt_read       = weights_en;
        assign inp_read_all   = inputs_all;
        assign inp_read_index = inp_index;
        assign wgt_read_index = wgt_index;
        assign {inp_same, wgt_same} = '0;
        wire unused_pairs = ^{clk, array_clk, rst, pair, second_inp_index, second_wgt_index};
    end
endmodule
