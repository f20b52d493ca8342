// Load unit: executes LOAD INP and LOAD WGT. Its neighbours: none before, the compute unit after.
//
// Ports:   insn_*: instructions; token_available/token_pop: tokens from compute (g2l);
//          token_push: token to compute (l2g); req_*/data_*: DRAM; wr_*: see tensor_load.
//          busy/stall_*: what the unit does in this cycle, exactly one or none (idle) is high.
// Timing:  an instruction starts when its token is there; up to six are in flight.
module load_unit
    import vta_pkg::*;
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
    input  logic [ADDR_BITS-1:0]  inp_origin,
    input  logic [ADDR_BITS-1:0]  wgt_origin,
    output logic                  req_valid,
    input  logic                  req_ready,
    output logic [ADDR_BITS-1:0]  req_address,
    output logic [BEATS_BITS-1:0] req_beats,
    input  logic                  data_valid,
    input  logic [PORT_BITS-1:0]  data,
    output logic                  wr_valid,
    output logic [2:0]            wr_memory,
    output logic [SRAM_BITS-1:0]  wr_index,
    output logic [SLOTS-1:0]      wr_slots,
    output logic [PART_BITS-1:0]  wr_part,
    output logic                  wr_zero,
    output logic [PORT_BITS-1:0]  wr_data,
    output logic [4:0]            loaded,
    output logic                  active,
    output logic                  waiting_token,
    output logic                  busy,
    output logic                  stall_token,
    output logic                  stall_dram,
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

    logic [SRAM_BITS-1:0] unused_first;
    tensor_load #(.SLOTS(SLOTS)) engine (
        .clk, .rst,
        .start_valid(start), .start_ready, .start_insn(head_load),
        .start_dram_origin(head_load.memory == MEM_INP ? inp_origin : wgt_origin),
        .req_valid, .req_ready, .req_address, .req_beats, .data_valid, .data,
        .allow(1'b1), .wr_valid, .wr_memory, .wr_index, .wr_first(unused_first), .wr_slots,
        .wr_part, .wr_zero, .wr_data,
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
    assign active      = in_flight != '0 || head_valid && !token_missing;
    assign busy        = wr_valid;
    assign stall_dram  = !busy && (waiting_dram || requesting || writing || in_flight != '0);
    assign stall_token = !busy && !stall_dram && waiting_token;
endmodule
