// Words of an AXI master: the write data channel. It marks the last word of each burst.
//
// Ports:   burst_*: the lengths of the bursts, in order (at least 1 word each); in_*: their words;
//          out_*: the channel. A word passes only when the length of its burst is known.
// Timing:  one word per cycle, without a gap between bursts; words pass through combinationally.
module axi_words #(
    parameter int BITS        = 64,  // of a word
    parameter int LENGTH_BITS = 5,
    parameter int DEPTH       = 16   // capacity for lengths
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic                   burst_valid,
    output logic                   burst_ready,
    input  logic [LENGTH_BITS-1:0] burst_length,
    input  logic                   in_valid,
    output logic                   in_ready,
    input  logic [BITS-1:0]        in_data,
    output logic                   out_valid,
    input  logic                   out_ready,
    output logic [BITS-1:0]        out_data,
    output logic                   out_last
);
    logic [LENGTH_BITS-1:0] left, next;  // words of the burst not yet sent
    logic next_valid;
    logic some;  // left != '0; like out_last a flip-flop
    wire sent = out_valid && out_ready;
    wire take = !some || sent && out_last;

    fifo #(.WIDTH(LENGTH_BITS), .DEPTH(DEPTH)) lengths (
        .clk, .rst, .in_valid(burst_valid), .in_ready(burst_ready), .in_data(burst_length),
        .out_valid(next_valid), .out_ready(take), .out_data(next));

    assign out_valid = in_valid && some;
    assign in_ready  = out_ready && some;
    assign out_data  = in_data;

    always_ff @(posedge clk) begin
        if (rst) {some, out_last} <= '0;
        else if (take) {some, out_last} <= {next_valid, next_valid && next == LENGTH_BITS'(1)};
        else if (sent) out_last <= left == LENGTH_BITS'(2);
        if (take) left <= next;
        else if (sent) left <= left - 1'b1;
    end
endmodule
