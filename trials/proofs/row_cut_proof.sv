// row_cut: the first burst of a row, from whole addresses and lengths.
module row_cut_proof
    import vta_pkg::*, stream_pkg::*;
(
    input logic                clk,
    input logic [CUT_BITS-1:0] address,
    input logic [31:0]         nbytes
);
    localparam int BURST_BYTES = BURST_BEATS * PORT_BYTES;
    cut_t cut;
    wire length_t length = length_of(nbytes);
    row_cut dut (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    always_comb begin
        assume (nbytes != '0 && nbytes < 32'd1 << 24);
        if (started) begin
            assert (cut.left == 33'((33'(nbytes) + 33'(32'(address) % BURST_BYTES) - 33'd1)
                                    / PORT_BYTES));
            assert (cut.first.ends_row == (cut.left < 33'(BURST_BEATS)));
            assert (cut.several == (cut.left >= 33'(2 * BURST_BEATS)));
            assert (32'(beats_of(cut.first)) == (cut.first.ends_row ? 32'(cut.left) + 1 : BURST_BEATS)
                                      - 32'(address) % BURST_BYTES / PORT_BYTES);
        end
    end
endmodule
