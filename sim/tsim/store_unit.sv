// Store unit: executes STORE: consecutive elements of the output scratchpad to a 2-D block of DRAM.
// The compute unit is before it, and no unit after.
//
// Ports:   insn_*: instructions; token_*: tokens from (g2s) and to (s2g) the compute unit;
//          sram_*: read port of the output scratchpad (SLOTS consecutive elements, data one cycle
//          later); wr_req*, wr_*: DRAM write channels, wr_strobe enables bytes; wr_ack: a burst
//          has reached memory. events: as in load_unit.
// Timing:  one port word per cycle. The next instruction starts before the memory has acknowledged
//          the previous one; a token is pushed when all bursts of its instruction are acknowledged.
module store_unit
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                          clk,
    input  logic                          rst,
    input  logic                          insn_valid,
    output logic                          insn_ready,
    input  logic [INSN_BITS-1:0]          insn,
    input  logic                          token_available,
    output logic                          token_pop,
    output logic                          token_push,
    input  logic [ADDR_BITS-1:0]          origin,
    output logic                          sram_en,
    output logic [OUT_INDEX_BITS-1:0]     sram_index,
    input  logic [OUT_SLOTS*OUT_BITS-1:0] sram_data,
    output logic                          wr_req_valid,
    input  logic                          wr_req_ready,
    output burst_t                        wr_req,
    output logic                          wr_valid,
    input  logic                          wr_ready,
    output logic [PORT_BITS-1:0]          wr_data,
    output logic [PORT_BYTES-1:0]         wr_strobe,
    input  logic                          wr_ack,
    output logic                          active,
    output logic                          waiting_token,
    output events_t                       events,
    output logic                          fault
);
    localparam int OFFSET_BITS = OUT_SLOTS > 1 ? $clog2(OUT_SLOTS) : 1;
    localparam int COUNT_BITS = 16;
    localparam int WORDS = 8;  // port words between the scratchpad and the write channel

    logic head_valid, bursts_ready, bursts_active, retire_ready, retire_valid;
    logic [INSN_BITS-1:0] head;
    block_t block;
    /* verilator lint_off UNUSEDSIGNAL */
    store_t head_store;
    /* verilator lint_on UNUSEDSIGNAL */
    assign head_store = head;

    // ------------------------------------------------------------------ start of an instruction
    logic running;                 // the instruction in `push`, `rows`, ... has words to send
    logic last_word;               // its last word is read in this cycle
    wire moves = block.any;
    wire token_missing = head_store.pop_prev && !token_available;
    wire start_ready = !running && !bursts_active && retire_ready;
    wire start = head_valid && start_ready && !token_missing;

    command_queue #(.LOG_BYTES({4{4'($clog2(OUT_BYTES))}})) commands (
        .clk, .rst, .in_valid(insn_valid), .in_ready(insn_ready), .in_insn(insn),
        .in_moves(1'b1), .in_place('0), .in_origins({4{origin}}), .out_valid(head_valid),
        .out_ready(start_ready && !token_missing), .out_insn(head), .out_block(block));

    beats_t unused_kept, unused_fired;
    burst_generator bursts (
        .clk, .rst, .start_valid(start && moves), .start_ready(bursts_ready),
        .start_block(block),
        .req_valid(wr_req_valid), .req_ready(wr_req_ready), .req(wr_req),
        .kept(unused_kept), .fired(unused_fired), .active(bursts_active));
    wire unused_ready = bursts_ready;  // implied by start_ready

    assign token_pop = start && head_store.pop_prev;

    // ----------------------------------------------------------------- scratchpad to port words
    logic [15:0]            row_size, left, rows;
    logic [SRAM_BITS:0]     index;
    logic [OFFSET_BITS-1:0] offset, row_offset, stride_offset;
    logic [PART_BITS-1:0]   part;
    logic                   push;

    wire [EVENT_BITS-1:0] fits  = EVENT_BITS'(OUT_SLOTS) - EVENT_BITS'(offset);
    wire [EVENT_BITS-1:0] count = left < 16'(fits) ? EVENT_BITS'(left) : fits;
    wire ends_element = part == PART_BITS'(OUT_PARTS - 1);
    logic words_room;
    wire step = running && words_room;
    wire ends_row = step && ends_element && left == 16'(count);
    assign last_word = ends_row && rows == 16'd1;

    assign sram_en    = step && part == '0;  // the element's other words are then available
    assign sram_index = OUT_INDEX_BITS'(index) - OUT_INDEX_BITS'(offset);

    logic        stepped;
    logic [17:0] end_of_step;
    always_ff @(posedge clk) begin
        stepped     <= step && !rst;
        end_of_step <= 18'(index) + 18'(count);
    end
    assign fault = stepped && end_of_step > 18'(OUT_DEPTH);

    localparam logic [OFFSET_BITS-1:0] OFFSET_MASK = OFFSET_BITS'(OUT_SLOTS - 1);

    always_ff @(posedge clk) begin
        if (rst) running <= 1'b0;
        else if (start && moves) running <= 1'b1;
        else if (last_word) running <= 1'b0;
        if (start) begin
            row_size      <= head_store.x_size;
            left          <= head_store.x_size;
            rows          <= head_store.y_size;
            index         <= (SRAM_BITS+1)'(head_store.sram_base);
            offset        <= OFFSET_BITS'(head_store.dram_base) & OFFSET_MASK;
            row_offset    <= (OFFSET_BITS'(head_store.dram_base)
                              + OFFSET_BITS'(head_store.x_stride)) & OFFSET_MASK;
            stride_offset <= OFFSET_BITS'(head_store.x_stride) & OFFSET_MASK;
            part          <= '0;
            push          <= head_store.push_prev;
        end else if (step) begin
            part <= ends_element ? '0 : part + 1'b1;
            if (ends_element) begin
                index  <= index + (SRAM_BITS+1)'(count);
                left   <= ends_row ? row_size : left - 16'(count);
                offset <= ends_row ? row_offset : '0;
            end
            if (ends_row) begin
                rows       <= rows - 1'b1;
                row_offset <= (row_offset + stride_offset) & OFFSET_MASK;
            end
        end
    end

    // One cycle later: the word from the scratchpad, and its byte enables.
    logic                 word_valid;
    /* verilator lint_off UNUSEDSIGNAL */
    logic [PART_BITS-1:0] word_part;  // as wide as the longest element requires
    /* verilator lint_on UNUSEDSIGNAL */
    logic [OUT_SLOTS-1:0] word_slots;
    always_ff @(posedge clk) begin
        if (rst) word_valid <= 1'b0;
        else word_valid <= step;
        if (step) begin
            word_part  <= part;
            word_slots <= OUT_SLOTS'((32'd1 << count) - 32'd1) << offset;
        end
    end

    logic [PORT_BITS-1:0]  word;
    logic [PORT_BYTES-1:0] strobe;
    if (OUT_PARTS > 1) begin : g_parts
        wire unused_slots = word_slots[0];
        assign word   = sram_data[word_part*PORT_BITS +: PORT_BITS];
        assign strobe = '1;
    end else begin : g_slots
        wire unused_part = word_part[0];
        assign word = sram_data;
        for (genvar s = 0; s < OUT_SLOTS; s++) begin : g_strobe
            assign strobe[s*OUT_BYTES +: OUT_BYTES] = {OUT_BYTES{word_slots[s]}};
        end
    end

    // Words read from the scratchpad and not yet sent must fit into the FIFO.
    localparam int WAITING_BITS = $clog2(WORDS + 1);
    logic [WAITING_BITS-1:0] waiting;
    wire sent = wr_valid && wr_ready;
    assign words_room = waiting != WAITING_BITS'(WORDS);
    always_ff @(posedge clk) begin
        if (rst) waiting <= '0;
        else if (step != sent) waiting <= step ? waiting + 1'b1 : waiting - 1'b1;
    end
    logic unused_words_ready;
    fifo #(.WIDTH(PORT_BITS + PORT_BYTES), .DEPTH(WORDS)) words (
        .clk, .rst, .in_valid(word_valid), .in_ready(unused_words_ready), .in_data({strobe, word}),
        .out_valid(wr_valid), .out_ready(wr_ready), .out_data({wr_strobe, wr_data}));

    // ------------------------------------------------------------------- completion, in order
    // Bursts are counted; an instruction is complete when as many bursts are acknowledged as were
    // requested by its end.
    logic [COUNT_BITS-1:0] requested, acknowledged, target;
    logic                  ended, retire_push;
    wire sent_all = !running && !bursts_active;
    wire retire = retire_valid && acknowledged - target < COUNT_BITS'(1 << (COUNT_BITS - 1));

    always_ff @(posedge clk) begin
        if (rst) begin
            requested    <= '0;
            acknowledged <= '0;
            ended        <= 1'b1;
        end else begin
            if (wr_req_valid && wr_req_ready) requested <= requested + 1'b1;
            if (wr_ack) acknowledged <= acknowledged + 1'b1;
            if (start) ended <= 1'b0;
            else if (sent_all && retire_ready) ended <= 1'b1;
        end
    end

    fifo #(.WIDTH(COUNT_BITS + 1), .DEPTH(4)) retiring (
        .clk, .rst, .in_valid(sent_all && !ended), .in_ready(retire_ready),
        .in_data({requested, push}),
        .out_valid(retire_valid), .out_ready(retire), .out_data({target, retire_push}));

    assign token_push = retire && retire_push;

    assign waiting_token = head_valid && token_missing;
    assign active      = running || bursts_active || !ended || retire_valid || wr_valid
                         || requested != acknowledged || head_valid && !token_missing;

    wire busy        = sent;
    wire stall_dram  = !busy && (running || bursts_active || wr_valid
                                 || requested != acknowledged);
    wire stall_token = !busy && !stall_dram && waiting_token;
    always_comb begin
        events = '0;
        events.store_busy        = EVENT_BITS'(busy);
        events.store_stall_token = EVENT_BITS'(stall_token);
        events.store_stall_dram  = EVENT_BITS'(stall_dram);
        events.store_idle        = EVENT_BITS'(!(busy || stall_token || stall_dram));
        events.out_elements      = step && ends_element ? count : '0;
    end
endmodule
