// axi_halves: a burst goes to the ports as two parts, each once, which together are its words; an offer
// stays until it is taken; each burst is announced once. The ports' shares of all words that were
// read differ by a word at most; all words that a write has in a block go to one port, by its address.
module axi_halves_proof #(
    parameter int ADDRESS_BITS = 16,
    parameter int WORD_BYTES   = 8,
    parameter int HALF         = 0
) (
    input logic                    clk,
    input logic                    rst,
    input logic                    in_valid,
    input logic [ADDRESS_BITS-1:0] in_address,
    input logic [7:0]              in_length,
    input logic [1:0]              out_ready
);
    localparam int SHIFT = $clog2(WORD_BYTES);
    logic in_ready, burst, turn, single;
    logic [7:0] first;
    logic [1:0] out_valid;
    logic [1:0][ADDRESS_BITS-1:0] out_address;
    logic [1:0][7:0] out_length;
    axi_halves #(.ADDRESS_BITS(ADDRESS_BITS), .WORD_BYTES(WORD_BYTES), .HALF(HALF)) dut (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    // The cycle before, the halves that were taken, and the words of port 0 more than of port 1.
    logic was_offered, announced;
    logic [1:0] was_pending, had;
    logic [ADDRESS_BITS-1:0] was_address;
    logic [7:0] was_length;
    logic [1:0][ADDRESS_BITS-1:0] was_out;
    logic [15:0] more;
    wire [8:0] words = in_length + 9'd1;
    wire [8:0] place = HALF == 0 ? '0 : 9'((in_address >> SHIFT) % ADDRESS_BITS'(HALF ? HALF : 1));
    wire [8:0] front = HALF == 0 ? (words + 1'b1) >> 1
                       : place + words <= 9'(HALF) ? words : 9'(HALF) - place;
    wire [ADDRESS_BITS-1:0] block = (in_address >> SHIFT) / ADDRESS_BITS'(HALF ? HALF : 1);
    wire [8:0] own [2];
    for (genvar p = 0; p < 2; p++) begin : g_own
        assign own[p] = turn == 1'(p) ? front : words - front;
    end
    always_ff @(posedge clk) begin
        was_offered <= !rst && in_valid && !in_ready;
        was_pending <= rst ? '0 : out_valid & ~out_ready;
        announced   <= !rst && in_valid && !in_ready;
        had         <= rst || in_ready ? '0 : had | out_valid & out_ready;
        {was_address, was_length, was_out} <= {in_address, in_length, out_address};
        more        <= rst ? '0 : in_ready ? more + 16'(own[0]) - 16'(own[1]) : more;
    end

    always_comb begin
        assume (started || rst);
        // The master keeps what it offers, and crosses no multiple of 4 KiB.
        assume (!was_offered || in_valid && in_address == was_address && in_length == was_length);
        assume (in_address[SHIFT-1:0] == '0);
        // Nor does a write cross a multiple of two blocks.
        assume (HALF == 0 || 9'(block[0] ? HALF : 0) + place + words <= 9'(2 * HALF));
        assume (13'(in_address[11:0]) + 13'({words, SHIFT'(0)}) <= 13'd4096);
        if (started) begin
            for (int p = 0; p < 2; p++) begin
                assert (!was_pending[p] || out_valid[p] && out_address[p] == was_out[p]);
                assert (!out_valid[p] || in_valid && !had[p] && own[p] != '0);
                assert (!out_valid[p] || 9'(out_length[p]) + 9'd1 == own[p]);
                assert (!out_valid[p] || out_address[p] == in_address
                        + (turn == 1'(p) ? '0 : ADDRESS_BITS'({own[!p], SHIFT'(0)})));
            end
            for (int p = 0; p < 2; p++)
                assert (!in_ready || own[p] == '0 || had[p] || out_valid[p] && out_ready[p]);
            assert (!in_valid || in_ready || (out_valid & ~out_ready) != '0);
            assert (burst == (in_valid && !announced));
            assert (!burst || 9'(first) + 9'd1 == front && single == (words == front));
            if (HALF == 0) assert (more == 16'(turn));
            else assert (turn == ^block);
            // How the block keeps the same facts.
            assert (dut.known == announced && dut.taken == had);
            assert (was_offered || had == '0);
        end
    end
endmodule
