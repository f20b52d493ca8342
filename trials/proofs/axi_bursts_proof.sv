// axi_bursts: what is offered is what the core handed over, once, and stays until it is taken, also
// while new ones are held back; never more than LIMIT bursts are under way, and `idle` tells that
// none is.
module axi_bursts_proof #(
    parameter int BITS  = 4,
    parameter int LIMIT = 5
) (
    input logic            clk,
    input logic            rst,
    input logic            hold,
    input logic            in_valid,
    input logic [BITS-1:0] in_data,
    input logic            out_ready,
    input logic            complete
);
    logic in_ready, out_valid, idle;
    logic [BITS-1:0] out_data;
    axi_bursts #(.BITS(BITS), .LIMIT(LIMIT)) dut (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    logic [15:0] handed, taken, completed;
    logic was_handed, was_pending;
    logic [BITS-1:0] was_data;
    wire hands = in_valid && in_ready;
    always_ff @(posedge clk) begin
        handed      <= rst ? '0 : handed + 16'(hands);
        taken       <= rst ? '0 : taken + 16'(out_valid && out_ready);
        completed   <= rst ? '0 : completed + 16'(complete);
        was_handed  <= !rst && hands;
        was_pending <= !rst && out_valid && !out_ready;
        was_data    <= hands ? in_data : out_data;
    end

    always_comb begin
        assume (started || rst);
        assume (!complete || taken != completed);  // the memory completes what it has taken
        if (started) begin
            assert (out_valid == (was_handed || was_pending));
            assert (!out_valid || out_data == was_data);
            assert (!hold || !in_ready);
            assert (out_valid == (handed != taken));
            assert (idle == (handed == completed));
            assert (16'(dut.count) == handed - completed && 32'(dut.count) <= LIMIT);
            assert (handed - taken <= 16'd1 && taken - completed <= handed - completed);
        end
    end
endmodule
