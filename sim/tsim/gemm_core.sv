// GEMM core: the product of an input tile (BATCH x BLOCK_IN) and a transposed weight tile
// (BLOCK_OUT x BLOCK_IN), one dot product per output element. With the extension DEPTHWISE, each of
// INP_GROUPS groups of adjacent output columns has its own input tile.
//
// Two adjacent outputs of a row share each input x, so one DSP block computes both products: it
// multiplies the weights w0 and w1, combined as the 25-bit factor (w1 << 16) + w0, by x and adds 2^15,
// using the pre-adder, multiplier and adder of a DSP48E1. With the added bias, the low half, x w0 +
// 2^15, is in 0 .. 2^16 - 1, so there is no borrow from the high half, x w1. Inverting the top bit of
// the low half removes the bias. An unpaired output column has w1 = 0.
//
// Ports:   inp, wgt: the tiles, row by row from bit 0. enable[i] lets stage i register its input.
//          sums: BATCH x BLOCK_OUT results, sign-extended to ACC_WIDTH; zero if the last stage did not
//          register any.
// Timing:  one tile product per cycle, GEMM_STAGES cycles: the factors are registered, then the
//          products, then TREE_STAGES stages of the adder tree with two levels each (the first one
//          has a single level if the number of levels is odd).
// Pairs:   with the extension PAIRS, all of this is clocked by array_clk, at twice the frequency, and
//          each stage becomes two: tiles and factors, the registers M and P of the DSP blocks, single
//          levels of the tree. Two products follow each other; a last stage, in clk, adds them, or
//          carries the second one to the next slot's sum. second_half: the second half of a cycle of
//          clk. pair: there is a second product. carries: that of the slot whose sum is registered
//          next is the next slot's. Of enable only the first bit is used. inp then comes from the
//          first register (compute_execute).
// Sizes:   DSP_MULTIPLIERS DSP blocks are left to the tool, evenly distributed over the outputs; the
//          other products are built from adders. PACKED_MULTIPLIERS = 0 gives every product its own
//          multiplier.
module gemm_core
    import vta_pkg::*;
