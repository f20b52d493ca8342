// Post-processing (extension POST): what is written to the output scratchpad passes through here.
// An element of the compute pipeline is scaled, rounded and clipped if its slot says so:
//
//   out = clip((((acc + bias) * multiplier + half) >> shift) + zero_point, low, high)
//
// The sum wraps at 32 bits; the product has all 48. Everything else (what a LOAD ACC writes, and
// slots that are not post-processed) keeps its low bits. All writes take POST_STAGES cycles, so
// their order stays.
//
// Ports:   set, tile, valid: the slot that writes in this cycle, and its accumulators.
//          wr_*: the write to the output scratchpad as it would be without post-processing;
//          out_*: the same, POST_STAGES later. par_*: writes of the parameter memory.
// Timing:  a tile per cycle: Q1 parameters read | Q2 bias | Q3 multiply | Q4 product | Q5 shift |
//          Q6 round, zero point, clip.
module post_process
    import vta_pkg::*;
(
    input  logic                                clk,
    input  logic                                valid,
    input  post_slot_t                          set,
    input  logic [ACC_BITS-1:0]                 tile,
    input  logic [OUT_SLOTS-1:0]                wr_slots,
    input  logic [ACC_LANES-1:0]                wr_lanes,
    input  logic [ACC_INDEX_BITS-1:0]           wr_index,
    input  logic [OUT_SLOTS*OUT_BITS-1:0]       wr_data,
    output logic [OUT_SLOTS-1:0]                out_slots,
    output logic [ACC_LANES-1:0]                out_lanes,
    output logic [ACC_INDEX_BITS-1:0]           out_index,
    output logic [OUT_SLOTS*OUT_BITS-1:0]       out_data,
    input  logic [POST_SLOTS-1:0]               par_slots,
    input  logic [POST_PARTS-1:0]               par_lanes,
    input  logic [POST_INDEX_BITS-1:0]          par_index,
    input  logic [POST_BITS*POST_SLOTS-1:0]     par_data
);
    localparam int ROWS = POST_DEPTH / 2;
    localparam int ROW_BITS = POST_INDEX_BITS - 1;
    localparam int LOW = 17;  // bits of the low part of a sum: each part takes one DSP block
    localparam int SUM = ACC_WIDTH;
    localparam int PRODUCT = SUM + POST_MULTIPLIER_BITS;

    // ------------------------------------------------------------------------------ parameters
    // Biases fill the first half of the memory's indices, scales the second.
    logic [POST_SLOTS-1:0] bias_slots, scale_slots;
    for (genvar j = 0; j < POST_SLOTS; j++) begin : g_half
        wire [POST_INDEX_BITS-1:0] index = par_index + POST_INDEX_BITS'(j);
        assign bias_slots[j]  = par_slots[j] && !index[ROW_BITS];
        assign scale_slots[j] = par_slots[j] && index[ROW_BITS];
    end
    wire processes = valid && set.enable;
    logic [POST_BITS-1:0] biases;
    /* verilator lint_off UNUSEDSIGNAL */
    logic [POST_BITS-1:0] scales;  // some bits of a scale mean nothing
    /* verilator lint_on UNUSEDSIGNAL */
    banked_sram #(.WIDTH(POST_BITS), .DEPTH(ROWS), .LANES(POST_PARTS), .BANKS(POST_SLOTS),
                  .BLOCK_RAM(0)) bias_mem (
        .clk, .wr_slots(bias_slots), .wr_lanes(par_lanes), .wr_index(par_index[ROW_BITS-1:0]),
        .wr_data(par_data), .rd_en(processes), .rd_index(set.row), .rd_data(biases));
    banked_sram #(.WIDTH(POST_BITS), .DEPTH(ROWS), .LANES(POST_PARTS), .BANKS(POST_SLOTS),
                  .BLOCK_RAM(0)) scale_mem (
        .clk, .wr_slots(scale_slots), .wr_lanes(par_lanes), .wr_index(par_index[ROW_BITS-1:0]),
        .wr_data(par_data), .rd_en(processes), .rd_index(set.row), .rd_data(scales));

    // -------------------------------------------------------------------------- the other way
    logic [OUT_SLOTS-1:0]          slots [POST_STAGES];
    logic [ACC_LANES-1:0]          lanes [POST_STAGES];
    logic [ACC_INDEX_BITS-1:0]     index [POST_STAGES];
    logic [OUT_SLOTS*OUT_BITS-1:0] data  [POST_STAGES];
    always_ff @(posedge clk) begin
        slots[0] <= wr_slots;
        lanes[0] <= wr_lanes;
        index[0] <= wr_index;
        data[0]  <= wr_data;
        for (int i = 1; i < POST_STAGES; i++) begin
            slots[i] <= slots[i-1];
            lanes[i] <= lanes[i-1];
            index[i] <= index[i-1];
            data[i]  <= data[i-1];
        end
    end
    assign out_slots = slots[POST_STAGES-1];
    assign out_lanes = lanes[POST_STAGES-1];
    assign out_index = index[POST_STAGES-1];

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
        wire [POST_MULTIPLIER_BITS-1:0] own_multiplier = scales[C*32 +: POST_MULTIPLIER_BITS];
        wire [5:0] own_shift = scales[C*32 + POST_MULTIPLIER_BITS +: 6];

        logic signed [SUM-1:0]           sum2;
        logic [POST_MULTIPLIER_BITS-1:0] multiplier2;
        logic [5:0]                      shift2, shift3, shift4;
        logic signed [PRODUCT:0]         low3, high3, product4, shifted5;
        logic signed [OUT_WIDTH-1:0]     out6;

        wire signed [PRODUCT:0] factor = (PRODUCT+1)'($signed({1'b0, multiplier2}));
        // One bit below the result stays: it rounds. What lies beyond 12 bits is clipped anyway.
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
                multiplier2 <= q[1].use_scale ? own_multiplier : q[1].multiplier;
                shift2      <= q[1].use_scale ? own_shift : q[1].shift;
            end
            if (active[2]) begin
                low3   <= (PRODUCT+1)'($signed({1'b0, sum2[LOW-1:0]})) * factor;
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
        assign processed[l*OUT_WIDTH +: OUT_WIDTH] = out6;
    end

    always_comb begin
        out_data = data[POST_STAGES-1];
        if (active[POST_STAGES]) out_data[OUT_BITS-1:0] = processed;
    end
endmodule
