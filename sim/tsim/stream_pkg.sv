// Streams: structs of signals that pass between modules together.
package stream_pkg;
    import vta_pkg::*;

    // ------------------------------------------------------------------------------- whole design
    // Read clients of the DRAM port.
    typedef enum logic [CLIENT_BITS-1:0] {CLIENT_FETCH, CLIENT_LOAD, CLIENT_COMPUTE} client_t;

    // One bit per unit that executes instructions.
    typedef struct packed {
        logic store;
        logic compute;
        logic load;
    } units_t;

    // One bit per token queue, named after sender and receiver: l2g carries tokens from load to
    // compute ("GEMM").
    typedef struct packed {
        logic s2g;
        logic g2s;
        logic g2l;
        logic l2g;
    } tokens_t;

    // The units that wait for a token.
    typedef struct packed {
        logic store;
        logic compute_for_store;
        logic compute_for_load;
        logic load;
    } waits_t;

    // Byte addresses of DRAM index 0 for each of the five memories.
    typedef struct packed {
        logic [ADDR_BITS-1:0] out;
        logic [ADDR_BITS-1:0] acc;
        logic [ADDR_BITS-1:0] wgt;
        logic [ADDR_BITS-1:0] inp;
        logic [ADDR_BITS-1:0] uop;
    } origins_t;

    // A burst of port words, starting at a byte address.
    typedef struct packed {
        logic [ADDR_BITS-1:0]  address;
        logic [BEATS_BITS-1:0] beats;
    } burst_t;

    // Beats of a burst: those of `whole`, or of `tail` if it ends its row, which is known last.
    typedef struct packed {
        logic                  ends_row;
        logic [BEATS_BITS-1:0] tail;
        logic [BEATS_BITS-1:0] whole;
    } beats_t;

    function automatic logic [BEATS_BITS-1:0] beats_of(input beats_t b);
        return b.ends_row ? b.tail : b.whole;
    endfunction

    // How a row is cut into bursts, none of which crosses a multiple of a burst's size.
    localparam int CUT_BITS = $clog2(PORT_BYTES * BURST_BEATS);  // of the row's address
    typedef struct packed {
        beats_t      first;    // of the first burst
        logic        several;  // others follow the burst after it
        logic [32:0] left;     // words of the row and before it in its block, minus one
    } cut_t;

    // What is known of the bytes of a row beside their number, which cuts it sooner.
    typedef struct packed {
        logic [1:0] bursts;  // that they fill: none, one, two, or more
        logic       equal;   // they fill one burst exactly
    } length_t;

    function automatic length_t length_of(input logic [31:0] nbytes);
        localparam int BLOCK_BITS = 32 - CUT_BITS;
        logic [BLOCK_BITS-1:0] blocks;
        blocks = nbytes[31:CUT_BITS];
        return '{bursts: blocks[BLOCK_BITS-1:2] != '0 ? 2'd3 : blocks[1:0],
                 equal: nbytes == 32'(PORT_BYTES * BURST_BEATS)};
    endfunction

    // Where a row ends: additions that are done before it is cut, of the bits that cut it.
    typedef struct packed {
        logic [CUT_BITS:0]     behind;  // the byte behind its last one, modulo a burst's size
        logic [BEATS_BITS-1:0] words;   // from its first port word on
        logic [BEATS_BITS-1:0] whole;   // to the end of that word's burst
    } row_end_t;

    function automatic row_end_t end_of_row(input logic [CUT_BITS-1:0] address,
                                            input logic [CUT_BITS:0] nbytes);
        localparam int SHIFT = $clog2(PORT_BYTES);
        logic [SHIFT-1:0]  odd;
        /* verilator lint_off UNUSEDSIGNAL */
        logic [CUT_BITS:0] rounded;
        /* verilator lint_on UNUSEDSIGNAL */
        odd     = address[SHIFT-1:0];
        rounded = nbytes + (CUT_BITS+1)'({odd != '0, odd - 1'b1});  // odd + PORT_BYTES - 1
        return '{behind: {1'b0, nbytes[CUT_BITS-1:0]} + {1'b0, address},
                 words: BEATS_BITS'(rounded >> SHIFT),
                 whole: BEATS_BITS'(BURST_BEATS) - BEATS_BITS'(address[CUT_BITS-1:SHIFT])};
    endfunction

    // The first burst of a row. `behind` is its address if the row has the size of a burst.
    function automatic beats_t first_burst(input row_end_t ending, input length_t length);
        return '{ends_row: length.bursts == '0 && !ending.behind[CUT_BITS]
                           || (length.bursts == '0 || length.equal) && ending.behind[CUT_BITS-1:0] == '0,
                 tail: ending.words, whole: ending.whole};
    endfunction

    // The DRAM block that an instruction accesses: rows of bytes at a fixed stride.
    typedef struct packed {
        logic                 any;  // there are rows, and they are not empty
        logic [ADDR_BITS-1:0] address;
        logic [31:0]          row_bytes;
        logic [31:0]          stride_bytes;
        logic [15:0]          rows;
        logic [CUT_BITS-1:0]  second;  // the same bits of the second row's address
        length_t              length;
        row_end_t             ending;  // of the first row
    } block_t;

    // A scratchpad write of a LOAD in one cycle: elements of a port word, or zeros for an element.
    // The word itself accompanies the stream.
    typedef struct packed {
        logic                  valid;
        logic [2:0]            memory;
        logic                  zero;   // padding: the whole element `index`
        logic                  whole;  // a whole element, from the output scratchpad
        logic                  narrow; // LOAD ACC_8BIT: lanes of 8 bits; weights: of 4
        logic [PART_BITS-1:0]  part;   // position of the word in an element that is wider
        logic [WORD_SLOTS-1:0] slots;  // slot j is element index + j
        logic [SRAM_BITS-1:0]  index;
    } load_write_t;

    // ------------------------------------------------------------------------------- compute unit
    // The kinds of instructions in the compute unit.
    typedef enum logic [1:0] {KIND_LOOP, KIND_LOAD, KIND_OTHER} kind_t;

    typedef struct packed {
        kind_t                kind;
        logic [INSN_BITS-1:0] insn;
    } command_t;

    // A step of an instruction in the pipeline. `data`, `writes`, `gemm`, `pools` and `reads_src` are
    // low in a slot that only carries tokens or FINISH.
    typedef struct packed {
        logic        data;       // reads an accumulator
        logic        writes;     // writes an accumulator
        logic        gemm;       // is a tile product
        logic        pair;       // or two, of two micro-ops (the extension PAIRS)
        logic        continues;  // micro-ops of the same iteration come before, and
        logic        followed;   // after it
        logic        carries;    // the second product is the next slot's
        logic        windows;    // of windows of input tiles
        logic        pools;      // is the maximum of `tiles` input tiles, an operand of the ALU
        logic [1:0]  tiles;
        logic        is_alu;
        logic        reset;
        logic        overwrite;  // uses zero instead of the accumulator
        logic        reads_src;  // first slot of an ALU micro-op with tensor operand
        logic        use_imm;
        logic        multiplies;
        logic [2:0]  alu_op;
        logic [15:0] imm;
        logic        last;       // is the last of its instruction
        logic        push_prev;
        logic        push_next;
        logic        finish;
    } slot_t;

    // Actions of a slot, as flip-flops of its stage that drive whole tiles; low without a slot.
    typedef struct packed {
        logic data;
        logic reads_acc;  // reads an accumulator whose value is used
        logic writes;
        logic gemm;
        logic adds;       // the operation of the ALU; none of the four writes zero
        logic orders;
        logic shifts;
        logic multiplies;
        logic reads_src;
        logic takes_imm;  // the immediate is the second operand of the ALU
    } acts_t;

    // Offsets that the loops of an instruction add to the indices of a micro-op.
    typedef struct packed {
        logic [POST_ROW_BITS-1:0]  row;
        logic [WGT_INDEX_BITS-1:0] wgt;
        logic [SRC_BITS-1:0]       src;
        logic [ACC_INDEX_BITS-1:0] dst;
    } offsets_t;

    // Indices of a slot's operands and of its result.
    typedef struct packed {
        logic [WGT_INDEX_BITS-1:0] wgt;
        logic [INP_INDEX_BITS-1:0] inp;
        logic [ACC_INDEX_BITS-1:0] acc;  // the accumulator that is read
        logic [ACC_INDEX_BITS-1:0] dst;
    } operands_t;

    // A write to the accumulators, or to the output scratchpad; its elements accompany the stream.
    typedef struct packed {
        logic [OUT_SLOTS-1:0]      slots;  // slot j is element index + j
        logic [ACC_LANES-1:0]      lanes;
        logic [ACC_INDEX_BITS-1:0] index;
    } acc_write_t;

    // For each lane: whether a shift by this amount, right or left if negative, leaves only the sign
    // of the value, or zero.
    function automatic logic [ACC_LANES-1:0] shifts_out(input logic [ACC_BITS-1:0] distances);
        /* verilator no_inline_task */
        for (int l = 0; l < ACC_LANES; l++)
            shifts_out[l] = distances[(l+1)*ACC_WIDTH-1]
                ? !(&distances[l*ACC_WIDTH+$clog2(ACC_WIDTH) +: ACC_WIDTH-1-$clog2(ACC_WIDTH)])
                : |distances[l*ACC_WIDTH+$clog2(ACC_WIDTH) +: ACC_WIDTH-1-$clog2(ACC_WIDTH)];
    endfunction
endpackage
