// Product of two signed numbers from adders: for the products that have no DSP block.
//
// Ports:   product = a * b, exact.
// Timing:  combinational.
module lut_multiplier #(
    parameter int A_WIDTH = 8,
    parameter int B_WIDTH = 8,
    localparam int WIDTH = A_WIDTH + B_WIDTH
) (
    input  logic signed [A_WIDTH-1:0] a,
    input  logic signed [B_WIDTH-1:0] b,
    output logic signed [WIDTH-1:0]   product
);
    // a times each bit of b; the top bit of b has a negative weight.
    for (genvar i = 0; i < B_WIDTH; i++) begin : g_bit
        logic signed [WIDTH-1:0] partial;  // sum of the terms up to this one
        wire signed [WIDTH-1:0] term = b[i] ? WIDTH'(a) <<< i : '0;
        if (i == 0) begin : g_first
            assign partial = term;
        end else if (i == B_WIDTH - 1) begin : g_sign
            assign partial = g_bit[i-1].partial - term;
        end else begin : g_next
            assign partial = g_bit[i-1].partial + term;
        end
    end
    assign product = g_bit[B_WIDTH-1].partial;
endmodule
