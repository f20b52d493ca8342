// Compute unit: executes GEMM, ALU, LOAD UOP, LOAD ACC, LOAD ACC_8BIT and FINISH in program order.
// Its neighbours: the load unit before, the store unit after. Holds the micro-op, accumulator and
// output scratchpads. The output scratchpad mirrors the low bits of the accumulators, so that the
// store unit has a read port of its own.
//
// Way of an instruction: command queue, then `next` (its tokens are taken; a LOAD already requests
// its data), then `current` (issues one slot per cycle into the pipeline), then the pipeline; its
// tokens are pushed when its last slot leaves, so completion is in order.
//
// Pipeline: S0 read the micro-op | S1 add the loop offsets | S2 read the input and weight tiles |
//   S3 multiply | S4 sum, read the accumulator | S5 accumulate or ALU, write the accumulator.
// Hazard:   an accumulator is written one cycle after it is read, so only the slot directly before
//   can be missed: its result is forwarded (S4 compares with S5). No other stall exists: GEMM and
//   ALU with an immediate issue one micro-op per cycle, ALU with a tensor operand one in two
//   cycles (a slot reads the source tile, the next the destination); instructions follow
//   each other without a gap.
//   LOAD UOP writes while a GEMM or ALU instruction runs, except into the range of its micro-ops;
//   LOAD ACC writes when the pipeline is empty.
//
// Ports:   insn_*: instructions; load_token_*, store_token_*: tokens from and to the two
//          neighbours; inp_*, wgt_*: read ports of the load unit's scratchpads; out_*: read port
//          for the store unit; finished: FINISH executes; followed: there are instructions
//          behind the one that leaves the pipeline; the rest are events for the counters.
module compute_unit
    import vta_pkg::*;
