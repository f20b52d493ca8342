// The maximum of up to three consecutive input tiles, lane by lane (the extension POOL).
//
// Ports:   tiles: INP_READS consecutive input tiles; count: how many of them take part.
//          enable[i] lets stage i register its input. greatest: signed lanes of INP_WIDTH bits.
// Timing:  one step per cycle, GEMM_STAGES - 1 cycles: compare two tiles, compare the third one, then
//          registers for the additional stages of the adder tree.
module window_max
    import vta_pkg::*;
(
    input  logic                          clk,
    input  logic [GEMM_STAGES-2:0]        enable,
    input  logic [INP_READS*INP_BITS-1:0] tiles,
    input  logic [1:0]                    count,
    output logic [INP_BITS-1:0]           greatest
);
    if (HAS_POOL != 0) begin : g_pool
        localparam int LANES = INP_BITS / INP_WIDTH;
        typedef logic signed [INP_WIDTH-1:0] lane_t;

        function automatic lane_t greater(input lane_t a, input lane_t b, input logic both);
            return both && b > a ? b : a;
        endfunction

        logic [INP_BITS-1:0] third;
        logic has_third;
        logic [INP_BITS-1:0] stage [GEMM_STAGES-1];
        always_ff @(posedge clk) begin
            if (enable[0]) begin
                third     <= tiles[2*INP_BITS +: INP_BITS];
                has_third <= count == 2'd3;
                for (int l = 0; l < LANES; l++)
                    stage[0][l*INP_WIDTH +: INP_WIDTH] <=
                        greater(tiles[l*INP_WIDTH +: INP_WIDTH],
                                tiles[INP_BITS + l*INP_WIDTH +: INP_WIDTH], count >= 2'd2);
            end
            if (enable[1])
                for (int l = 0; l < LANES; l++)
                    stage[1][l*INP_WIDTH +: INP_WIDTH] <=
                        greater(stage[0][l*INP_WIDTH +: INP_WIDTH],
                                third[l*INP_WIDTH +: INP_WIDTH], has_third);
            for (int i = 2; i < GEMM_STAGES - 1; i++) if (enable[i]) stage[i] <= stage[i-1];
        end
        assign greatest = stage[GEMM_STAGES-2];
    end else begin : g_none
        assign greatest = '0;
        wire unused_pool = ^{clk, enable, tiles, count};
    end
endmodule
