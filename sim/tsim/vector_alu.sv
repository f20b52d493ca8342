// Vector ALU: one operation on all lanes of a tile. x is the accumulator, y the second operand; a sum
// has a separate second operand, because that may be a tile product.
//
//   ALU_MIN, ALU_MAX (signed), ALU_ADD, ALU_SHR: arithmetic right shift by y, or left by -y if y is
//   negative; shifts by the width or more give the sign or zero. ALU_MUL: the low bits.
//
// A shift in either direction is one right shift of 2 ACC_WIDTH bits by the low bits of y: {sign, x}
// for a right shift, {x, 0} for a left shift (by ACC_WIDTH minus the distance, which those bits are).
// A product is assembled from three products of halves of the operands.
//
// Ports:   orders (ALU_MAX if greater, else ALU_MIN), shifts, multiplies: at most one is high, the
//          operation. too_far: shifts_out(y), known earlier than it could be here.
//          sum: of ALU_ADD; other: of the other operations, zero without one; both in the same cycle.
//          product: of ALU_MUL, in the next cycle; undefined otherwise.
// Timing:  one operation per cycle.
module vector_alu
    import vta_pkg::*;
(
    input  logic                clk,
    input  logic                orders,
    input  logic                greater,
    input  logic                shifts,
    input  logic                multiplies,
    input  logic [ACC_BITS-1:0] x,
    input  logic [ACC_BITS-1:0] y,
    input  logic [ACC_LANES-1:0] too_far,
    input  logic [ACC_BITS-1:0] addend,
    output logic [ACC_BITS-1:0] sum,
    output logic [ACC_BITS-1:0] other,
    output logic [ACC_BITS-1:0] product
);
    localparam int LOG_WIDTH = $clog2(ACC_WIDTH);
    localparam int HALF = ACC_WIDTH / 2;
    typedef logic signed [ACC_WIDTH-1:0] lane_t;
    typedef logic [HALF-1:0] half_t;

    function automatic lane_t shift(input lane_t value, input logic left, input logic distant,
                                    input logic [LOG_WIDTH-1:0] distance);
        /* verilator no_inline_task */
        lane_t sign, high, low;
        sign = {ACC_WIDTH{value[ACC_WIDTH-1]}};
        high = !left ? sign : distant ? '0 : value;
        low  = left ? '0 : distant ? sign : value;
        return ACC_WIDTH'({high, low} >> distance);
    endfunction

    function automatic lane_t either(input lane_t a, input lane_t b, input logic largest);
        /* verilator no_inline_task */
        return (a < b) == largest ? b : a;
    endfunction

    always_comb begin
        for (int l = 0; l < ACC_LANES; l++)
            sum[l*ACC_WIDTH +: ACC_WIDTH] =
                x[l*ACC_WIDTH +: ACC_WIDTH] + addend[l*ACC_WIDTH +: ACC_WIDTH];
        // Branch once instead of in every lane: most simulated operations are sums.
        other = '0;
        if (orders)
            for (int l = 0; l < ACC_LANES; l++)
                other[l*ACC_WIDTH +: ACC_WIDTH] =
                    either(x[l*ACC_WIDTH +: ACC_WIDTH], y[l*ACC_WIDTH +: ACC_WIDTH], greater);
        else if (shifts)
            for (int l = 0; l < ACC_LANES; l++)
                other[l*ACC_WIDTH +: ACC_WIDTH] =
                    shift(x[l*ACC_WIDTH +: ACC_WIDTH], y[l*ACC_WIDTH + ACC_WIDTH - 1], too_far[l],
                          y[l*ACC_WIDTH +: LOG_WIDTH]);
    end

    // The products of halves: of the low ones, and the two mixed ones (their low bits). They are
    // unsigned: so are the arguments, since slang treats a part of a signed value as signed.
    function automatic logic [2*ACC_WIDTH-1:0] multiply(input logic [ACC_WIDTH-1:0] a,
                                                        input logic [ACC_WIDTH-1:0] b);
        /* verilator no_inline_task */
        return {HALF'(a[HALF +: HALF] * b[0 +: HALF]), HALF'(a[0 +: HALF] * b[HALF +: HALF]),
                ACC_WIDTH'(a[0 +: HALF]) * ACC_WIDTH'(b[0 +: HALF])};
    endfunction

    function automatic lane_t join_halves(input logic [2*ACC_WIDTH-1:0] halves);
        /* verilator no_inline_task */
        half_t a, b, c;
        logic [HALF-2:0] carries;
        // Three numbers become two without a carry. Written as two additions, one of them is mapped
        // to a DSP block after the product, which has no register there: the slowest path of all.
        {a, b, c} = halves[4*HALF-1:HALF];
        carries = (HALF-1)'(a & b | a & c | b & c);
        return {(a ^ b ^ c) + {carries, 1'b0}, halves[0 +: HALF]};
    endfunction

    logic multiplied;
    always_ff @(posedge clk) multiplied <= multiplies;
    for (genvar l = 0; l < ACC_LANES; l++) begin : g_lane
        logic [2*ACC_WIDTH-1:0] halves;
        always_ff @(posedge clk) if (multiplies)
            halves <= multiply(x[l*ACC_WIDTH +: ACC_WIDTH], y[l*ACC_WIDTH +: ACC_WIDTH]);
        assign product[l*ACC_WIDTH +: ACC_WIDTH] = multiplied ? join_halves(halves) : 'x;
    end
endmodule
