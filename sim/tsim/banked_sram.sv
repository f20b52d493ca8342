// Scratchpad of DEPTH elements that reads or writes several consecutive elements per cycle, starting
// at any index: element i is in bank i mod BANKS, so BANKS consecutive elements are in distinct banks.
//
// Ports:   write: slot j of wr_data goes to element wr_index + j if wr_slots[j], in the lanes of
//          wr_lanes (the same for all slots). Indices wrap at DEPTH.
//          read: slot j of rd_data is element rd_index + j; without rd_all, only slot 0 is read and
//          the others are undefined. FAST: rd_clk leaves little time, so rd_after brings rd_index +
//          BANKS, and the slots' banks wait in registers.
//          clk, rd_clk: as in sram.
// Timing:  as in sram: data one cycle after rd_en, old data on a collision.
module banked_sram #(
    parameter int WIDTH = 128,
    parameter int DEPTH = 2048,
    parameter int LANES = 1,
    parameter int BANKS = 1,
    parameter int READ_SLOTS = 1,
    parameter int BLOCK_RAM = 1,
    parameter int FAST = 0,
    localparam int BITS = $clog2(DEPTH)
) (
    input  logic                        clk,
    input  logic                        rd_clk,
    input  logic [BANKS-1:0]            wr_slots,
    input  logic [LANES-1:0]            wr_lanes,
    input  logic [BITS-1:0]             wr_index,
    input  logic [BANKS*WIDTH-1:0]      wr_data,
    input  logic                        rd_en,
    input  logic                        rd_all,
    input  logic [BITS-1:0]             rd_index,
    /* verilator lint_off UNUSEDSIGNAL */
    input  logic [BITS-1:0]             rd_after,
    /* verilator lint_on UNUSEDSIGNAL */
    output logic [READ_SLOTS*WIDTH-1:0] rd_data
);
    if (BANKS == 1) begin : g_single
        sram #(.WIDTH(WIDTH), .DEPTH(DEPTH), .LANES(LANES), .BLOCK_RAM(BLOCK_RAM)) bank (
            .clk, .rd_clk, .we(wr_slots[0] ? wr_lanes : '0), .waddr(wr_index), .wdata(wr_data),
            .re(rd_en), .raddr(rd_index), .rdata(rd_data));
        wire unused_all = rd_all;
    end else begin : g_banks
        localparam int LOG = $clog2(BANKS);
        localparam int ROW_BITS = BITS - LOG;
        if (BANKS != 1 << LOG || DEPTH <= BANKS) begin : g_check
            $error("banked_sram: BANKS must be a power of two below DEPTH");
        end

        wire [LOG-1:0] wr_first = wr_index[LOG-1:0];
        wire [LOG-1:0] rd_first = rd_index[LOG-1:0];
        logic [BANKS*WIDTH-1:0] bank_data;

        for (genvar b = 0; b < BANKS; b++) begin : g_bank
            /* verilator lint_off CMPCONST */  // the last bank is never before the first slot
            // The slot that belongs to this bank, and whether it is in the next row.
            wire [LOG-1:0] slot = LOG'(b) - wr_first;
            wire [LOG-1:0] rd_slot = LOG'(b) - rd_first;
            wire [ROW_BITS-1:0] rd_row;
            if (FAST != 0) begin : g_fast
                assign rd_row = LOG'(b) < rd_first ? rd_after[BITS-1:LOG] : rd_index[BITS-1:LOG];
            end else begin : g_sum
                assign rd_row = rd_index[BITS-1:LOG] + ROW_BITS'(LOG'(b) < rd_first);
            end
            sram #(.WIDTH(WIDTH), .DEPTH(DEPTH / BANKS), .LANES(LANES),
                   .BLOCK_RAM(BLOCK_RAM)) bank (
                .clk,
                .rd_clk,
                .we(wr_slots[slot] ? wr_lanes : '0),
                .waddr(wr_index[BITS-1:LOG] + ROW_BITS'(LOG'(b) < wr_first)),
                .wdata(wr_data[slot*WIDTH +: WIDTH]),
                .re(rd_en && (rd_slot == '0 || rd_all && 32'(rd_slot) < READ_SLOTS)),
                .raddr(rd_row),
                .rdata(bank_data[b*WIDTH +: WIDTH]));
            /* verilator lint_on CMPCONST */
        end

        logic [READ_SLOTS*LOG-1:0] sources;  // the bank of each slot
        if (FAST != 0) begin : g_fast
            for (genvar s = 0; s < READ_SLOTS; s++) begin : g_known
                // Of slots two apart inverted, or they share multiplexers, in a second level of logic.
                localparam bit [LOG-1:0] INVERTED = s % 4 >= 2 ? '1 : '0;
                logic [LOG-1:0] known;
                assign sources[s*LOG +: LOG] = known ^ INVERTED;
                always_ff @(posedge rd_clk) if (rd_en) known <= (rd_first + LOG'(s)) ^ INVERTED;
            end
        end else begin : g_sum
            logic [LOG-1:0] rd_rotation;
            always_ff @(posedge rd_clk) if (rd_en) rd_rotation <= rd_first;
            for (genvar s = 0; s < READ_SLOTS; s++) begin : g_added
                assign sources[s*LOG +: LOG] = rd_rotation + LOG'(s);
            end
        end
        for (genvar s = 0; s < READ_SLOTS; s++) begin : g_slot
            assign rd_data[s*WIDTH +: WIDTH] = bank_data[sources[s*LOG +: LOG]*WIDTH +: WIDTH];
        end
    end
endmodule
