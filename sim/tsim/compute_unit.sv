// Compute unit: executes GEMM, ALU, LOAD UOP, LOAD ACC, LOAD ACC_8BIT and FINISH in program order.
// Its neighbours: the load unit before, the store unit after. Holds the micro-op, accumulator and
// output scratchpads. The output scratchpad mirrors the low bits of the accumulators, so that the
// store unit has a read port of its own.
//
// Way of an instruction: command queue, then `next` (its tokens are taken; a LOAD already requests
// its data), then `current` (issues one slot per cycle into the pipeline), then the pipeline; its
// tokens are pushed when its last slot leaves, so completion is in order.
//
// Pipeline, for an adder tree of two stages (TREE_STAGES; every further one moves what follows):
//   S0 read the micro-op | S1 add the loop offsets | S2 read the input and weight tiles |
//   S3 register them | S4 multiply | S5, S6 adder tree | S7 accumulate or ALU | S8 write.
//   The accumulator is read in S5 (READ) and registered in S6 (ALIGN), to meet the tile product in
//   S7 (EXECUTE); it is written in S8 (LAST), where a MUL is put together from its partial products.
// Hazards:  an accumulator is written three cycles after it is read. READ compares its index with
//   those of the three slots before, and the nearest that writes it is forwarded: from the slot
//   directly before in EXECUTE, from the two others in ALIGN. So neither the order of the
//   accumulators nor that of the instructions costs a cycle: GEMM and ALU with an immediate issue
//   one micro-op per cycle, ALU with a tensor operand one in two cycles (a slot reads the source
//   tile, the next the destination); instructions follow each other without a gap. One exception:
//   the result of a MUL is known one stage late, so a slot that reads what the MUL directly before
//   it writes is held in S2 for a cycle.
//   With the extension OVERWRITE a GEMM may take zero in place of the accumulator: ALIGN puts it.
//   With the extension POST the writes to the output scratchpad, and the tokens that tell of them,
//   pass through post_process.
//   LOAD UOP writes while a GEMM or ALU instruction runs, except into the range of its micro-ops;
//   LOAD ACC writes when the pipeline is empty.
//
// Ports:   insn_*: instructions; load_token_*, store_token_*: tokens from and to the two
//          neighbours; inp_*, wgt_*: read ports of the load unit's scratchpads; par_*: writes of
//          the parameters of the extension POST; out_*: read port for the store unit; finished: FINISH executes; followed: there are instructions
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
    input  logic [POST_SLOTS-1:0]         par_slots,
    input  logic [POST_PARTS-1:0]         par_lanes,
    input  logic [POST_INDEX_BITS-1:0]    par_index,
    input  logic [POST_BITS*POST_SLOTS-1:0] par_data,
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

    localparam int LAST = COMPUTE_DEPTH;
    localparam int EXECUTE = LAST - 1;
    localparam int ALIGN = LAST - 2;
    localparam int READ = LAST - 3;
    if (ALIGN != 2 + GEMM_STAGES) begin : g_depth
        $error("the accumulator must meet the tile product: COMPUTE_DEPTH is GEMM_STAGES + 4");
    end

    // One step in the pipeline. All flags are low in a slot that only carries tokens or FINISH.
    typedef struct packed {
        logic        data;       // reads an accumulator
        logic        writes;     // writes an accumulator
        logic        gemm;       // is a tile product
        logic        is_alu;
        logic        reset;
        logic        overwrite;  // the sum begins with zero, not with the accumulator
        logic        reads_src;  // first slot of an ALU micro-op with tensor operand
        logic        use_imm;
        logic        multiplies;
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

    command_queue commands (
        .clk, .rst, .in_valid(insn_valid), .in_ready(insn_ready), .in_insn(insn),
        .out_valid(head_valid), .out_ready(head_taken), .out_insn(head));

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

    logic hold;  // S0 to S2 wait for a MUL
    wire retire_load = current_valid && current_kind == LOAD && loads_done != '0 && !hold;
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
    wire issue = current_valid && (current_kind != LOAD || retire_load) && !hold;
    assign ends_current = issue && (current_kind != LOOP || ends_micro_op && last_iteration);

    // What POST has set: it counts from when the instruction becomes current, so for the next one.
    /* verilator lint_off UNUSEDSIGNAL */
    post_t next_post, post;
    logic [POST_ROW_BITS-1:0] row_offset;
    /* verilator lint_on UNUSEDSIGNAL */
    assign next_post = next_insn;
    if (HAS_POST != 0) begin : g_post_setting
        always_ff @(posedge clk) begin
            if (rst || finished) post <= '0;
            else if (next_moves && next_post.opcode == OP_POST) post <= next_post;
        end
    end else begin : g_no_post_setting
        assign post = '0;
    end

    micro_op_sequencer sequencer (
        .clk, .load(next_moves && next_kind == LOOP), .insn(next_insn),
        .step(current_loops && ends_micro_op && !hold),
        .uop_index, .dst_offset, .src_offset, .wgt_offset,
        .row_factor_out(post.row_factor_out), .row_factor_in(post.row_factor_in), .row_offset,
        .last(last_iteration));

    always_ff @(posedge clk) begin
        if (rst) second_half <= 1'b0;
        else if (current_loops && !hold) second_half <= two_slots && !second_half;
    end

    slot_t issued;
    always_comb begin
        issued.data       = current_loops;
        issued.reads_src  = current_loops && two_slots && !second_half;
        issued.writes     = current_loops && !issued.reads_src;
        issued.gemm       = current_loops && !current_is_alu && !current_gemm.reset;
        issued.is_alu     = current_is_alu;
        issued.reset      = current_gemm.reset;
        issued.overwrite  = HAS_OVERWRITE != 0 && issued.gemm && current_insn[OVERWRITE_BIT];
        issued.use_imm    = current_alu.use_imm;
        issued.multiplies = issued.writes && current_is_alu && current_alu.alu_op == ALU_MUL;
        issued.alu_op     = current_is_alu ? current_alu.alu_op : ALU_ADD;
        issued.imm        = current_alu.imm;
        issued.last       = ends_current;
        issued.push_prev  = current_gemm.push_prev;
        issued.push_next  = current_gemm.push_next;
        issued.finish     = current_gemm.opcode == OP_FINISH;
    end

    // ------------------------------------------------------------------------------ pipeline
    /* verilator lint_off UNUSEDSIGNAL */
    slot_t s [1:LAST];
    /* verilator lint_on UNUSEDSIGNAL */
    logic [LAST:1] v;
    logic [ACC_INDEX_BITS-1:0] dst   [2:LAST];
    logic [ACC_INDEX_BITS-1:0] index [2:READ];  // of the accumulator that is read
    assign pipeline_empty = v == '0;
    assign hold = v[2] && s[2].data && v[3] && s[3].multiplies && index[2] == dst[3];

    always_ff @(posedge clk) begin
        if (rst) v <= '0;
        else begin
            if (!hold) v[2:1] <= {v[1], issue};
            v[LAST:3] <= {v[LAST-1:3], v[2] && !hold};
        end
        if (issue) s[1] <= issued;
        if (v[1] && !hold) s[2] <= s[1];
        for (int i = 3; i <= LAST; i++) begin
            if (v[i-1]) s[i] <= s[i-1];
            if (v[i-1]) dst[i] <= dst[i-1];
        end
        for (int i = 3; i <= READ; i++) if (v[i-1]) index[i] <= index[i-1];
    end

    // S1: the micro-op arrives from its scratchpad.
    /* verilator lint_off UNUSEDSIGNAL */
    micro_op_t uop;
    /* verilator lint_on UNUSEDSIGNAL */
    logic [ACC_INDEX_BITS-1:0] dst1;
    logic [SRC_BITS-1:0]       src1, src2;
    logic [WGT_INDEX_BITS-1:0] wgt1, wgt2;
    wire [ACC_INDEX_BITS-1:0]  uop_dst = uop.dst + dst1;
    wire [SRC_BITS-1:0]        uop_src = uop.src + src1;

    banked_sram #(.WIDTH(UOP_BITS), .DEPTH(UOP_DEPTH), .BANKS(UOP_SLOTS)) uop_mem (
        .clk,
        .wr_slots(load_valid && is_uop ? load_slots[UOP_SLOTS-1:0] : '0), .wr_lanes(1'b1),
        .wr_index(load_index[UOP_INDEX_BITS-1:0]), .wr_data(load_zero ? '0 : load_data),
        .rd_en(current_loops && !hold), .rd_index(uop_index), .rd_data(uop));

    always_ff @(posedge clk) begin
        if (current_loops && !hold) begin
            dst1 <= dst_offset;
            src1 <= src_offset;
            wgt1 <= wgt_offset;
        end
        if (v[1] && !hold) begin
            dst[2]   <= uop_dst;
            index[2] <= s[1].reads_src ? ACC_INDEX_BITS'(uop_src) : uop_dst;
            src2     <= uop_src;
            wgt2     <= uop.wgt + wgt1;
        end
    end

    // S2 to ALIGN: tile product.
    logic [ACC_BITS-1:0] sums;
    logic [GEMM_STAGES-1:0] gemm_enable;
    for (genvar i = 0; i < GEMM_STAGES; i++) begin : g_enable
        assign gemm_enable[i] = v[3+i] && s[3+i].gemm;
    end
    assign operands_en = v[2] && s[2].gemm;
    assign inp_index   = INP_INDEX_BITS'(src2);
    assign wgt_index   = wgt2;
    gemm_core core (.clk, .enable(gemm_enable), .inp(inp_tile), .wgt(wgt_tile), .sums);

    // READ: read the accumulator, learn which of the three slots before will write it.
    wire writes_next = v[EXECUTE] && s[EXECUTE].writes;
    wire writes_acc  = v[LAST] && s[LAST].writes;
    logic hit1, hit2, hit3, near;
    logic [ACC_BITS-1:0] acc_read, acc_aligned, acc_old, written, retired, result, product;
    always_ff @(posedge clk) begin
        hit1 <= v[ALIGN] && s[ALIGN].writes && dst[ALIGN] == index[READ];
        hit2 <= writes_next && dst[EXECUTE] == index[READ];
        hit3 <= writes_acc && dst[LAST] == index[READ];
        near <= hit1 && !s[ALIGN].overwrite;
        if (v[ALIGN] && s[ALIGN].data)
            acc_aligned <= s[ALIGN].overwrite ? '0 : hit2 ? written : hit3 ? retired : acc_read;
        if (writes_acc) retired <= written;
    end

    // EXECUTE: accumulate or ALU. The second operand of the ALU is the immediate, or the
    // accumulator of the slot before.
    logic [ACC_BITS-1:0] second;
    logic [OUT_SLOTS*ACC_BITS-1:0] write_data, expanded;
    wire [ACC_WIDTH-1:0] imm = {{(ACC_WIDTH-16){s[ALIGN].imm[15]}}, s[ALIGN].imm};
    assign acc_old = near ? write_data[ACC_BITS-1:0] : acc_aligned;
    always_ff @(posedge clk) begin
        if (v[EXECUTE] && s[EXECUTE].reads_src) second <= acc_old;
        else if (v[ALIGN] && s[ALIGN].is_alu && s[ALIGN].use_imm) second <= {ACC_LANES{imm}};
    end
    vector_alu alu_lanes (
        .clk, .enable(writes_next), .clear(s[EXECUTE].reset && !s[EXECUTE].is_alu),
        .op(s[EXECUTE].alu_op), .x(acc_old), .y(s[EXECUTE].is_alu ? second : sums),
        .result, .product);

    // ------------------------------------------------------- accumulator and output scratchpads
    // LAST writes what EXECUTE or a load has registered.
    logic [OUT_SLOTS-1:0]          write_slots;
    logic [ACC_LANES-1:0]          write_lanes, expanded_lanes;
    logic [ACC_INDEX_BITS-1:0]     write_index;
    logic [OUT_SLOTS*ACC_BITS-1:0] acc_wr_data;
    wire load_acc = load_valid && !is_uop;

    acc_expand expand (.memory(load_memory), .part(load_part), .zero(load_zero),
                       .beat(load_data), .lanes(expanded_lanes), .elements(expanded));

    always_ff @(posedge clk) begin
        if (rst) write_slots <= '0;
        else write_slots <= load_acc ? load_slots[OUT_SLOTS-1:0] : OUT_SLOTS'(writes_next);
        write_lanes <= load_acc ? expanded_lanes : '1;
        write_index <= load_acc ? ACC_INDEX_BITS'(load_index) : dst[EXECUTE];
        if (load_acc) write_data <= expanded;
        else if (writes_next) write_data[ACC_BITS-1:0] <= result;
    end
    assign written = s[LAST].multiplies ? product : write_data[ACC_BITS-1:0];
    always_comb begin
        acc_wr_data = write_data;
        if (writes_acc) acc_wr_data[ACC_BITS-1:0] = written;
    end

    banked_sram #(.WIDTH(ACC_BITS), .DEPTH(ACC_DEPTH), .LANES(ACC_LANES),
                  .BANKS(OUT_SLOTS)) acc_mem (
        .clk, .wr_slots(write_slots), .wr_lanes(write_lanes), .wr_index(write_index),
        .wr_data(acc_wr_data), .rd_en(v[READ] && s[READ].data), .rd_index(index[READ]),
        .rd_data(acc_read));

    logic [OUT_SLOTS*OUT_BITS-1:0] out_wr_data;
    for (genvar l = 0; l < OUT_SLOTS * ACC_LANES; l++) begin : g_narrow
        assign out_wr_data[l*OUT_WIDTH +: OUT_WIDTH] = acc_wr_data[l*ACC_WIDTH +: OUT_WIDTH];
    end
    logic [OUT_SLOTS-1:0]          out_slots;
    logic [ACC_LANES-1:0]          out_lanes;
    logic [ACC_INDEX_BITS-1:0]     out_wr_index;
    logic [OUT_SLOTS*OUT_BITS-1:0] out_wr_tiles;
    wire retires_to_store = v[LAST] && s[LAST].last && s[LAST].push_next;
    logic storing;  // a token to the store unit is under way

    if (HAS_POST != 0) begin : g_post
        post_slot_t p [1:LAST];
        logic [POST_STAGES-1:0] tokens;
        always_ff @(posedge clk) begin
            if (issue) begin
                p[1].enable     <= post.enable;
                p[1].use_bias   <= post.use_bias;
                p[1].use_scale  <= post.use_scale;
                p[1].round_half <= post.round_half;
                p[1].multiplier <= post.multiplier;
                p[1].shift      <= post.shift;
                p[1].zero_point <= post.zero_point;
                p[1].low        <= post.low;
                p[1].high       <= post.high;
                p[1].row        <= post.row + row_offset;
            end
            if (v[1] && !hold) p[2] <= p[1];
            for (int i = 3; i <= LAST; i++) if (v[i-1]) p[i] <= p[i-1];
            tokens <= rst ? '0 : {tokens[POST_STAGES-2:0], retires_to_store};
        end
        post_process processing (
            .clk, .valid(writes_acc), .set(p[LAST]), .tile(written),
            .wr_slots(write_slots), .wr_lanes(write_lanes), .wr_index(write_index),
            .wr_data(out_wr_data), .out_slots, .out_lanes, .out_index(out_wr_index),
            .out_data(out_wr_tiles), .par_slots, .par_lanes, .par_index, .par_data);
        assign store_token_push = tokens[POST_STAGES-1];
        assign storing = tokens != '0;
    end else begin : g_no_post
        assign out_slots        = write_slots;
        assign out_lanes        = write_lanes;
        assign out_wr_index     = write_index;
        assign out_wr_tiles     = out_wr_data;
        assign store_token_push = retires_to_store;
        assign storing          = 1'b0;
        wire unused_par = ^{par_slots, par_lanes, par_index, par_data};
    end
    banked_sram #(.WIDTH(OUT_BITS), .DEPTH(OUT_DEPTH), .LANES(ACC_LANES), .BANKS(OUT_SLOTS),
                  .READ_SLOTS(OUT_SLOTS)) out_mem (
        .clk, .wr_slots(out_slots), .wr_lanes(out_lanes), .wr_index(out_wr_index),
        .wr_data(out_wr_tiles), .rd_en(out_en), .rd_index(out_index), .rd_data(out_data));

    // --------------------------------------------------------------------- completion, events
    wire retires = v[LAST] && s[LAST].last;
    assign load_token_push  = retires && s[LAST].push_prev;
    assign finished         = retires && s[LAST].finish;
    assign followed         = head_valid || next_valid || current_valid
                              || v[EXECUTE:1] != '0;

    assign gemm_op    = writes_acc && s[LAST].gemm;
    assign alu_op     = writes_acc && s[LAST].is_alu;
    assign uop_loaded = is_uop ? loaded : '0;
    assign acc_loaded = is_uop ? '0 : loaded;
    assign acc_written = writes_acc || load_acc;
    assign fault      = load_fault;

    assign waiting_load_token  = head_valid && load_token_missing;
    assign waiting_store_token = head_valid && store_token_missing;
    assign active = next_valid || current_valid || !pipeline_empty || loading || requesting
                    || head_valid && !tokens_missing || storing;

    // Exactly one of these, or none (idle), per cycle.
    wire held  = current_loops && hold;
    wire waits = !current_loops && !load_slot;
    assign gemm_slot   = current_loops && !hold && !current_is_alu;
    assign alu_slot    = current_loops && !hold && current_is_alu;
    assign load_slot   = load_valid && !current_loops;
    assign stall_dram  = waits && (loading || requesting) && !(loading && !load_allowed);
    assign drain       = held || waits && !stall_dram
                         && (loading || current_valid || next_valid
                             || !pipeline_empty && !tokens_missing);
    assign stall_load_token  = waits && !stall_dram && !drain && waiting_load_token;
    assign stall_store_token = waits && !stall_dram && !drain && !stall_load_token
                               && waiting_store_token;
    wire unused_waiting = waiting_dram;
endmodule
