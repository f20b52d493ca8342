// Tensor load: executes LOAD instructions: copies a 2-D block of DRAM to consecutive SRAM elements and
// surrounds it with zeros. Two halves work concurrently: the requesting half runs ahead (next rows,
// next instructions), the writing half takes the data in order and inserts the padding. This hides
// the request latency between rows and between instructions.
//
// With the extension NIBBLES, a beat may hold the weights of two parts of an element, of four bits each.
//
// With FORWARD, a LOAD may have the output scratchpad as its source: FORWARD elements per cycle, one or
// two, without requests.
//
// Ports:   start_*: instructions in program order. A no-operation also passes through in order.
//          start_block: the DRAM block to read.
//          req_*, data_*: DRAM. Requests are held back until the data buffer has room for them.
//          write, word: the data to write (at most SLOTS elements per word) when allow is high.
//          memory: the scratchpad that is written. For the next cycle: then_memory; first: the first
//          element written; beyond: BEYOND elements after it.
//          out_index: the first element of the output scratchpad that a whole-element `write` copies.
//          done: the instruction has been written completely; done_insn is that instruction.
//          loaded: number of DRAM elements completed in this cycle, for the counters.
// Timing:  one beat, FORWARD elements of the output scratchpad or one of padding per cycle, without a
//          gap between instructions.
module tensor_load
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int SLOTS = 1,
    parameter int FORWARD = 0,
    parameter int BEYOND = SLOTS,
    localparam int SLOT_BITS = SLOTS > 1 ? $clog2(SLOTS) : 1
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  start_valid,
    output logic                  start_ready,
    input  load_t                 start_insn,
    input  block_t                start_block,
    output logic                  req_valid,
    input  logic                  req_ready,
    output burst_t                req,
    input  logic                  data_valid,
    input  logic [PORT_BITS-1:0]  data,
    input  logic                  allow,
    output load_write_t           write,
    output logic [PORT_BITS-1:0]  word,
    output logic [2:0]            memory,
    output logic [2:0]            then_memory,
    output logic [SRAM_BITS-1:0]  first,
    output logic [SRAM_BITS:0]    beyond,
    output logic [SRAM_BITS-1:0]  out_index,
    output logic                  done,
    output load_t                 done_insn,
    output logic [EVENT_BITS-1:0] loaded,
    output logic                  requesting,
    output logic                  writing,
    output logic                  fault
);
    // ------------------------------------------------------------------------ requesting half
    localparam int DATA_BIT = 3, ZERO_BIT = 2;  // the data written by a phase
    localparam int LEFT_BITS = 17 + HAS_NIBBLES;
    typedef enum logic [3:0] {
        IDLE = 4'b0000, NOP = 4'b0001, DATA = 4'b1000,
        TOP = 4'b0100, LEFT = 4'b0101, RIGHT = 4'b0110, BOTTOM = 4'b0111
    } phase_t;

    localparam int WHOLES = FORWARD != 0 ? FORWARD : 1;  // elements that a forwarding step copies
    if (FORWARD > 2) begin : g_check
        $error("tensor_load: FORWARD must be at most 2");
    end

    // Which runs of single elements have length one: LEFT, RIGHT, those of whole rows.
    typedef struct packed {
        logic left, right, row;
    } singles_t;

    // Whether the instruction ends with a run if `more` rows of the phase follow.
    function automatic logic ends_with(input phase_t p, input logic more, input logic right,
                                       input logic bottom, input logic data_rows);
        case (p)
            TOP:     return !more && !data_rows && !bottom;
            LEFT:    return 1'b0;
            DATA:    return !more && !right && !bottom;
            RIGHT:   return !more && !bottom;
            default: return !more;
        endcase
    endfunction

    function automatic logic one_step(input phase_t p, input singles_t s, input logic of_data);
        case (p)
            LEFT:    return s.left;
            DATA:    return of_data;
            RIGHT:   return s.right;
            default: return s.row;
        endcase
    endfunction

    // What the writing half needs when an instruction begins. It takes comparisons and additions, so
    // it is computed early and waits in the queue with the instruction.
    typedef struct packed {
        phase_t               phase;
        logic                 new_row;    // another row follows the first one
        logic                 last_run;   // the first run is the only one
        logic                 last_step;  // and has a single step
        singles_t             singles;
        logic                 short_data;  // one step copies a row of the output scratchpad
        logic [LEFT_BITS-1:0] row_length;
        logic [SLOT_BITS-1:0] offset;
        logic [4:0]           fits;
    } begin_t;

    // Weights of four bits: each element of DRAM fills two of the scratchpad.
    function automatic logic has_nibbles(input logic [INSN_BITS-1:0] of);
        return HAS_NIBBLES != 0 && of[NIBBLES_BIT];
    endfunction

    // Elements of the scratchpad that a row of data fills.
    /* verilator lint_off UNUSEDSIGNAL */
    function automatic logic [LEFT_BITS-1:0] filled(input load_t of);
        /* verilator lint_on UNUSEDSIGNAL */
        return has_nibbles(of) ? LEFT_BITS'({of.x_size, 1'b0}) : LEFT_BITS'(of.x_size);
    endfunction

    /* verilator lint_off UNUSEDSIGNAL */
    function automatic begin_t beginning(input load_t of, input logic from_output);
        /* verilator lint_on UNUSEDSIGNAL */
        logic        new_row, single, short_data;
        singles_t    singles;
        phase_t      begun;
        logic [LEFT_BITS-1:0] row_length;
        logic [SLOT_BITS-1:0] offset;
        logic [4:0]  fits;
        if (of.x_size == '0) begun = NOP;
        else if (of.y_pad_top != '0) begun = TOP;
        else if (of.y_size != '0) begun = of.x_pad_left != '0 ? LEFT : DATA;
        else begun = of.y_pad_bottom != '0 ? BOTTOM : NOP;
        new_row = begun == TOP ? of.y_pad_top != 4'd1
                : begun == BOTTOM ? of.y_pad_bottom != 4'd1 : of.y_size != 16'd1;
        // From the fields, of which only the padding may be 0 here; no sum precedes the comparison.
        single     = of.x_size <= 16'd1;
        short_data = of.x_size <= 16'(WHOLES);
        singles = '{left: of.x_pad_left <= 4'd1, right: of.x_pad_right <= 4'd1,
                    row: single && !has_nibbles(of) && of.x_pad_left == '0 && of.x_pad_right == '0};
        row_length = LEFT_BITS'(of.x_pad_left) + filled(of) + LEFT_BITS'(of.x_pad_right);
        offset = SLOT_BITS'(of.dram_base) & slot_mask(of.memory);
        fits   = (5'(1) << log_elements_per_beat(of.memory)) - 5'(offset);
        return '{phase: begun, new_row: new_row,
                 last_run: ends_with(begun, new_row, of.x_pad_right != '0, of.y_pad_bottom != '0,
                                     of.y_size != '0),
                 last_step: one_step(begun, singles,
                                     from_output ? short_data : filled(of) <= LEFT_BITS'(fits)),
                 singles: singles, short_data: short_data, row_length: row_length, offset: offset,
                 fits: fits};
    endfunction

    logic burst_ready, burst_start_ready, queue_ready, queue_valid, queue_pop;
    load_t queued;
    logic beat_valid, take_beat;

    wire [INSN_BITS-1:0] start_bits = start_insn;
    wire start_forwards = FORWARD != 0 && start_bits[FORWARD_BIT];
    wire reads_dram = start_block.any && !start_forwards;
    logic room;  // the buffer has room for the next burst
    beats_t kept, fired;  // the next burst
    logic bursts_valid, bursts_active;

    assign start_ready = queue_ready && (burst_start_ready || !reads_dram);
    assign req_valid   = bursts_valid && room;
    assign burst_ready = req_ready && room;
    assign requesting  = bursts_active;

    burst_generator #(.AHEAD(1)) bursts (
        .clk, .rst, .start_valid(start_valid && queue_ready && reads_dram),
        .start_ready(burst_start_ready), .start_block,
        .req_valid(bursts_valid), .req_ready(burst_ready), .req, .kept, .fired,
        .active(bursts_active));

    wire begin_t begins = beginning(start_insn, start_forwards);
    begin_t queued_begin;
    fifo #(.WIDTH($bits(begin_t) + $bits(load_t)), .DEPTH(4)) queue (
        .clk, .rst, .in_valid(start_valid && start_ready), .in_ready(queue_ready),
        .in_data({begins, start_insn}), .out_valid(queue_valid),
        .out_ready(queue_pop), .out_data({queued_begin, queued}));
    wire [INSN_BITS-1:0] queued_bits = queued;
    wire queued_forwards = FORWARD != 0 && queued_bits[FORWARD_BIT];

    logic buffer_ready_unused;
    fifo #(.WIDTH(PORT_BITS), .DEPTH(LOAD_BUFFER_BEATS)) buffer (
        .clk, .rst, .in_valid(data_valid), .in_ready(buffer_ready_unused), .in_data(data),
        .out_valid(beat_valid), .out_ready(take_beat), .out_data(word));

    burst_credit #(.DEPTH(LOAD_BUFFER_BEATS)) credit (
        .clk, .rst, .kept, .fired,
        .burst_taken(req_valid && req_ready), .take_beat, .room);

    // --------------------------------------------------------------------------- writing half
    phase_t              phase;
    load_t               insn;
    logic [LEFT_BITS-1:0] left;       // elements left in this run of zeros or data
    logic [15:0]         rows;        // rows left in this phase, including this one
    logic                new_row;     // another row follows: rows != 1
    logic                last_run;    // the instruction ends with this run
    logic [SRAM_BITS:0]  index;       // next SRAM element, one bit wider to see an overrun
    logic [SLOT_BITS-1:0] offset;     // position of the next element in its beat
    logic [4:0]           fits;       // elements from there to the end of the beat
    logic [SLOT_BITS-1:0] row_offset; // the same, at the start of the next row
    logic [PART_BITS-1:0] part;       // position of the next beat in its element
    logic                 last_beat;  // the beat completes its element: part == last_part

    // In the output scratchpad: the next element, and the first one of the next row.
    logic [SRAM_BITS:0]   source, next_row;

    // Values that depend only on the instruction, registered with it.
    logic                 forwards;
    logic [4:0]           slots;      // elements per beat
    logic [PART_BITS-1:0] last_part;
    logic                 narrow, nibbles;
    logic                 pads_left, pads_right, pads_bottom, has_rows;
    logic [LEFT_BITS-1:0] row_length; // elements of a row and its padding

    // One step: a beat of data, one element of zeros, or WHOLES elements of the output scratchpad, of
    // which a row may end with the first one.
    wire is_data = phase[DATA_BIT];
    wire is_zero = phase[ZERO_BIT];
    wire is_whole = forwards && is_data;
    logic is_beat, is_free;  // the step takes a beat, or needs none; flip-flops, as much waits for them
    wire ready = is_free || is_beat && beat_valid;
    wire step = allow && ready;  // `allow` arrives last
    wire [4:0] most = !is_free ? fits : is_whole ? 5'(WHOLES) : 5'd1;
    logic last_step;  // the run ends with it: left <= most
    wire [4:0] count = last_step ? left[4:0] : most;
    wire ends_element = is_free || last_beat;
    wire run_ready = last_step && (is_free || is_beat && beat_valid && last_beat);
    wire ends_run = allow && run_ready;
    wire resting = !is_beat && !is_free;  // IDLE or NOP

    // From slot 0 on unless a beat begins within a word.
    wire [WORD_SLOTS-1:0] elements = WORD_SLOTS'((32'd1 << count) - 32'd1) << (is_beat ? offset : '0);
    assign memory      = insn.memory;
    assign write       = '{valid: step && !rst, memory: memory, zero: is_zero, whole: is_whole,
                           narrow: narrow, part: part,
                           slots: elements,
                           index: index[SRAM_BITS-1:0] - (is_beat ? SRAM_BITS'(offset) : '0)};
    assign out_index   = source[SRAM_BITS-1:0];
    assign take_beat   = step && is_beat;
    // Of two elements that fill one of DRAM, the second one counts.
    assign loaded      = step && is_beat && ends_element && !(nibbles && !left[0]) ? count : '0;

    // A fault is found a cycle later.
    logic        stepped, refused;
    logic [17:0] end_of_step, depth;
    always_ff @(posedge clk) begin
        stepped     <= step && !rst;
        end_of_step <= 18'(index) + 18'(count);
        depth       <= 18'(scratchpad_depth(insn.memory));
        refused     <= is_whole && 18'(source) + 18'(count) > 18'(OUT_DEPTH)
                       || forwards && insn.memory != MEM_INP
                       || nibbles && !resting && insn.memory != MEM_WGT
                       || HAS_TABLE != 0 && is_zero && insn.memory == MEM_TABLE;
    end
    assign fault = stepped && (end_of_step > depth || refused);

    // Where a run, a row or an instruction continues.
    phase_t first_of_row, after_rows, after_run;
    wire ends_row = phase == RIGHT || phase == DATA && !pads_right;
    assign first_of_row = pads_left ? LEFT : DATA;
    assign after_rows   = pads_bottom ? BOTTOM : IDLE;
    always_comb begin
        case (phase)
            TOP:     after_run = new_row ? TOP : has_rows ? first_of_row : after_rows;
            LEFT:    after_run = DATA;
            DATA:    after_run = pads_right ? RIGHT
                               : new_row ? first_of_row : after_rows;
            RIGHT:   after_run = new_row ? first_of_row : after_rows;
            BOTTOM:  after_run = new_row ? BOTTOM : IDLE;
            default: after_run = IDLE;
        endcase
    end

    /* verilator lint_off UNUSEDSIGNAL */
    function automatic logic [LEFT_BITS-1:0] run_length(input phase_t p, input load_t of,
                                                        input logic [LEFT_BITS-1:0] of_row);
        /* verilator lint_on UNUSEDSIGNAL */
        case (p)
            LEFT:    return LEFT_BITS'(of.x_pad_left);
            DATA:    return filled(of);
            RIGHT:   return LEFT_BITS'(of.x_pad_right);
            default: return of_row;
        endcase
    endfunction

    singles_t singles;      // of the instruction
    logic     short_data;   // of the instruction

    assign done         = phase == NOP || allow && (run_ready && last_run);
    assign done_insn    = insn;
    assign queue_pop    = resting || allow && run_ready && last_run;

    logic next_new_row;
    always_comb begin
        next_new_row = new_row;
        if (after_run == BOTTOM && phase != BOTTOM) next_new_row = insn.y_pad_bottom != 4'd1;
        else if (phase == TOP && after_run != TOP) next_new_row = insn.y_size != 16'd1;
        else if (ends_row || phase == TOP || phase == BOTTOM) next_new_row = rows != 16'd2;
    end
    assign writing      = !resting;

    wire begins_next = queue_valid && queue_pop;
    logic [SRAM_BITS:0] then_index, behind;  // `behind`: BEYOND elements after the next one
    always_comb begin
        {then_index, beyond} = {index, behind};
        if (begins_next) begin
            then_index = (SRAM_BITS+1)'(queued.sram_base);
            beyond     = (SRAM_BITS+1)'(queued.sram_base) + (SRAM_BITS+1)'(BEYOND);
        end else if (step && ends_element) begin
            then_index = index + (SRAM_BITS+1)'(count);
            beyond     = behind + (SRAM_BITS+1)'(count);
        end
    end
    assign first       = then_index[SRAM_BITS-1:0];
    assign then_memory = begins_next ? queued.memory : insn.memory;
    always_ff @(posedge clk) {index, behind} <= {then_index, beyond};

    // An instruction ends with an element, so the next one begins with its first part.
    always_ff @(posedge clk) begin
        if (rst) part <= '0;
        else if (take_beat) part <= ends_element ? '0 : part + 1'b1;
        if (begins_next) last_beat <= last_beat_of(queued) == '0;
        else if (take_beat)
            last_beat <= ends_element ? last_part == '0 : part + 1'b1 == last_part;
    end

    wire [SLOT_BITS-1:0] next_offset = row_offset & SLOT_BITS'(slots - 5'd1);
    wire [4:0] next_fits = ends_row ? slots - 5'(next_offset) : fits;

    always_ff @(posedge clk) begin
        if (rst) {is_beat, is_free} <= '0;
        else if (begins_next) begin
            is_beat   <= queued_begin.phase[DATA_BIT] && !queued_forwards;
            is_free   <= queued_begin.phase[ZERO_BIT]
                         || queued_begin.phase[DATA_BIT] && queued_forwards;
        end else if (ends_run) begin
            is_beat   <= after_run[DATA_BIT] && !forwards;
            is_free   <= after_run[ZERO_BIT] || after_run[DATA_BIT] && forwards;
        end
        if (rst) phase <= IDLE;
        else if (begins_next) begin
            phase      <= queued_begin.phase;
            insn       <= queued;
            left       <= run_length(queued_begin.phase, queued, queued_begin.row_length);
            row_length <= queued_begin.row_length;
            rows       <= queued_begin.phase == TOP ? 16'(queued.y_pad_top)
                        : queued_begin.phase == BOTTOM ? 16'(queued.y_pad_bottom) : queued.y_size;
            new_row    <= queued_begin.new_row;
            last_run   <= queued_begin.last_run;
            last_step  <= queued_begin.last_step;
            offset     <= queued_begin.offset;
            fits       <= queued_begin.fits;
            singles     <= queued_begin.singles;
            short_data  <= queued_begin.short_data;
            row_offset <= SLOT_BITS'(queued.dram_base) + SLOT_BITS'(queued.x_stride);
            slots       <= 5'(1) << log_elements_per_beat(queued.memory);
            last_part   <= last_beat_of(queued);
            pads_left   <= queued.x_pad_left != '0;
            pads_right  <= queued.x_pad_right != '0;
            pads_bottom <= queued.y_pad_bottom != '0;
            has_rows    <= queued.y_size != '0;
            narrow      <= queued.memory == MEM_ACC_8BIT || has_nibbles(queued);
            nibbles     <= has_nibbles(queued);
            forwards    <= queued_forwards;
            source      <= (SRAM_BITS+1)'(queued.dram_base);
            next_row    <= (SRAM_BITS+1)'(queued.dram_base) + (SRAM_BITS+1)'(queued.x_stride);
        end else begin
            if (phase == NOP) phase <= IDLE;
            if (step) begin
                if (is_whole) source <= source + (SRAM_BITS+1)'(WHOLES);
                if (ends_element) begin
                    left  <= left - LEFT_BITS'(count);
                    last_step <= left <= (is_beat ? LEFT_BITS'(fits) + LEFT_BITS'(slots)
                                                  : LEFT_BITS'(is_whole ? 2 * WHOLES : 2));
                    if (is_data) {offset, fits} <= {SLOT_BITS'(0), slots};
                end
            end
            if (ends_run) begin
                phase <= after_run;
                left  <= run_length(after_run, insn, row_length);
                last_step <= one_step(after_run, singles,
                                      forwards ? short_data : filled(insn) <= LEFT_BITS'(next_fits));
                if (ends_row) begin
                    offset     <= next_offset;
                    fits       <= next_fits;
                    row_offset <= row_offset + SLOT_BITS'(insn.x_stride);
                    source     <= next_row;
                    next_row   <= next_row + (SRAM_BITS+1)'(insn.x_stride);
                end
                new_row  <= next_new_row;
                last_run <= ends_with(after_run, next_new_row, pads_right, pads_bottom, has_rows);
                if (after_run == BOTTOM && phase != BOTTOM) rows <= 16'(insn.y_pad_bottom);
                else if (phase == TOP && after_run != TOP) rows <= insn.y_size;
                else if (ends_row || phase == TOP || phase == BOTTOM) rows <= rows - 1'b1;
            end
        end
    end

    // The last beat of an element: half as many fill it with weights of four bits.
    /* verilator lint_off UNUSEDSIGNAL */
    function automatic logic [PART_BITS-1:0] last_beat_of(input load_t of);
        /* verilator lint_on UNUSEDSIGNAL */
        return last_beat_of_element(of.memory) >> has_nibbles(of);
    endfunction

    // The low bits of a DRAM element index that are its position in a port word.
    function automatic logic [SLOT_BITS-1:0] slot_mask(input logic [2:0] memory_id);
        return SLOT_BITS'((32'd1 << log_elements_per_beat(memory_id)) - 32'd1);
    endfunction
endmodule
