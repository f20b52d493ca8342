// Load unit: executes LOAD INP and LOAD WGT. Its neighbours: none before, the compute unit after.
//
// Ports:   insn_*: instructions; token_available/token_pop: tokens from compute (g2l);
//          token_push: token to compute (l2g); req*, data*: DRAM; write, word: what is written.
//          events: what its counters advance by; exactly one of load_busy, load_stall_*, load_idle.
//          out_*: with the extension FORWARD the output scratchpad, read for what is written as
//          element.
// Timing:  an instruction starts when its token is there; up to six are in flight. With FORWARD all
//          writes and tokens are a cycle later, so that the output scratchpad can answer.
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
    output logic                  out_en,
    output logic [OUT_INDEX_BITS-1:0] out_index,
    output logic                  active,
    output logic                  waiting_token,
    output events_t               events,
    output logic                  fault
);
    logic head_valid, start_ready, done, unused_requesting, unused_writing;
    logic [INSN_BITS-1:0] head;
    block_t block;
    /* verilator lint_off UNUSEDSIGNAL */
    load_t head_load, in_load, finished;
    /* verilator lint_on UNUSEDSIGNAL */
    assign head_load = head;
    assign in_load   = insn;

    typedef enum logic [1:0] {IN_INP, IN_WGT, IN_POST, IN_TABLE} place_t;
    logic [1:0] in_place, place;
    assign in_place = in_load.memory == MEM_INP ? IN_INP : in_load.memory == MEM_WGT ? IN_WGT
                    : HAS_TABLE != 0 && in_load.memory == MEM_TABLE ? IN_TABLE : IN_POST;

    function automatic logic [3:0] log_bytes(input logic [1:0] of);
        return 4'(of == IN_INP ? $clog2(INP_BYTES) : of == IN_WGT ? $clog2(WGT_BYTES)
                  : HAS_TABLE != 0 && of == IN_TABLE ? $clog2(TABLE_BYTES) : $clog2(POST_BYTES));
    endfunction

    wire token_missing = head_load.pop_next && !token_available;
    wire start = head_valid && !token_missing;

    command_queue commands (
        .clk, .rst, .in_valid(insn_valid), .in_ready(insn_ready), .in_insn(insn),
        .in_moves(HAS_FORWARD == 0 || !insn[FORWARD_BIT]), .in_place,
        .in_origin(in_place == IN_INP ? origins.inp : origins.wgt),
        .in_log_bytes(log_bytes(in_place)), .out_place(place), .out_log_bytes(log_bytes(place)),
        .out_valid(head_valid), .out_ready(start_ready && !token_missing), .out_insn(head),
        .out_block(block));

    logic [2:0] memory;
    logic [SRAM_BITS-1:0] unused_first, source;
    logic [SRAM_BITS:0] unused_beyond;
    logic [EVENT_BITS-1:0] loaded;
    load_write_t written;
    logic [PORT_BITS-1:0] written_word;
    tensor_load #(.SLOTS(SLOTS), .FORWARD(HAS_FORWARD)) engine (
        .clk, .rst,
        .start_valid(start), .start_ready, .start_insn(head_load),
        .start_block(block),
        .req_valid, .req_ready, .req, .data_valid, .data,
        .allow(1'b1), .write(written), .word(written_word), .memory, .first(unused_first), .beyond(unused_beyond),
        .out_index(source), .done, .done_insn(finished), .loaded,
        .requesting(unused_requesting), .writing(unused_writing), .fault);

    assign token_pop  = start && start_ready && head_load.pop_next;
    assign out_en     = written.valid && written.whole;
    assign out_index  = OUT_INDEX_BITS'(source);
    wire unused_source = ^source;

    logic late_active;  // what is done with is still written
    if (HAS_FORWARD != 0) begin : g_late
        load_write_t late;
        assign late_active = late.valid || token_push;
        always_comb begin
            write       = late;
            write.valid = late.valid && !rst;
        end
        always_ff @(posedge clk) begin
            late        <= written;
            word        <= written_word;
            token_push  <= done && finished.push_next && !rst;
        end
    end else begin : g_now
        assign late_active = 1'b0;
        assign write      = written;
        assign word       = written_word;
        assign token_push = done && finished.push_next;
    end

    // Instructions between the token and the completion.
    logic [3:0] in_flight;
    wire started = start && start_ready;
    always_ff @(posedge clk) begin
        if (rst) in_flight <= '0;
        else if (started != done) in_flight <= started ? in_flight + 1'b1 : in_flight - 1'b1;
    end

    assign waiting_token = head_valid && token_missing;
    assign active        = in_flight != '0 || late_active || head_valid && !token_missing;

    wire busy        = written.valid;
    wire stall_dram  = !busy && in_flight != '0;
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
