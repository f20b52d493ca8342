// Compute unit: executes GEMM, ALU, LOAD UOP, LOAD ACC, LOAD ACC_8BIT and FINISH in program order.
// Its neighbours are the load unit before and the store unit after. Its parts, in the order in which
// an instruction passes them:
//
//   compute_decode    command queue, tokens, next and current instruction
//   compute_load      data of LOAD instructions
//   compute_issue     S0: issues one slot per cycle into the pipeline
//   compute_operands  S1, S2: micro-op, indices, tiles
//   compute_execute   S3 to LAST: tile product, ALU, accumulators, and their hazards
//   compute_output    output scratchpad, and the path to it
//
// Neither the order of the accumulators nor that of the instructions costs a cycle: GEMM, and ALU with
// an immediate, issue one micro-op per cycle, ALU with a tensor operand one per two cycles;
// instructions follow each other without a gap. The tokens of an instruction are pushed when its
// last slot leaves the pipeline, so instructions complete in order.
//
// Ports:   insn_*: instructions; load_token_*, store_token_*: tokens from and to the two
//          neighbours; inp_*, wgt_*: read ports of the load unit's scratchpads (pair, second_*: a
//          second read in the same cycle); array_clk, second_half: see operand_reads.sv; par_*: LOAD
//          POST, from the load unit; out_*: read port of the store unit; forward_*: of the load unit;
//          finished: FINISH executes; followed: instructions follow the one that leaves the pipeline;
//          acc_written: accumulators are written; events: increments of the counters, exactly one
//          of compute_gemm, _alu, _load, _stall_*, _drain, _idle.
module compute_unit
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                          clk,
    input  logic                          array_clk,
    input  logic                          second_half,
    input  logic                          rst,
    input  logic                          insn_valid,
    output logic                          insn_ready,
    input  logic [INSN_BITS-1:0]          insn,
    input  logic                          load_token_available,
    output logic                          load_token_pop,
    output logic                          load_token_push,
    input  logic                          store_token_available,
    output logic                          store_token_pop,
    output logic                          store_token_push,
    input  origins_t                      origins,
    // DRAM read port
    output logic                          req_valid,
    input  logic                          req_ready,
    output burst_t                        req,
    input  logic                          data_valid,
    input  logic [PORT_BITS-1:0]          data,
    // scratchpads
    output logic                          inputs_en,
    output logic                          inputs_all,
    output logic                          pair,
    output logic [INP_INDEX_BITS-1:0]     inp_index,
    output logic [INP_INDEX_BITS-1:0]     second_inp_index,
    input  logic [INP_READS*INP_BITS-1:0] inp_tiles,
    output logic                          weights_en,
    output logic [WGT_INDEX_BITS-1:0]     wgt_index,
    output logic [WGT_INDEX_BITS-1:0]     second_wgt_index,
    input  logic [WGT_BITS-1:0]           wgt_tile,
    input  load_write_t                   par_write,
    input  logic [PORT_BITS-1:0]          par_word,
    input  logic                          out_en,
    input  logic [OUT_INDEX_BITS-1:0]     out_index,
    output logic [OUT_SLOTS*OUT_BITS-1:0] out_data,
    input  logic                          forward_en,
    input  logic                          forward_all,
    input  logic [OUT_INDEX_BITS-1:0]     forward_index,
    output logic [FORWARD_BITS-1:0]       forward_data,
    // events
    output logic                          finished,
    output logic                          followed,
    output logic                          active,
    output logic                          waiting_load_token,
    output logic                          waiting_store_token,
    output logic                          acc_written,
    output events_t                       events,
    output logic                          fault
);
    // ------------------------------------------------------------------ instructions and loads
    command_t next, current, then_current;
    block_t next_block;
    logic next_moves, current_valid, then_valid, ends_current, queued, holding, load_start_valid;
    logic load_start_ready, load_complete, requesting, loading, held_back;
    logic [EVENT_BITS-1:0] uop_loaded, acc_loaded;
    load_write_t load;
    logic [PORT_BITS-1:0] load_word;
    /* verilator lint_off UNUSEDSIGNAL */
    logic [COMPUTE_DEPTH:1] occupied;  // stages of the pipeline
    /* verilator lint_on UNUSEDSIGNAL */
    logic pipeline_empty, empties;
    wire loops = current_valid && current.kind == KIND_LOOP;

    compute_decode decode (
        .clk, .rst, .insn_valid, .insn_ready, .insn, .origins, .load_token_available,
        .load_token_pop, .store_token_available, .store_token_pop, .next, .next_block, .next_moves, .load_start_valid,
        .load_start_ready, .current_valid, .current, .then_valid, .then_current, .ends_current, .waiting_load_token,
        .waiting_store_token, .queued, .holding);

    compute_load #(.SLOTS(UOP_SLOTS > OUT_SLOTS ? UOP_SLOTS : OUT_SLOTS)) loads (
        .clk, .rst, .start_valid(load_start_valid), .start_ready(load_start_ready),
        .start_insn(next.insn), .start_block(next_block), .req_valid, .req_ready, .req, .data_valid, .data,
        .write(load), .word(load_word),
        .then_loops(then_valid && then_current.kind == KIND_LOOP), .then_insn(then_current.insn),
        .then_empty(empties), .complete(load_complete),
        .retire(ends_current && current.kind == KIND_LOAD), .requesting, .writing(loading),
        .held_back, .uop_loaded, .acc_loaded, .fault);

    // -------------------------------------------------------------------------------- pipeline
    logic issue_valid, issue_ready, moves, splits, operands_valid, leaving;
    slot_t issued, with_operands;
    /* verilator lint_off UNUSEDSIGNAL */
    slot_t last;
    /* verilator lint_on UNUSEDSIGNAL */
    logic [UOP_INDEX_BITS-1:0] uop_index;
    offsets_t offsets;
    operands_t operands;
    logic [POST_ROW_BITS-1:0] row_factor_out, row_factor_in;
    post_slot_t set;
    acc_write_t write;
    logic [ACC_BITS-1:0] tile;
    logic [OUT_SLOTS*ACC_BITS-1:0] elements;
    logic storing;
    wire writes = leaving && last.writes;

    compute_issue issue (
        .clk, .rst, .next, .next_moves, .current_valid, .current, .load_complete, .issue_valid,
        .issue_ready, .slot(issued), .uop_index, .offsets, .row_factor_out, .row_factor_in,
        .ends_current);

    compute_operands reads (
        .clk, .rst, .issue_valid, .issue_ready, .slot(issued), .uop_index, .offsets,
        .write(load), .word(load_word), .inputs_en, .inputs_all, .weights_en,
        .out_valid(operands_valid), .out_slot(with_operands), .operands,
        .second_inp(second_inp_index), .second_wgt(second_wgt_index), .moves, .splits,
        .occupied(occupied[2:1]));
    // The same as `occupied == '0`, known at the start of the cycle, because loads start with it. A
    // slot that issue_ready blocks waits for slots in the pipeline.
    assign empties = rst || !issue_valid && occupied[COMPUTE_DEPTH-1:1] == '0;
    always_ff @(posedge clk) pipeline_empty <= empties;
    assign pair      = with_operands.pair;
    assign inp_index = operands.inp;
    assign wgt_index = operands.wgt;

    compute_execute execute (
        .clk, .array_clk, .second_half, .rst, .in_valid(operands_valid), .in_slot(with_operands), .operands, .inp_tiles,
        .wgt_tile, .load, .word(load_word), .out_valid(leaving), .out_slot(last), .tile, .write, .elements,
        .occupied(occupied[COMPUTE_DEPTH:3]));

    post_settings settings (
        .clk, .rst, .next_insn(next.insn), .next_moves, .finished, .row_factor_out, .row_factor_in,
        .row(offsets.row), .enters(issue_valid && issue_ready), .moves, .set);

    compute_output outputs (
        .clk, .rst, .write, .elements, .tile_valid(writes), .tile, .set, .par_write, .par_word,
        .store_token_in(leaving && last.last && last.push_next), .store_token_push,
        .load_token_in(leaving && last.last && last.push_prev), .load_token_push, .storing,
        .out_en, .out_index, .out_data, .forward_en, .forward_all, .forward_index, .forward_data);

    // --------------------------------------------------------------------- completion, events
    assign finished        = leaving && last.last && last.finish;
    wire waiting           = waiting_load_token || waiting_store_token;
    assign followed        = queued || holding || occupied[COMPUTE_DEPTH-1:1] != '0;
    // A LOAD is the next or the current instruction until its data are written.
    assign active          = queued && !waiting || holding || !pipeline_empty || storing;
    assign acc_written     = writes || load.valid && load.memory != MEM_UOP;

    // Exactly one of these, or none (idle), per cycle.
    wire is_alu     = issued.is_alu;
    wire gemm_slot  = splits || loops && issue_ready && !is_alu;
    wire alu_slot   = loops && issue_ready && is_alu;
    wire load_slot  = load.valid && !loops && !splits;
    wire waits      = !loops && !load_slot && !splits;
    wire stall_dram = waits && (loading || requesting) && !held_back;
    wire drain      = loops && !issue_ready && !splits
                      || waits && !stall_dram
                         && (holding || !pipeline_empty && !waiting);
    wire stall_load_token  = waits && !stall_dram && !drain && waiting_load_token;
    wire stall_store_token = waits && !stall_dram && !drain && !stall_load_token
                             && waiting_store_token;
    always_comb begin
        events = '0;
        events.compute_gemm              = EVENT_BITS'(gemm_slot);
        events.compute_alu               = EVENT_BITS'(alu_slot);
        events.compute_load              = EVENT_BITS'(load_slot);
        events.compute_stall_load_token  = EVENT_BITS'(stall_load_token);
        events.compute_stall_store_token = EVENT_BITS'(stall_store_token);
        events.compute_stall_dram        = EVENT_BITS'(stall_dram);
        events.compute_drain             = EVENT_BITS'(drain);
        events.compute_idle              = EVENT_BITS'(
            !(gemm_slot || alu_slot || load_slot || stall_load_token || stall_store_token
              || stall_dram || drain));
        events.uop_elements              = uop_loaded;
        events.acc_elements              = acc_loaded;
        events.gemm_ops                  = EVENT_BITS'(writes && last.gemm)
                                           << (HAS_PAIRS != 0 && last.pair);
        events.alu_ops                   = EVENT_BITS'(writes && last.is_alu);
    end
endmodule