(
    input  logic                   clk,
    input  logic                   array_clk,
    input  logic                   second_half,
    input  logic [GEMM_STAGES-1:0] enable,
    input  logic                   pair,
    input  logic                   carries,
    input  logic [INP_GROUPS*INP_BITS-1:0] inp,
    input  logic [WGT_BITS-1:0]    wgt,
    output logic [ACC_BITS-1:0]    sums
);
    localparam int INP_ROW = BLOCK_IN * INP_WIDTH;
    localparam int WGT_ROW = BLOCK_IN * WGT_WIDTH;
    localparam int PRODUCT = INP_WIDTH + WGT_WIDTH;
    localparam int LEVELS = $clog2(BLOCK_IN);
    localparam int SUM_WIDTH = PRODUCT + LEVELS + (HAS_PAIRS != 0 ? 1 : 0);
    localparam int FACTOR = PRODUCT + WGT_WIDTH + 1;
    localparam logic [PRODUCT-1:0] BIAS = PRODUCT'(1) << (PRODUCT - 1);
    // A DSP block has one adder, between the registers M and P: what M holds has no bias yet.
    localparam logic [PRODUCT-1:0] EARLY_BIAS = HAS_PAIRS != 0 ? '0 : BIAS;
    localparam int COLUMN_PAIRS = (BLOCK_OUT + 1) / 2;
    localparam int PAIRS = BATCH * COLUMN_PAIRS;
    // Number of inputs, summed over all pairs of outputs, whose products use DSP blocks.
    localparam int DSP_COLUMNS = DSP_MULTIPLIERS / (PACKED_MULTIPLIERS != 0 ? 1 : 2);
    localparam bit ALL_PACKED = PACKED_MULTIPLIERS != 0 && DSP_COLUMNS >= PAIRS * BLOCK_IN;
    // Number of products added by the tree's first stage, and of its results for both outputs of a pair.
    localparam int FIRST = BLOCK_IN == 1 ? 1 : HAS_PAIRS != 0 || LEVELS % 2 != 0 ? 2 : 4;
    localparam int GROUPS = BLOCK_IN / FIRST;
    localparam int GROUPS_BITS = 2 * GROUPS * ACC_WIDTH;

    typedef logic [INP_ROW-1:0]               inp_row_t;
    typedef logic [WGT_ROW-1:0]               wgt_row_t;
    typedef logic signed [FACTOR-1:0]         factor_t;
    typedef logic [BLOCK_IN*2*PRODUCT-1:0]    factors_t;   // per input: (w1 << 16) + w0
    typedef logic [BLOCK_IN*2*PRODUCT-1:0]    products_t;  // per input: x w1, x w0 + 2^15
    typedef logic [GROUPS_BITS-1:0]           groups_t;    // sums of w0, then those of w1
    typedef logic signed [SUM_WIDTH-1:0]      sum_t;

    // The functions are not inlined: one C++ function for all outputs instead of one copy each.

    function automatic factors_t pack(input wgt_row_t w0, input wgt_row_t w1);
        /* verilator no_inline_task */
        for (int k = 0; k < BLOCK_IN; k++) begin
            automatic logic signed [WGT_WIDTH-1:0] low = w0[k*WGT_WIDTH +: WGT_WIDTH];
            automatic logic signed [WGT_WIDTH-1:0] high = w1[k*WGT_WIDTH +: WGT_WIDTH];
            automatic factor_t both = (FACTOR'(high) <<< PRODUCT) + FACTOR'(low);
            pack[k*2*PRODUCT +: 2*PRODUCT] = (2*PRODUCT)'(both);
        end
    endfunction

    function automatic products_t multiply_packed(input inp_row_t x, input factors_t factors);
        /* verilator no_inline_task */
        for (int k = 0; k < BLOCK_IN; k++) begin
            automatic logic signed [INP_WIDTH-1:0] a = x[k*INP_WIDTH +: INP_WIDTH];
            automatic factor_t both = factors[k*2*PRODUCT +: FACTOR];
            multiply_packed[k*2*PRODUCT +: 2*PRODUCT] =
                (2*PRODUCT)'(both) * (2*PRODUCT)'(a) + (2*PRODUCT)'(EARLY_BIAS);
        end
    endfunction

    function automatic products_t add_bias(input products_t multiplied);
        /* verilator no_inline_task */
        for (int k = 0; k < BLOCK_IN; k++)
            add_bias[k*2*PRODUCT +: 2*PRODUCT] =
                multiplied[k*2*PRODUCT +: 2*PRODUCT] + (2*PRODUCT)'(BIAS);
    endfunction

    function automatic products_t multiply_singly(input inp_row_t x, input wgt_row_t w0,
                                                  input wgt_row_t w1);
        /* verilator no_inline_task */
        for (int k = 0; k < BLOCK_IN; k++) begin
            automatic logic signed [INP_WIDTH-1:0] a = x[k*INP_WIDTH +: INP_WIDTH];
            automatic logic signed [WGT_WIDTH-1:0] low = w0[k*WGT_WIDTH +: WGT_WIDTH];
            automatic logic signed [WGT_WIDTH-1:0] high = w1[k*WGT_WIDTH +: WGT_WIDTH];
            multiply_singly[k*2*PRODUCT +: PRODUCT] = (PRODUCT'(a) * PRODUCT'(low)) ^ BIAS;
            multiply_singly[(2*k+1)*PRODUCT +: PRODUCT] = PRODUCT'(a) * PRODUCT'(high);
        end
    endfunction

    // A product made of adders: a times each bit of b, summed in a balanced tree.
    function automatic logic [PRODUCT-1:0] from_adders(input logic signed [INP_WIDTH-1:0] a,
                                                       input logic signed [WGT_WIDTH-1:0] b);
        logic [PRODUCT-1:0] terms [WGT_WIDTH];
        for (int i = 0; i < WGT_WIDTH; i++) terms[i] = b[i] ? PRODUCT'(a) <<< i : '0;
        terms[WGT_WIDTH-1] = -terms[WGT_WIDTH-1];  // the sign of b
        for (int distance = 1; distance < WGT_WIDTH; distance *= 2)
            for (int i = 0; i + distance < WGT_WIDTH; i += 2 * distance)
                terms[i] = terms[i] + terms[i+distance];
        return terms[0];
    endfunction

    function automatic products_t multiply_in_luts(input inp_row_t x, input wgt_row_t w0,
                                                   input wgt_row_t w1);
        /* verilator no_inline_task */
        for (int k = 0; k < BLOCK_IN; k++) begin
            multiply_in_luts[k*2*PRODUCT +: PRODUCT] =
                from_adders(x[k*INP_WIDTH +: INP_WIDTH], w0[k*WGT_WIDTH +: WGT_WIDTH]) ^ BIAS;
            multiply_in_luts[(2*k+1)*PRODUCT +: PRODUCT] =
                from_adders(x[k*INP_WIDTH +: INP_WIDTH], w1[k*WGT_WIDTH +: WGT_WIDTH]);
        end
    endfunction

    // First stage of the tree: sums of FIRST products.
    function automatic groups_t add_products(input products_t products);
        /* verilator no_inline_task */
        for (int g = 0; g < GROUPS; g++) begin
            automatic sum_t low = '0;
            automatic sum_t high = '0;
            for (int k = g * FIRST; k < (g + 1) * FIRST; k++) begin
                automatic logic signed [PRODUCT-1:0] unbiased =
                    products[k*2*PRODUCT +: PRODUCT] ^ BIAS;
                low = low + SUM_WIDTH'(unbiased);
                high = high + SUM_WIDTH'($signed(products[(2*k+1)*PRODUCT +: PRODUCT]));
            end
            add_products[g*ACC_WIDTH +: ACC_WIDTH] = ACC_WIDTH'(low);
            add_products[(GROUPS+g)*ACC_WIDTH +: ACC_WIDTH] = ACC_WIDTH'(high);
        end
    endfunction

    // The other stages: sums of four adjacent values; zeros follow.
    function automatic groups_t add_fours(input groups_t groups);
        /* verilator no_inline_task */
        add_fours = '0;
        for (int i = 0; i < 2 * GROUPS / 4; i++) begin
            automatic sum_t left = SUM_WIDTH'(groups[4*i*ACC_WIDTH +: ACC_WIDTH])
                                 + SUM_WIDTH'(groups[(4*i+1)*ACC_WIDTH +: ACC_WIDTH]);
            automatic sum_t right = SUM_WIDTH'(groups[(4*i+2)*ACC_WIDTH +: ACC_WIDTH])
                                  + SUM_WIDTH'(groups[(4*i+3)*ACC_WIDTH +: ACC_WIDTH]);
            automatic sum_t sum = left + right;
            add_fours[i*ACC_WIDTH +: ACC_WIDTH] = ACC_WIDTH'(sum);
        end
    endfunction

    // Or of two adjacent values.
    function automatic groups_t add_twos(input groups_t groups);
        /* verilator no_inline_task */
        add_twos = '0;
        for (int i = 0; i < GROUPS; i++) begin
            automatic sum_t sum = SUM_WIDTH'(groups[2*i*ACC_WIDTH +: ACC_WIDTH])
                                + SUM_WIDTH'(groups[(2*i+1)*ACC_WIDTH +: ACC_WIDTH]);
            add_twos[i*ACC_WIDTH +: ACC_WIDTH] = ACC_WIDTH'(sum);
        end
    endfunction

    // The sums of both outputs for a pair of products.
    function automatic logic [2*ACC_WIDTH-1:0] add_pair(input logic [2*ACC_WIDTH-1:0] first,
                                                        input logic [2*ACC_WIDTH-1:0] second);
        /* verilator no_inline_task */
        for (int c = 0; c < 2; c++) begin
            automatic sum_t sum = SUM_WIDTH'(first[c*ACC_WIDTH +: ACC_WIDTH])
                                + SUM_WIDTH'(second[c*ACC_WIDTH +: ACC_WIDTH]);
            add_pair[c*ACC_WIDTH +: ACC_WIDTH] = ACC_WIDTH'(sum);
        end
    endfunction

    // With pairs, stage i below registers its input if stage 0 did so i cycles before.
    localparam int STAGES = HAS_PAIRS != 0 ? 2 * GEMM_STAGES - 2 : GEMM_STAGES;
    logic stage_clk;
    logic [STAGES-1:0] takes;
    if (HAS_PAIRS != 0) begin : g_halves
        assign stage_clk = array_clk;
        logic [STAGES-1:1] took;
        assign takes = {took, enable[0] && (!second_half || pair)};
        always_ff @(posedge array_clk) took <= takes[STAGES-2:0];
        wire unused_enable = ^enable[GEMM_STAGES-1:1];
    end else begin : g_wholes
        assign stage_clk = clk;
        assign takes     = enable;
        wire unused_pairs = ^{array_clk, second_half, pair, carries};
    end
    localparam int FACTORS = HAS_PAIRS != 0 ? 1 : 0;  // the stage that registers the factors
    localparam int PRODUCTS = HAS_PAIRS != 0 ? 3 : 1;

    // One register per row, column and stage instead of arrays, because Verilator copies arrays.
    logic [WGT_BITS-1:0] weights;
    if (HAS_PAIRS != 0) begin : g_tile
        always_ff @(posedge array_clk) if (takes[0]) weights <= wgt;
    end else begin : g_no_tile
        assign weights = wgt;
    end
    for (genvar r = 0; r < INP_GROUPS * BATCH; r++) begin : g_row
        inp_row_t x;
        always_ff @(posedge stage_clk) if (takes[FACTORS]) x <= inp[r*INP_ROW +: INP_ROW];
    end
    for (genvar p = 0; p < COLUMN_PAIRS; p++) begin : g_columns
        wgt_row_t w0, w1;
        assign w0 = weights[2*p*WGT_ROW +: WGT_ROW];
        if (2 * p + 1 < BLOCK_OUT) begin : g_second
            assign w1 = weights[(2*p+1)*WGT_ROW +: WGT_ROW];
        end else begin : g_none
            assign w1 = '0;
        end
        if (PACKED_MULTIPLIERS != 0) begin : g_packed
            factors_t factors;
            always_ff @(posedge stage_clk) if (takes[FACTORS]) factors <= pack(w0, w1);
        end
        if (!ALL_PACKED) begin : g_single
            wgt_row_t weights0, weights1;
            always_ff @(posedge stage_clk)
                if (takes[FACTORS]) {weights1, weights0} <= {w1, w0};
        end
    end

    for (genvar i = 0; i < PAIRS; i++) begin : g_pair
        localparam int ROW = i / COLUMN_PAIRS;
        localparam int COLUMNS = i % COLUMN_PAIRS;
        localparam int X = COLUMNS * INP_GROUPS / COLUMN_PAIRS * BATCH + ROW;  // its inputs
        localparam int DSP_LANES = (i + 1) * DSP_COLUMNS / PAIRS - i * DSP_COLUMNS / PAIRS;

        // The lanes below DSP_LANES use DSP blocks; masked products are not built.
        localparam products_t IN_DSP = DSP_LANES >= BLOCK_IN
            ? '1 : (products_t'(1) << (DSP_LANES * 2 * PRODUCT)) - 1'b1;

        products_t multiplied, products;
        if (ALL_PACKED) begin : g_packed
            always_ff @(posedge stage_clk) if (takes[FACTORS+1])
                multiplied <= multiply_packed(g_row[X].x, g_columns[COLUMNS].g_packed.factors);
        end else begin : g_mixed
            products_t in_dsp, in_luts;
            if (PACKED_MULTIPLIERS != 0) begin : g_packed
                assign in_dsp = multiply_packed(g_row[X].x, g_columns[COLUMNS].g_packed.factors);
            end else begin : g_single
                assign in_dsp = multiply_singly(g_row[X].x, g_columns[COLUMNS].g_single.weights0,
                                                g_columns[COLUMNS].g_single.weights1);
            end
            assign in_luts = multiply_in_luts(g_row[X].x, g_columns[COLUMNS].g_single.weights0,
                                              g_columns[COLUMNS].g_single.weights1);
            always_ff @(posedge stage_clk) if (takes[FACTORS+1])
                multiplied <= (in_dsp & IN_DSP) | (in_luts & ~IN_DSP);
        end

        if (HAS_PAIRS != 0) begin : g_product
            localparam products_t BIASED = PACKED_MULTIPLIERS != 0 ? IN_DSP : '0;
            always_ff @(posedge array_clk) if (takes[PRODUCTS])
                products <= (add_bias(multiplied) & BIASED) | (multiplied & ~BIASED);
        end else begin : g_same
            assign products = multiplied;
        end

        localparam int TREE = STAGES - PRODUCTS - 1;
        for (genvar t = 0; t < TREE; t++) begin : g_tree
            localparam int LEFT = HAS_PAIRS == 0 ? GROUPS >> (2 * t)
                                : t < LEVELS ? GROUPS >> t : 1;  // groups per output
            localparam int BITS = 2 * LEFT * ACC_WIDTH;
            logic [BITS-1:0] groups;
            if (t == 0) begin : g_first
                always_ff @(posedge stage_clk)
                    if (takes[PRODUCTS+1]) groups <= add_products(products);
                    else if (TREE == 1) groups <= '0;
            end else if (HAS_PAIRS != 0) begin : g_half
                always_ff @(posedge stage_clk)
                    if (takes[PRODUCTS+1+t])
                        groups <= t < LEVELS
                            ? BITS'(add_twos(GROUPS_BITS'(g_tree[t-1].groups)))
                            : BITS'(g_tree[t-1].groups);
                    else if (t == TREE - 1) groups <= '0;
            end else begin : g_next
                always_ff @(posedge stage_clk)
                    if (takes[PRODUCTS+1+t])
                        groups <= BITS'(add_fours(GROUPS_BITS'(g_tree[t-1].groups)));
                    else if (t == TREE - 1) groups <= '0;
            end
        end

        logic [2*ACC_WIDTH-1:0] both;  // the sums of both outputs
        if (HAS_PAIRS != 0) begin : g_pairs
            logic [2*ACC_WIDTH-1:0] first, carried;  // of the half before; of the slot before
            always_ff @(posedge array_clk) first <= add_pair(g_tree[TREE-1].groups, carried);
            always_ff @(posedge clk) begin
                carried <= carries ? g_tree[TREE-1].groups : '0;
                both    <= add_pair(first, carries ? '0 : g_tree[TREE-1].groups);
            end
        end else begin : g_one
            assign both = g_tree[TREE-1].groups;
        end
        for (genvar c = 0; c < 2; c++) begin : g_sum
            if (2 * COLUMNS + c < BLOCK_OUT) begin : g_output
                assign sums[(ROW*BLOCK_OUT + 2*COLUMNS + c)*ACC_WIDTH +: ACC_WIDTH] =
                    both[c*ACC_WIDTH +: ACC_WIDTH];
            end
        end
    end
endmodule
