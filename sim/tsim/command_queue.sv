// Command queue: the instructions that wait in front of a unit. A FIFO whose word at the head is in
// flip-flops: what leaves a block RAM leaves it late in the cycle, and the units decode the head
// and start on it in one cycle. On the way into these flip-flops its block of DRAM is computed.
//
// Ports:   as fifo. Holds COMMAND_DEPTH instructions and two more at its output.
//          entering: the instruction that goes to the output next; origin, log_bytes: of its memory,
//          and of its elements in DRAM.
//          out_block: what a LOAD or STORE moves in DRAM.
// Timing:  one instruction per cycle; three cycles from in to out.
module command_queue
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                 clk,
    input  logic                 rst,
    input  logic                 in_valid,
    output logic                 in_ready,
    input  logic [INSN_BITS-1:0] in_insn,
    output logic [INSN_BITS-1:0] entering,
    input  logic [ADDR_BITS-1:0] origin,
    input  logic [3:0]           log_bytes,
    output logic                 out_valid,
    input  logic                 out_ready,
    output logic [INSN_BITS-1:0] out_insn,
    output block_t               out_block
);
    logic queue_valid;
    wire moves = queue_valid && (!out_valid || out_ready);

    fifo #(.WIDTH(INSN_BITS), .DEPTH(COMMAND_DEPTH)) queue (
        .clk, .rst, .in_valid, .in_ready, .in_data(in_insn),
        .out_valid(queue_valid), .out_ready(!out_valid || out_ready), .out_data(entering));

    always_ff @(posedge clk) begin
        if (rst) out_valid <= 1'b0;
        else if (moves) out_valid <= 1'b1;
        else if (out_ready) out_valid <= 1'b0;
        if (moves) begin
            out_insn  <= entering;
            out_block <= block_of(entering, origin, log_bytes);
        end
    end
endmodule
