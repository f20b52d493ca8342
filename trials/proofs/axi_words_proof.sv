// axi_words: LAST is on the last word of each burst and on no other, in the order of the bursts; a
// word passes only when its burst has come; words are neither changed nor lost.
module axi_words_proof #(
    parameter int BITS        = 4,
    parameter int LENGTH_BITS = 3,
    localparam int DEPTH      = 2,
    localparam int INDEX      = $clog2(DEPTH),
    localparam int LIST       = DEPTH + 2
) (
    input logic                   clk,
    input logic                   rst,
    input logic                   burst_valid,
    input logic [LENGTH_BITS-1:0] burst_length,
    input logic                   in_valid,
    input logic [BITS-1:0]        in_data,
    input logic                   out_ready
);
    logic burst_ready, in_ready, out_valid, out_last;
    logic [BITS-1:0] out_data;
    axi_words #(.BITS(BITS), .LENGTH_BITS(LENGTH_BITS), .DEPTH(DEPTH)) dut (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    // The specification: words are numbered; the bursts that are not complete end before the words
    // of these numbers, the oldest in ends[0].
    typedef logic [15:0] number_t;
    number_t announced, sent;
    number_t ends [LIST];
    logic [3:0] size;
    wire come = burst_valid && burst_ready;
    wire go   = out_valid && out_ready;
    wire done = go && sent + 1'b1 == ends[0];
    wire [3:0] rest = size - 4'(done);
    always_ff @(posedge clk) begin
        announced <= rst ? '0 : announced + (come ? number_t'(burst_length) : '0);
        sent      <= rst ? '0 : sent + number_t'(go);
        size      <= rst ? '0 : rest + 4'(come);
        for (int i = 0; i < LIST; i++) begin
            if (come && rest == 4'(i)) ends[i] <= announced + number_t'(burst_length);
            else if (done && i < LIST - 1) ends[i] <= ends[i+1];
        end
    end

    logic was_pending, was_last, was_next;
    always_ff @(posedge clk) begin
        was_pending <= !rst && out_valid && !out_ready;
        was_last    <= out_last;
        was_next    <= !rst && dut.next_valid;
    end

    // Length of the pending burst i, as far as it is still to be sent.
    number_t lengths [LIST];
    for (genvar i = 0; i < LIST; i++) begin : g_length
        assign lengths[i] = i == 0 ? ends[0] - sent : ends[i] - ends[i == 0 ? 0 : i-1];
    end
    wire sending = dut.some;
    wire [3:0] in_memory = 4'(sending) + 4'(dut.next_valid);  // position of the first one there

    always_comb begin
        assume (started || rst);
        assume (burst_length != '0);
        assume (!was_pending || in_valid);  // the core keeps what it offers
        if (started) begin
            assert (!out_valid || in_valid && size != '0);
            assert (!out_valid || out_last == (sent + 1'b1 == ends[0]));
            assert (out_data == in_data);
            assert ((in_valid && in_ready) == go);
            assert (!was_pending || out_valid && out_last == was_last);
            assert (!was_next || dut.some);  // the words of a burst may go
            assert (size <= 4'(LIST));
            // How the block keeps the same facts.
            assert (size == in_memory + 4'(dut.lengths.count));
            assert (dut.lengths.tail == INDEX'(dut.lengths.head + INDEX'(dut.lengths.count)));
            assert (32'(dut.lengths.count) <= DEPTH);
            assert (size != '0 || announced == sent);
            for (int i = 0; i < LIST; i++) begin
                if (4'(i) < size) assert (lengths[i] != '0 && lengths[i] < 16'd1 << LENGTH_BITS);
                if (4'(i + 1) == size) assert (ends[i] == announced);
            end
            assert (!sending || number_t'(dut.left) == lengths[0]);
            assert (out_last == (sending && dut.left == LENGTH_BITS'(1)));
            assert (!dut.next_valid || number_t'(dut.next) == lengths[sending ? 1 : 0]);
            for (int i = 0; i < DEPTH; i++)
                if (4'(i) < 4'(dut.lengths.count))
                    assert (number_t'(dut.lengths.mem[INDEX'(dut.lengths.head + INDEX'(i))])
                            == lengths[2'(in_memory + 4'(i))]);
        end
    end
endmodule
