// Burst generator: cuts a 2-D block of DRAM (rows of bytes, a fixed stride apart) into bursts of
// whole port words. A burst never crosses a multiple of BURST_BYTES, hence no 4 KiB boundary (AXI).
//
// Ports:   start_*: a block, of at least a row of at least a byte. req_*: the bursts.
//          active: a block is not finished. kept_beats: those of `req` in the next cycle if it is not
//          taken in this one, fired_beats: if it is.
// Timing:  one burst per cycle, no gap between rows. AHEAD: nor between blocks, because one is taken
//          while the one before is cut; else a block is taken when none is.
module burst_generator
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int AHEAD = 0,
    parameter int KNOWN = 0  // start_block is there in the cycle before it is started already
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  start_valid,
    output logic                  start_ready,
    /* verilator lint_off UNUSEDSIGNAL */
    input  block_t                start_block,  // any: a block that is started has bytes
    /* verilator lint_on UNUSEDSIGNAL */
    output logic                  req_valid,
    input  logic                  req_ready,
    output burst_t                req,
    output logic [BEATS_BITS-1:0] kept_beats,
    output logic [BEATS_BITS-1:0] fired_beats,
    output logic                  active
);
    localparam int SHIFT = $clog2(PORT_BYTES);
    localparam int LOG_BURST = $clog2(BURST_BEATS);
    localparam int LOW = SHIFT + LOG_BURST;  // what of an address tells how a row is cut

    logic [ADDR_BITS-1:0]       next_row;    // address of the row behind the one being cut
    logic [ADDR_BITS-SHIFT-1:0] beat;        // next port word
    logic [BEATS_BITS-1:0]      beats;       // of the next burst
    logic [32:0]                left;        // words from the block of this burst to the row's end, less one
    logic                       ends_row;    // the next burst is the last one of its row
    logic [15:0]                rows_left;   // this row included
    logic [31:0]                row_bytes, stride_bytes;

    // The first burst of a row. Computed ahead, like all others, to keep the handshake short. Words
    // are counted from the aligned block in which the row begins, and less one, so that their upper
    // bits tell whether more than a burst is left. Only the bits of a block are added; what they
    // make of the upper ones, by a carry or a borrow, is there by then.
    typedef struct packed {
        logic                  ends_row;
        logic [BEATS_BITS-1:0] beats;
        logic [32:0]           left;
    } cut_t;

    function automatic cut_t first_burst(input logic [LOW-1:0] address,
                                         input logic [31:0] nbytes);
        logic [LOW:0]   last;    // of the last byte; -1 is all ones
        logic [31-LOW:0] blocks;
        logic           borrow;
        logic [LOW:0]   to_end;  // bytes from the first word to the end of the row
        blocks = nbytes[31:LOW];
        borrow = nbytes[LOW-1:0] == '0 && address == '0;
        last   = {1'b0, nbytes[LOW-1:0]} - 1'b1 + {1'b0, address};
        to_end = nbytes[LOW:0] + (LOW+1)'(address[SHIFT-1:0]);
        first_burst.ends_row = borrow ? blocks == 1 : !last[LOW] && blocks == '0;
        first_burst.left     = 33'({borrow ? blocks - 1'b1 : last[LOW] ? blocks + 1'b1 : blocks,
                                    last[LOW-1:SHIFT]});
        first_burst.beats    = first_burst.ends_row
            ? BEATS_BITS'((to_end + (LOW+1)'(PORT_BYTES - 1)) >> SHIFT)
            : BEATS_BITS'(BURST_BEATS) - BEATS_BITS'(address[LOW-1:SHIFT]);
    endfunction

    wire fire = req_valid && req_ready;
    wire last_burst = ends_row && rows_left == 16'd1;  // of its block
    wire ends_block = fire && last_burst;
    cut_t of_row;  // of the row behind the one being cut
    wire [32:0] left_behind = left - 33'(BURST_BEATS);  // the same for the burst behind this one
    wire last_behind = left[32:LOG_BURST+1] == '0;
    wire [BEATS_BITS-1:0] beats_behind =
        last_behind ? BEATS_BITS'(left[LOG_BURST-1:0]) + 1'b1 : BEATS_BITS'(BURST_BEATS);

    assign req = '{address: {beat, SHIFT'(0)}, beats: beats};

    // The block that is cut next; start_ready is a flip-flop, so that who takes a burst and who
    // begins a block do not meet in one cycle.
    /* verilator lint_off UNUSEDSIGNAL */
    block_t next;
    /* verilator lint_on UNUSEDSIGNAL */
    logic next_valid, begins;
    cut_t of_next, of_second;  // of its first row, and of its second
    wire cut_t start_cut = first_burst(start_block.address[LOW-1:0], start_block.row_bytes);
    wire cut_t start_second = first_burst(
        start_block.address[LOW-1:0] + start_block.stride_bytes[LOW-1:0], start_block.row_bytes);
    if (AHEAD != 0) begin : g_ahead
        logic   pending;
        block_t waiting;
        cut_t   waiting_cut, waiting_second;
        assign start_ready = !pending;
        assign next_valid  = pending || start_valid;
        assign next        = pending ? waiting : start_block;
        assign of_next     = pending ? waiting_cut : start_cut;
        assign of_second   = pending ? waiting_second : start_second;
        assign begins      = next_valid && (!req_valid || ends_block);
        assign active      = req_valid || pending;
        always_ff @(posedge clk) begin
            pending <= !rst && next_valid && !begins;
            if (!pending) begin
                waiting     <= start_block;
                waiting_cut <= start_cut;
                waiting_second <= start_second;
            end
        end
    end else begin : g_single
        cut_t known;
        always_ff @(posedge clk) known <= start_cut;
        assign of_next     = KNOWN != 0 ? known : start_cut;
        assign of_second   = start_second;
        assign start_ready = !req_valid;
        assign next_valid  = start_valid;
        assign next        = start_block;
        assign begins      = next_valid && !req_valid;
        assign active      = req_valid;
    end
    logic [LOW-1:0] behind_next;  // of the row behind next_row
    assign kept_beats  = next_valid && !req_valid ? of_next.beats : beats;
    assign fired_beats = next_valid && last_burst && AHEAD != 0 ? of_next.beats
                       : ends_row ? of_row.beats : beats_behind;

    always_ff @(posedge clk) begin
        if (rst) req_valid <= 1'b0;
        else if (begins) req_valid <= 1'b1;
        else if (ends_block) req_valid <= 1'b0;
        beats <= fire ? fired_beats : kept_beats;
        if (begins) begin
            beat         <= next.address[ADDR_BITS-1:SHIFT];
            ends_row     <= of_next.ends_row;
            left         <= of_next.left;
            of_row       <= of_second;
            behind_next  <= next.address[LOW-1:0] + {next.stride_bytes[LOW-2:0], 1'b0};
            next_row     <= next.address + ADDR_BITS'(next.stride_bytes);
            rows_left    <= next.rows;
            row_bytes    <= next.row_bytes;
            stride_bytes <= next.stride_bytes;
        end else if (fire && ends_row) begin
            beat       <= next_row[ADDR_BITS-1:SHIFT];
            ends_row   <= of_row.ends_row;
            left       <= of_row.left;
            of_row     <= first_burst(behind_next, row_bytes);
            behind_next <= behind_next + stride_bytes[LOW-1:0];
            next_row   <= next_row + ADDR_BITS'(stride_bytes);
            rows_left  <= rows_left - 1'b1;
        end else if (fire) begin
            beat       <= beat + (ADDR_BITS-SHIFT)'(beats);
            ends_row   <= last_behind;
            left       <= left_behind;
        end
    end
endmodule
