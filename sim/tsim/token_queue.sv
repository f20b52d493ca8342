// Token queue: carries dependency tokens from one unit to a neighbour. Tokens have no payload, so
// the queue is a counter.
//
// Ports:   push adds one token at the next clock edge; pop takes one (only while available).
//          overflow is high in the cycle after a push that is lost because CAPACITY are waiting.
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
    // push and pop arrive late in a cycle, so they are registered and counted in the next one.
    logic pushed, popped;
    logic [BITS-1:0] count;
    logic any, many;  // count > 0, count > 1

    assign available = pushed || (popped ? many : any);
    assign overflow  = pushed && !popped && count == BITS'(CAPACITY);

    always_ff @(posedge clk) begin
        if (rst) begin
            {pushed, popped, any, many} <= '0;
            count <= '0;
        end else begin
            pushed <= push;
            popped <= pop;
            any    <= available;
            if (pushed && !popped && !overflow) begin
                count <= count + 1'b1;
                many  <= any;
            end else if (popped && !pushed) begin
                count <= count - 1'b1;
                many  <= 32'(count) > 2;
            end
        end
    end
endmodule
