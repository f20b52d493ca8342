// Burst generator: splits a 2-D block of DRAM (rows of bytes at a fixed stride) into bursts of whole
// port words. A burst never crosses a multiple of BURST_BYTES, and hence no 4 KiB boundary (AXI).
//
// Ports:   start_*: a block with at least one row of at least one byte. req_*: the bursts.
//          active: a block is not finished. kept: beats of `req` in the next cycle if it is not taken
//          in this one; fired: if it is taken.
// Timing:  one burst per cycle, without a gap between rows. With AHEAD, also without a gap between
//          blocks: a block is accepted while the previous one is split, otherwise only when idle.
module burst_generator
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int AHEAD = 0
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  start_valid,
    output logic                  start_ready,
    /* verilator lint_off UNUSEDSIGNAL */
    input  block_t                start_block,  // any is unused: a started block has bytes
    /* verilator lint_on UNUSEDSIGNAL */
    output logic                  req_valid,
    input  logic                  req_ready,
    output burst_t                req,
    output beats_t                kept,
    output beats_t                fired,
    output logic                  active
);
    localparam int SHIFT = $clog2(PORT_BYTES);
    localparam int LOG_BURST = $clog2(BURST_BEATS);

    logic [ADDR_BITS-1:0]       next_row;    // address of the row after the current one
    logic [ADDR_BITS-SHIFT-1:0] beat;        // next port word
    logic [BEATS_BITS-1:0]      beats;       // beats of the next burst
    logic [32:0]                left;        // words from this burst's block to the row's end, minus one
    logic                       ends_row;    // the next burst is the last of its row
    logic [15:0]                rows_left;   // including this row
    logic                       last_row;    // rows_left == 1
    logic                       last_burst;  // the next burst is the last of its block
    logic [31:0]                row_bytes, stride_bytes;

    // The bursts of each row are computed ahead, like everything about the next burst, to keep the
    // handshake short.
    wire fire = req_valid && req_ready;
    wire ends_block = fire && last_burst;
    cut_t of_row;     // for the row after the current one
    cut_t of_behind;  // for the row after that
    logic [CUT_BITS-1:0] behind_next;  // the address of that row
    length_t length;
    row_cut cut_behind (.address(behind_next), .nbytes(row_bytes), .length, .cut(of_behind));
    wire [32:0] left_behind = left - 33'(BURST_BEATS);  // words left after this burst
    logic several;  // others follow the burst after this one: left[32:LOG_BURST+1] != '0
    wire [BEATS_BITS-1:0] beats_behind =
        several ? BEATS_BITS'(BURST_BEATS) : BEATS_BITS'(left[LOG_BURST-1:0]) + 1'b1;

    assign req = '{address: {beat, SHIFT'(0)}, beats: beats};

    // The block to split next. start_ready is a flip-flop, so that taking a burst and starting a
    // block are not combined in one cycle.
    /* verilator lint_off UNUSEDSIGNAL */
    block_t next;
    /* verilator lint_on UNUSEDSIGNAL */
    logic next_valid, begins;
    cut_t of_next, of_second;  // for its first row and for its second
    cut_t start_cut, start_second;
    /* verilator lint_off UNUSEDSIGNAL */
    cut_t first_row;  // where it ends is known earlier
    /* verilator lint_on UNUSEDSIGNAL */
    row_cut cut_first (.address(start_block.address[CUT_BITS-1:0]), .nbytes(start_block.row_bytes),
                       .length(start_block.length), .cut(first_row));
    always_comb begin
        start_cut       = first_row;
        start_cut.first = first_burst(start_block.ending, start_block.length);
    end
    row_cut cut_second (.address(start_block.second), .nbytes(start_block.row_bytes),
                        .length(start_block.length), .cut(start_second));
    if (AHEAD != 0) begin : g_ahead
        logic   pending, free;  // free: !pending, of few loads
        block_t waiting;
        cut_t   waiting_cut, waiting_second;
        assign start_ready = free;
        assign next_valid  = pending || start_valid;
        assign next        = pending ? waiting : start_block;
        assign of_next     = pending ? waiting_cut : start_cut;
        assign of_second   = pending ? waiting_second : start_second;
        assign begins      = next_valid && (!req_valid || ends_block);
        assign active      = req_valid || pending;
        always_ff @(posedge clk) begin
            pending <= !rst && next_valid && !begins;
            free    <= rst || !next_valid || begins;
            if (!pending) begin
                waiting        <= start_block;
                waiting_cut    <= start_cut;
                waiting_second <= start_second;
            end
        end
    end else begin : g_single
        assign start_ready = !req_valid;
        assign next_valid  = start_valid;
        assign next        = start_block;
        assign of_next     = start_cut;
        assign of_second   = start_second;
        assign begins      = next_valid && !req_valid;
        assign active      = req_valid;
    end
    // A block that has waited begins when the one before it ends.
    wire [BEATS_BITS-1:0] following = ends_row ? beats_of(of_row.first) : beats_behind;
    wire succeeds = last_burst && AHEAD != 0;
    always_comb begin
        kept  = start_cut.first;
        fired = of_next.first;
        if (req_valid) {kept.tail, kept.whole} = {beats, beats};
        if (!succeeds) {fired.tail, fired.whole} = {following, following};
    end

    always_ff @(posedge clk) begin
        if (rst) req_valid <= 1'b0;
        else if (begins) req_valid <= 1'b1;
        else if (ends_block) req_valid <= 1'b0;
        beats <= fire ? beats_of(fired) : beats_of(kept);
        // Whether there is another block is known late; if not, this does no harm.
        if (fire || !req_valid) begin
            if (last_burst || !req_valid) begin
                beat         <= next.address[ADDR_BITS-1:SHIFT];
                ends_row     <= of_next.first.ends_row;
                {several, left} <= {of_next.several, of_next.left};
                of_row       <= of_second;
                behind_next  <= next.address[CUT_BITS-1:0] + {next.stride_bytes[CUT_BITS-2:0], 1'b0};
                next_row     <= next.address + ADDR_BITS'(next.stride_bytes);
                rows_left    <= next.rows;
                last_row     <= next.rows == 16'd1;
                last_burst   <= of_next.first.ends_row && next.rows == 16'd1;
                row_bytes    <= next.row_bytes;
                length       <= next.length;
                stride_bytes <= next.stride_bytes;
            end else if (ends_row) begin
                beat        <= next_row[ADDR_BITS-1:SHIFT];
                ends_row    <= of_row.first.ends_row;
                {several, left} <= {of_row.several, of_row.left};
                of_row      <= of_behind;
                behind_next <= behind_next + stride_bytes[CUT_BITS-1:0];
                next_row    <= next_row + ADDR_BITS'(stride_bytes);
                rows_left   <= rows_left - 1'b1;
                last_row    <= rows_left == 16'd2;
                last_burst  <= of_row.first.ends_row && rows_left == 16'd2;
            end else begin
                beat       <= beat + (ADDR_BITS-SHIFT)'(beats);
                ends_row   <= !several;
                several    <= left_behind[32:LOG_BURST+1] != '0;
                left       <= left_behind;
                last_burst <= !several && last_row;
            end
        end
    end
endmodule
