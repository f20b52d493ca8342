// burst_generator: the bursts of a block are, row by row and without a gap, exactly the port words
// that hold the bytes of the row; none crosses a multiple of BURST_BYTES, which divides 4 KiB; a
// request stays until it is taken. With AHEAD a block may begin while the one before is cut: it waits.
module burst_generator_proof
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int AHEAD = 1
) (
    input logic   clk,
    input logic   rst,
    input logic   start_valid,
    input block_t start_block,
    input logic   req_ready
);
    localparam int BURST_BYTES = BURST_BEATS * PORT_BYTES;
    if (4096 % BURST_BYTES != 0) begin : g_divides
        $error("a burst may cross 4 KiB");
    end

    logic start_ready, req_valid, active;
    burst_t req;
    beats_t kept, fired;
    logic [BEATS_BITS-1:0] was_next_beats;
    burst_generator #(.AHEAD(AHEAD)) dut (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    // The specification: the row that is cut, and the port word that must come next.
    typedef logic [ADDR_BITS-1:0] address_t;
    address_t row, next_word, last_word;  // byte addresses
    logic [31:0] row_bytes, stride_bytes;
    logic [15:0] rows_left;
    logic   pending;  // a block that has been taken waits
    block_t waiting;
    wire taken  = req_valid && req_ready;
    wire address_t last_of_burst = req.address + address_t'((32'(req.beats) - 1) * PORT_BYTES);
    wire ends_row = last_of_burst == last_word;
    wire address_t new_row = row + address_t'(stride_bytes);
    wire ends_block = taken && ends_row && rows_left == 16'd1;
    wire comes = pending || start_valid && start_ready;
    wire begins = comes && (!req_valid || ends_block);
    wire block_t block = pending ? waiting : start_block;

    function automatic address_t word_of(input address_t address);
        return address & ~address_t'(PORT_BYTES - 1);
    endfunction

    always_ff @(posedge clk) begin
        pending <= !rst && comes && !begins;
        if (start_valid && start_ready) waiting <= start_block;
        if (begins) begin
            row          <= block.address;
            next_word    <= word_of(block.address);
            last_word    <= word_of(block.address + address_t'(block.row_bytes) - 1'b1);
            row_bytes    <= block.row_bytes;
            stride_bytes <= block.stride_bytes;
            rows_left    <= block.rows;
        end else if (taken && ends_row) begin
            row       <= new_row;
            next_word <= word_of(new_row);
            last_word <= word_of(new_row + address_t'(row_bytes) - 1'b1);
            rows_left <= rows_left - 1'b1;
        end else if (taken) next_word <= last_of_burst + address_t'(PORT_BYTES);
    end

    // Whether that is how the first burst is cut from the row of so many bytes at an address.
    function automatic logic cuts(input address_t address, input logic [31:0] nbytes,
                                  input cut_t cut);
        return cut.left == 33'((33'(nbytes) + 33'(32'(address) % BURST_BYTES) - 33'd1) / PORT_BYTES)
            && cut.several == (cut.left >= 33'(2 * BURST_BEATS))
            && cut.first.ends_row == (cut.left < 33'(BURST_BEATS))
            && 32'(beats_of(cut.first)) == (cut.first.ends_row ? 32'(cut.left) + 1 : BURST_BEATS)
                             - 32'(address) % BURST_BYTES / PORT_BYTES;
    endfunction

    function automatic logic is_block(input block_t b);
        return b.row_bytes != '0 && b.row_bytes < 32'd1 << 24 && b.rows != '0
            && b.length == length_of(b.row_bytes)
            && b.ending == end_of_row(b.address[CUT_BITS-1:0], b.row_bytes[CUT_BITS:0])
            && b.second == CUT_BITS'(b.address + address_t'(b.stride_bytes));
    endfunction

    logic was_pending;
    burst_t was;
    always_ff @(posedge clk) begin
        was_pending <= !rst && req_valid && !req_ready;
        was         <= req;
        was_next_beats <= beats_of(taken ? fired : kept);
    end

    if (AHEAD != 0) begin : g_ahead
        always_comb if (started) begin
            assert (dut.g_ahead.pending == pending && dut.g_ahead.free == !pending);
            assert (!pending || dut.g_ahead.waiting == waiting);
            if (pending) begin
                assert (cuts(waiting.address, waiting.row_bytes, dut.g_ahead.waiting_cut));
                assert (cuts(waiting.address + address_t'(waiting.stride_bytes), waiting.row_bytes,
                             dut.g_ahead.waiting_second));
            end
        end
    end

    always_comb begin
        assume (started || rst);
        assume (is_block(start_block));
        if (started && req_valid) begin
            assert (req.address == next_word);
            assert (req.beats != '0 && 32'(req.beats) <= BURST_BEATS);
            assert (32'(req.address) / BURST_BYTES == 32'(last_of_burst) / BURST_BYTES);
            assert (rows_left != '0);
            // Not beyond the row: the distance to its end, modulo the address space, is no less.
            assert (last_word - last_of_burst <= last_word - next_word);
        end
        if (started) begin
            assert (active == (req_valid || pending));
            assert (start_ready == (AHEAD != 0 ? !pending : !req_valid));
            assert (!pending || req_valid && is_block(waiting));
            assert (req.beats == was_next_beats);
            assert (!was_pending || req_valid && req == was);
        end
        // How the block keeps the same facts.
        if (started && req_valid) begin
            assert (dut.next_row == row + address_t'(stride_bytes) && dut.rows_left == rows_left);
            assert (32'(dut.behind_next)
                    == 32'(dut.next_row + address_t'(stride_bytes)) % BURST_BYTES);
            assert (cuts(dut.next_row, row_bytes, dut.of_row));
            assert (dut.row_bytes == row_bytes && dut.stride_bytes == stride_bytes);
            assert (dut.length == length_of(row_bytes));
            assert (dut.several == (dut.left >= 33'(2 * BURST_BEATS)));
            assert (row_bytes != '0 && row_bytes < 32'd1 << 24);
            assert (dut.last_row == (rows_left == 16'd1));
            assert (dut.last_burst == (ends_row && rows_left == 16'd1));
            assert (dut.ends_row == ends_row && ends_row == (dut.left < 33'(BURST_BEATS)));
            assert (ends_row || 32'(last_of_burst + address_t'(PORT_BYTES)) % BURST_BYTES == 0);
            assert (dut.left < 33'd1 << 24);
            assert (address_t'((dut.left + 33'd1) * PORT_BYTES) == last_word + address_t'(PORT_BYTES)
                    - (next_word & ~address_t'(BURST_BYTES - 1)));
        end
    end
endmodule
