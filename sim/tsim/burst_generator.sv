// Burst generator: cuts a 2-D block of DRAM (rows of bytes, a fixed stride apart) into bursts of
// whole port words. A burst never crosses a multiple of BURST_BYTES, hence no 4 KiB boundary (AXI).
//
// Ports:   start_*: first byte, bytes per row (>= 1), bytes from row to row, number of rows (>= 1).
//          req_*: address of a port word and the number of words from there.
//          active: the block is not finished.
// Timing:  one burst per cycle, no gap between rows or between blocks.
module burst_generator
    import vta_pkg::*;
(
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  start_valid,
    output logic                  start_ready,
    input  logic [ADDR_BITS-1:0]  start_address,
    input  logic [31:0]           start_row_bytes,
    input  logic [31:0]           start_stride_bytes,
    input  logic [15:0]           start_rows,
    output logic                  req_valid,
    input  logic                  req_ready,
    output logic [ADDR_BITS-1:0]  req_address,
    output logic [BEATS_BITS-1:0] req_beats,
    output logic                  active
);
    localparam int SHIFT = $clog2(PORT_BYTES);
    localparam int LOG_BURST = $clog2(BURST_BEATS);

    logic [ADDR_BITS-1:0]       row_address;   // of the row being cut
    logic [ADDR_BITS-SHIFT-1:0] beat;          // next port word
    logic [31:0]                beats_left;    // of this row
    logic [15:0]                rows_left;     // this row included
    logic [31:0]                row_bytes, stride_bytes;

    function automatic logic [31:0] beats_of(input logic [SHIFT-1:0] offset,
                                             input logic [31:0] nbytes);
        return (nbytes + 32'(offset) + 32'(PORT_BYTES - 1)) >> SHIFT;
    endfunction

    wire [BEATS_BITS-1:0] room = BEATS_BITS'(BURST_BEATS) - BEATS_BITS'(beat[LOG_BURST-1:0]);
    wire ends_row = beats_left <= 32'(room);
    wire fire = req_valid && req_ready;
    wire ends_block = fire && ends_row && rows_left == 16'd1;
    wire [ADDR_BITS-1:0] next_row = row_address + ADDR_BITS'(stride_bytes);

    assign req_valid   = active;
    assign req_address = {beat, SHIFT'(0)};
    assign req_beats   = ends_row ? BEATS_BITS'(beats_left) : room;
    assign start_ready = !active || ends_block;

    always_ff @(posedge clk) begin
        if (rst) active <= 1'b0;
        else if (start_valid && start_ready) begin
            active       <= 1'b1;
            row_address  <= start_address;
            beat         <= start_address[ADDR_BITS-1:SHIFT];
            beats_left   <= beats_of(start_address[SHIFT-1:0], start_row_bytes);
            rows_left    <= start_rows;
            row_bytes    <= start_row_bytes;
            stride_bytes <= start_stride_bytes;
        end else if (ends_block) active <= 1'b0;
        else if (fire && ends_row) begin
            row_address <= next_row;
            beat        <= next_row[ADDR_BITS-1:SHIFT];
            beats_left  <= beats_of(next_row[SHIFT-1:0], row_bytes);
            rows_left   <= rows_left - 1'b1;
        end else if (fire) begin
            beat       <= beat + (ADDR_BITS-SHIFT)'(req_beats);
            beats_left <= beats_left - 32'(req_beats);
        end
    end
endmodule
