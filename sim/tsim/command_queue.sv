// Command queue: holds the instructions that wait for a unit. A FIFO whose head is in flip-flops: the
// output of a block RAM arrives late in the cycle, and the units decode the head and start on it
// within one cycle.
//
// The additions and comparisons that determine an instruction's DRAM accesses are performed before
// the block RAM. The byte address replaces `dram_base`, except for the low bits; there the bits of
// the index stay, since they give the position of an element in a port word.
//
// Ports:   as fifo. Holds COMMAND_DEPTH instructions, and two more at its output.
//          in_moves: it is a LOAD or STORE of DRAM; in_place: which of the unit's memories it uses;
//          in_origins: the DRAM origins of these memories, LOG_BYTES: the sizes of their elements.
//          out_insn: the instruction as received, except that the bits of `dram_base` from INDEX_BITS
//          on belong to an address if it accesses DRAM; out_block: the DRAM block that it accesses.
// Timing:  one instruction per cycle; three cycles from input to output.
module command_queue
    import vta_pkg::*, stream_pkg::*;
#(
    parameter logic [3:0][3:0] LOG_BYTES = '0
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic                 in_valid,
    output logic                 in_ready,
    input  logic [INSN_BITS-1:0] in_insn,
    input  logic                 in_moves,
    input  logic [1:0]           in_place,
    input  logic [3:0][ADDR_BITS-1:0] in_origins,
    output logic                 out_valid,
    input  logic                 out_ready,
    output logic [INSN_BITS-1:0] out_insn,
    output block_t               out_block
);
    localparam int INDEX_BITS = WORD_SLOTS > 1 ? $clog2(WORD_SLOTS) : 1;
    localparam int WORD = 32;  // bits of dram_base
    localparam int REST_BITS = ADDR_BITS - WORD + INDEX_BITS;  // remaining bits of an address

    load_t in_load, queued, entering;
    assign in_load = in_insn;
    wire in_any = in_load.x_size != '0 && in_load.y_size != '0;
    // Of each memory, because it is known late which one it is.
    logic [3:0][ADDR_BITS-1:0] addresses;
    logic [3:0][CUT_BITS-1:0]  seconds;  // where the second row begins, as far as that cuts it
    length_t [3:0]            lengths;    // of its rows
    for (genvar p = 0; p < 4; p++) begin : g_place
        assign lengths[p]   = length_of(32'(in_load.x_size) << LOG_BYTES[p]);
        assign addresses[p] = in_origins[p] + (ADDR_BITS'(in_load.dram_base) << LOG_BYTES[p]);
        assign seconds[p]   = addresses[p][CUT_BITS-1:0]
                              + CUT_BITS'(32'(in_load.x_stride) << LOG_BYTES[p]);
    end
    wire [ADDR_BITS-1:0] in_address = addresses[in_place];
    always_comb begin
        queued = in_load;
        if (in_moves) queued.dram_base[WORD-1:INDEX_BITS] = in_address[WORD-1:INDEX_BITS];
    end
    wire [REST_BITS-1:0] in_rest = REST_BITS'(64'(in_address) >> WORD << INDEX_BITS)
                                 | REST_BITS'(in_address[INDEX_BITS-1:0]);

    logic queue_valid, any;
    logic [1:0] place;
    logic [REST_BITS-1:0] rest;
    logic [CUT_BITS-1:0] second_row;
    length_t length;
    wire moves = queue_valid && (!out_valid || out_ready);
    fifo #(.WIDTH($bits(length_t) + CUT_BITS + REST_BITS + 3 + INSN_BITS), .DEPTH(COMMAND_DEPTH)) queue (
        .clk, .rst, .in_valid, .in_ready, .in_data({lengths[in_place], seconds[in_place], in_rest, in_any, in_place, queued}),
        .out_valid(queue_valid), .out_ready(!out_valid || out_ready),
        .out_data({length, second_row, rest, any, place, entering}));

    wire [ADDR_BITS-1:0] address = ADDR_BITS'(64'(rest) >> INDEX_BITS << WORD)
        | ADDR_BITS'({entering.dram_base[WORD-1:INDEX_BITS], rest[INDEX_BITS-1:0]});
    wire [31:0] row_bytes    = 32'(entering.x_size) << LOG_BYTES[place];
    wire [31:0] stride_bytes = 32'(entering.x_stride) << LOG_BYTES[place];
    always_ff @(posedge clk) begin
        if (rst) out_valid <= 1'b0;
        else if (moves) out_valid <= 1'b1;
        else if (out_ready) out_valid <= 1'b0;
        if (!out_valid || out_ready) begin  // harmless if none moves, which is known later
            out_insn  <= entering;
            out_block <= '{any: any, address: address,
                           row_bytes: row_bytes, stride_bytes: stride_bytes,
                           rows: entering.y_size, second: second_row, length: length,
                           ending: end_of_row(address[CUT_BITS-1:0], row_bytes[CUT_BITS:0])};
        end
    end
endmodule
