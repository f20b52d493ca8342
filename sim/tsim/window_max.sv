// The maximum of up to three consecutive input tiles, lane by lane (the extension POOL).
//
// Ports:   tiles: INP_READS consecutive input tiles; count: how many of them take part.
//          enable[i] lets stage i register its input. greatest: signed lanes of INP_WIDTH bits.
// Timing:  one step per cycle, GEMM_STAGES - 1 cycles: with PAIRS register the tiles, which stay for
//          half a cycle; compare two, compare the third one, then registers for the additional stages
//          of the adder tree.
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

        localparam int FIRST = HAS_PAIRS != 0 ? 1 : 0;  // the stage that compares two tiles
        logic [INP_READS*INP_BITS-1:0] compared;
        logic [1:0] counted;
        if (HAS_PAIRS != 0) begin : g_half
            always_ff @(posedge clk) if (enable[0]) {compared, counted} <= {tiles, count};
        end else begin : g_whole
            assign {compared, counted} = {tiles, count};
        end

        logic [INP_BITS-1:0] third;
        logic has_third;
        logic [INP_BITS-1:0] stage [FIRST:GEMM_STAGES-2];
        always_ff @(posedge clk) begin
            if (enable[FIRST]) begin
                third     <= compared[2*INP_BITS +: INP_BITS];
                has_third <= counted == 2'd3;
                for (int l = 0; l < LANES; l++)
                    stage[FIRST][l*INP_WIDTH +: INP_WIDTH] <=
                        greater(compared[l*INP_WIDTH +: INP_WIDTH],
                                compared[INP_BITS + l*INP_WIDTH +: INP_WIDTH], counted >= 2'd2);
            end
            if (enable[FIRST+1])
                for (int l = 0; l < LANES; l++)
                    stage[FIRST+1][l*INP_WIDTH +: INP_WIDTH] <=
                        greater(stage[FIRST][l*INP_WIDTH +: INP_WIDTH],
                                third[l*INP_WIDTH +: INP_WIDTH], has_third);
            for (int i = FIRST + 2; i < GEMM_STAGES - 1; i++) if (enable[i]) stage[i] <= stage[i-1];
        end
        assign greatest = stage[GEMM_STAGES-2];
    end else begin : g_none
        assign greatest = '0;
        wire unused_pool = ^{clk, enable, tiles, count};
    end
endmodule
