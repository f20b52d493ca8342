// GEMM core: the product of an input tile (BATCH x BLOCK_IN) and a transposed weight tile
// (BLOCK_OUT x BLOCK_IN), one dot product per output element.
//
// Ports:   inp, wgt: the tiles, row by row from bit 0; multiply and add enable the two stages.
//          sums: BATCH x BLOCK_OUT results, sign-extended to ACC_WIDTH. DSP_MULTIPLIERS of the
//          products take DSP blocks, evenly spread over the dot products.
// Timing:  a tile product per cycle; two stages, see dot_product.
module gemm_core
    import vta_pkg::*;
(
    input  logic                clk,
    input  logic                multiply,
    input  logic                add,
    input  logic [INP_BITS-1:0] inp,
    input  logic [WGT_BITS-1:0] wgt,
    output logic [ACC_BITS-1:0] sums
);
    localparam int INP_ROW = BLOCK_IN * INP_WIDTH;
    localparam int WGT_ROW = BLOCK_IN * WGT_WIDTH;
    localparam int SUM_WIDTH = INP_WIDTH + WGT_WIDTH + $clog2(BLOCK_IN);

    for (genvar b = 0; b < BATCH; b++) begin : g_row
        for (genvar o = 0; o < BLOCK_OUT; o++) begin : g_column
            localparam int INDEX = b * BLOCK_OUT + o;
            localparam int DSP_LANES = (INDEX + 1) * DSP_MULTIPLIERS / ACC_LANES
                                       - INDEX * DSP_MULTIPLIERS / ACC_LANES;
            logic signed [SUM_WIDTH-1:0] sum;
            dot_product #(.N(BLOCK_IN), .A_WIDTH(INP_WIDTH), .B_WIDTH(WGT_WIDTH),
                          .DSP_LANES(DSP_LANES)) dot (
                .clk, .multiply, .add,
                .a(inp[b*INP_ROW +: INP_ROW]), .b(wgt[o*WGT_ROW +: WGT_ROW]), .sum);
            assign sums[(b*BLOCK_OUT + o)*ACC_WIDTH +: ACC_WIDTH] = ACC_WIDTH'(sum);
        end
    end
endmodule
