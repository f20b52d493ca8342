// What Yosys has no models of, as mapped netlists use it: block RAMs and multipliers of an ECP5.
// Written from Lattice's FPGA-TN-02204 and TN-02205; pins are buses here (netlist.py groups them).

// Block RAM of 1024 words of two bytes of 9 bits, or half as many of four, without output registers.
// Both ports have one clock; what is read is what was there before the edge.
module DP16KD_ #(
    parameter DATA_WIDTH_A = 18,
    parameter DATA_WIDTH_B = 18
) (
    input             CLKA,
    input             CEA, WEA,
    input      [13:0] ADA,
    input      [17:0] DIA,
    output reg [17:0] DOA,
    input             CEB, WEB,
    input      [13:0] ADB,
    input      [17:0] DIB,
    output reg [17:0] DOB
);
    reg [8:0] bytes [0:2047];
    localparam WIDE = DATA_WIDTH_A == 36;  // port A writes with the data pins of both

    wire [10:0] a = DATA_WIDTH_A == 9 ? ADA[13:3] : {ADA[13:4], 1'b0};
    wire [10:0] b = DATA_WIDTH_B == 9 ? ADB[13:3] : {ADB[13:4], 1'b0};
    wire [10:0] upper = {b[10:2], 2'b10};

    always @(posedge CLKA) begin
        if (CEA && !WIDE) DOA <= {bytes[a | 11'd1], bytes[a]};
        if (CEB && DATA_WIDTH_B == 36) begin
            DOA <= {bytes[{b[10:2], 2'b01}], bytes[{b[10:2], 2'b00}]};
            DOB <= {bytes[upper | 11'd1], bytes[upper]};
        end else if (CEB) DOB <= {bytes[b | 11'd1], bytes[b]};
        if (CEA && WEA) begin
            if (WIDE) begin
                if (ADA[0]) bytes[{a[10:2], 2'b00}] <= DIA[8:0];
                if (ADA[1]) bytes[{a[10:2], 2'b01}] <= DIA[17:9];
                if (ADA[2]) bytes[{a[10:2], 2'b10}] <= DIB[8:0];
                if (ADA[3]) bytes[{a[10:2], 2'b11}] <= DIB[17:9];
            end else begin
                if (DATA_WIDTH_A == 9 || ADA[0]) bytes[a] <= DIA[8:0];
                if (DATA_WIDTH_A == 18 && ADA[1]) bytes[a | 11'd1] <= DIA[17:9];
            end
        end
        if (CEB && WEB && !WIDE) begin
            if (DATA_WIDTH_B == 9 || ADB[0]) bytes[b] <= DIB[8:0];
            if (DATA_WIDTH_B == 18 && ADB[1]) bytes[b | 11'd1] <= DIB[17:9];
        end
    end
endmodule

// Multiplier without registers.
module MULT18X18D_ (
    input  [17:0] A, B,
    input         SIGNEDA, SIGNEDB,
    output [35:0] P
);
    wire signed [36:0] product = $signed({SIGNEDA & A[17], A}) * $signed({SIGNEDB & B[17], B});
    assign P = product[35:0];
endmodule

// A driver of a pin.
module \$_TBUF_ (
    input  A, E,
    output Y
);
    assign Y = E ? A : 1'bz;
endmodule
