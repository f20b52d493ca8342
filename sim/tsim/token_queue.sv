// Token queue: carries dependency tokens from one unit to a neighbour. Tokens have no payload, so
// the queue is a counter.
//
// Ports:   push adds one token at the next clock edge; pop takes one (only while available).
//          overflow is high in the cycle in which a push is lost because CAPACITY are waiting.
// Timing:  a token pushed in cycle t is available from cycle t + 1.
module token_queue #(
    parameter int CAPACITY = 1024,
    localparam int BITS = $clog2(CAPACITY + 1)
) (
    input  logic clk,
    input  logic rst,
    input  logic push,
    input  logic pop,
    output logic available,
    output logic overflow
);
    logic [BITS-1:0] count;

    assign overflow  = push && !pop && count == BITS'(CAPACITY);

    always_ff @(posedge clk) begin
        if (rst) begin
            count     <= '0;
            available <= 1'b0;
        end else if (push && !pop && !overflow) begin
            count     <= count + 1'b1;
            available <= 1'b1;
        end else if (pop && !push) begin
            count     <= count - 1'b1;
            available <= count != BITS'(1);
        end
    end
endmodule
