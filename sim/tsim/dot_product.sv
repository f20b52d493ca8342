// Dot product of two vectors of N signed numbers.
//
// Ports:   a, b: N numbers each, number k at bits k*WIDTH; multiply and add enable the two stages.
//          The first DSP_LANES products are left to the tool, which takes DSP blocks; the others
//          are built from adders.
// Timing:  two stages: products are registered, then their sum.
module dot_product #(
    parameter int N = 16,
    parameter int A_WIDTH = 8,
    parameter int B_WIDTH = 8,
    parameter int DSP_LANES = N,
    localparam int PRODUCT_WIDTH = A_WIDTH + B_WIDTH,
    localparam int SUM_WIDTH = PRODUCT_WIDTH + $clog2(N)
) (
    input  logic                        clk,
    input  logic                        multiply,
    input  logic                        add,
    input  logic [N*A_WIDTH-1:0]        a,
    input  logic [N*B_WIDTH-1:0]        b,
    output logic signed [SUM_WIDTH-1:0] sum
);
    // One C++ function for all dot products instead of a copy of each: compile time.
    /* verilator no_inline_module */
    for (genvar k = 0; k < N; k++) begin : g_lane
        logic signed [PRODUCT_WIDTH-1:0] product;
        logic signed [SUM_WIDTH-1:0] partial;  // sum of the products up to this one
        if (k < DSP_LANES) begin : g_dsp
            always_ff @(posedge clk) if (multiply)
                product <= PRODUCT_WIDTH'($signed(a[k*A_WIDTH +: A_WIDTH]))
                         * PRODUCT_WIDTH'($signed(b[k*B_WIDTH +: B_WIDTH]));
        end else begin : g_lut
            logic signed [PRODUCT_WIDTH-1:0] exact;
            lut_multiplier #(.A_WIDTH(A_WIDTH), .B_WIDTH(B_WIDTH)) multiplier (
                .a(a[k*A_WIDTH +: A_WIDTH]), .b(b[k*B_WIDTH +: B_WIDTH]), .product(exact));
            always_ff @(posedge clk) if (multiply) product <= exact;
        end
        if (k == 0) begin : g_first
            assign partial = SUM_WIDTH'(product);
        end else begin : g_next
            assign partial = g_lane[k-1].partial + SUM_WIDTH'(product);
        end
    end

    always_ff @(posedge clk) if (add) sum <= g_lane[N-1].partial;
endmodule
