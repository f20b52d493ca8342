// token_queue: it holds what was pushed less what was popped and lost, loses a token only when it is
// full and says so in the next cycle, and never goes below zero.
module token_queue_proof #(
    parameter int CAPACITY = 5
) (
    input logic clk,
    input logic rst,
    input logic push,
    input logic pop
);
    logic available, overflow;
    token_queue #(.CAPACITY(CAPACITY)) dut (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    logic [31:0] pushed, popped, lost;
    wire [31:0] tokens = pushed - popped - lost - 32'(overflow);
    logic filled;  // a token came in the cycle before, and there was no room
    always_ff @(posedge clk) begin
        pushed <= rst ? '0 : pushed + 32'(push);
        popped <= rst ? '0 : popped + 32'(pop);
        lost   <= rst ? '0 : lost + 32'(overflow);
        filled <= !rst && push && !pop && tokens == 32'(CAPACITY);
    end

    always_comb begin
        assume (started || rst);
        assume (!pop || available);
        if (started) begin
            assert (32'(dut.count) + 32'(dut.pushed) - 32'(dut.popped) - 32'(overflow) == tokens);
            assert (32'(dut.count) <= 32'(CAPACITY) && (!dut.popped || dut.count != '0));
            assert (dut.any == (dut.count != '0) && dut.many == (32'(dut.count) > 1));
            assert (tokens <= 32'(CAPACITY));
            assert (available == (tokens != '0));
            assert (overflow == filled);
        end
    end
endmodule
