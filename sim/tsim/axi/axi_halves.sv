// The address channel of a divided burst (AR or AW): its first part goes to one of two ports, the rest
// to the other. Reads are halved. Writes (HALF) are cut where a block of HALF words begins, and the
// address alone says which port has a block: two writes of one address keep their order.
//
// Ports:   in_*: a burst; length is its number of words, minus one. out_*: the two ports, each of which
//          takes its part when it likes. A burst of one word, or of one block, has no second part.
//          burst, turn, first, single: a burst is offered for the first time; the port of its first
//          part, the words of that, minus one, and whether it is all.
//          The ports take turns at the larger half of a read, so their shares differ by a word at most.
// Timing:  combinational: what is offered is what the master offers, and stays as long.
module axi_halves #(
    parameter int ADDRESS_BITS = 32,
    parameter int WORD_BYTES   = 8,
    parameter int HALF         = 0  // words of a block: half the longest burst, which crosses no other
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic                         in_valid,
    output logic                         in_ready,
    input  logic [ADDRESS_BITS-1:0]      in_address,
    input  logic [7:0]                   in_length,
    output logic [1:0]                   out_valid,
    input  logic [1:0]                   out_ready,
    output logic [1:0][ADDRESS_BITS-1:0] out_address,
    output logic [1:0][7:0]              out_length,
    output logic                         burst,
    output logic                         turn,
    output logic [7:0]                   first,
    output logic                         single
);
    localparam int SHIFT = $clog2(WORD_BYTES);

    logic       known;  // this burst was offered before
    logic       next;   // port of the next read
    logic [1:0] taken;  // the ports that have taken their half
    wire [1:0] wanted = single ? {turn, !turn} : 2'b11;
    wire [1:0] done   = taken | out_valid & out_ready | ~wanted;

    if (HALF == 0) begin : g_middle
        assign first  = in_length >> 1;
        assign single = in_length == '0;
        assign turn   = next;
    end else begin : g_block
        localparam int BLOCK = SHIFT + $clog2(HALF);
        wire [7:0] to_end = 8'(HALF - 1) - 8'((in_address >> SHIFT) & ADDRESS_BITS'(HALF - 1));
        assign single = in_length <= to_end;
        assign first  = single ? in_length : to_end;
        assign turn   = ^in_address[ADDRESS_BITS-1:BLOCK];
        wire unused_next = next;
    end
    assign burst     = in_valid && !known;
    assign out_valid = {2{in_valid}} & wanted & ~taken;
    assign in_ready  = in_valid && done == 2'b11;

    // No burst crosses a multiple of 4 KiB, so only these bits of the second part's address differ.
    wire [11:0] second  = in_address[11:0] + 12'({first + 8'd1, SHIFT'(0)});
    wire [7:0]  rest    = in_length - first - 8'd1;
    for (genvar p = 0; p < 2; p++) begin : g_port
        wire is_first = turn == 1'(p);
        assign out_address[p] = {in_address[ADDRESS_BITS-1:12], is_first ? in_address[11:0] : second};
        assign out_length[p]  = is_first ? first : rest;
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            known <= 1'b0;
            taken <= 2'b00;
            next  <= 1'b0;
        end else begin
            known <= in_valid && !in_ready;
            taken <= in_ready || !in_valid ? 2'b00 : done & wanted;
            if (in_ready) next <= next ^ !in_length[0];
        end
    end
endmodule
