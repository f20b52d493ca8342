// Blocks of the RTL side by side, for tests/runtime/tsim/test_blocks.py.
module blocks
    import vta_pkg::*, stream_pkg::*;
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
    // tensor load
    input  logic                load_valid,
    output logic                load_ready,
    input  logic [INSN_BITS-1:0] load_insn,
    output logic                load_req_valid,
    input  logic                load_req_ready,
    output logic [31:0]         load_req_address,
    output logic [7:0]          load_req_beats,
    input  logic                load_data_valid,
    input  logic [PORT_BITS-1:0] load_data,
    input  logic                load_allow,
    output logic                load_wr_valid,
    output logic [2:0]          load_wr_memory,
    output logic [31:0]         load_wr_index,
    output logic [7:0]          load_wr_slots,
    output logic [7:0]          load_wr_part,
    output logic                load_wr_zero,
    output logic [PORT_BITS-1:0] load_wr_data,
    output logic                load_done,
    output logic [7:0]          load_loaded,
    output logic                load_fault,
    // DRAM port: client c has address bits 32 c .. and beats bits 8 c ..
    input  logic [2:0]          client_valid,
    output logic [2:0]          client_ready,
    input  logic [95:0]         client_address,
    input  logic [23:0]         client_beats,
    output logic [2:0]          client_data_valid,
    output logic [PORT_BITS-1:0] client_data,
    output logic                memory_valid,
    input  logic                memory_ready,
    output logic [31:0]         memory_address,
    output logic [7:0]          memory_beats,
    output logic [1:0]          memory_client,
    input  logic                rd_valid,
    input  logic [1:0]          rd_client,
    input  logic                rd_last,
    input  logic [PORT_BITS-1:0] rd_word,
    output logic                port_reading,
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
        .clk, .rd_clk(clk), .wr_slots, .wr_lanes, .wr_index, .wr_data, .rd_en, .rd_all(1'b1), .rd_index,
        .rd_after('0), .rd_data);

    function automatic block_t block(input logic any, input logic [ADDR_BITS-1:0] address,
                                     input logic [31:0] row_bytes, input logic [31:0] stride_bytes,
                                     input logic [15:0] rows);
        return '{any: any, address: address, row_bytes: row_bytes, stride_bytes: stride_bytes,
                 rows: rows, second: CUT_BITS'(address + ADDR_BITS'(stride_bytes)),
                 length: length_of(row_bytes),
                 ending: end_of_row(address[CUT_BITS-1:0], row_bytes[CUT_BITS:0])};
    endfunction

    burst_t burst;
    logic active;
    burst_generator #(.AHEAD(1)) bursts (
        .clk, .rst, .start_valid(block_valid), .start_ready(block_ready),
        .start_block(block(1'b1, ADDR_BITS'(block_address), block_row_bytes, block_stride_bytes,
                           block_rows)),
        .req_valid, .req_ready, .req(burst), .active);
    assign req_address = 32'(burst.address);
    assign req_beats = 8'(burst.beats);

    burst_t                load_burst;
    load_write_t           load_write;
    logic [2:0]            load_memory;
    logic [SRAM_BITS-1:0]  load_first, load_out_index;
    logic [EVENT_BITS-1:0] loaded;
    load_t                 load_done_insn;
    logic                  requesting, writing;
    load_t load_insn_fields;
    assign load_insn_fields = load_insn;
    wire [3:0] load_log_bytes = log_element_bytes(load_insn_fields.memory);
    tensor_load #(.SLOTS(UOP_SLOTS)) loader (
        .clk, .rst, .start_valid(load_valid), .start_ready(load_ready), .start_insn(load_insn),
        .start_block(block(load_insn_fields.x_size != '0 && load_insn_fields.y_size != '0,
                           ADDR_BITS'(load_insn_fields.dram_base) << load_log_bytes,
                           32'(load_insn_fields.x_size) << load_log_bytes,
                           32'(load_insn_fields.x_stride) << load_log_bytes,
                           load_insn_fields.y_size)),
        .req_valid(load_req_valid), .req_ready(load_req_ready), .req(load_burst), .data_valid(load_data_valid), .data(load_data), .allow(load_allow),
        .write(load_write), .word(load_wr_data), .memory(load_memory), .first(load_first),
        .out_index(load_out_index),
        .done(load_done), .done_insn(load_done_insn), .loaded, .requesting, .writing,
        .fault(load_fault));
    assign load_req_address = 32'(load_burst.address);
    assign load_req_beats = 8'(load_burst.beats);
    assign load_wr_valid = load_write.valid;
    assign load_wr_memory = load_write.memory;
    assign load_wr_zero = load_write.zero;
    assign load_wr_index = 32'(load_write.index);
    assign load_wr_slots = 8'(load_write.slots);
    assign load_wr_part = 8'(load_write.part);
    assign load_loaded = 8'(loaded);

    burst_t [READ_CLIENTS-1:0] client_req;
    burst_t                    port_burst;
    for (genvar c = 0; c < READ_CLIENTS; c++) begin : g_client
        assign client_req[c] = '{address: ADDR_BITS'(client_address[c*32 +: 32]),
                                 beats: BEATS_BITS'(client_beats[c*8 +: 8])};
    end
    dram_port port (
        .clk, .rst, .client_valid, .client_ready, .client_req, .client_data_valid, .client_data,
        .rd_req_valid(memory_valid), .rd_req_ready(memory_ready), .rd_req(port_burst),
        .rd_req_client(memory_client), .rd_valid, .rd_client, .rd_last, .rd_data(rd_word),
        .reading(port_reading));
    assign memory_address = 32'(port_burst.address);
    assign memory_beats = 8'(port_burst.beats);

    logic [ACC_BITS-1:0] alu_sum, alu_other;
    assign alu_result = alu_op == ALU_ADD ? alu_sum : alu_other;
    vector_alu alu (.clk, .orders(alu_op inside {ALU_MIN, ALU_MAX}),
                    .greater(alu_op == ALU_MAX), .shifts(alu_op == ALU_SHR),
                    .multiplies(alu_op == ALU_MUL), .x(alu_x), .y(alu_y), .too_far(shifts_out(alu_y)), .addend(alu_y),
                    .sum(alu_sum), .other(alu_other), .product(alu_product));
    gemm_core core (
        .clk, .array_clk(clk), .second_half(1'b0), .enable(gemm_enable[GEMM_STAGES-1:0]),
        .pair(1'b0), .inp, .wgt, .sums);
endmodule
