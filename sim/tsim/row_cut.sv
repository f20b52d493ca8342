// Row cut: the first burst of a row of bytes, for the burst generator.
//
// It is computed ahead, to keep the generator's handshake short. Words are counted from the aligned
// block in which the row begins, minus one, so that the upper bits show whether more than one burst is
// left. Only the bits within a block are added here; the carry or borrow into the upper bits has been
// computed before.
//
// Ports:   address: the bits of the row's address that determine how it is cut; nbytes, length: its
//          length.
// Timing:  combinational.
module row_cut
    import vta_pkg::*, stream_pkg::*;
(
    input  logic [CUT_BITS-1:0] address,
    input  logic [31:0]         nbytes,
    input  length_t             length,
    output cut_t                cut
);
    localparam int SHIFT = $clog2(PORT_BYTES);

    wire [31-CUT_BITS:0] blocks = nbytes[31:CUT_BITS];
    wire borrow = nbytes[CUT_BITS-1:0] == '0 && address == '0;
    // The address of the last byte (-1 is all ones), and bytes from the first word to the row's end.
    wire [CUT_BITS:0] last   = {1'b0, nbytes[CUT_BITS-1:0]} - 1'b1 + {1'b0, address};
    wire [CUT_BITS:0] to_end = nbytes[CUT_BITS:0] + (CUT_BITS+1)'(address[SHIFT-1:0]);
    always_comb begin
        cut.first    = '{
            ends_row: length.below && !last[CUT_BITS] || length.equal && address == '0,
            tail: BEATS_BITS'((to_end + (CUT_BITS+1)'(PORT_BYTES - 1)) >> SHIFT),
            whole: BEATS_BITS'(BURST_BEATS) - BEATS_BITS'(address[CUT_BITS-1:SHIFT])};
        cut.several  = borrow ? length.three : last[CUT_BITS] ? !length.below : length.two;
        cut.left     = 33'({borrow ? blocks - 1'b1 : last[CUT_BITS] ? blocks + 1'b1 : blocks,
                            last[CUT_BITS-1:SHIFT]});
    end
endmodule
