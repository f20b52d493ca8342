// Burst credit: whether the buffer has room for the beats of the next burst.
//
// Ports:   kept: beats of the next burst in the next cycle if it is not taken in this one, fired: if it
//          is (burst_generator). burst_taken: the burst is taken, which requires room. take_beat: a
//          beat leaves the buffer. room: there are as many places neither filled nor requested.
// Timing:  room is a register. Whether a burst is taken and whether a beat leaves is known late in
//          a cycle, so these signals select among values computed for each case.
module burst_credit
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int DEPTH = 4 * BURST_BEATS  // capacity of the buffer
) (
    input  logic                  clk,
    input  logic                  rst,
    input  beats_t                kept,
    input  beats_t                fired,
    input  logic                  burst_taken,
    input  logic                  take_beat,
    output logic                  room
);
    localparam int CREDIT_BITS = $clog2(DEPTH + 1);
    typedef logic [CREDIT_BITS:0] places_t;  // the top bit: too few

    places_t unreserved;  // places without a requested beat
    places_t spare;       // those that the next burst leaves
    wire places_t unreserved_more = unreserved + 1'b1;
    wire places_t spare_more      = spare + 1'b1;
    wire places_t needed_kept     = (CREDIT_BITS+1)'(beats_of(kept));
    wire places_t needed_fired    = (CREDIT_BITS+1)'(beats_of(fired));
    assign room = !spare[CREDIT_BITS];
    always_ff @(posedge clk) begin
        if (rst) {unreserved, spare} <= {2{(CREDIT_BITS+1)'(DEPTH)}};  // no burst is taken in the next cycle
        else case ({burst_taken, take_beat})
            2'b00:   spare               <= unreserved - needed_kept;
            2'b01:   {unreserved, spare} <= {unreserved_more, unreserved_more - needed_kept};
            2'b10:   {unreserved, spare} <= {spare, spare - needed_fired};
            default: {unreserved, spare} <= {spare_more, spare_more - needed_fired};
        endcase
    end
endmodule
