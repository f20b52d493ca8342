// Load unit: executes LOAD INP and LOAD WGT. Its neighbours: none before, the compute unit after.
//
// Ports:   insn_*: instructions; token_available/token_pop: tokens from compute (g2l);
//          token_push: token to compute (l2g); req*, data*: DRAM; write, word: what is written.
//          events: what its counters advance by; exactly one of load_busy, load_stall_*, load_idle.
// Timing:  an instruction starts when its token is there; up to six are in flight.
module load_unit
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int SLOTS = 1
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  insn_valid,
    output logic                  insn_ready,
    input  logic [INSN_BITS-1:0]  insn,
    input  logic                  token_available,
    output logic                  token_pop,
    output logic                  token_push,
    /* verilator lint_off UNUSEDSIGNAL */
    input  origins_t              origins,  // the others mean other units
    /* verilator lint_on UNUSEDSIGNAL */
    output logic                  req_valid,
    input  logic                  req_ready,
    output burst_t                req,
    input  logic                  data_valid,
    input  logic [PORT_BITS-1:0]  data,
    output load_write_t           write,
    output logic [PORT_BITS-1:0]  word,
    output logic                  active,
    output logic                  waiting_token,
    output events_t               events,
    output logic                  fault
);
    logic head_valid, start_ready, done, requesting, writing, waiting_dram;
    logic [INSN_BITS-1:0] head;
    /* verilator lint_off UNUSEDSIGNAL */
    load_t head_load, finished;
    /* verilator lint_on UNUSEDSIGNAL */
    assign head_load = head;

    wire token_missing = head_load.pop_next && !token_available;
    wire start = head_valid && !token_missing;

    command_queue commands (
        .clk, .rst, .in_valid(insn_valid), .in_ready(insn_ready), .in_insn(insn),
        .out_valid(head_valid), .out_ready(start_ready && !token_missing), .out_insn(head));

    logic [2:0] memory;
    logic [SRAM_BITS-1:0] unused_first;
    logic [EVENT_BITS-1:0] loaded;
    tensor_load #(.SLOTS(SLOTS)) engine (
        .clk, .rst,
        .start_valid(start), .start_ready, .start_insn(head_load),
        .start_dram_origin(head_load.memory == MEM_INP ? origins.inp : origins.wgt),
        .req_valid, .req_ready, .req, .data_valid, .data,
        .allow(1'b1), .write, .word, .memory, .first(unused_first),
        .done, .done_insn(finished), .loaded, .requesting, .writing, .waiting_dram, .fault);

    assign token_pop  = start && start_ready && head_load.pop_next;
    assign token_push = done && finished.push_next;

    // Instructions between the token and the completion.
    logic [3:0] in_flight;
    wire started = start && start_ready;
    always_ff @(posedge clk) begin
        if (rst) in_flight <= '0;
        else if (started != done) in_flight <= started ? in_flight + 1'b1 : in_flight - 1'b1;
    end

    assign waiting_token = head_valid && token_missing;
    assign active        = in_flight != '0 || head_valid && !token_missing;

    wire busy        = write.valid;
    wire stall_dram  = !busy && (waiting_dram || requesting || writing || in_flight != '0);
    wire stall_token = !busy && !stall_dram && waiting_token;
    always_comb begin
        events = '0;
        events.load_busy        = EVENT_BITS'(busy);
        events.load_stall_token = EVENT_BITS'(stall_token);
        events.load_stall_dram  = EVENT_BITS'(stall_dram);
        events.load_idle        = EVENT_BITS'(!(busy || stall_token || stall_dram));
        events.inp_elements     = memory == MEM_INP ? loaded : '0;
        events.wgt_elements     = memory == MEM_WGT ? loaded : '0;
    end
endmodule
