// Command queue: the instructions that wait in front of a unit. A FIFO whose word at the head is in
// flip-flops: what leaves a block RAM leaves it late in the cycle, and the units decode the head
// and start on it in one cycle.
//
// What an instruction moves in DRAM is computed before the block RAM as far as it needs additions or
// comparisons: the byte address stands where `dram_base` was, but for the low bits of both, of which
// those of the index stay, since they tell where in a port word an element lies.
//
// Ports:   as fifo. Holds COMMAND_DEPTH instructions and two more at its output.
//          in_moves: it is a LOAD or STORE of DRAM; in_place: of which of the unit's memories;
//          in_origin, in_log_bytes: where this memory lies there, and the size of its elements.
//          out_place: that of the instruction that goes to the output next, out_log_bytes its size.
//          out_insn: as it came in, but that bits of `dram_base` from INDEX_BITS on are of an address
//          where it moves; out_block: what it moves in DRAM.
// Timing:  one instruction per cycle; three cycles from in to out.
module command_queue
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                 clk,
    input  logic                 rst,
    input  logic                 in_valid,
    output logic                 in_ready,
    input  logic [INSN_BITS-1:0] in_insn,
    input  logic                 in_moves,
    input  logic [1:0]           in_place,
    input  logic [ADDR_BITS-1:0] in_origin,
    input  logic [3:0]           in_log_bytes,
    output logic [1:0]           out_place,
    input  logic [3:0]           out_log_bytes,
    output logic                 out_valid,
    input  logic                 out_ready,
    output logic [INSN_BITS-1:0] out_insn,
    output block_t               out_block
);
    localparam int INDEX_BITS = WORD_SLOTS > 1 ? $clog2(WORD_SLOTS) : 1;
    localparam int WORD = 32;  // bits of dram_base
    localparam int REST_BITS = ADDR_BITS - WORD + INDEX_BITS;  // of an address, beside those

    load_t in_load, queued, entering;
    assign in_load = in_insn;
    wire in_any = in_load.x_size != '0 && in_load.y_size != '0;
    wire [ADDR_BITS-1:0] in_address =
        in_origin + (ADDR_BITS'(in_load.dram_base) << in_log_bytes);
    always_comb begin
        queued = in_load;
        if (in_moves) queued.dram_base[WORD-1:INDEX_BITS] = in_address[WORD-1:INDEX_BITS];
    end
    wire [REST_BITS-1:0] in_rest = REST_BITS'(64'(in_address) >> WORD << INDEX_BITS)
                                 | REST_BITS'(in_address[INDEX_BITS-1:0]);

    logic queue_valid, any;
    logic [REST_BITS-1:0] rest;
    wire moves = queue_valid && (!out_valid || out_ready);
    fifo #(.WIDTH(REST_BITS + 3 + INSN_BITS), .DEPTH(COMMAND_DEPTH)) queue (
        .clk, .rst, .in_valid, .in_ready, .in_data({in_rest, in_any, in_place, queued}),
        .out_valid(queue_valid), .out_ready(!out_valid || out_ready),
        .out_data({rest, any, out_place, entering}));

    wire [ADDR_BITS-1:0] address = ADDR_BITS'(64'(rest) >> INDEX_BITS << WORD)
        | ADDR_BITS'({entering.dram_base[WORD-1:INDEX_BITS], rest[INDEX_BITS-1:0]});
    always_ff @(posedge clk) begin
        if (rst) out_valid <= 1'b0;
        else if (moves) out_valid <= 1'b1;
        else if (out_ready) out_valid <= 1'b0;
        if (moves) begin
            out_insn  <= entering;
            out_block <= '{any: any, address: address,
                           row_bytes: 32'(entering.x_size) << out_log_bytes,
                           stride_bytes: 32'(entering.x_stride) << out_log_bytes,
                           rows: entering.y_size};
        end
    end
endmodule
