// FIFO with valid/ready handshakes, in block RAM or LUT RAM; the word at its head is in a register.
//
// Ports:   in_* takes a word when in_ready is high; out_* offers the oldest word.
//          Holds DEPTH words (a power of two) in memory, and one in the output register.
// Timing:  one word per cycle; two cycles from input to output.
module fifo #(
    parameter int WIDTH = 32,
    parameter int DEPTH = 16,
    localparam int BITS = $clog2(DEPTH)
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             in_valid,
    output logic             in_ready,
    input  logic [WIDTH-1:0] in_data,
    output logic             out_valid,
    input  logic             out_ready,
    output logic [WIDTH-1:0] out_data
);
    if (DEPTH < 2 || DEPTH != 1 << BITS) begin : g_check
        $error("fifo: DEPTH must be a power of two of at least 2");
    end

    (* ram_style = DEPTH > 64 ? "block" : "distributed" *) logic [WIDTH-1:0] mem [DEPTH];
    logic [BITS-1:0]  head, tail;
    logic [BITS:0]    count;

    wire push  = in_valid && in_ready;
    wire fetch = count != '0 && (!out_valid || out_ready);
    assign in_ready = !count[BITS];

    always_ff @(posedge clk) begin
        if (push) mem[tail] <= in_data;
        if (fetch) out_data <= mem[head];
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            head      <= '0;
            tail      <= '0;
            count     <= '0;
            out_valid <= 1'b0;
        end else begin
            if (push) tail <= tail + 1'b1;
            if (fetch) head <= head + 1'b1;
            if (push != fetch) count <= push ? count + 1'b1 : count - 1'b1;
            if (fetch) out_valid <= 1'b1;
            else if (out_ready) out_valid <= 1'b0;
        end
    end
endmodule
