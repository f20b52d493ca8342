// Burst credit: whether the buffer has room for the beats of the next burst.
//
// Ports:   beats: beats of the next burst; in the next cycle they are `kept` if it is not taken in
//          this one, and `fired` if it is (burst_generator). burst_taken: the burst is taken,
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
    input  beats_t                kept,
    input  beats_t                fired,
    input  logic                  burst_taken,
    input  logic                  take_beat,
    output logic                  room
);
    localparam int CREDIT_BITS = $clog2(DEPTH + 1);

    logic [CREDIT_BITS-1:0] unreserved;  // places without a requested beat
    wire [CREDIT_BITS-1:0] kept_more  = unreserved + 1'b1;
    wire [CREDIT_BITS-1:0] left       = unreserved - CREDIT_BITS'(beats);
    wire [CREDIT_BITS-1:0] left_more  = left + 1'b1;

    function automatic logic fits(input logic [BEATS_BITS-1:0] needed,
                                  input logic [CREDIT_BITS-1:0] places,
                                  input logic [CREDIT_BITS-1:0] more, input logic one_more);
        return CREDIT_BITS'(needed) <= places || one_more && CREDIT_BITS'(needed) == more;
    endfunction

    wire fits_kept = kept.ends_row ? fits(kept.tail, unreserved, kept_more, take_beat)
                                   : fits(kept.whole, unreserved, kept_more, take_beat);
    wire fits_fired = fired.ends_row ? fits(fired.tail, left, left_more, take_beat)
                                     : fits(fired.whole, left, left_more, take_beat);
    always_ff @(posedge clk) begin
        if (rst) unreserved <= CREDIT_BITS'(DEPTH);
        else if (burst_taken) unreserved <= take_beat ? left_more : left;
        else unreserved <= take_beat ? kept_more : unreserved;
        room <= rst || (burst_taken ? fits_fired : fits_kept);
    end
endmodule
