// Expands a port word of a LOAD ACC or LOAD ACC_8BIT to accumulator elements: 32-bit lanes are
// copied, 8-bit lanes are sign-extended.
//
// Ports:   load, word: the write of a LOAD. elements: slot j holds element j of the word; lanes:
//          the lanes that are valid.
// Timing:  combinational.
module acc_expand
    import vta_pkg::*, stream_pkg::*;
(
    /* verilator lint_off UNUSEDSIGNAL */
    input  load_write_t                   load,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [PORT_BITS-1:0]          word,
    output logic [ACC_LANES-1:0]          lanes,
    output logic [OUT_SLOTS*ACC_BITS-1:0] elements
);
    localparam int WORDS = PORT_BITS / ACC_WIDTH;  // 32-bit lanes in a port word
    localparam int BYTES = PORT_BITS / OUT_WIDTH;  // 8-bit lanes in a port word
    wire narrow = load.narrow;

    for (genvar l = 0; l < ACC_LANES; l++) begin : g_lane
        assign lanes[l] = load.zero || 32'(load.part) == (narrow ? l / BYTES : l / WORDS);
        for (genvar s = 0; s < OUT_SLOTS; s++) begin : g_slot
            wire [OUT_WIDTH-1:0] short_lane =
                word[((s*ACC_LANES + l) % BYTES)*OUT_WIDTH +: OUT_WIDTH];
            wire [ACC_WIDTH-1:0] long_lane =
                word[((s*ACC_LANES + l) % WORDS)*ACC_WIDTH +: ACC_WIDTH];
            assign elements[(s*ACC_LANES + l)*ACC_WIDTH +: ACC_WIDTH] =
                load.zero ? '0 : narrow ? ACC_WIDTH'($signed(short_lane)) : long_lane;
        end
    end
endmodule
