// Inputs of the GEMM core: for a tile product one input tile, the same for all outputs; for a product
// of windows (the extension DEPTHWISE), each of WINDOW_PARTS groups of outputs gets its own channels
// of three consecutive input tiles, one after another, followed by zeros.
//
// Ports:   tiles: INP_READS consecutive input tiles. windows: it is a product of windows.
//          inputs: a tile for each of INP_GROUPS groups of outputs.
// Timing:  combinational.
module window_inputs
    import vta_pkg::*;
(
    input  logic [INP_READS*INP_BITS-1:0]  tiles,
    input  logic                           windows,
    output logic [INP_GROUPS*INP_BITS-1:0] inputs
);
    if (HAS_DEPTHWISE != 0) begin : g_windows
        localparam int ROW = BLOCK_IN * INP_WIDTH;
        localparam int PART = ROW / WINDOW_PARTS;  // the channels of a group in a row
        for (genvar g = 0; g < INP_GROUPS; g++) begin : g_group
            for (genvar b = 0; b < BATCH; b++) begin : g_row
                for (genvar p = 0; p < WINDOW_PARTS; p++) begin : g_part
                    wire [PART-1:0] channels = tiles[b*ROW + p*PART +: PART];
                    wire [PART-1:0] window;
                    if (p < INP_READS) begin : g_tile
                        assign window = tiles[p*INP_BITS + b*ROW + g*PART +: PART];
                    end else begin : g_rest
                        assign window = '0;
                    end
                    assign inputs[g*INP_BITS + b*ROW + p*PART +: PART] = windows ? window : channels;
                end
            end
        end
    end else begin : g_tile
        assign inputs = tiles[INP_BITS-1:0];
        wire unused_windows = ^{windows, tiles};
    end
endmodule
