// Compute unit, S3 to the last stage (execute): the tile product, the ALU, and the accumulators that
// both read and write. Contains the accumulator scratchpad.
//
// Stages, for an adder tree of two (TREE_STAGES; each additional one delays the following stages):
//   S3 register the tiles | S4 multiply | S5, S6 adder tree | S7 accumulate or ALU | S8 write.
//   The accumulator is read in S5 (READ) and registered in S6 (ALIGN), to meet the tile product in
//   S7 (EXECUTE). It is written in S8 (LAST), where a MUL is assembled from its partial products.
// Hazards:  an accumulator is written three cycles after it is read. READ compares its index with
//   those of the three preceding slots. ALIGN forwards from the nearest slot that writes it; the value
//   of the directly preceding slot is forwarded as EXECUTE computes it. One exception: the result of
//   a MUL is available one stage later, so a slot that reads the result of a MUL directly before it
//   is delayed by one cycle (compute_operands).
//   With the extension OVERWRITE, a GEMM may use zero instead of the accumulator; ALIGN inserts it.
//
// Ports:   in_*, operands: the slots from S2; inp_tiles, wgt_tile: read in S2, valid in S3.
//          array_clk, second_half: see operand_reads.sv.
//          load, word: LOAD ACC and ACC_8BIT, only when these stages hold no slot.
//          out_valid, out_slot: the slot in LAST; tile: the accumulator that it writes.
//          write, elements: the accumulators written in this cycle, by that slot or by a LOAD.
//          occupied: the stages that hold a slot.
// Timing:  one slot per cycle.
module compute_execute
    import vta_pkg::*, stream_pkg::*;
