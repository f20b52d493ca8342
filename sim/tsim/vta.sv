// VTA: the tensor accelerator. Fetch reads instructions and dispatches them to three units that
// run concurrently (load, compute, store), synchronised by four token queues; all of them share one
// DRAM port. Every size comes from the generated package vta_pkg.
//
// Ports:   csr_*: control and status registers, see registers.sv.
//          rd_req_*, rd_*: DRAM read channels: a burst of rd_req_beats port words from a byte
//          address, for a client; data return with the client's number, in order per client, and
//          must be taken. wr_req_*, wr_*: DRAM write channels: bursts, and their words in the same
//          order with byte enables; wr_ack: a burst is complete.
//          wgt_*: a second port of the same kind for reads of weights, if HAS_WEIGHT_PORT is set.
//          memory_error: the memory answered an access with an error in this cycle.
//          token_hold hides the tokens of a queue in this cycle: tests use it to vary the timing; tie
//          it to 0.
//          finished: FINISH has executed; quiet: nothing is active; fault: see registers.sv.
//          array_clk: with the extension PAIRS, a clock of twice the frequency of clk, every second
//          edge of which is an edge of clk; otherwise unused.
// Timing:  single clock (except array_clk), synchronous reset. Requests are held until ready is high.
module vta
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                   clk,
    input  logic                   array_clk,
    input  logic                   rst,
    input  logic                   csr_we,
    input  logic [11:0]            csr_address,
    input  logic [11:0]            csr_read_address,
    input  logic [31:0]            csr_wdata,
    output logic [31:0]            csr_rdata,
    output logic                   rd_req_valid,
    input  logic                   rd_req_ready,
    output logic [ADDR_BITS-1:0]   rd_req_address,
    output logic [BEATS_BITS-1:0]  rd_req_beats,
    output logic [CLIENT_BITS-1:0] rd_req_client,
    input  logic                   rd_valid,
    input  logic [CLIENT_BITS-1:0] rd_client,
    input  logic                   rd_last,
    input  logic [PORT_BITS-1:0]   rd_data,
    output logic                   wgt_req_valid,
    input  logic                   wgt_req_ready,
    output logic [ADDR_BITS-1:0]   wgt_req_address,
    output logic [BEATS_BITS-1:0]  wgt_req_beats,
    input  logic                   wgt_valid,
    input  logic                   wgt_last,
    input  logic [PORT_BITS-1:0]   wgt_data,
    output logic                   wr_req_valid,
    input  logic                   wr_req_ready,
    output logic [ADDR_BITS-1:0]   wr_req_address,
    output logic [BEATS_BITS-1:0]  wr_req_beats,
    output logic                   wr_valid,
    input  logic                   wr_ready,
    output logic [PORT_BITS-1:0]   wr_data,
    output logic [PORT_BYTES-1:0]  wr_strobe,
    input  logic                   wr_ack,
    input  logic                   memory_error,
    input  tokens_t                token_hold,
    output logic                   finished,
    output logic                   quiet,
    output logic                   fault
);
    // ----------------------------------------------------- unsupported parameters
    if (PORT_BYTES < 8 || PORT_BYTES > 64 || (PORT_BYTES & (PORT_BYTES - 1)) != 0) begin : g_port
        $error("PORT_BYTES must be 8, 16, 32 or 64");
    end
    if (INP_WIDTH != 8 || WGT_WIDTH != 8 || ACC_WIDTH != 32 || OUT_WIDTH != 8) begin : g_widths
        $error("VTA computes int8 x int8 -> int32");
    end
    if (BURST_BEATS * PORT_BYTES > 4096) begin : g_burst
        $error("a burst must not exceed 4096 bytes");
    end
    if (INP_DEPTH <= INP_SLOTS || ACC_DEPTH <= OUT_SLOTS || UOP_DEPTH <= UOP_SLOTS
        || WGT_DEPTH <= WGT_SLOTS) begin : g_depth
        $error("a scratchpad must hold more elements than a port word");
    end
    if (LOAD_BUFFER_BEATS < 2 * BURST_BEATS) begin : g_buffer
        $error("LOAD_BUFFER_BEATS must hold two bursts");
    end
    if (HAS_FORWARD != 0 && INP_BITS != OUT_BITS) begin : g_forward
        $error("FORWARD needs input and output elements of one size");
    end

    localparam int TILE_SLOTS = INP_SLOTS > WGT_SLOTS ? INP_SLOTS : WGT_SLOTS;
    localparam int LOAD_SLOTS =
        HAS_POST != 0 && POST_SLOTS > TILE_SLOTS ? POST_SLOTS : TILE_SLOTS;

    logic launch, finish;
    logic [27:0] insn_count;
    logic [ADDR_BITS-1:0] insn_address;
    origins_t origins;

    // ---------------------------------------------------------------------------- DRAM reads
    logic [READ_CLIENTS-1:0]   client_valid, client_ready, client_data_valid;
    burst_t [READ_CLIENTS-1:0] client_req;
    logic [PORT_BITS-1:0]      data;
    burst_t                    rd_req, wr_req;
    logic                      reading;

    dram_port port (
        .clk, .rst, .client_valid, .client_ready, .client_req, .client_data_valid,
        .client_data(data), .rd_req_valid, .rd_req_ready, .rd_req, .rd_req_client,
        .rd_valid, .rd_client, .rd_last, .rd_data, .reading);
    assign {rd_req_address, rd_req_beats} = rd_req;
    assign {wr_req_address, wr_req_beats} = wr_req;

    logic   load_wgt_valid, load_wgt_ready, load_wgt_data_valid, wgt_reading;
    burst_t load_wgt_req, wgt_req;
    assign {wgt_req_address, wgt_req_beats} = wgt_req;
    if (HAS_WEIGHT_PORT != 0) begin : g_weight_port
        logic [CLIENT_BITS-1:0] unused_client;
        logic [PORT_BITS-1:0]   unused_data;  // passes straight through
        dram_port #(.CLIENTS(1)) weight_port (
            .clk, .rst, .client_valid(load_wgt_valid), .client_ready(load_wgt_ready),
            .client_req(load_wgt_req), .client_data_valid(load_wgt_data_valid),
            .client_data(unused_data), .rd_req_valid(wgt_req_valid),
            .rd_req_ready(wgt_req_ready), .rd_req(wgt_req), .rd_req_client(unused_client),
            .rd_valid(wgt_valid), .rd_client('0), .rd_last(wgt_last), .rd_data(wgt_data),
            .reading(wgt_reading));
    end else begin : g_one_port
        assign {load_wgt_ready, load_wgt_data_valid, wgt_req_valid, wgt_reading} = '0;
        assign wgt_req = load_wgt_req;
        wire unused_port = ^{load_wgt_valid, wgt_req_ready, wgt_valid, wgt_last};
    end

    // ------------------------------------------------------------------------- instructions
    logic insn_valid, insn_ready, fetching, dispatch_stalled, dispatch_fault;
    logic [INSN_BITS-1:0] insn;
    units_t unit_valid, unit_ready;

    fetch fetcher (
        .clk, .rst, .launch, .address(insn_address), .count(insn_count),
        .req_valid(client_valid[CLIENT_FETCH]), .req_ready(client_ready[CLIENT_FETCH]),
        .req(client_req[CLIENT_FETCH]), .data_valid(client_data_valid[CLIENT_FETCH]), .data,
        .insn_valid, .insn_ready, .insn, .active(fetching));

    dispatch dispatcher (
        .insn_valid, .insn_ready, .insn, .unit_valid, .unit_ready,
        .stalled(dispatch_stalled), .fault(dispatch_fault));

    // ------------------------------------------------------------------------------- tokens
    tokens_t push, pop, tokens, lost;
    wire tokens_t offered = tokens & ~token_hold;

    token_queue #(.CAPACITY(TOKEN_CAPACITY)) l2g (
        .clk, .rst, .push(push.l2g), .pop(pop.l2g), .available(tokens.l2g), .overflow(lost.l2g));
    token_queue #(.CAPACITY(TOKEN_CAPACITY)) g2l (
        .clk, .rst, .push(push.g2l), .pop(pop.g2l), .available(tokens.g2l), .overflow(lost.g2l));
    token_queue #(.CAPACITY(TOKEN_CAPACITY)) g2s (
        .clk, .rst, .push(push.g2s), .pop(pop.g2s), .available(tokens.g2s), .overflow(lost.g2s));
    token_queue #(.CAPACITY(TOKEN_CAPACITY)) s2g (
        .clk, .rst, .push(push.s2g), .pop(pop.s2g), .available(tokens.s2g), .overflow(lost.s2g));

    // ------------------------------------------------- load unit and the scratchpads it fills
    waits_t waits;
    logic load_active, load_fault;
    events_t load_events;
    load_write_t load_write;
    load_write_t wgt_write;
    logic [PORT_BITS-1:0] load_word, wgt_word;
    logic forward_en, forward_all;
    logic [OUT_INDEX_BITS-1:0] forward_index;
    logic [FORWARD_BITS-1:0] forward_data;

    load_unit #(.SLOTS(LOAD_SLOTS)) load (
        .clk, .rst, .insn_valid(unit_valid.load), .insn_ready(unit_ready.load), .insn,
        .token_available(offered.g2l), .token_pop(pop.g2l), .token_push(push.l2g), .origins,
        .req_valid(client_valid[CLIENT_LOAD]), .req_ready(client_ready[CLIENT_LOAD]),
        .req(client_req[CLIENT_LOAD]), .data_valid(client_data_valid[CLIENT_LOAD]), .data,
        .write(load_write), .word(load_word), .wgt_req_valid(load_wgt_valid),
        .wgt_req_ready(load_wgt_ready), .wgt_req(load_wgt_req),
        .wgt_data_valid(load_wgt_data_valid), .wgt_data, .wgt_write, .wgt_word, .out_en(forward_en),
        .out_all(forward_all), .out_index(forward_index), .active(load_active), .waiting_token(waits.load),
        .events(load_events), .fault(load_fault));

    logic inputs_en, inputs_all, weights_en, pair, second_half;
    logic [INP_INDEX_BITS-1:0] inp_index, second_inp_index;
    logic [WGT_INDEX_BITS-1:0] wgt_index, second_wgt_index;
    logic operand_clk, in_step, inp_read, inp_read_all, wgt_read;
    logic inp_same, wgt_same;
    logic [INP_INDEX_BITS-1:0] inp_read_index, inp_after, inp_held;
    logic [WGT_INDEX_BITS-1:0] wgt_read_index, wgt_after, wgt_held;
    logic [INP_READS*INP_BITS-1:0] inp_tiles;
    logic [WGT_BITS-1:0] wgt_tile;

    if (HAS_PAIRS != 0) begin : g_operand_clk
        assign operand_clk = array_clk;
        assign in_step     = second_half;
    end else begin : g_clk
        assign operand_clk = clk;
        assign in_step     = 1'b1;
        wire unused_array_clk = array_clk;
    end
    operand_reads reads (
        .clk, .array_clk, .rst, .second_half, .inputs_en, .inputs_all, .weights_en, .pair, .inp_index,
        .second_inp_index, .wgt_index, .second_wgt_index, .inp_read, .inp_read_all,
        .inp_read_index, .inp_after, .inp_held, .inp_same, .wgt_read, .wgt_read_index, .wgt_after, .wgt_held,
        .wgt_same);

    scratchpad #(.MEMORY(MEM_INP), .WIDTH(INP_BITS), .DEPTH(INP_DEPTH), .PARTS(INP_PARTS),
                 .SLOTS(INP_SLOTS), .READ_SLOTS(INP_READS), .BANKS(INP_BANKS),
                 .WHOLE(FORWARD_TILES), .HOLD(1 + HAS_PAIRS), .FAST(HAS_PAIRS)) inp_mem (
        .clk, .rd_clk(operand_clk), .in_step, .rst, .write(load_write), .word(load_word),
        .tiles(forward_data), .rd_en(inp_read), .rd_all(inp_read_all),
        .rd_index(inp_read_index), .rd_same(inp_same), .rd_held(inp_held), .rd_after(inp_after),
        .rd_data(inp_tiles));
    scratchpad #(.MEMORY(MEM_WGT), .WIDTH(WGT_BITS), .DEPTH(WGT_DEPTH), .PARTS(WGT_PARTS),
                 .SLOTS(WGT_SLOTS), .NIBBLES(HAS_NIBBLES), .HOLD(1 + HAS_PAIRS), .FAST(HAS_PAIRS)) wgt_mem (
        .clk, .rd_clk(operand_clk), .in_step, .rst, .write(wgt_write), .word(wgt_word), .tiles('0),
        .rd_en(wgt_read), .rd_all(1'b1), .rd_index(wgt_read_index), .rd_same(wgt_same), .rd_held(wgt_held), .rd_after(wgt_after),
        .rd_data(wgt_tile));

    // ------------------------------------------------------------------------- compute unit
    logic compute_active, compute_followed, compute_fault, acc_written, out_en;
    events_t compute_events;
    logic [OUT_INDEX_BITS-1:0] out_index;
    logic [OUT_SLOTS*OUT_BITS-1:0] out_data;

    compute_unit compute (
        .clk, .array_clk, .second_half, .rst, .insn_valid(unit_valid.compute), .insn_ready(unit_ready.compute), .insn,
        .load_token_available(offered.l2g), .load_token_pop(pop.l2g),
        .load_token_push(push.g2l), .store_token_available(offered.s2g),
        .store_token_pop(pop.s2g), .store_token_push(push.g2s), .origins,
        .req_valid(client_valid[CLIENT_COMPUTE]), .req_ready(client_ready[CLIENT_COMPUTE]),
        .req(client_req[CLIENT_COMPUTE]), .data_valid(client_data_valid[CLIENT_COMPUTE]), .data,
        .inputs_en, .inputs_all, .pair, .inp_index, .second_inp_index, .inp_tiles, .weights_en,
        .wgt_index, .second_wgt_index, .wgt_tile,
        .par_write(wgt_write), .par_word(wgt_word), .out_en, .out_index, .out_data,
        .forward_en, .forward_all, .forward_index, .forward_data,
        .finished(finish), .followed(compute_followed), .active(compute_active),
        .waiting_load_token(waits.compute_for_load),
        .waiting_store_token(waits.compute_for_store), .acc_written, .events(compute_events),
        .fault(compute_fault));

    // --------------------------------------------------------------------------- store unit
    logic store_active, store_fault;
    events_t store_events;

    store_unit store (
        .clk, .rst, .insn_valid(unit_valid.store), .insn_ready(unit_ready.store), .insn,
        .token_available(offered.g2s), .token_pop(pop.g2s), .token_push(push.s2g),
        .origin(origins.out), .sram_en(out_en), .sram_index(out_index), .sram_data(out_data),
        .wr_req_valid, .wr_req_ready, .wr_req, .wr_valid, .wr_ready, .wr_data, .wr_strobe,
        .wr_ack, .active(store_active), .waiting_token(waits.store), .events(store_events),
        .fault(store_fault));

    // ---------------------------------------------------------------- registers and counters
    // Nothing moves: the instructions are fetched or stuck, and no unit does or awaits anything
    // except a token.
    assign quiet = !launch && (!fetching || dispatch_stalled) && !reading && !rd_req_valid && !wgt_reading
                   && !wgt_req_valid && !load_active && !compute_active && !store_active;

    // Signals known late in a cycle are reported in the next one.
    logic dispatch_faulted, load_faulted, compute_faulted, store_faulted;
    always_ff @(posedge clk)
        {dispatch_faulted, load_faulted, compute_faulted, store_faulted} <=
            rst ? '0 : {dispatch_fault, load_fault, compute_fault, store_fault};

    wire early = fetching || load_active || compute_followed || store_active;
    wire faults_t faults = '{
        dispatch: dispatch_faulted, load: load_faulted, compute: compute_faulted,
        store: store_faulted, token_overflow: lost != '0, early_finish: finish && early, memory_error: memory_error};

    events_t port_events;
    always_comb begin
        port_events = '0;
        port_events.instructions      = EVENT_BITS'(insn_valid && insn_ready);
        port_events.fetch_stall_queue = EVENT_BITS'(dispatch_stalled);
        port_events.port_read_bursts  = EVENT_BITS'(rd_req_valid && rd_req_ready)
                                      + EVENT_BITS'(wgt_req_valid && wgt_req_ready);
        port_events.port_read_beats   = EVENT_BITS'(rd_valid)
                                      + EVENT_BITS'(HAS_WEIGHT_PORT != 0 && wgt_valid);
        port_events.port_read_stall   = EVENT_BITS'(rd_req_valid && !rd_req_ready)
                                      + EVENT_BITS'(wgt_req_valid && !wgt_req_ready);
        port_events.port_write_bursts = EVENT_BITS'(wr_req_valid && wr_req_ready);
        port_events.port_write_beats  = EVENT_BITS'(wr_valid && wr_ready);
    end

    registers csr (
        .clk, .rst, .csr_we, .csr_address, .csr_read_address, .csr_wdata, .csr_rdata, .launch, .insn_count,
        .insn_address, .origins, .finished, .fault, .finish, .quiet, .faults, .waits, .tokens,
        .acc_written, .events(port_events | load_events | compute_events | store_events));
endmodule
