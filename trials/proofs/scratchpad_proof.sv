// scratchpad, with HOLD: what was asked for is what the memory held then, and stays until something else
// is asked for, also when it was not read again. It is read exactly when it is not there: another index,
// more elements, or a write to one of them since it was read.
module scratchpad_proof
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int SLOTS = 2,
    parameter int READ_SLOTS = 1,
    parameter int BANKS = SLOTS,
    parameter int HOLD = 1,
    parameter int WHOLE = 0,
    localparam int WRITES = WHOLE > SLOTS ? WHOLE : SLOTS,
    localparam int WIDTH = 2,
    localparam int DEPTH = 8,
    localparam int BITS = 3
) (
    input logic                 clk,
    input logic                 rst,
    input load_write_t          write,
    input logic [PORT_BITS-1:0] word,
    input logic [(WHOLE != 0 ? WHOLE : 1)*WIDTH-1:0] tiles,
    input logic                 rd_en,
    input logic                 rd_all,
    input logic [BITS-1:0]      rd_index,
    input logic                 rd_same,
    input logic [BITS-1:0]      rd_held
);
    wire [BITS-1:0] rd_after = rd_index + BITS'(BANKS);
    logic [READ_SLOTS*WIDTH-1:0] rd_data;
    scratchpad #(.MEMORY(MEM_INP), .WIDTH(WIDTH), .DEPTH(DEPTH), .SLOTS(SLOTS),
                 .READ_SLOTS(READ_SLOTS), .WHOLE(WHOLE), .BANKS(BANKS), .HOLD(HOLD), .FAST(HOLD == 2)) dut (
        .rd_clk(clk), .in_step(1'b1), .*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    logic [WIDTH-1:0] content [DEPTH];
    for (genvar i = 0; i < DEPTH; i++) begin : g_content
        if (BANKS == 1) begin : g_single
            assign content[i] = dut.memory.g_single.bank.g_block.mem[i];
        end else begin : g_banks
            assign content[i] = dut.memory.g_banks.g_bank[i%BANKS].bank.g_block.mem[i/BANKS];
        end
    end

    // The specification: what was asked for last, and which elements were written since it was read.
    logic            asked, asked_all, read_all;
    logic [BITS-1:0] asked_index;
    logic [WIDTH-1:0] expected [READ_SLOTS];
    logic [DEPTH-1:0] stale, writes;
    always_comb begin
        writes = '0;
        for (int w = 0; w < WRITES; w++)
            if (write.valid && write.memory == MEM_INP && write.slots[w])
                writes[BITS'(write.index[BITS-1:0] + BITS'(w))] = 1'b1;
    end
    logic touched, there;
    always_comb begin
        touched = 1'b0;
        for (int r = 0; r < READ_SLOTS; r++) touched |= stale[BITS'(asked_index + BITS'(r))];
        there = asked && rd_index == asked_index && !touched && (read_all || !rd_all);
    end
    always_ff @(posedge clk) begin
        asked <= !rst && (asked || rd_en);
        if (rd_en) begin
            asked_index <= rd_index;
            asked_all   <= rd_all;
            for (int r = 0; r < READ_SLOTS; r++)
                expected[r] <= content[BITS'(rd_index + BITS'(r))];
        end
        if (rd_en && !there) read_all <= rd_all;
        stale <= rd_en && !there ? writes : stale | writes;
    end

    always_comb begin
        assume (started || rst);
        if (HOLD == 2 && asked)  // of operand_reads
            assume (rd_en ? rd_same == (rd_index == asked_index) : rd_held == asked_index);
        if (HOLD == 2 && rd_en) assume (rd_held == rd_index);
        if (started) begin
            assert (!asked || rd_data[WIDTH-1:0] == expected[0]);
            for (int r = 0; r < READ_SLOTS; r++)
                assert (!asked || !asked_all || rd_data[r*WIDTH +: WIDTH] == expected[r]);
            assert (dut.reads == (rd_en && !there));
            // What it knows of its word.
            assert (dut.g_hold.held == (asked && !touched));
            if (asked) begin
                assert (HOLD == 2 || dut.g_hold.held_index == asked_index);
                assert (dut.g_hold.held_all == read_all);
                assert (read_all || !asked_all);
                for (int r = 0; r < READ_SLOTS; r++)
                    if (!touched && (r == 0 || read_all))
                        assert (rd_data[r*WIDTH +: WIDTH]
                                == content[BITS'(asked_index + BITS'(r))]);
            end
        end
    end
endmodule
