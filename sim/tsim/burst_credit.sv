// Burst credit: whether the buffer has room for the beats of the next burst.
//
// Ports:   beats: beats of the next burst; in the next cycle they are kept_beats if it is not taken
//          in this one, and fired_beats if it is (burst_generator). burst_taken: the burst is taken,
//          which requires room. take_beat: a beat leaves the buffer.
//          room: beats <= places that are neither filled nor requested.
// Timing:  room is a register. Whether a burst is taken and whether a beat leaves is known late in
//          a cycle, so these signals select among values computed for each case.
module burst_credit
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int DEPTH = 4 * BURST_BEATS  // capacity of the buffer
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic [BEATS_BITS-1:0] beats,
    input  logic [BEATS_BITS-1:0] kept_beats,
    input  logic [BEATS_BITS-1:0] fired_beats,
    input  logic                  burst_taken,
    input  logic                  take_beat,
    output logic                  room
);
    localparam int CREDIT_BITS = $clog2(DEPTH + 1);

    logic [CREDIT_BITS-1:0] unreserved;  // places without a requested beat
    wire [CREDIT_BITS-1:0] kept_more  = unreserved + 1'b1;
    wire [CREDIT_BITS-1:0] fired      = unreserved - CREDIT_BITS'(beats);
    wire [CREDIT_BITS-1:0] fired_more = fired + 1'b1;
    wire fits_kept  = CREDIT_BITS'(kept_beats) <= unreserved
                      || take_beat && CREDIT_BITS'(kept_beats) == kept_more;
    wire fits_fired = CREDIT_BITS'(fired_beats) <= fired
                      || take_beat && CREDIT_BITS'(fired_beats) == fired_more;
    always_ff @(posedge clk) begin
        if (rst) unreserved <= CREDIT_BITS'(DEPTH);
        else if (burst_taken) unreserved <= take_beat ? fired_more : fired;
        else unreserved <= take_beat ? kept_more : unreserved;
        room <= rst || (burst_taken ? fits_fired : fits_kept);
    end
endmodule
