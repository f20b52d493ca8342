// The compute unit's reads of the input and weight scratchpads, in the form required by these. With
// the extension PAIRS, both scratchpads and the GEMM core run at twice the frequency of clk: the first
// product of a pair is read in the first half of a cycle of clk, the second in the second half.
//
// Ports:   inputs_en, weights_en: a tile of each is read now; inputs_all: also the input tiles after
//          it; pair: also a second tile of each. inp_read*, wgt_read*: the reads; with PAIRS in the
//          form of HOLD = 2 and FAST of the scratchpad, beside them *_same, *_held and *_after.
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
    output logic [INP_INDEX_BITS-1:0] inp_after,
    output logic [INP_INDEX_BITS-1:0] inp_held,
    output logic                      inp_same,
    output logic                      wgt_read,
    output logic [WGT_INDEX_BITS-1:0] wgt_read_index,
    output logic [WGT_INDEX_BITS-1:0] wgt_after,
    output logic [WGT_INDEX_BITS-1:0] wgt_held,
    output logic                      wgt_same
);
    if (HAS_PAIRS != 0) begin : g_pairs
        // `odd` changes with clk, `followed` half a cycle later.
        logic odd, followed;
        // The index that was read last before this cycle of clk; comparisons with it, by halves. In
        // the second half, that of the first product has been read last.
        logic [INP_INDEX_BITS-1:0] inp_before;
        logic [WGT_INDEX_BITS-1:0] wgt_before;
        logic [1:0] inp_alike, wgt_alike, inp_equal, wgt_equal;
        assign inp_held = inputs_en ? inp_index : inp_before;
        assign wgt_held = weights_en ? wgt_index : wgt_before;
        assign inp_same = &inp_equal;
        assign wgt_same = &wgt_equal;
        function automatic logic [1:0] alike(input logic [15:0] a, input logic [15:0] b);
            return {a[15:5] == b[15:5], a[4:0] == b[4:0]};
        endfunction
        wire reads_inp = inputs_en && (!second_half || pair);
        wire reads_wgt = weights_en && (!second_half || pair);
        wire [INP_INDEX_BITS-1:0] next_inp = second_half ? second_inp_index : inp_index;
        wire [WGT_INDEX_BITS-1:0] next_wgt = second_half ? second_wgt_index : wgt_index;
        always_ff @(posedge clk) begin
            odd <= !rst && !odd;
            if (inputs_en) inp_before <= pair ? second_inp_index : inp_index;
            if (weights_en) wgt_before <= pair ? second_wgt_index : wgt_index;
        end
        always_ff @(posedge array_clk) begin
            followed       <= odd;
            second_half    <= odd != followed;
            inp_read       <= reads_inp;
            wgt_read       <= reads_wgt;
            inp_read_all   <= inputs_all;
            inp_alike      <= alike(16'(inp_index), 16'(second_inp_index));
            wgt_alike      <= alike(16'(wgt_index), 16'(second_wgt_index));
            inp_equal      <= second_half ? inp_alike : alike(16'(inp_index), 16'(inp_before));
            wgt_equal      <= second_half ? wgt_alike : alike(16'(wgt_index), 16'(wgt_before));
            inp_read_index <= next_inp;
            wgt_read_index <= next_wgt;
            inp_after      <= next_inp + INP_INDEX_BITS'(INP_BANKS);
            wgt_after      <= next_wgt + WGT_INDEX_BITS'(WGT_SLOTS);
        end
    end else begin : g_single
        assign second_half    = 1'b0;
        assign inp_read       = inputs_en;
        assign wgt_read       = weights_en;
        assign inp_read_all   = inputs_all;
        assign inp_read_index = inp_index;
        assign wgt_read_index = wgt_index;
        assign {inp_same, inp_after, inp_held, wgt_same, wgt_after, wgt_held} = '0;
        wire unused_pairs = ^{clk, array_clk, rst, pair, second_inp_index, second_wgt_index};
    end
endmodule
