// Compute unit, output: the output scratchpad. It mirrors the low bits of the accumulators, so that the
// store unit has its own read port; with the extension FORWARD, the load unit has another one. With
// the extension POST, the written data and the tokens that announce them pass through post_process.
//
// Ports:   write, elements: data written to the accumulators. tile_valid, tile: the tile of a slot
//          among them, and set: how to post-process it. par_write, par_word: LOAD POST.
//          store_token_*: a slot's token to the store unit, at the input and after its data;
//          load_token_*: to the load unit, which also reads here with FORWARD.
//          out_*, forward_*: read ports. storing: a token is in flight.
// Timing:  one write per cycle, POST_STAGES cycles late with POST.
module compute_output
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                          clk,
    input  logic                          rst,
    input  acc_write_t                    write,
    /* verilator lint_off UNUSEDSIGNAL */
    input  logic [OUT_SLOTS*ACC_BITS-1:0] elements,  // only low bits are stored
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic                          tile_valid,
    input  logic [ACC_BITS-1:0]           tile,
    input  post_slot_t                    set,
    input  load_write_t                   par_write,
    input  logic [PORT_BITS-1:0]          par_word,
    input  logic                          store_token_in,
    output logic                          store_token_push,
    input  logic                          load_token_in,
    output logic                          load_token_push,
    output logic                          storing,
    input  logic                          out_en,
    input  logic [OUT_INDEX_BITS-1:0]     out_index,
    output logic [OUT_SLOTS*OUT_BITS-1:0] out_data,
    input  logic                          forward_en,
    input  logic                          forward_all,
    input  logic [OUT_INDEX_BITS-1:0]     forward_index,
    output logic [FORWARD_BITS-1:0]       forward_data
);
    logic [OUT_SLOTS*OUT_BITS-1:0] narrow, stored;
    acc_write_t late;
    for (genvar l = 0; l < OUT_SLOTS * ACC_LANES; l++) begin : g_narrow
        assign narrow[l*OUT_WIDTH +: OUT_WIDTH] = elements[l*ACC_WIDTH +: OUT_WIDTH];
    end

    if (HAS_POST != 0) begin : g_post
        logic [POST_STAGES-1:0] tokens;
        always_ff @(posedge clk) tokens <= rst ? '0 : {tokens[POST_STAGES-2:0], store_token_in};
        post_process processing (
            .clk, .rst, .valid(tile_valid), .set, .tile, .write, .elements(narrow), .late,
            .late_elements(stored), .par_write, .par_word);
        assign store_token_push = tokens[POST_STAGES-1];
        if (HAS_FORWARD != 0) begin : g_load_tokens
            logic [POST_STAGES-1:0] load_tokens;
            always_ff @(posedge clk)
                load_tokens <= rst ? '0 : {load_tokens[POST_STAGES-2:0], load_token_in};
            assign load_token_push = load_tokens[POST_STAGES-1];
            assign storing         = tokens != '0 || load_tokens != '0;
        end else begin : g_no_load_tokens
            assign load_token_push = load_token_in;
            assign storing         = tokens != '0;
        end
    end else begin : g_no_post
        assign late             = write;
        assign stored           = narrow;
        assign store_token_push = store_token_in;
        assign load_token_push  = load_token_in;
        assign storing          = 1'b0;
        wire unused_post = ^{tile_valid, tile, set, par_write, par_word};
    end

    banked_sram #(.WIDTH(OUT_BITS), .DEPTH(OUT_DEPTH), .LANES(ACC_LANES), .BANKS(OUT_SLOTS),
                  .READ_SLOTS(OUT_SLOTS)) out_mem (
        .clk, .rd_clk(clk), .wr_slots(rst ? '0 : late.slots), .wr_lanes(late.lanes), .wr_index(late.index),
        .wr_data(stored), .rd_en(out_en), .rd_all(1'b1), .rd_index(out_index), .rd_after('0),
        .rd_data(out_data));

    if (HAS_FORWARD != 0) begin : g_forward
        localparam int BANKS = FORWARD_TILES > OUT_SLOTS ? FORWARD_TILES : OUT_SLOTS;
        banked_sram #(.WIDTH(OUT_BITS), .DEPTH(OUT_DEPTH), .LANES(ACC_LANES), .BANKS(BANKS),
                      .READ_SLOTS(FORWARD_TILES)) copy (
            .clk, .rd_clk(clk), .wr_slots(rst ? '0 : BANKS'(late.slots)), .wr_lanes(late.lanes),
            .wr_index(late.index), .wr_data((BANKS*OUT_BITS)'(stored)), .rd_en(forward_en), .rd_all(forward_all),
            .rd_index(forward_index), .rd_after('0), .rd_data(forward_data));
    end else begin : g_no_forward
        assign forward_data = '0;
        wire unused_forward = ^{forward_en, forward_all, forward_index};
    end
endmodule
