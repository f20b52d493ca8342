// Blocks of the RTL side by side, for tests/test_tsim_blocks.py.
module blocks
    import vta_pkg::*;
(
    input  logic                clk,
    input  logic                rst,
    // token queue of capacity 5
    input  logic                token_push,
    input  logic                token_pop,
    output logic                token_available,
    output logic                token_overflow,
    // FIFO of 4 + 1 bytes
    input  logic                in_valid,
    output logic                in_ready,
    input  logic [7:0]          in_data,
    output logic                out_valid,
    input  logic                out_ready,
    output logic [7:0]          out_data,
    // banked SRAM of 16 elements of 16 bits, two lanes, four banks
    input  logic [3:0]          wr_slots,
    input  logic [1:0]          wr_lanes,
    input  logic [3:0]          wr_index,
    input  logic [63:0]         wr_data,
    input  logic                rd_en,
    input  logic [3:0]          rd_index,
    output logic [63:0]         rd_data,
    // bursts
    input  logic                block_valid,
    output logic                block_ready,
    input  logic [31:0]         block_address,
    input  logic [31:0]         block_row_bytes,
    input  logic [31:0]         block_stride_bytes,
    input  logic [15:0]         block_rows,
    output logic                req_valid,
    input  logic                req_ready,
    output logic [31:0]         req_address,
    output logic [7:0]          req_beats,
    // vector ALU and GEMM core
    input  logic [2:0]          alu_op,
    input  logic [ACC_BITS-1:0] alu_x,
    input  logic [ACC_BITS-1:0] alu_y,
    output logic [ACC_BITS-1:0] alu_result,
    output logic [ACC_BITS-1:0] alu_product,
    input  logic [7:0]          gemm_enable,
    input  logic [INP_BITS-1:0] inp,
    input  logic [WGT_BITS-1:0] wgt,
    output logic [ACC_BITS-1:0] sums
);
    token_queue #(.CAPACITY(5)) tokens (
        .clk, .rst, .push(token_push), .pop(token_pop), .available(token_available),
        .overflow(token_overflow));
    fifo #(.WIDTH(8), .DEPTH(4)) queue (
        .clk, .rst, .in_valid, .in_ready, .in_data, .out_valid, .out_ready, .out_data);
    banked_sram #(.WIDTH(16), .DEPTH(16), .LANES(2), .BANKS(4), .READ_SLOTS(4)) memory (
        .clk, .wr_slots, .wr_lanes, .wr_index, .wr_data, .rd_en, .rd_index, .rd_data);

    logic [ADDR_BITS-1:0] address;
    logic [BEATS_BITS-1:0] beats;
    logic active;
    burst_generator bursts (
        .clk, .rst, .start_valid(block_valid), .start_ready(block_ready),
        .start_address(ADDR_BITS'(block_address)), .start_row_bytes(block_row_bytes),
        .start_stride_bytes(block_stride_bytes), .start_rows(block_rows),
        .req_valid, .req_ready, .req_address(address), .req_beats(beats), .active);
    assign req_address = 32'(address);
    assign req_beats = 8'(beats);

    vector_alu alu (.clk, .enable(1'b1), .clear(1'b0), .op(alu_op), .x(alu_x), .y(alu_y),
                    .result(alu_result), .product(alu_product));
    gemm_core core (.clk, .enable(gemm_enable[GEMM_STAGES-1:0]), .inp, .wgt, .sums);
endmodule