(
    input  logic                          clk,
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
    input  logic [ADDR_BITS-1:0]          uop_origin,
    input  logic [ADDR_BITS-1:0]          acc_origin,
    // DRAM read port
    output logic                          req_valid,
    input  logic                          req_ready,
    output logic [ADDR_BITS-1:0]          req_address,
    output logic [BEATS_BITS-1:0]         req_beats,
    input  logic                          data_valid,
    input  logic [PORT_BITS-1:0]          data,
    // scratchpads
    output logic                          operands_en,
    output logic [INP_INDEX_BITS-1:0]     inp_index,
    input  logic [INP_BITS-1:0]           inp_tile,
    output logic [WGT_INDEX_BITS-1:0]     wgt_index,
    input  logic [WGT_BITS-1:0]           wgt_tile,
    input  logic                          out_en,
    input  logic [OUT_INDEX_BITS-1:0]     out_index,
    output logic [OUT_SLOTS*OUT_BITS-1:0] out_data,
    // events
    output logic                          finished,
    output logic                          followed,
    output logic                          active,
    output logic                          waiting_load_token,
    output logic                          waiting_store_token,
    output logic                          gemm_slot,
    output logic                          alu_slot,
    output logic                          load_slot,
    output logic                          stall_load_token,
    output logic                          stall_store_token,
    output logic                          stall_dram,
    output logic                          drain,
    output logic                          gemm_op,
    output logic                          alu_op,
    output logic [4:0]                    uop_loaded,
    output logic [4:0]                    acc_loaded,
    output logic                          acc_written,
    output logic                          fault
);
    localparam int SLOTS = UOP_SLOTS > OUT_SLOTS ? UOP_SLOTS : OUT_SLOTS;

    // What an instruction is to this unit.
    typedef enum logic [1:0] {LOOP, LOAD, OTHER} kind_t;

    // One step in the pipeline. `data` is low in a slot that only carries tokens or FINISH.
    typedef struct packed {
        logic        data;
        logic        is_alu;
        logic        reset;
        logic        reads_src;  // first slot of an ALU micro-op with tensor operand
        logic        use_imm;
        logic [2:0]  alu_op;
        logic [15:0] imm;
        logic        last;       // of its instruction
        logic        push_prev;
        logic        push_next;
        logic        finish;
    } slot_t;

    // ------------------------------------------------------------- command queue, tokens, next
    logic head_valid, head_taken;
    logic [INSN_BITS-1:0] head, next_insn, current_insn;
    logic next_valid, current_valid, next_started, load_start_ready;
    kind_t next_kind, current_kind;

    fifo #(.WIDTH(INSN_BITS), .DEPTH(COMMAND_DEPTH)) commands (
        .clk, .rst, .in_valid(insn_valid), .in_ready(insn_ready), .in_data(insn),
        .out_valid(head_valid), .out_ready(head_taken), .out_data(head));

    /* verilator lint_off UNUSEDSIGNAL */
    gemm_t head_gemm, next_gemm, current_gemm;
    alu_t  current_alu;
    load_t next_load, loading_insn;
    /* verilator lint_on UNUSEDSIGNAL */
    assign head_gemm    = head;
    assign next_gemm    = next_insn;
    assign next_load    = next_insn;
    assign current_gemm = current_insn;
    assign current_alu  = current_insn;

    wire load_token_missing  = head_gemm.pop_prev && !load_token_available;
    wire store_token_missing = head_gemm.pop_next && !store_token_available;
    wire tokens_missing      = load_token_missing || store_token_missing;
    logic ends_current;
    wire load_start  = next_valid && next_kind == LOAD && !next_started;
    wire next_moves  = next_valid && (!current_valid || ends_current)
                       && (next_kind != LOAD || next_started || load_start_ready);
    wire next_free   = !next_valid || next_moves;
    assign head_taken = next_free && !tokens_missing;
    wire enter_next  = head_valid && head_taken;
    assign load_token_pop  = enter_next && head_gemm.pop_prev;
    assign store_token_pop = enter_next && head_gemm.pop_next;

    always_comb begin
        case (next_gemm.opcode)
            OP_GEMM, OP_ALU:
                next_kind = 32'(next_gemm.uop_end) > 32'(next_gemm.uop_begin)
                            && next_gemm.iter_in != '0 && next_gemm.iter_out != '0 ? LOOP : OTHER;
            OP_LOAD: next_kind = next_load.x_size != '0 ? LOAD : OTHER;
            default: next_kind = OTHER;
        endcase
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            next_valid    <= 1'b0;
            current_valid <= 1'b0;
        end else begin
            if (next_free) next_valid <= enter_next;
            if (next_moves) current_valid <= 1'b1;
            else if (ends_current) current_valid <= 1'b0;
        end
        if (enter_next) next_insn <= head;
        if (next_free) next_started <= 1'b0;
        else if (load_start && load_start_ready) next_started <= 1'b1;
        if (next_moves) begin
            current_insn <= next_insn;
            current_kind <= next_kind;
        end
    end

    // ---------------------------------------------------------------- loads of UOP, ACC, ACC_8BIT
    logic load_valid, load_zero, load_done, requesting, loading, waiting_dram, load_fault;
    logic load_allowed;
    logic [2:0] load_memory;
    /* verilator lint_off UNUSEDSIGNAL */
    logic [SRAM_BITS-1:0] load_index, load_first;  // wider than the scratchpads
    /* verilator lint_on UNUSEDSIGNAL */
    logic [SLOTS-1:0] load_slots;
    logic [PART_BITS-1:0] load_part;
    logic [PORT_BITS-1:0] load_data;
    logic [4:0] loaded;
    logic [1:0] loads_done;  // completed, not yet retired

    tensor_load #(.SLOTS(SLOTS)) loader (
        .clk, .rst,
        .start_valid(load_start), .start_ready(load_start_ready), .start_insn(next_load),
        .start_dram_origin(next_load.memory == MEM_UOP ? uop_origin : acc_origin),
        .req_valid, .req_ready, .req_address, .req_beats, .data_valid, .data,
        .allow(load_allowed), .wr_valid(load_valid), .wr_memory(load_memory),
        .wr_index(load_index), .wr_first(load_first), .wr_slots(load_slots), .wr_part(load_part),
        .wr_zero(load_zero),
        .wr_data(load_data), .done(load_done), .done_insn(loading_insn), .loaded, .requesting,
        .writing(loading), .waiting_dram, .fault(load_fault));

    wire is_uop = load_memory == MEM_UOP;
    wire current_loops = current_valid && current_kind == LOOP;
    wire uop_in_use = current_loops
        && 18'(load_first) < 18'(current_gemm.uop_end)
        && 18'(load_first) + 18'(UOP_SLOTS) > 18'(current_gemm.uop_begin);
    logic pipeline_empty;
    assign load_allowed = is_uop ? !uop_in_use : !current_loops && pipeline_empty;

    wire retire_load = current_valid && current_kind == LOAD && loads_done != '0;
    always_ff @(posedge clk) begin
        if (rst) loads_done <= '0;
        else if (load_done != retire_load)
            loads_done <= load_done ? loads_done + 1'b1 : loads_done - 1'b1;
    end

    // ----------------------------------------------------------------------------- S0: issue
    logic second_half, last_iteration;
    logic [UOP_INDEX_BITS-1:0] uop_index;
    logic [ACC_INDEX_BITS-1:0] dst_offset;
    logic [SRC_BITS-1:0]       src_offset;
    logic [WGT_INDEX_BITS-1:0] wgt_offset;

    wire current_is_alu = current_gemm.opcode == OP_ALU;
    wire two_slots = current_is_alu && !current_alu.use_imm;
    wire ends_micro_op = !two_slots || second_half;
    wire issue = current_valid && (current_kind != LOAD || retire_load);
    assign ends_current = issue && (current_kind != LOOP || ends_micro_op && last_iteration);

    micro_op_sequencer sequencer (
        .clk, .load(next_moves && next_kind == LOOP), .insn(next_insn),
        .step(current_loops && ends_micro_op),
        .uop_index, .dst_offset, .src_offset, .wgt_offset, .last(last_iteration));

    always_ff @(posedge clk) begin
        if (rst) second_half <= 1'b0;
        else if (current_loops) second_half <= two_slots && !second_half;
    end

    slot_t issued;
    always_comb begin
        issued.data      = current_loops;
        issued.is_alu    = current_is_alu;
        issued.reset     = current_gemm.reset;
        issued.reads_src = two_slots && !second_half;
        issued.use_imm   = current_alu.use_imm;
        issued.alu_op    = current_alu.alu_op;
        issued.imm       = current_alu.imm;
        issued.last      = ends_current;
        issued.push_prev = current_gemm.push_prev;
        issued.push_next = current_gemm.push_next;
        issued.finish    = current_gemm.opcode == OP_FINISH;
    end

    // ------------------------------------------------------------------------------ pipeline
    slot_t s1, s2, s3, s4, s5;
    logic  v1, v2, v3, v4, v5;
    assign pipeline_empty = !(v1 || v2 || v3 || v4 || v5);

    always_ff @(posedge clk) begin
        if (rst) {v1, v2, v3, v4, v5} <= '0;
        else {v1, v2, v3, v4, v5} <= {issue, v1, v2, v3, v4};
        if (issue) s1 <= issued;
        if (v1) s2 <= s1;
        if (v2) s3 <= s2;
        if (v3) s4 <= s3;
        if (v4) s5 <= s4;
    end

    // S1: the micro-op arrives from its scratchpad.
    /* verilator lint_off UNUSEDSIGNAL */
    micro_op_t uop;
    /* verilator lint_on UNUSEDSIGNAL */
    logic [ACC_INDEX_BITS-1:0] dst1, dst2, dst3, dst4, dst5;
    logic [SRC_BITS-1:0]       src1, src2;
    logic [ACC_INDEX_BITS-1:0] src3, src4;
    logic [WGT_INDEX_BITS-1:0] wgt1, wgt2;

    banked_sram #(.WIDTH(UOP_BITS), .DEPTH(UOP_DEPTH), .BANKS(UOP_SLOTS)) uop_mem (
        .clk,
        .wr_slots(load_valid && is_uop ? load_slots[UOP_SLOTS-1:0] : '0), .wr_lanes(1'b1),
        .wr_index(load_index[UOP_INDEX_BITS-1:0]), .wr_data(load_zero ? '0 : load_data),
        .rd_en(current_loops), .rd_index(uop_index), .rd_data(uop));

    always_ff @(posedge clk) begin
        if (current_loops) begin
            dst1 <= dst_offset;
            src1 <= src_offset;
            wgt1 <= wgt_offset;
        end
        if (v1) begin
            dst2 <= uop.dst + dst1;
            src2 <= uop.src + src1;
            wgt2 <= uop.wgt + wgt1;
        end
        if (v2) begin
            dst3 <= dst2;
            src3 <= ACC_INDEX_BITS'(src2);
        end
        if (v3) begin
            dst4 <= dst3;
            src4 <= src3;
        end
        if (v4) dst5 <= dst4;
    end

    // S2 to S4: tile product.
    logic [ACC_BITS-1:0] sums;
    wire multiply = v3 && s3.data && !s3.is_alu && !s3.reset;
    wire add      = v4 && s4.data && !s4.is_alu && !s4.reset;
    assign operands_en = v2 && s2.data && !s2.is_alu && !s2.reset;
    assign inp_index   = INP_INDEX_BITS'(src2);
    assign wgt_index   = wgt2;
    gemm_core core (.clk, .multiply, .add, .inp(inp_tile), .wgt(wgt_tile), .sums);

    // S4: read the accumulator, or learn that S5 is writing it just now.
    wire [ACC_INDEX_BITS-1:0] acc_index = s4.reads_src ? src4 : dst4;
    wire reads_acc = v4 && s4.data;
    wire writes_acc = v5 && s5.data && !s5.reads_src;
    logic forward;
    logic [ACC_BITS-1:0] acc_read, acc_old, acc_new, forwarded, operand, alu_result;
    always_ff @(posedge clk) begin
        forward <= writes_acc && dst5 == acc_index;
        if (writes_acc) forwarded <= acc_new;
        if (v5 && s5.reads_src) operand <= acc_old;
    end

    // S5: accumulate or ALU.
    wire [ACC_WIDTH-1:0] imm = {{(ACC_WIDTH-16){s5.imm[15]}}, s5.imm};
    assign acc_old = forward ? forwarded : acc_read;
    vector_alu alu_lanes (.enable(writes_acc && s5.is_alu), .op(s5.alu_op), .x(acc_old),
                          .y(s5.use_imm ? {ACC_LANES{imm}} : operand), .result(alu_result));
    always_comb begin
        acc_new = alu_result;  // zero when the ALU is not enabled: a reset
        if (!s5.is_alu && !s5.reset)
            for (int l = 0; l < ACC_LANES; l++)
                acc_new[l*ACC_WIDTH +: ACC_WIDTH] =
                    acc_old[l*ACC_WIDTH +: ACC_WIDTH] + sums[l*ACC_WIDTH +: ACC_WIDTH];
    end

    // ------------------------------------------------------- accumulator and output scratchpads
    logic [OUT_SLOTS-1:0]          acc_slots;
    logic [ACC_LANES-1:0]          acc_lanes;
    logic [ACC_INDEX_BITS-1:0]     acc_wr_index;
    logic [OUT_SLOTS*ACC_BITS-1:0] acc_wr_data, expanded;
    logic [ACC_LANES-1:0]          expanded_lanes;
    wire load_acc = load_valid && !is_uop;

    acc_expand expand (.memory(load_memory), .part(load_part), .zero(load_zero),
                       .beat(load_data), .lanes(expanded_lanes), .elements(expanded));

    always_comb begin
        acc_slots    = load_acc ? load_slots[OUT_SLOTS-1:0] : OUT_SLOTS'(writes_acc);
        acc_lanes    = load_acc ? expanded_lanes : '1;
        acc_wr_index = load_acc ? ACC_INDEX_BITS'(load_index) : dst5;
        acc_wr_data  = load_acc ? expanded : (OUT_SLOTS*ACC_BITS)'(acc_new);
    end

    banked_sram #(.WIDTH(ACC_BITS), .DEPTH(ACC_DEPTH), .LANES(ACC_LANES),
                  .BANKS(OUT_SLOTS)) acc_mem (
        .clk, .wr_slots(acc_slots), .wr_lanes(acc_lanes), .wr_index(acc_wr_index),
        .wr_data(acc_wr_data), .rd_en(reads_acc), .rd_index(acc_index), .rd_data(acc_read));

    logic [OUT_SLOTS*OUT_BITS-1:0] out_wr_data;
    for (genvar l = 0; l < OUT_SLOTS * ACC_LANES; l++) begin : g_narrow
        assign out_wr_data[l*OUT_WIDTH +: OUT_WIDTH] = acc_wr_data[l*ACC_WIDTH +: OUT_WIDTH];
    end
    banked_sram #(.WIDTH(OUT_BITS), .DEPTH(OUT_DEPTH), .LANES(ACC_LANES), .BANKS(OUT_SLOTS),
                  .READ_SLOTS(OUT_SLOTS)) out_mem (
        .clk, .wr_slots(acc_slots), .wr_lanes(acc_lanes), .wr_index(acc_wr_index),
        .wr_data(out_wr_data), .rd_en(out_en), .rd_index(out_index), .rd_data(out_data));

    // --------------------------------------------------------------------- completion, events
    wire retires = v5 && s5.last;
    assign load_token_push  = retires && s5.push_prev;
    assign store_token_push = retires && s5.push_next;
    assign finished         = retires && s5.finish;
    assign followed         = head_valid || next_valid || current_valid || v1 || v2 || v3 || v4;

    assign gemm_op    = writes_acc && !s5.is_alu && !s5.reset;
    assign alu_op     = writes_acc && s5.is_alu;
    assign uop_loaded = is_uop ? loaded : '0;
    assign acc_loaded = is_uop ? '0 : loaded;
    assign acc_written = writes_acc || load_acc;
    assign fault      = load_fault;

    assign waiting_load_token  = head_valid && load_token_missing;
    assign waiting_store_token = head_valid && store_token_missing;
    assign active = next_valid || current_valid || !pipeline_empty || loading || requesting
                    || head_valid && !tokens_missing;

    // Exactly one of these, or none (idle), per cycle.
    wire waits = !current_loops && !load_slot;
    assign gemm_slot   = current_loops && !current_is_alu;
    assign alu_slot    = current_loops && current_is_alu;
    assign load_slot   = load_valid && !current_loops;
    assign stall_dram  = waits && (loading || requesting) && !(loading && !load_allowed);
    assign drain       = waits && !stall_dram
                         && (loading || current_valid || next_valid
                             || !pipeline_empty && !tokens_missing);
    assign stall_load_token  = waits && !stall_dram && !drain && waiting_load_token;
    assign stall_store_token = waits && !stall_dram && !drain && !stall_load_token
                               && waiting_store_token;
    wire unused_waiting = waiting_dram;
endmodule
