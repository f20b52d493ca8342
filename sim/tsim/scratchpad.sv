// A scratchpad that LOAD fills: takes the writes to its own memory from a stream of them.
//
// Ports:   write, word: from tensor_load. element: what is written if it is whole. rd_*: as banked_sram, READ_SLOTS elements.
// Timing:  as sram.
module scratchpad
    import vta_pkg::*, stream_pkg::*;
#(
    parameter logic [2:0] MEMORY = MEM_INP,
    parameter int WIDTH = 128,
    parameter int DEPTH = 2048,
    parameter int PARTS = 1,  // port words of an element: either this is 1,
    parameter int SLOTS = 1,  // or this: elements of a port word
    parameter int READ_SLOTS = 1,
    parameter int WHOLE = 0,  // whether whole elements are written
    parameter int BANKS = SLOTS,  // at least as many as slots are written or read
    localparam int BITS = $clog2(DEPTH)
) (
    input  logic                 clk,
    /* verilator lint_off UNUSEDSIGNAL */
    input  load_write_t          write,  // as wide as the largest scratchpad needs
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [PORT_BITS-1:0] word,
    input  logic [WIDTH-1:0]     element,
    input  logic                 rd_en,
    input  logic [BITS-1:0]      rd_index,
    output logic [READ_SLOTS*WIDTH-1:0] rd_data
);
    wire mine = write.valid && write.memory == MEMORY;
    logic [PARTS-1:0] lanes;
    for (genvar l = 0; l < PARTS; l++) begin : g_lane
        assign lanes[l] = write.zero || WHOLE != 0 && write.whole || write.part == PART_BITS'(l);
    end
    wire [PORT_BITS-1:0] written = write.zero ? '0 : word;
    logic [BANKS*WIDTH-1:0] data;
    if (WHOLE != 0) begin : g_whole
        assign data = write.whole ? (BANKS*WIDTH)'(element) : (BANKS*WIDTH)'({PARTS{written}});
    end else begin : g_words
        assign data = (BANKS*WIDTH)'({PARTS{written}});
        wire unused_element = ^element;
    end

    banked_sram #(.WIDTH(WIDTH), .DEPTH(DEPTH), .LANES(PARTS), .BANKS(BANKS),
                  .READ_SLOTS(READ_SLOTS)) memory (
        .clk, .wr_slots(mine ? BANKS'(write.slots[SLOTS-1:0]) : '0), .wr_lanes(lanes),
        .wr_index(write.index[BITS-1:0]), .wr_data(data), .rd_en, .rd_index,
        .rd_data);
endmodule
