// Something of each kind of cell that the system of a ULX3S is mapped to (test_netlist.py).
module zoo(
    input clock, input reset, input enable, input [3:0] strobe,
    input [17:0] a, input [17:0] b, input [8:0] at, input [8:0] from,
    output reg [17:0] sum, output [35:0] signed_product, output [35:0] product,
    output picked, output [7:0] shallow,
    output reg [8:0] narrow, output reg [17:0] middle, output reg [35:0] wide,
    inout [3:0] pins, output [3:0] seen
);
    always @(posedge clock)
        if (reset) sum <= 18'h2a5a5;
        else if (!enable) sum <= sum + a - b;
    assign signed_product = $signed(a) * $signed(b);
    assign product = a * b;
    wire [63:0] choices = {a, b, a ^ b, at};
    assign picked = choices[{from[5:0]}];
    reg [7:0] small_memory [0:15];
    always @(posedge clock) if (enable) small_memory[at[3:0]] <= b[7:0];
    assign shallow = small_memory[from[3:0]];
    reg [8:0] bytes [0:2047];
    always @(posedge clock) begin
        if (enable) bytes[{2'b0, at}] <= a[8:0];
        narrow <= bytes[{2'b0, from}];
    end
    reg [17:0] words [0:1023];
    always @(posedge clock) begin
        if (strobe[0]) words[{1'b0, at}][8:0] <= a[8:0];
        if (strobe[1]) words[{1'b0, at}][17:9] <= a[17:9];
        middle <= words[{1'b0, from}];
    end
    reg [35:0] rows [0:511];
    integer i;
    always @(posedge clock) begin
        for (i = 0; i < 4; i = i + 1)
            if (strobe[i]) rows[at][9 * i +: 9] <= {b, a} >> 9 * i;
        if (enable) wide <= rows[from];
    end
    assign pins = enable ? a[3:0] : 4'bz;
    assign seen = pins;
endmodule
