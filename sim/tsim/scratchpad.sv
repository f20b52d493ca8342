// A scratchpad filled by LOAD: takes the writes to its own memory from a stream of writes.
//
// With HOLD, the memory is read only if its output does not hold the word yet: the last word read is
// kept until another element is read or this one is written. This is otherwise invisible. With HOLD = 2
// rd_same says that a read has the index of the last one. In_step, rd_held is the index of the last
// read, also of one in the same cycle of rd_clk.
//
// With NIBBLES, a word of weights of four bits fills two parts.
//
// Ports:   write, word: from tensor_load. tiles: the data of a whole-element write. rd_*: as in
//          banked_sram, READ_SLOTS elements. clk, rd_clk: as in sram, and in_step: the next edge of
//          rd_clk is one of clk, too. FAST: as in banked_sram.
// Timing:  as in sram.
module scratchpad
    import vta_pkg::*, stream_pkg::*;
#(
    parameter logic [2:0] MEMORY = MEM_INP,
    parameter int WIDTH = 128,
    parameter int DEPTH = 2048,
    parameter int PARTS = 1,  // port words per element: either this is 1,
    parameter int SLOTS = 1,  // or this: elements per port word
    parameter int READ_SLOTS = 1,
    parameter int WHOLE = 0,  // elements at most that are written whole
    parameter int NIBBLES = 0,
    parameter int BANKS = WHOLE > SLOTS ? WHOLE : SLOTS,  // at least the number of slots written or read
    parameter int HOLD = 0,
    parameter int FAST = 0,
    localparam int WRITES = WHOLE > SLOTS ? WHOLE : SLOTS,
    localparam int BITS = $clog2(DEPTH)
) (
    input  logic                 clk,
    input  logic                 rd_clk,
    input  logic                 in_step,
    input  logic                 rst,
    /* verilator lint_off UNUSEDSIGNAL */
    input  load_write_t          write,  // as wide as the largest scratchpad requires
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [PORT_BITS-1:0] word,
    input  logic [(WHOLE != 0 ? WHOLE : 1)*WIDTH-1:0] tiles,
    input  logic                 rd_en,
    input  logic                 rd_all,
    input  logic [BITS-1:0]      rd_index,
    input  logic                 rd_same,
    input  logic [BITS-1:0]      rd_held,
    input  logic [BITS-1:0]      rd_after,
    output logic [READ_SLOTS*WIDTH-1:0] rd_data
);
    wire mine = write.valid && write.memory == MEMORY;
    wire nibbles = NIBBLES != 0 && write.narrow;
    logic [PARTS-1:0] lanes;
    for (genvar l = 0; l < PARTS; l++) begin : g_lane
        assign lanes[l] = write.zero || WHOLE != 0 && write.whole
                          || write.part == PART_BITS'(nibbles ? l / 2 : l);
    end
    wire [PORT_BITS-1:0] written = write.zero ? '0 : word;
    logic [BANKS*WIDTH-1:0] data;
    if (WHOLE != 0) begin : g_whole
        assign data = write.whole ? (BANKS*WIDTH)'(tiles) : (BANKS*WIDTH)'({PARTS{written}});
    end else if (NIBBLES != 0) begin : g_nibbles
        if (PARTS < 2) begin : g_check
            $error("NIBBLES needs elements of at least two port words");
        end
        logic [2*PORT_BITS-1:0] expanded;
        for (genvar n = 0; n < PORT_BITS / 4; n++) begin : g_nibble
            assign expanded[8*n +: 8] = 8'($signed(written[4*n +: 4]));
        end
        assign data = {PARTS/2{nibbles ? expanded : {2{written}}}};
        wire unused_tiles = ^tiles;
    end else begin : g_words
        assign data = (BANKS*WIDTH)'({PARTS{written}});
        wire unused_tiles = ^tiles;
    end

    logic reads;
    if (HOLD != 0) begin : g_hold
        // rd_data holds the elements from held_index on: the first one, or all if held_all.
        logic held, held_all, same, overwritten;
        logic [BITS-1:0] held_index;
        assign reads = rd_en && !(held && same && (held_all || !rd_all));
        // Whether a write changes one of the elements from an index on.
        function automatic logic touches(input logic [BITS-1:0] index,
                                         input logic [BITS-1:0] first,
                                         input logic [WRITES-1:0] slots);
            touches = 1'b0;
            for (int w = 0; w < WRITES; w++)
                for (int r = 0; r < READ_SLOTS; r++)
                    if (slots[w] && index == first + BITS'(w - r)) touches = 1'b1;
        endfunction
        // For both cases, because it is known late whether the memory is read.
        wire touches_read = touches(HOLD == 2 ? rd_held : rd_index, write.index[BITS-1:0], write.slots[WRITES-1:0]);
        wire touches_held = touches(held_index, write.index[BITS-1:0], write.slots[WRITES-1:0]);
        assign overwritten = in_step && mine && (reads ? touches_read : touches_held);
        always_ff @(posedge rd_clk) begin
            held <= !rst && (reads || held) && !overwritten;
            if (reads) held_all <= rd_all;
        end
        if (HOLD == 2) begin : g_known
            assign same       = rd_same;
            assign held_index = rd_held;
        end else begin : g_compared
            assign same = rd_index == held_index;
            always_ff @(posedge rd_clk) if (reads) held_index <= rd_index;
            wire unused_known = ^{rd_same, rd_held};
        end
    end else begin : g_always
        assign reads = rd_en;
        wire unused_hold = ^{rst, in_step, rd_same, rd_held};
    end

    banked_sram #(.WIDTH(WIDTH), .DEPTH(DEPTH), .LANES(PARTS), .BANKS(BANKS),
                  .READ_SLOTS(READ_SLOTS), .FAST(FAST)) memory (
        .clk, .rd_clk, .wr_slots(mine ? BANKS'(write.slots[WRITES-1:0]) : '0), .wr_lanes(lanes),
        .wr_index(write.index[BITS-1:0]), .wr_data(data), .rd_en(reads), .rd_all, .rd_index,
        .rd_after, .rd_data);
endmodule
