// fifo: against a shift register of all words that it holds. What comes out is the oldest word, it
// stays until it is taken, nothing is lost or made up, and a word that waits is offered a cycle
// later.
module fifo_proof #(
    parameter int WIDTH = 3,
    parameter int DEPTH = 4,
    localparam int BITS = $clog2(DEPTH)
) (
    input logic             clk,
    input logic             rst,
    input logic             in_valid,
    input logic [WIDTH-1:0] in_data,
    input logic             out_ready
);
    logic in_ready, out_valid;
    logic [WIDTH-1:0] out_data;
    fifo #(.WIDTH(WIDTH), .DEPTH(DEPTH)) dut (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    // The specification: all words, the oldest in words[0].
    logic [WIDTH-1:0] words [DEPTH+1];
    logic [BITS+1:0]  size;
    wire push = in_valid && in_ready;
    wire pop  = out_valid && out_ready;
    wire [BITS+1:0] rest = size - (BITS+2)'(pop);
    always_ff @(posedge clk) begin
        size <= rst ? '0 : rest + (BITS+2)'(push);
        for (int i = 0; i <= DEPTH; i++) begin
            if (push && rest == (BITS+2)'(i)) words[i] <= in_data;
            else if (pop && i < DEPTH) words[i] <= words[i+1];
        end
    end

    logic was_offered, was_waiting;
    logic [WIDTH-1:0] was_data;
    always_ff @(posedge clk) begin
        was_offered <= !rst && out_valid && !out_ready;
        was_waiting <= !rst && rest != '0;
        was_data    <= out_data;
    end

    always_comb begin
        assume (started || rst);
        if (started) begin
            assert (size <= (BITS+2)'(DEPTH + 1));
            assert (!in_ready || size <= (BITS+2)'(DEPTH));
            assert (in_ready || size >= (BITS+2)'(DEPTH));
            assert (!out_valid || size != '0);
            assert (!out_valid || out_data == words[0]);
            assert (!was_offered || out_valid && out_data == was_data);
            assert (!was_waiting || out_valid);
            // How the words lie in the memory.
            assert (size == (BITS+2)'(dut.count) + (BITS+2)'(out_valid));
            assert (dut.tail == BITS'(dut.head + BITS'(dut.count)));
            for (int i = 0; i < DEPTH; i++)
                if ((BITS+1)'(i) < dut.count)
                    assert (dut.mem[BITS'(dut.head + BITS'(i))] == words[out_valid ? i + 1 : i]);
        end
    end
endmodule
