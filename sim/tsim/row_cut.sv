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
    // The address of the last byte (-1 is all ones).
    wire [CUT_BITS:0] last = {1'b0, nbytes[CUT_BITS-1:0]} - 1'b1 + {1'b0, address};
    always_comb begin
        cut.first    = first_burst(end_of_row(address, nbytes[CUT_BITS:0]), length);
        cut.several  = borrow ? &length.bursts : last[CUT_BITS] ? |length.bursts : length.bursts[1];
        cut.left     = 33'({borrow ? blocks - 1'b1 : last[CUT_BITS] ? blocks + 1'b1 : blocks,
                            last[CUT_BITS-1:SHIFT]});
    end
endmodule
