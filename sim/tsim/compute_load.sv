// Compute unit, loads: LOAD UOP, ACC and ACC_8BIT. Their data are requested while earlier
// instructions run. Micro-ops are written during a GEMM or ALU instruction, except into the range
// that it uses; accumulators are written when the pipeline is empty.
//
// Ports:   start_*: LOAD instructions, in order; req*, data*: DRAM; write, word: the data to write.
//          then_*: the instruction that issues in the next cycle, whether it has loops, and whether
//          the pipeline is empty then; retire: a LOAD that issues has finished.
//          complete: a LOAD that has not retired is written. held_back: writing is not allowed now.
// Timing:  as in tensor_load.
module compute_load
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int SLOTS = 1
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  start_valid,
    output logic                  start_ready,
    input  load_t                 start_insn,
    input  block_t                start_block,
    output logic                  req_valid,
    input  logic                  req_ready,
    output burst_t                req,
    input  logic                  data_valid,
    input  logic [PORT_BITS-1:0]  data,
    output load_write_t           write,
    output logic [PORT_BITS-1:0]  word,
    input  logic                  then_loops,
    /* verilator lint_off UNUSEDSIGNAL */
    input  gemm_t                 then_insn,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic                  then_empty,
    output logic                  complete,
    input  logic                  retire,
    output logic                  requesting,
    output logic                  writing,
    output logic                  held_back,
    output logic [EVENT_BITS-1:0] uop_loaded,
    output logic [EVENT_BITS-1:0] acc_loaded,
    output logic                  fault
);
    logic allowed, done;
    logic [2:0] memory, then_memory;
    logic [SRAM_BITS-1:0] first;
    logic [SRAM_BITS:0] beyond;
    logic [SRAM_BITS-1:0] unused_out_index;
    logic [EVENT_BITS-1:0] loaded;
    load_t unused_done_insn;
    wire is_uop = memory == MEM_UOP;

    tensor_load #(.SLOTS(SLOTS), .BEYOND(UOP_SLOTS)) loader (
        .clk, .rst, .start_valid, .start_ready, .start_insn,
        .start_block, .req_valid, .req_ready, .req, .data_valid, .data,
        .allow(allowed), .write, .word, .memory, .then_memory, .first, .beyond,
        .out_index(unused_out_index), .done, .done_insn(unused_done_insn),
        .loaded, .requesting, .writing, .fault);

    // A word of micro-ops that begins at `first` may overlap those of the instruction. Everything
    // waits for `allowed`, so it is computed a cycle ahead.
    wire uop_in_use = then_loops
        && 18'(first) < 18'(then_insn.uop_end)
        && 18'(beyond) > 18'(then_insn.uop_begin);
    always_ff @(posedge clk)
        allowed <= then_memory == MEM_UOP ? !uop_in_use : !then_loops && then_empty;
    assign held_back = writing && !allowed;

    logic [1:0] unretired, then_unretired;  // completed, not yet retired
    always_comb begin
        then_unretired = unretired;
        if (rst) then_unretired = '0;
        else if (done != retire)
            then_unretired = done ? unretired + 1'b1 : unretired - 1'b1;
    end
    always_ff @(posedge clk) begin
        unretired <= then_unretired;
        complete  <= then_unretired != '0;
    end

    assign uop_loaded = is_uop ? loaded : '0;
    assign acc_loaded = is_uop ? '0 : loaded;
endmodule
