// tensor_load: the credit of its buffer. `reserved` counts the port words that are requested and not
// yet taken out of the buffer; it never exceeds LOAD_BUFFER_BEATS, so the buffer never refuses a word,
// and a request that waits for room gets it when the buffer is empty. Instructions leave in order, as
// many as have come.
module tensor_load_proof
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int SLOTS = 2
) (
    input logic                 clk,
    input logic                 rst,
    input logic                 start_valid,
    input load_t                start_insn,
    input block_t               start_block,
    input logic                 req_ready,
    input logic                 data_valid,
    input logic [PORT_BITS-1:0] data,
    input logic                 allow
);
    logic start_ready, req_valid, done, requesting, writing, fault;
    burst_t req;
    load_write_t write;
    logic [PORT_BITS-1:0] word;
    logic [2:0] memory, then_memory;
    logic [SRAM_BITS-1:0] first, out_index;
    logic [SRAM_BITS:0] beyond;
    load_t done_insn;
    logic [EVENT_BITS-1:0] loaded;
    tensor_load #(.SLOTS(SLOTS)) dut (.*);

    `include "begins_right.svh"

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    // The specification: words requested, received and taken; instructions begun and done.
    typedef logic [15:0] number_t;
    number_t requested, received, taken, begun, completed;
    always_ff @(posedge clk) begin
        requested <= rst ? '0 : requested + (req_valid && req_ready ? number_t'(req.beats) : '0);
        received  <= rst ? '0 : received + number_t'(data_valid);
        taken     <= rst ? '0 : taken + number_t'(dut.take_beat);
        begun     <= rst ? '0 : begun + number_t'(start_valid && start_ready);
        completed <= rst ? '0 : completed + number_t'(done);
    end
    wire number_t reserved  = requested - taken;
    wire number_t under_way = requested - received;
    wire number_t held      = received - taken;  // in the buffer

    always_comb begin
        assume (started || rst);
        // Proven of fifo: what comes out of the queue is what has come in.
        assume (begins_right(dut.queued_begin.phase, dut.queued_begin.new_row,
                             dut.queued_begin.last_run, dut.queued));
        assume (!data_valid || under_way != '0);  // the memory answers what it was asked
        if (dut.bursts_valid)                     // proven of burst_generator
            assume (req.beats != '0 && 32'(req.beats) <= BURST_BEATS);
        assert (begins_right(dut.begins.phase, dut.begins.new_row, dut.begins.last_run,
                             start_insn));
        if (started) begin
            assert (32'(reserved) <= LOAD_BUFFER_BEATS && under_way <= reserved);
            assert (!data_valid || dut.buffer.in_ready);
            assert (!dut.take_beat || held != '0);
            assert ((dut.bursts_valid && dut.burst_ready) == (req_valid && req_ready));
            assert (!dut.bursts_valid || req_valid || reserved != '0);
            assert (!write.valid || allow);
            // How the block keeps the same facts.
            assert (32'(dut.credit.unreserved) == LOAD_BUFFER_BEATS - 32'(reserved));
            assert (!dut.bursts_valid || 32'($signed(dut.credit.spare))
                    == 32'(dut.credit.unreserved) - 32'(req.beats));
            assert (held == number_t'(dut.buffer.count) + number_t'(dut.buffer.out_valid));
            assert (begun - completed == number_t'(dut.queue.count)
                    + number_t'(dut.queue.out_valid) + number_t'(dut.phase != 4'd0));
            assert (dut.queue.count <= 3'd4);
            assert (!writing || dut.behind == dut.index + (SRAM_BITS+1)'(SLOTS));
            assert (!writing || dut.last_run == (dut.after_run == 4'd0));
            assert (dut.is_beat == (dut.phase[3] && !dut.forwards));
            assert (dut.is_free == (dut.phase[2] || dut.phase[3] && dut.forwards));
            assert (!writing || dut.new_row == (dut.rows != 16'd1));
            assert (dut.is_beat || dut.part == '0);
            assert (!writing || dut.last_beat == (dut.part == dut.last_part));
            // IDLE, NOP, DATA, or one of the four that write zeros.
            assert (dut.phase[3:1] == '0 || dut.phase == 4'b1000 || dut.phase[3:2] == 2'b01);
        end
    end
endmodule
