// Load unit: executes LOAD INP and LOAD WGT. It has no neighbour before it, and the compute unit after.
//
// Ports:   insn_*: instructions; token_available/token_pop: tokens from compute (g2l);
//          token_push: token to compute (l2g); req*, data*: DRAM; write, word: the data to write.
//          events: increments of the counters; exactly one of load_busy, load_stall_*, load_idle.
//          wgt_*: everything that is not for the inputs: the same ports again if HAS_WEIGHT_PORT is
//          set, else only the writes. The loads of both engines start and end in program order.
//          out_*: with the extension FORWARD, the read port of the output scratchpad, for writes of
//          whole elements: that at out_index, or FORWARD_TILES from there on if out_all.
// Timing:  an instruction starts when its token is available; an engine has up to six in flight, and
//          one ends per cycle. With FORWARD, all tokens and all writes of the forwarding engine are
//          delayed by one cycle, so that the output scratchpad can respond.
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
    input  origins_t              origins,  // the others belong to other units
    /* verilator lint_on UNUSEDSIGNAL */
    output logic                  req_valid,
    input  logic                  req_ready,
    output burst_t                req,
    input  logic                  data_valid,
    input  logic [PORT_BITS-1:0]  data,
    output load_write_t           write,
    output logic [PORT_BITS-1:0]  word,
    output logic                  wgt_req_valid,
    input  logic                  wgt_req_ready,
    output burst_t                wgt_req,
    input  logic                  wgt_data_valid,
    input  logic [PORT_BITS-1:0]  wgt_data,
    output load_write_t           wgt_write,
    output logic [PORT_BITS-1:0]  wgt_word,
    output logic                  out_en,
    output logic                  out_all,
    output logic [OUT_INDEX_BITS-1:0] out_index,
    output logic                  active,
    output logic                  waiting_token,
    output events_t               events,
    output logic                  fault
);
    logic head_valid, start_ready, done, pushes, unused_requesting, unused_writing;
    logic [INSN_BITS-1:0] head;
    block_t block;
    /* verilator lint_off UNUSEDSIGNAL */
    load_t head_load, in_load, finished;
    /* verilator lint_on UNUSEDSIGNAL */
    assign head_load = head;
    assign in_load   = insn;

    typedef enum logic [1:0] {IN_INP, IN_WGT, IN_POST, IN_TABLE} place_t;
    logic [1:0] in_place;
    assign in_place = in_load.memory == MEM_INP ? IN_INP : in_load.memory == MEM_WGT ? IN_WGT
                    : HAS_TABLE != 0 && in_load.memory == MEM_TABLE ? IN_TABLE : IN_POST;
    localparam logic [3:0][3:0] LOG_BYTES = {
        4'($clog2(HAS_TABLE != 0 ? TABLE_BYTES : POST_BYTES)), 4'($clog2(POST_BYTES)),
        4'($clog2(WGT_BYTES)), 4'($clog2(INP_BYTES))};

    wire token_missing = head_load.pop_next && !token_available;
    wire start = head_valid && !token_missing;

    command_queue #(.LOG_BYTES(LOG_BYTES)) commands (
        .clk, .rst, .in_valid(insn_valid), .in_ready(insn_ready), .in_insn(insn),
        .in_moves(HAS_FORWARD == 0 || !insn[FORWARD_BIT]), .in_place,
        .in_origins({{3{origins.wgt}}, origins.inp}),
        .out_valid(head_valid), .out_ready(start_ready && !token_missing), .out_insn(head),
        .out_block(block));

    logic [2:0] memory, unused_then;
    logic [SRAM_BITS-1:0] unused_first, source;
    logic [SRAM_BITS:0] unused_beyond;
    logic [EVENT_BITS-1:0] loaded;
    load_write_t written;
    logic [PORT_BITS-1:0] written_word;
    logic engine_start, engine_ready, engine_done, engine_fault, writes;
    tensor_load #(.SLOTS(SLOTS), .FORWARD(FORWARD_TILES)) engine (
        .clk, .rst,
        .start_valid(engine_start), .start_ready(engine_ready), .start_insn(head_load),
        .start_block(block),
        .req_valid, .req_ready, .req, .data_valid, .data,
        .allow(1'b1), .write(written), .word(written_word), .memory, .then_memory(unused_then),
        .first(unused_first), .beyond(unused_beyond),
        .out_index(source), .done(engine_done), .done_insn(finished), .loaded,
        .requesting(unused_requesting), .writing(unused_writing), .fault(engine_fault));

    logic [EVENT_BITS-1:0] wgt_elements;
    if (HAS_WEIGHT_PORT != 0) begin : g_weights
        logic order_ready, weights_ready, weights_done, weights_fault;
        logic unused_requests, unused_writes;
        logic [2:0] weights_memory, unused_memory;
        logic [EVENT_BITS-1:0] loaded_weights;
        logic [SRAM_BITS-1:0] unused_element, unused_source_index;
        logic [SRAM_BITS:0] unused_end;
        /* verilator lint_off UNUSEDSIGNAL */
        load_t unused_finished;
        /* verilator lint_on UNUSEDSIGNAL */
        // Every FORWARD goes to the engine that supports it, which rejects other memories.
        wire to_weights = head_load.memory != MEM_INP && !(HAS_FORWARD != 0 && head[FORWARD_BIT]);
        assign engine_start = start && order_ready && !to_weights;
        assign start_ready  = order_ready && (to_weights ? weights_ready : engine_ready);
        tensor_load #(.SLOTS(SLOTS)) weights (
            .clk, .rst,
            .start_valid(start && order_ready && to_weights), .start_ready(weights_ready),
            .start_insn(head_load), .start_block(block),
            .req_valid(wgt_req_valid), .req_ready(wgt_req_ready), .req(wgt_req),
            .data_valid(wgt_data_valid), .data(wgt_data), .allow(1'b1), .write(wgt_write),
            .word(wgt_word), .memory(weights_memory),
            .then_memory(unused_memory), .first(unused_element), .beyond(unused_end),
            .out_index(unused_source_index), .done(weights_done), .done_insn(unused_finished),
            .loaded(loaded_weights), .requesting(unused_requests), .writing(unused_writes),
            .fault(weights_fault));

        // The started loads, oldest first, and the number of completed loads of each engine.
        logic order_valid, of_weights;
        logic [4:0] ended, weights_ended;
        fifo #(.WIDTH(2), .DEPTH(16)) order (
            .clk, .rst, .in_valid(start && start_ready), .in_ready(order_ready),
            .in_data({to_weights, head_load.push_next}), .out_valid(order_valid), .out_ready(done),
            .out_data({of_weights, pushes}));
        assign done = order_valid && (of_weights ? weights_done || weights_ended != '0
                                                 : engine_done || ended != '0);
        always_ff @(posedge clk) begin
            if (rst) {ended, weights_ended} <= '0;
            else begin
                ended         <= ended + 5'(engine_done) - 5'(done && !of_weights);
                weights_ended <= weights_ended + 5'(weights_done) - 5'(done && of_weights);
            end
        end
        assign fault  = engine_fault || weights_fault;
        assign wgt_elements = weights_memory == MEM_WGT ? loaded_weights : '0;
        assign writes = written.valid || wgt_write.valid;
    end else begin : g_shared
        assign engine_start  = start;
        assign start_ready   = engine_ready;
        assign done          = engine_done;
        assign pushes        = finished.push_next;
        assign fault         = engine_fault;
        assign wgt_elements  = memory == MEM_WGT ? loaded : '0;
        assign writes        = written.valid;
        assign wgt_req_valid = 1'b0;
        assign wgt_req       = '0;
        assign wgt_write     = write;
        assign wgt_word      = word;
        wire unused_weights  = ^{wgt_req_ready, wgt_data_valid, wgt_data};
    end

    assign token_pop  = start && start_ready && head_load.pop_next;
    assign out_en     = written.valid && written.whole;
    assign out_all    = FORWARD_TILES > 1 && written.slots[FORWARD_TILES > 1 ? 1 : 0];
    assign out_index  = OUT_INDEX_BITS'(source);
    wire unused_source = ^source;

    logic late_active;  // a completed load is still being written
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
            token_push  <= done && pushes && !rst;
        end
    end else begin : g_now
        assign late_active = 1'b0;
        assign write      = written;
        assign word       = written_word;
        assign token_push = done && pushes;
    end

    // Instructions between the token and the completion.
    logic [HAS_WEIGHT_PORT != 0 ? 4 : 3:0] in_flight;
    wire started = start && start_ready;
    always_ff @(posedge clk) begin
        if (rst) in_flight <= '0;
        else if (started != done) in_flight <= started ? in_flight + 1'b1 : in_flight - 1'b1;
    end

    assign waiting_token = head_valid && token_missing;
    assign active        = in_flight != '0 || late_active || head_valid && !token_missing;

    wire busy        = writes;
    wire stall_dram  = !busy && in_flight != '0;
    wire stall_token = !busy && !stall_dram && waiting_token;
    always_comb begin
        events = '0;
        events.load_busy        = EVENT_BITS'(busy);
        events.load_stall_token = EVENT_BITS'(stall_token);
        events.load_stall_dram  = EVENT_BITS'(stall_dram);
        events.load_idle        = EVENT_BITS'(!(busy || stall_token || stall_dram));
        events.inp_elements     = memory == MEM_INP ? loaded : '0;
        events.wgt_elements     = wgt_elements;
    end
endmodule
