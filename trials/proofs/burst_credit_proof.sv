// burst_credit: `room` says that the next burst finds its places, whatever is taken when.
module burst_credit_proof
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int DEPTH = 4 * BURST_BEATS
) (
    input logic                  clk,
    input logic                  rst,
    input beats_t                kept,
    input beats_t                fired,
    input logic                  burst_taken,
    input logic                  take_beat
);
    logic [BEATS_BITS-1:0] beats;
    logic room;
    burst_credit #(.DEPTH(DEPTH)) dut (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    // The specification: beats that are requested and not yet taken.
    logic [15:0] reserved;
    logic fresh;  // the reset has just ended
    always_ff @(posedge clk) begin
        fresh    <= rst;
        beats    <= beats_of(burst_taken ? fired : kept);
        reserved <= rst ? '0 : reserved + (burst_taken ? 16'(beats) : '0) - 16'(take_beat);
    end

    always_comb begin
        assume (started || rst);
        assume (32'(beats_of(kept)) <= BURST_BEATS && 32'(beats_of(fired)) <= BURST_BEATS);
        assume (!burst_taken || room && !fresh);  // no burst waits yet
        assume (!take_beat || reserved != '0);
        if (started) begin
            assume (32'(beats) <= BURST_BEATS);
            assert (32'(reserved) <= DEPTH);
            assert (32'(dut.unreserved) == DEPTH - 32'(reserved));
            if (!fresh) begin
                assert (32'($signed(dut.spare)) == DEPTH - 32'(reserved) - 32'(beats));
                assert (room == (32'(beats) <= DEPTH - 32'(reserved)));
            end
        end
    end
endmodule
