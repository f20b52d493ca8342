// Fetch: reads the instruction stream from DRAM and issues one instruction after another.
//
// Ports:   launch starts reading `count` instructions at byte address `address` (a multiple of 16),
//          valid a cycle before; insn_* offers them in program order; active until all are taken.
// Timing:  one instruction per cycle if the port is at least as wide as an instruction, else
//          one per port words of an instruction. Reads ahead by the depth of its buffer.
module fetch
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  launch,
    input  logic [ADDR_BITS-1:0]  address,
    input  logic [27:0]           count,
    output logic                  req_valid,
    input  logic                  req_ready,
    output burst_t                req,
    input  logic                  data_valid,
    input  logic [PORT_BITS-1:0]  data,
    output logic                  insn_valid,
    input  logic                  insn_ready,
    output logic [INSN_BITS-1:0]  insn,
    output logic                  active
);
    localparam int DEPTH = 4 * BURST_BEATS;

    logic bursts_valid, beat_valid, take_beat;
    logic [PORT_BITS-1:0] beat;
    logic [27:0] left;
    logic room;  // the buffer has room for the next burst
    beats_t kept, fired;  // the next burst

    assign req_valid = bursts_valid && room;
    assign active = left != '0;

    logic start_ready_unused, active_unused, buffer_ready_unused;
    wire [31:0] program_bytes = 32'(count) * INSN_BYTES;
    length_t length;  // the program is known a cycle before it starts
    row_end_t ending;
    logic some;       // it has instructions
    always_ff @(posedge clk) begin
        {length, some} <= {length_of(program_bytes), count != '0};
        ending <= end_of_row(address[CUT_BITS-1:0], program_bytes[CUT_BITS:0]);
    end
    wire block_t program_block = '{any: 1'b1, address: address, row_bytes: program_bytes,
                                   stride_bytes: '0, rows: 16'd1, second: '0, length: length,
                                   ending: ending};
    burst_generator bursts (
        .clk, .rst,
        .start_valid(launch && some), .start_ready(start_ready_unused),
        .start_block(program_block),
        .req_valid(bursts_valid), .req_ready(req_ready && room), .req, .kept, .fired,
        .active(active_unused));

    fifo #(.WIDTH(PORT_BITS), .DEPTH(DEPTH)) buffer (
        .clk, .rst, .in_valid(data_valid), .in_ready(buffer_ready_unused), .in_data(data),
        .out_valid(beat_valid), .out_ready(take_beat), .out_data(beat));

    burst_credit #(.DEPTH(DEPTH)) credit (
        .clk, .rst, .kept, .fired,
        .burst_taken(req_valid && req_ready), .take_beat, .room);

    wire take_insn = insn_valid && insn_ready;
    always_ff @(posedge clk) begin
        if (rst) left <= '0;
        else if (launch) left <= count;
        else if (take_insn) left <= left - 1'b1;
    end

    if (PORT_BYTES < INSN_BYTES) begin : g_narrow
        // An instruction consists of several port words; the last one completes it.
        localparam int WORDS = INSN_BYTES / PORT_BYTES;
        localparam int WORD_INDEX_BITS = $clog2(WORDS);
        logic [WORD_INDEX_BITS-1:0] word;
        logic [INSN_BITS-PORT_BITS-1:0] lower;
        wire last = word == WORD_INDEX_BITS'(WORDS - 1);
        assign insn_valid = beat_valid && last;
        assign insn       = {beat, lower};
        assign take_beat  = beat_valid && (!last || insn_ready);
        always_ff @(posedge clk) begin
            if (rst) word <= '0;
            else if (take_beat) word <= word + 1'b1;
            if (take_beat) lower <= (INSN_BITS-PORT_BITS)'({beat, lower} >> PORT_BITS);
        end
    end else if (PORT_BYTES == INSN_BYTES) begin : g_equal
        assign insn_valid = beat_valid;
        assign insn       = beat;
        assign take_beat  = take_insn;
    end else begin : g_wide
        // A port word holds several instructions; the stream may start within a word.
        localparam int PER_WORD = PORT_BYTES / INSN_BYTES;
        localparam int POSITION_BITS = $clog2(PER_WORD);
        logic [POSITION_BITS-1:0] position;
        assign insn_valid = beat_valid && active;
        assign insn       = beat[position*INSN_BITS +: INSN_BITS];
        assign take_beat  = take_insn && (&position || left == 28'd1);
        always_ff @(posedge clk) begin
            if (launch) position <= address[$clog2(INSN_BYTES) +: POSITION_BITS];
            else if (take_insn) position <= position + 1'b1;
        end
    end
endmodule
