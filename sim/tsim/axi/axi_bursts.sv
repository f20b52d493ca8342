// Bursts of an AXI master: the register of an address channel (AR or AW), and the number of bursts in
// flight.
//
// Ports:   in_*: requests of the core; out_*: the address channel. hold: take no new request; a
//          request that is already offered stays, as AXI requires.
//          complete: the memory has answered a whole burst (last word, or write response).
//          idle: no request is offered and no burst is in flight.
// Timing:  one request per cycle, one cycle from input to output.
module axi_bursts #(
    parameter int BITS  = 32,  // of the payload
    parameter int LIMIT = 32,  // bursts in flight, including the offered one
    localparam int COUNT_BITS = $clog2(LIMIT + 1)
) (
    input  logic            clk,
    input  logic            rst,
    input  logic            hold,
    input  logic            in_valid,
    output logic            in_ready,
    input  logic [BITS-1:0] in_data,
    output logic            out_valid,
    input  logic            out_ready,
    output logic [BITS-1:0] out_data,
    input  logic            complete,
    output logic            idle
);
    logic [COUNT_BITS-1:0] count;

    assign in_ready = !hold && count != COUNT_BITS'(LIMIT) && (!out_valid || out_ready);
    assign idle     = count == '0;
    wire accept = in_valid && in_ready;

    always_ff @(posedge clk) begin
        if (rst) begin
            out_valid <= 1'b0;
            count     <= '0;
        end else begin
            if (accept) out_valid <= 1'b1;
            else if (out_ready) out_valid <= 1'b0;
            if (accept != complete) count <= accept ? count + 1'b1 : count - 1'b1;
        end
        if (accept) out_data <= in_data;
    end
endmodule
