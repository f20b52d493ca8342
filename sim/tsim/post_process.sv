// Post-processing (extension POST): everything written to the output scratchpad passes through here.
// An element from the compute pipeline is scaled, rounded and clipped if its slot requests it:
//
//   out = clip((((acc + bias) * multiplier + half) >> shift) + zero_point, low, high)
//
// With the extension EXACT, a scale may have a 24-bit multiplier, whose highest bit is not stored, and
// a nudge: half increases by it plus a base if the sum is not negative, and decreases otherwise.
// The nudge is added to the low part of the product, by a DSP block.
//
// With the extension TABLE, the result may be replaced by an entry of a 256-value table: each lane has
// a copy of all tables. The sum wraps at 32 bits; the product has all bits. All other data (from a
// LOAD ACC, and from slots that are not post-processed) keep their low bits. All writes take
// POST_STAGES cycles, so their order is preserved.
//
// Ports:   set, tile, valid: the slot that writes in this cycle, and its accumulators.
//          write, elements: the write to the output scratchpad as it would be without
//          post-processing; late, late_elements: the actual write, POST_STAGES later.
//          par_write, par_word: writes to the parameter memory and the tables, from tensor_load.
// Timing:  one tile per cycle: Q1 parameters read | Q2 bias | Q3 multiply | Q4 product | Q5 shift |
//          Q6 round, zero point, clip | with TABLE: Q7 table.
module post_process
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                                clk,
    input  logic                                rst,
    input  logic                                valid,
    input  post_slot_t                          set,
    input  logic [ACC_BITS-1:0]                 tile,
    input  acc_write_t                          write,
    input  logic [OUT_SLOTS*OUT_BITS-1:0]       elements,
    output acc_write_t                          late,
    output logic [OUT_SLOTS*OUT_BITS-1:0]       late_elements,
    /* verilator lint_off UNUSEDSIGNAL */
    input  load_write_t                         par_write,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [PORT_BITS-1:0]                par_word
);
    localparam int ROWS = POST_DEPTH / 2;
    localparam int ROW_BITS = POST_INDEX_BITS - 1;
    localparam int LOW = 17;  // bits of the low part of a sum: each part uses one DSP block
    localparam int NUDGE_BITS = LOG_NUDGE_BASE - NUDGE_STEP + 3;
    localparam int SUM = ACC_WIDTH;
    localparam int PRODUCT = SUM + POST_MULTIPLIER_BITS;

    // ------------------------------------------------------------------------------ parameters
    // Biases fill the first half of the memory's indices, scales the second.
    wire mine = par_write.valid && par_write.memory == MEM_POST;
    wire [POST_INDEX_BITS-1:0] par_index = par_write.index[POST_INDEX_BITS-1:0];
    wire [POST_PARTS*PORT_BITS-1:0] par_data = par_write.zero ? '0 : {POST_PARTS{par_word}};
    logic [POST_SLOTS-1:0] bias_slots, scale_slots;
    logic [POST_PARTS-1:0] par_lanes;
    for (genvar j = 0; j < POST_SLOTS; j++) begin : g_half
        wire [POST_INDEX_BITS-1:0] index = par_index + POST_INDEX_BITS'(j);
        assign bias_slots[j]  = mine && par_write.slots[j] && !index[ROW_BITS];
        assign scale_slots[j] = mine && par_write.slots[j] && index[ROW_BITS];
    end
    for (genvar l = 0; l < POST_PARTS; l++) begin : g_par_lane
        assign par_lanes[l] = par_write.zero || par_write.part == PART_BITS'(l);
    end
    wire processes = valid && set.enable;
    logic [POST_BITS-1:0] biases;
    /* verilator lint_off UNUSEDSIGNAL */
    logic [POST_BITS-1:0] scales;  // some bits of a scale are unused
    /* verilator lint_on UNUSEDSIGNAL */
    banked_sram #(.WIDTH(POST_BITS), .DEPTH(ROWS), .LANES(POST_PARTS), .BANKS(POST_SLOTS),
                  .BLOCK_RAM(0)) bias_mem (
        .clk, .rd_clk(clk), .wr_slots(bias_slots), .wr_lanes(par_lanes), .wr_index(par_index[ROW_BITS-1:0]),
        .wr_data(par_data), .rd_en(processes && set.use_bias), .rd_all(1'b1), .rd_index(set.row), .rd_after('0),
        .rd_data(biases));
    banked_sram #(.WIDTH(POST_BITS), .DEPTH(ROWS), .LANES(POST_PARTS), .BANKS(POST_SLOTS),
                  .BLOCK_RAM(0)) scale_mem (
        .clk, .rd_clk(clk), .wr_slots(scale_slots), .wr_lanes(par_lanes), .wr_index(par_index[ROW_BITS-1:0]),
        .wr_data(par_data), .rd_en(processes && set.use_scale), .rd_all(1'b1), .rd_index(set.row), .rd_after('0),
        .rd_data(scales));

    // A table is stored in port words as they arrive, without padding.
    localparam int WORD_BITS = $clog2(PORT_BYTES);
    localparam int PLACE_BITS = TABLE_INDEX_BITS + OUT_WIDTH - WORD_BITS;
    logic                  table_write;
    logic [PLACE_BITS-1:0] table_place;
    if (HAS_TABLE != 0) begin : g_tables
        assign table_write = par_write.valid && par_write.memory == MEM_TABLE;
        assign table_place = {par_write.index[TABLE_INDEX_BITS-1:0],
                              par_write.part[OUT_WIDTH-WORD_BITS-1:0]};
    end else begin : g_no_tables
        assign {table_write, table_place} = '0;
        wire unused_table = ^{table_write, table_place};
    end

    // -------------------------------------------------------------------------- the other way
    acc_write_t                    writes [POST_STAGES];
    logic [OUT_SLOTS*OUT_BITS-1:0] data   [POST_STAGES];
    always_ff @(posedge clk) begin
        writes[0] <= write;
        data[0]   <= elements;
        for (int i = 1; i < POST_STAGES; i++) begin
            writes[i] <= writes[i-1];
            data[i]   <= data[i-1];
        end
        if (rst) for (int i = 0; i < POST_STAGES; i++) writes[i].slots <= '0;
    end
    assign late = writes[POST_STAGES-1];

    // ------------------------------------------------------------------------------- the lanes
    logic [POST_STAGES:1] active;
    /* verilator lint_off UNUSEDSIGNAL */
    post_slot_t q [1:POST_STAGES-1];
    /* verilator lint_on UNUSEDSIGNAL */
    always_ff @(posedge clk) begin
        active <= {active[POST_STAGES-1:1], processes};
        if (processes) q[1] <= set;
        for (int i = 2; i < POST_STAGES; i++) if (active[i-1]) q[i] <= q[i-1];
    end

    logic [ACC_BITS-1:0] tile1;
    always_ff @(posedge clk) if (processes) tile1 <= tile;

    logic [OUT_BITS-1:0] processed;
    for (genvar l = 0; l < ACC_LANES; l++) begin : g_lane
        localparam int C = l % BLOCK_OUT;
        wire [31:0] bias = biases[C*32 +: 32];
        wire [31:0] scale = scales[C*32 +: 32];
        wire fine = HAS_EXACT != 0 && q[1].fine != '0;
        wire [POST_MULTIPLIER_BITS-1:0] own_multiplier = fine
            ? POST_MULTIPLIER_BITS'({1'b1, scale[22:0]}) : POST_MULTIPLIER_BITS'(scale[15:0]);
        wire [5:0] own_shift = fine ? 6'(scale[27:23]) + 6'(FINE_SHIFT) : scale[21:16];
        // In steps of the nudge: base and nudge have no lower bits.
        wire signed [NUDGE_BITS-1:0] nudge = NUDGE_BITS'($signed(scale[31:28]))
            + (q[1].fine[1] ? NUDGE_BITS'(1) <<< (LOG_NUDGE_BASE - NUDGE_STEP + 32'(q[1].fine[0]))
                            : '0);

        logic signed [SUM-1:0]           sum2;
        logic [POST_MULTIPLIER_BITS-1:0] multiplier2;
        logic [5:0]                      shift2, shift3, shift4;
        logic signed [NUDGE_BITS-1:0]    nudge2;
        logic signed [PRODUCT:0]         low3, high3, product4, shifted5;
        logic signed [OUT_WIDTH-1:0]     out6;

        wire signed [NUDGE_BITS-1:0] added = sum2[SUM-1] ? -nudge2 : nudge2;
        wire signed [PRODUCT:0] factor = (PRODUCT+1)'($signed({1'b0, multiplier2}));
        // One bit below the result is kept for rounding. Values beyond 12 bits are clipped anyway.
        wire signed [PRODUCT-1:0] whole = shifted5[PRODUCT:1];
        wire beyond = whole[PRODUCT-1:11] != {PRODUCT-11{whole[PRODUCT-1]}};
        wire signed [12:0] rounded = 13'($signed(whole[11:0]))
            + 13'($signed({1'b0, q[5].round_half && shifted5[0]}))
            + 13'($signed(q[5].zero_point));
        wire below = beyond ? whole[PRODUCT-1] : rounded < 13'($signed(q[5].low));
        wire above = beyond ? !whole[PRODUCT-1] : rounded > 13'($signed(q[5].high));

        always_ff @(posedge clk) begin
            if (active[1]) begin
                sum2        <= $signed(tile1[l*SUM +: SUM]) + (q[1].use_bias ? $signed(bias) : '0);
                multiplier2 <= q[1].use_scale ? own_multiplier
                    : POST_MULTIPLIER_BITS'(q[1].multiplier);
                shift2      <= q[1].use_scale ? own_shift : q[1].shift;
                nudge2      <= fine ? nudge : '0;
            end
            if (active[2]) begin
                low3   <= (PRODUCT+1)'($signed({1'b0, sum2[LOW-1:0]})) * factor
                    + ((PRODUCT+1)'(added) <<< NUDGE_STEP);
                high3  <= (PRODUCT+1)'($signed(sum2[SUM-1:LOW])) * factor;
                shift3 <= shift2;
            end
            if (active[3]) begin
                product4 <= ((high3 <<< LOW) + low3) <<< 1;
                shift4   <= shift3;
            end
            if (active[4]) shifted5 <= product4 >>> shift4;
            if (active[5]) out6 <= below ? $signed(q[5].low) : above ? $signed(q[5].high)
                                   : OUT_WIDTH'(rounded);
        end

        if (HAS_TABLE != 0) begin : g_table
            logic signed [OUT_WIDTH-1:0] out7;
            logic [WORD_BITS-1:0]        byte7;
            logic                        looks7;
            logic [PORT_BITS-1:0]        word7;
            wire [OUT_WIDTH-1:0] entry = {~out6[OUT_WIDTH-1], out6[OUT_WIDTH-2:0]};
            wire looks = active[POST_STAGES-1] && q[POST_STAGES-1].use_table;
            sram #(.WIDTH(PORT_BITS), .DEPTH(TABLE_DEPTH * TABLE_PARTS), .BLOCK_RAM(0)) tables (
                .clk, .rd_clk(clk), .we(table_write), .waddr(table_place), .wdata(par_word), .re(looks),
                .raddr({q[POST_STAGES-1].table_index, entry[OUT_WIDTH-1:WORD_BITS]}),
                .rdata(word7));
            always_ff @(posedge clk) if (active[POST_STAGES-1]) begin
                out7   <= out6;
                byte7  <= entry[WORD_BITS-1:0];
                looks7 <= q[POST_STAGES-1].use_table;
            end
            assign processed[l*OUT_WIDTH +: OUT_WIDTH] =
                looks7 ? word7[byte7*OUT_WIDTH +: OUT_WIDTH] : out7;
        end else begin : g_no_table
            assign processed[l*OUT_WIDTH +: OUT_WIDTH] = out6;
        end
    end

    always_comb begin
        late_elements = data[POST_STAGES-1];
        if (active[POST_STAGES]) late_elements[OUT_BITS-1:0] = processed;
    end
endmodule
