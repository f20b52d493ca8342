// fetch: the credit of its buffer. `reserved` counts the port words that are requested and not yet
// taken out of the buffer; it never exceeds the depth, so the buffer never refuses a word, and a
// request that waits for room gets it when the buffer is empty.
module fetch_proof
    import vta_pkg::*, stream_pkg::*;
(
    input logic                 clk,
    input logic                 rst,
    input logic                 launch,
    input logic [ADDR_BITS-1:0] address,
    input logic [27:0]          count,
    input logic                 req_ready,
    input logic                 data_valid,
    input logic [PORT_BITS-1:0] data,
    input logic                 insn_ready
);
    logic req_valid, insn_valid, active;
    burst_t req;
    logic [INSN_BITS-1:0] insn;
    fetch dut (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    typedef logic [15:0] number_t;
    number_t requested, received, taken;
    always_ff @(posedge clk) begin
        requested <= rst ? '0 : requested + (req_valid && req_ready ? number_t'(req.beats) : '0);
        received  <= rst ? '0 : received + number_t'(data_valid);
        taken     <= rst ? '0 : taken + number_t'(dut.take_beat);
    end
    wire number_t reserved  = requested - taken;
    wire number_t under_way = requested - received;
    wire number_t held      = received - taken;  // in the buffer

    always_comb begin
        assume (started || rst);
        assume (!data_valid || under_way != '0);  // the memory answers what it was asked
        if (dut.bursts_valid)                     // proven of burst_generator
            assume (req.beats != '0 && 32'(req.beats) <= BURST_BEATS);
        if (started) begin
            assert (32'(reserved) <= 4 * BURST_BEATS && under_way <= reserved);
            assert (!data_valid || dut.buffer.in_ready);
            assert (!dut.take_beat || held != '0);
            assert ((dut.bursts_valid && dut.bursts.req_ready) == (req_valid && req_ready));
            assert (!dut.bursts_valid || req_valid || reserved != '0);
            // How the block keeps the same facts.
            assert (32'(dut.credit.unreserved) == 4 * BURST_BEATS - 32'(reserved));
            assert (!dut.bursts_valid || 32'($signed(dut.credit.spare))
                    == 32'(dut.credit.unreserved) - 32'(req.beats));
            assert (held == number_t'(dut.buffer.count) + number_t'(dut.buffer.out_valid));
        end
    end
endmodule