#(
    localparam int LAST = COMPUTE_DEPTH
) (
    input  logic                          clk,
    input  logic                          array_clk,
    input  logic                          second_half,
    input  logic                          rst,
    input  logic                          in_valid,
    input  slot_t                         in_slot,
    /* verilator lint_off UNUSEDSIGNAL */
    input  operands_t                     operands,  // the tiles are read elsewhere
    input  load_write_t                   load,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [INP_READS*INP_BITS-1:0] inp_tiles,
    input  logic [WGT_BITS-1:0]           wgt_tile,
    input  logic [PORT_BITS-1:0]          word,
    output logic                          out_valid,
    output slot_t                         out_slot,
    output logic [ACC_BITS-1:0]           tile,
    output acc_write_t                    write,
    output logic [OUT_SLOTS*ACC_BITS-1:0] elements,
    output logic [LAST:3]                 occupied
);
    localparam int EXECUTE = LAST - 1;
    localparam int ALIGN = LAST - 2;
    localparam int READ = LAST - 3;
    if (ALIGN != 2 + GEMM_STAGES) begin : g_depth
        $error("the accumulator must meet the tile product: COMPUTE_DEPTH is GEMM_STAGES + 4");
    end

    /* verilator lint_off UNUSEDSIGNAL */
    slot_t s [3:LAST];
    acts_t acts [3:LAST];
    /* verilator lint_on UNUSEDSIGNAL */
    logic [LAST:3] v;
    logic [ACC_INDEX_BITS-1:0] dst   [3:LAST];
    logic [ACC_INDEX_BITS-1:0] index [3:READ];  // index of the accumulator that is read
    assign occupied  = v;
    assign out_valid = v[LAST];
    assign out_slot  = s[LAST];

    wire enters = in_valid && !rst;
    wire in_clears = in_slot.reset && !in_slot.is_alu;
    wire in_operates = in_slot.writes && !in_clears;
    wire acts_t in_acts = '{
        data: in_slot.data, writes: in_slot.writes, gemm: in_slot.gemm,
        adds: in_operates && in_slot.alu_op == ALU_ADD,
        orders: in_operates && (in_slot.alu_op == ALU_MIN || in_slot.alu_op == ALU_MAX),
        shifts: in_operates && in_slot.alu_op == ALU_SHR,
        multiplies: in_slot.multiplies, reads_acc: in_slot.data && !in_slot.overwrite && !in_clears,
        reads_src: in_slot.reads_src, takes_imm: in_slot.is_alu && in_slot.use_imm};
    always_ff @(posedge clk) begin
        v       <= rst ? '0 : {v[LAST-1:3], enters};
        acts[3] <= enters ? in_acts : '0;
        for (int i = 4; i <= LAST; i++) acts[i] <= rst ? '0 : acts[i-1];
        if (in_valid) begin
            s[3]     <= in_slot;
            dst[3]   <= operands.dst;
            index[3] <= operands.acc;
        end
        for (int i = 4; i <= LAST; i++) if (v[i-1]) begin
            s[i]   <= s[i-1];
            dst[i] <= dst[i-1];
        end
        for (int i = 4; i <= READ; i++) if (v[i-1]) index[i] <= index[i-1];
    end

    // S3 to ALIGN: tile product.
    logic [ACC_BITS-1:0] sums;
    logic [GEMM_STAGES-1:0] gemm_enable;
    for (genvar i = 0; i < GEMM_STAGES; i++) begin : g_enable
        assign gemm_enable[i] = acts[3+i].gemm;
    end
    logic [INP_READS*INP_BITS-1:0] tiles;
    logic windows;
    if (HAS_PAIRS != 0) begin : g_half  // they come late in half a cycle
        always_ff @(posedge array_clk) {tiles, windows} <= {inp_tiles, s[3].windows};
    end else begin : g_whole
        assign {tiles, windows} = {inp_tiles, s[3].windows};
    end
    logic [INP_GROUPS*INP_BITS-1:0] inputs;
    window_inputs operand (.tiles, .windows, .inputs);
    gemm_core core (
        .clk, .array_clk, .second_half, .enable(gemm_enable), .pair(s[3].pair),
        .carries(acts[ALIGN].gemm && s[ALIGN].carries), .inp(inputs), .wgt(wgt_tile), .sums);

    // The counterpart for POOL: the maximum of some input tiles, known in ALIGN.
    logic [INP_BITS-1:0] greatest;
    logic [GEMM_STAGES-2:0] pool_enable;
    for (genvar i = 0; i < GEMM_STAGES - 1; i++) begin : g_pool_enable
        assign pool_enable[i] = v[3+i] && s[3+i].pools;
    end
    window_max pooling (
        .clk, .enable(pool_enable), .tiles, .count(s[3].tiles), .greatest);

    // READ: read the accumulator; determine which of the three preceding slots will write it.
    wire writes_next = acts[EXECUTE].writes;
    wire writes_acc  = acts[LAST].writes;
    wire hit1 = acts[ALIGN].writes && dst[ALIGN] == index[READ];
    wire hit2 = writes_next && dst[EXECUTE] == index[READ];
    wire hit3 = writes_acc && dst[LAST] == index[READ];
    // Where it comes from, at most one; the two sums are known last.
    logic from_memory, from_retired, from_registered, from_other, from_sum, from_product;
    logic [ACC_BITS-1:0] acc_read, acc_old, retired, sum, other, product;
    logic [OUT_SLOTS*ACC_BITS-1:0] registered, expanded;
    always_ff @(posedge clk) begin
        from_memory     <= !hit3 && !hit2 && !hit1;
        from_retired    <= hit3 && !hit2 && !hit1;
        from_registered <= hit2 && !hit1 && !acts[EXECUTE].multiplies;
        from_product    <= hit2 && !hit1 && acts[EXECUTE].multiplies;
        from_other      <= hit1 && !acts[ALIGN].adds;
        from_sum        <= hit1 && acts[ALIGN].adds;
        if (acts[ALIGN].data)
            acc_old <= s[ALIGN].overwrite ? '0
                       : {ACC_BITS{from_memory}} & acc_read | {ACC_BITS{from_retired}} & retired
                       | {ACC_BITS{from_registered}} & registered[ACC_BITS-1:0]
                       | {ACC_BITS{from_other}} & other | {ACC_BITS{from_sum}} & sum
                       | {ACC_BITS{from_product}} & product;
        if (writes_acc) retired <= tile;
    end

    // EXECUTE: accumulate or ALU. The second operand of the ALU is the immediate, the accumulator
    // of the preceding slot, or the maximum of some input tiles. It is zero for a tile product, and
    // `sums` is zero for all others.
    logic [ACC_BITS-1:0] second;
    logic [ACC_LANES-1:0] too_far;
    wire [ACC_WIDTH-1:0] imm = ACC_WIDTH'($signed(s[ALIGN].imm));
    always_ff @(posedge clk) begin
        if (acts[EXECUTE].reads_src) begin
            second  <= acc_old;
            too_far <= shifts_out(acc_old);
        end else if (acts[ALIGN].takes_imm) begin
            second  <= {ACC_LANES{imm}};
            too_far <= shifts_out({ACC_LANES{imm}});
        end
        else if (HAS_POOL != 0 && v[ALIGN] && s[ALIGN].pools)
            for (int l = 0; l < ACC_LANES; l++)
                second[l*ACC_WIDTH +: ACC_WIDTH] <=
                    ACC_WIDTH'($signed(greatest[l*INP_WIDTH +: INP_WIDTH]));
        if (acts[ALIGN].gemm) second <= '0;
    end
    vector_alu alu_lanes (
        .clk, .orders(acts[EXECUTE].orders),
        .greater(s[EXECUTE].alu_op == ALU_MAX), .shifts(acts[EXECUTE].shifts),
        .multiplies(acts[EXECUTE].multiplies), .x(acc_old), .y(second), .too_far,
        .addend(second | sums), .sum, .other, .product);

    // LAST writes what EXECUTE or a load has registered.
    wire loads = load.valid && load.memory != MEM_UOP;
    logic [ACC_LANES-1:0] expanded_lanes;
    acc_expand expand (.load, .word, .lanes(expanded_lanes), .elements(expanded));

    always_ff @(posedge clk) begin
        if (rst) write.slots <= '0;
        else write.slots <= loads ? load.slots[OUT_SLOTS-1:0] : OUT_SLOTS'(writes_next);
        write.lanes <= loads ? expanded_lanes : '1;
        write.index <= loads ? ACC_INDEX_BITS'(load.index) : dst[EXECUTE];
        // An unused value is harmless: a result is used in the next cycle or never.
        registered <= expanded;
        if (writes_next) registered[ACC_BITS-1:0] <= acts[EXECUTE].adds ? sum : other;
    end
    assign tile = s[LAST].multiplies ? product : registered[ACC_BITS-1:0];
    always_comb begin
        elements = registered;
        if (writes_acc) elements[ACC_BITS-1:0] = tile;
    end

    banked_sram #(.WIDTH(ACC_BITS), .DEPTH(ACC_DEPTH), .LANES(ACC_LANES),
                  .BANKS(OUT_SLOTS)) acc_mem (
        .clk, .rd_clk(clk), .wr_slots(rst ? '0 : write.slots), .wr_lanes(write.lanes), .wr_index(write.index),
        .wr_data(elements), .rd_en(acts[READ].reads_acc), .rd_all(1'b1), .rd_index(index[READ]), .rd_after('0),
        .rd_data(acc_read));
endmodule
