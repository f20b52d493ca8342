// Vector ALU: one operation on all lanes of a tile.
//
// Ports:   op: ALU_MIN, ALU_MAX (signed), ALU_ADD, ALU_MUL (low bits), ALU_SHR: arithmetic shift
//          right by y, or left by -y where y is negative; shifts by the width and more give the
//          sign or zero. x is the destination tile, y the second operand.
//          While enable is low the result is zero.
// Timing:  combinational.
module vector_alu
    import vta_pkg::*;
(
    input  logic                enable,
    input  logic [2:0]          op,
    input  logic [ACC_BITS-1:0] x,
    input  logic [ACC_BITS-1:0] y,
    output logic [ACC_BITS-1:0] result
);
    localparam int LOG_WIDTH = $clog2(ACC_WIDTH);
    typedef logic signed [ACC_WIDTH-1:0] lane_t;

    function automatic lane_t shift(input lane_t value, input lane_t amount);
        logic [ACC_WIDTH-1:0] distance;
        logic beyond;
        distance = amount < 0 ? -amount : amount;
        beyond = |distance[ACC_WIDTH-1:LOG_WIDTH];
        if (amount < 0) return beyond ? '0 : value << distance[LOG_WIDTH-1:0];
        // An arithmetic shift by the width less one gives the sign in all bits.
        return value >>> (beyond ? LOG_WIDTH'(ACC_WIDTH - 1) : distance[LOG_WIDTH-1:0]);
    endfunction

    function automatic lane_t lane(input logic [2:0] operation, input lane_t a, input lane_t b);
        case (operation)
            ALU_MIN: return a < b ? a : b;
            ALU_MAX: return a > b ? a : b;
            ALU_ADD: return a + b;
            ALU_SHR: return shift(a, b);
            default: return a * b;
        endcase
    endfunction

    always_comb begin
        // Branch once, not in every lane: the simulation of a GEMM skips the ALU.
        if (enable)
            for (int l = 0; l < ACC_LANES; l++)
                result[l*ACC_WIDTH +: ACC_WIDTH] =
                    lane(op, x[l*ACC_WIDTH +: ACC_WIDTH], y[l*ACC_WIDTH +: ACC_WIDTH]);
        else
            for (int l = 0; l < ACC_LANES; l++) result[l*ACC_WIDTH +: ACC_WIDTH] = '0;
    end
endmodule
