// VTA: the tensor accelerator. Fetch reads instructions and dispatches them to three units that
// run concurrently (load, compute, store), synchronised by four token queues; all of them share one
// DRAM port. Every size comes from the generated package vta_pkg.
//
// Ports:   csr_*: control and status registers, see registers.sv.
//          rd_req_*, rd_*: DRAM read channels: a burst of rd_req_beats port words from a byte
//          address, for a client; data come back with the client's number, in order per client, and
//          must be taken. wr_req_*, wr_*: DRAM write channels: bursts, and their words in the same
//          order with byte enables; wr_ack tells that one burst is complete.
//          memory_error: the memory answered an access with an error in this cycle.
//          token_hold hides the tokens of a queue (bits: l2g, g2l, g2s, s2g) in this cycle: tests
//          vary the timing by it; tie it to 0.
//          finished: FINISH has executed; quiet: nothing is active; fault: see registers.sv.
// Timing:  single clock, synchronous reset. Requests are held until their ready is high.
module vta
    import vta_pkg::*;
(
    input  logic                   clk,
    input  logic                   rst,
    input  logic                   csr_we,
    input  logic [11:0]            csr_address,
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
    input  logic [3:0]             token_hold,
    output logic                   finished,
    output logic                   quiet,
    output logic                   fault
);
    // ----------------------------------------------------- parameters that cannot be built
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

    localparam int TILE_SLOTS = INP_SLOTS > WGT_SLOTS ? INP_SLOTS : WGT_SLOTS;
    localparam int LOAD_SLOTS =
        HAS_POST != 0 && POST_SLOTS > TILE_SLOTS ? POST_SLOTS : TILE_SLOTS;
    localparam int FETCH = 0, LOAD = 1, COMPUTE = 2;  // read clients

    logic [READ_CLIENTS-1:0]            client_valid, client_ready, client_data_valid;
    logic [READ_CLIENTS*ADDR_BITS-1:0]  client_address;
    logic [READ_CLIENTS*BEATS_BITS-1:0] client_beats;
    logic [PORT_BITS-1:0]               client_data;
    logic                               reading;

    logic                   launch, finish;
    logic [27:0]            insn_count;
    logic [ADDR_BITS-1:0]   insn_address;
    logic [5*ADDR_BITS-1:0] origins;

    // ------------------------------------------------------------------------- instructions
    logic insn_valid, insn_ready, fetching, dispatch_stalled, dispatch_fault;
    logic [INSN_BITS-1:0] insn;
    logic [2:0] unit_valid, unit_ready;

    fetch fetcher (
        .clk, .rst, .launch, .address(insn_address), .count(insn_count),
        .req_valid(client_valid[FETCH]), .req_ready(client_ready[FETCH]),
        .req_address(client_address[FETCH*ADDR_BITS +: ADDR_BITS]),
        .req_beats(client_beats[FETCH*BEATS_BITS +: BEATS_BITS]),
        .data_valid(client_data_valid[FETCH]), .data(client_data),
        .insn_valid, .insn_ready, .insn, .active(fetching));

    dispatch dispatcher (
        .insn_valid, .insn_ready, .insn, .unit_valid, .unit_ready,
        .stalled(dispatch_stalled), .fault(dispatch_fault));

    // ------------------------------------------------------------------------------- tokens
    // Queues are named after sender and receiver: l2g carries tokens from load to compute ("GEMM").
    logic l2g_push, l2g_pop, l2g_available, l2g_overflow;
    logic g2l_push, g2l_pop, g2l_available, g2l_overflow;
    logic g2s_push, g2s_pop, g2s_available, g2s_overflow;
    logic s2g_push, s2g_pop, s2g_available, s2g_overflow;

    token_queue #(.CAPACITY(TOKEN_CAPACITY)) l2g (
        .clk, .rst, .push(l2g_push), .pop(l2g_pop), .available(l2g_available),
        .overflow(l2g_overflow));
    token_queue #(.CAPACITY(TOKEN_CAPACITY)) g2l (
        .clk, .rst, .push(g2l_push), .pop(g2l_pop), .available(g2l_available),
        .overflow(g2l_overflow));
    token_queue #(.CAPACITY(TOKEN_CAPACITY)) g2s (
        .clk, .rst, .push(g2s_push), .pop(g2s_pop), .available(g2s_available),
        .overflow(g2s_overflow));
    token_queue #(.CAPACITY(TOKEN_CAPACITY)) s2g (
        .clk, .rst, .push(s2g_push), .pop(s2g_pop), .available(s2g_available),
        .overflow(s2g_overflow));

    wire [3:0] tokens = {s2g_available, g2s_available, g2l_available, l2g_available};
    wire [3:0] offered = tokens & ~token_hold;

    // ------------------------------------------------- load unit and the scratchpads it fills
    logic load_wr_valid, load_wr_zero, load_active, load_waits, load_busy, load_fault;
    logic load_stall_token, load_stall_dram;
    logic [2:0] load_wr_memory;
    /* verilator lint_off UNUSEDSIGNAL */
    logic [SRAM_BITS-1:0] load_wr_index;  // wider than the scratchpads
    /* verilator lint_on UNUSEDSIGNAL */
    logic [LOAD_SLOTS-1:0] load_wr_slots;
    logic [PART_BITS-1:0] load_wr_part;
    logic [PORT_BITS-1:0] load_wr_data;
    logic [4:0] loaded;

    load_unit #(.SLOTS(LOAD_SLOTS)) load (
        .clk, .rst, .insn_valid(unit_valid[0]), .insn_ready(unit_ready[0]), .insn,
        .token_available(offered[1]), .token_pop(g2l_pop), .token_push(l2g_push),
        .inp_origin(origins[1*ADDR_BITS +: ADDR_BITS]),
        .wgt_origin(origins[2*ADDR_BITS +: ADDR_BITS]),
        .req_valid(client_valid[LOAD]), .req_ready(client_ready[LOAD]),
        .req_address(client_address[LOAD*ADDR_BITS +: ADDR_BITS]),
        .req_beats(client_beats[LOAD*BEATS_BITS +: BEATS_BITS]),
        .data_valid(client_data_valid[LOAD]), .data(client_data),
        .wr_valid(load_wr_valid), .wr_memory(load_wr_memory), .wr_index(load_wr_index),
        .wr_slots(load_wr_slots), .wr_part(load_wr_part), .wr_zero(load_wr_zero),
        .wr_data(load_wr_data), .loaded, .active(load_active), .waiting_token(load_waits),
        .busy(load_busy), .stall_token(load_stall_token), .stall_dram(load_stall_dram),
        .fault(load_fault));

    wire writes_inp = load_wr_valid && load_wr_memory == MEM_INP;
    wire writes_wgt = load_wr_valid && load_wr_memory == MEM_WGT;
    logic [INP_PARTS-1:0] inp_lanes;
    logic [WGT_PARTS-1:0] wgt_lanes;
    for (genvar l = 0; l < INP_PARTS; l++) begin : g_inp_lane
        assign inp_lanes[l] = load_wr_zero || load_wr_part == PART_BITS'(l);
    end
    for (genvar l = 0; l < WGT_PARTS; l++) begin : g_wgt_lane
        assign wgt_lanes[l] = load_wr_zero || load_wr_part == PART_BITS'(l);
    end
    wire writes_par = HAS_POST != 0 && load_wr_valid && load_wr_memory == MEM_POST;
    logic [POST_PARTS-1:0] par_lanes;
    for (genvar l = 0; l < POST_PARTS; l++) begin : g_par_lane
        assign par_lanes[l] = load_wr_zero || load_wr_part == PART_BITS'(l);
    end
    wire [PORT_BITS-1:0] load_word = load_wr_zero ? '0 : load_wr_data;

    logic operands_en;
    logic [INP_INDEX_BITS-1:0] inp_index;
    logic [WGT_INDEX_BITS-1:0] wgt_index;
    logic [INP_BITS-1:0] inp_tile;
    logic [WGT_BITS-1:0] wgt_tile;

    // Either an element takes several words (one slot) or a word holds several elements.
    banked_sram #(.WIDTH(INP_BITS), .DEPTH(INP_DEPTH), .LANES(INP_PARTS),
                  .BANKS(INP_SLOTS)) inp_mem (
        .clk, .wr_slots(writes_inp ? load_wr_slots[INP_SLOTS-1:0] : '0), .wr_lanes(inp_lanes),
        .wr_index(load_wr_index[INP_INDEX_BITS-1:0]), .wr_data({INP_PARTS{load_word}}),
        .rd_en(operands_en), .rd_index(inp_index), .rd_data(inp_tile));
    banked_sram #(.WIDTH(WGT_BITS), .DEPTH(WGT_DEPTH), .LANES(WGT_PARTS),
                  .BANKS(WGT_SLOTS)) wgt_mem (
        .clk, .wr_slots(writes_wgt ? load_wr_slots[WGT_SLOTS-1:0] : '0), .wr_lanes(wgt_lanes),
        .wr_index(load_wr_index[WGT_INDEX_BITS-1:0]), .wr_data({WGT_PARTS{load_word}}),
        .rd_en(operands_en), .rd_index(wgt_index), .rd_data(wgt_tile));

    // ------------------------------------------------------------------------- compute unit
    logic compute_active, compute_followed, compute_waits_load, compute_waits_store, compute_fault;
    logic gemm_slot, alu_slot, load_slot, compute_stall_load, compute_stall_store;
    logic compute_stall_dram, compute_drain, gemm_op, alu_op, acc_written;
    logic [4:0] uop_loaded, acc_loaded;
    logic out_en;
    logic [OUT_INDEX_BITS-1:0] out_index;
    logic [OUT_SLOTS*OUT_BITS-1:0] out_data;

    compute_unit compute (
        .clk, .rst, .insn_valid(unit_valid[1]), .insn_ready(unit_ready[1]), .insn,
        .load_token_available(offered[0]), .load_token_pop(l2g_pop), .load_token_push(g2l_push),
        .store_token_available(offered[3]), .store_token_pop(s2g_pop),
        .store_token_push(g2s_push),
        .uop_origin(origins[0*ADDR_BITS +: ADDR_BITS]),
        .acc_origin(origins[3*ADDR_BITS +: ADDR_BITS]),
        .req_valid(client_valid[COMPUTE]), .req_ready(client_ready[COMPUTE]),
        .req_address(client_address[COMPUTE*ADDR_BITS +: ADDR_BITS]),
        .req_beats(client_beats[COMPUTE*BEATS_BITS +: BEATS_BITS]),
        .data_valid(client_data_valid[COMPUTE]), .data(client_data),
        .operands_en, .inp_index, .inp_tile, .wgt_index, .wgt_tile,
        .par_slots(writes_par ? POST_SLOTS'(load_wr_slots) : '0), .par_lanes,
        .par_index(load_wr_index[POST_INDEX_BITS-1:0]), .par_data({POST_PARTS{load_word}}),
        .out_en, .out_index, .out_data,
        .finished(finish), .followed(compute_followed), .active(compute_active),
        .waiting_load_token(compute_waits_load), .waiting_store_token(compute_waits_store),
        .gemm_slot, .alu_slot, .load_slot,
        .stall_load_token(compute_stall_load), .stall_store_token(compute_stall_store),
        .stall_dram(compute_stall_dram), .drain(compute_drain), .gemm_op, .alu_op, .uop_loaded,
        .acc_loaded, .acc_written, .fault(compute_fault));

    // --------------------------------------------------------------------------- store unit
    logic store_active, store_waits, store_busy, store_stall_token, store_stall_dram, store_fault;
    logic [4:0] stored;

    store_unit store (
        .clk, .rst, .insn_valid(unit_valid[2]), .insn_ready(unit_ready[2]), .insn,
        .token_available(offered[2]), .token_pop(g2s_pop), .token_push(s2g_push),
        .out_origin(origins[4*ADDR_BITS +: ADDR_BITS]),
        .sram_en(out_en), .sram_index(out_index), .sram_data(out_data),
        .wr_req_valid, .wr_req_ready, .wr_req_address, .wr_req_beats,
        .wr_valid, .wr_ready, .wr_data, .wr_strobe, .wr_ack, .stored,
        .active(store_active), .waiting_token(store_waits), .busy(store_busy),
        .stall_token(store_stall_token), .stall_dram(store_stall_dram), .fault(store_fault));

    // ---------------------------------------------------------------------------- DRAM port
    dram_port port (
        .clk, .rst, .client_valid, .client_ready, .client_address, .client_beats,
        .client_data_valid, .client_data,
        .rd_req_valid, .rd_req_ready, .rd_req_address, .rd_req_beats, .rd_req_client,
        .rd_valid, .rd_client, .rd_last, .rd_data, .reading);

    // ---------------------------------------------------------------- registers and counters
    // Nothing moves: the instructions are fetched or stuck, and no unit does or awaits anything
    // but a token.
    assign quiet = (!fetching || dispatch_stalled) && !reading && !rd_req_valid && !load_active
                   && !compute_active && !store_active;

    wire token_overflow = l2g_overflow || g2l_overflow || g2s_overflow || s2g_overflow;
    wire early_finish   = finish && (fetching || load_active || compute_followed || store_active);
    wire [FAULTS-1:0] faults =
        {memory_error, early_finish, token_overflow, store_fault, compute_fault, load_fault,
         dispatch_fault};

    logic [5*COUNTERS-1:0] steps;
    always_comb begin
        steps = '0;
        steps[5*COUNT_INSTRUCTIONS +: 5]              = 5'(insn_valid && insn_ready);
        steps[5*COUNT_FETCH_STALL_QUEUE +: 5]         = 5'(dispatch_stalled);
        steps[5*COUNT_LOAD_BUSY +: 5]                 = 5'(load_busy);
        steps[5*COUNT_LOAD_STALL_TOKEN +: 5]          = 5'(load_stall_token);
        steps[5*COUNT_LOAD_STALL_DRAM +: 5]           = 5'(load_stall_dram);
        steps[5*COUNT_LOAD_IDLE +: 5]                 = 5'(!(load_busy || load_stall_token
                                                             || load_stall_dram));
        steps[5*COUNT_COMPUTE_GEMM +: 5]              = 5'(gemm_slot);
        steps[5*COUNT_COMPUTE_ALU +: 5]               = 5'(alu_slot);
        steps[5*COUNT_COMPUTE_LOAD +: 5]              = 5'(load_slot);
        steps[5*COUNT_COMPUTE_STALL_LOAD_TOKEN +: 5]  = 5'(compute_stall_load);
        steps[5*COUNT_COMPUTE_STALL_STORE_TOKEN +: 5] = 5'(compute_stall_store);
        steps[5*COUNT_COMPUTE_STALL_DRAM +: 5]        = 5'(compute_stall_dram);
        steps[5*COUNT_COMPUTE_DRAIN +: 5]             = 5'(compute_drain);
        steps[5*COUNT_COMPUTE_IDLE +: 5]              = 5'(!(gemm_slot || alu_slot || load_slot
            || compute_stall_load || compute_stall_store || compute_stall_dram || compute_drain));
        steps[5*COUNT_STORE_BUSY +: 5]                = 5'(store_busy);
        steps[5*COUNT_STORE_STALL_TOKEN +: 5]         = 5'(store_stall_token);
        steps[5*COUNT_STORE_STALL_DRAM +: 5]          = 5'(store_stall_dram);
        steps[5*COUNT_STORE_IDLE +: 5]                = 5'(!(store_busy || store_stall_token
                                                             || store_stall_dram));
        steps[5*COUNT_PORT_READ_BURSTS +: 5]          = 5'(rd_req_valid && rd_req_ready);
        steps[5*COUNT_PORT_READ_BEATS +: 5]           = 5'(rd_valid);
        steps[5*COUNT_PORT_READ_STALL +: 5]           = 5'(rd_req_valid && !rd_req_ready);
        steps[5*COUNT_PORT_WRITE_BURSTS +: 5]         = 5'(wr_req_valid && wr_req_ready);
        steps[5*COUNT_PORT_WRITE_BEATS +: 5]          = 5'(wr_valid && wr_ready);
        steps[5*COUNT_INP_ELEMENTS +: 5]              = load_wr_memory == MEM_INP ? loaded : '0;
        steps[5*COUNT_WGT_ELEMENTS +: 5]              = load_wr_memory == MEM_WGT ? loaded : '0;
        steps[5*COUNT_ACC_ELEMENTS +: 5]              = acc_loaded;
        steps[5*COUNT_UOP_ELEMENTS +: 5]              = uop_loaded;
        steps[5*COUNT_OUT_ELEMENTS +: 5]              = stored;
        steps[5*COUNT_GEMM_OPS +: 5]                  = 5'(gemm_op);
        steps[5*COUNT_ALU_OPS +: 5]                   = 5'(alu_op);
    end

    registers csr (
        .clk, .rst, .csr_we, .csr_address, .csr_wdata, .csr_rdata, .launch, .insn_count,
        .insn_address, .origins, .finished, .fault, .finish, .quiet, .faults,
        .waits({store_waits, compute_waits_store, compute_waits_load, load_waits}),
        .tokens,
        .acc_written, .event_steps(steps));
endmodule
