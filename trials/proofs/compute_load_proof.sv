// compute_load: its interlocks. Accumulators are written only when no GEMM or ALU instruction issues
// and none is in the pipeline; micro-ops while one issues, but never, in any slot of a word, one that
// it reads. An instruction is complete, and may retire, only when all of it is written; the LOADs
// behind it do not count for it.
module compute_load_proof
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int SLOTS = UOP_SLOTS > OUT_SLOTS ? UOP_SLOTS : OUT_SLOTS
) (
    input logic                 clk,
    input logic                 rst,
    input logic                 start_valid,
    input load_t                start_insn,
    input block_t               start_block,
    input logic                 req_ready,
    input logic                 data_valid,
    input logic [PORT_BITS-1:0] data,
    input logic                 then_loops,
    input gemm_t                then_insn,
    input logic                 then_empty,
    input logic                 retire
);
    logic start_ready, req_valid, complete, requesting, writing, held_back, fault;
    burst_t req;
    load_write_t write;
    logic [PORT_BITS-1:0] word;
    logic [EVENT_BITS-1:0] uop_loaded, acc_loaded;
    compute_load #(.SLOTS(SLOTS)) dut (.*);

    `include "begins_right.svh"

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    // What is announced comes true.
    logic  current_loops, pipeline_empty;
    gemm_t current_insn;
    always_ff @(posedge clk)
        {current_loops, current_insn, pipeline_empty} <= {then_loops, then_insn, then_empty};

    // The specification: LOADs begun, written, retired.
    typedef logic [7:0] number_t;
    number_t begun, written, retired;
    always_ff @(posedge clk) begin
        begun   <= rst ? '0 : begun + number_t'(start_valid && start_ready);
        written <= rst ? '0 : written + number_t'(dut.done);
        retired <= rst ? '0 : retired + number_t'(retire);
    end

    logic [SRAM_BITS-1:0] element;
    logic collides;  // a micro-op that is written is one of the current instruction
    always_comb begin
        collides = 1'b0;
        for (int j = 0; j < WORD_SLOTS; j++) begin
            element = write.index + SRAM_BITS'(j);
            if (write.slots[j] && 32'(element) >= 32'(current_insn.uop_begin)
                && 32'(element) < 32'(current_insn.uop_end)) collides = 1'b1;
        end
    end

    always_comb begin
        assume (started || rst);
        // Proven of fifo: what comes out of the queue is what has come in.
        assume (begins_right(dut.loader.queued_begin.phase, dut.loader.queued_begin.new_row,
                             dut.loader.queued_begin.last_run, dut.loader.queued));
        assume (!retire || complete);  // of compute_issue: a LOAD leaves when it is complete
        assume (begun - retired < 8'd2 || !start_valid);  // of compute_decode: next and current
        // Begun at an element of a scratchpad; what lies beyond its end is a fault.
        if (started) begin
            assume (32'(dut.loader.index) + SLOTS < 1 << SRAM_BITS);
            if (write.valid && write.memory == MEM_UOP) assert (!current_loops || !collides);
            if (write.valid && write.memory != MEM_UOP) assert (!current_loops && pipeline_empty);
            assert (complete == (written != retired));
            assert (!retire || written - retired != '0);
            // How the block keeps the same facts.
            assert (!writing || dut.loader.last_run == (dut.loader.after_run == 4'd0));
            assert (dut.loader.phase[3:1] == '0 || dut.loader.phase == 4'b1000
                    || dut.loader.phase[3:2] == 2'b01);
            assert (dut.loader.is_beat == (dut.loader.phase[3] && !dut.loader.forwards));
            assert (dut.loader.is_free == (dut.loader.phase[2] || dut.loader.phase[3] && dut.loader.forwards));
            assert (!writing || dut.loader.new_row == (dut.loader.rows != 16'd1));
            assert (!writing || dut.loader.behind == dut.loader.index + (SRAM_BITS+1)'(UOP_SLOTS));
            assert (!writing || dut.allowed == (dut.memory == MEM_UOP
                    ? !(current_loops && 18'(dut.loader.behind) > 18'(current_insn.uop_begin)
                        && 18'(dut.loader.index[SRAM_BITS-1:0]) < 18'(current_insn.uop_end))
                    : !current_loops && pipeline_empty));
            assert (begun - retired <= 8'd2 && written - retired <= begun - retired);
            assert (number_t'(dut.unretired) == written - retired);
            assert (complete == (dut.unretired != '0));
            assert (begun - written == number_t'(dut.loader.queue.count)
                    + number_t'(dut.loader.queue.out_valid)
                    + number_t'(dut.loader.phase != 4'd0));
            assert (dut.loader.queue.count <= 3'd4);
        end
    end
endmodule
