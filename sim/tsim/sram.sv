// Simple dual-port SRAM: one write port with an enable per lane, one registered read port.
//
// Ports:   we[l] writes lane l of wdata to waddr; re reads raddr. rd_clk: of the read port; the same
//          as clk, or of twice its frequency.
// Timing:  rdata is valid in the cycle after re and holds; a read of the address being written
//          returns the old word, with two clocks an undefined one.
// Parameter: BLOCK_RAM: use block RAM of an FPGA; 0: LUTs, for few words.
module sram #(
    parameter int WIDTH = 32,
    parameter int DEPTH = 1024,
    parameter int LANES = 1,
    parameter int BLOCK_RAM = 1,
    localparam int BITS = $clog2(DEPTH),
    localparam int LANE_WIDTH = WIDTH / LANES
) (
    input  logic             clk,
    input  logic             rd_clk,
    input  logic [LANES-1:0] we,
    input  logic [BITS-1:0]  waddr,
    input  logic [WIDTH-1:0] wdata,
    input  logic             re,
    input  logic [BITS-1:0]  raddr,
    output logic [WIDTH-1:0] rdata
);
    if (LANES < 1 || WIDTH % LANES != 0) begin : g_check
        $error("sram: LANES must divide WIDTH");
    end

    if (BLOCK_RAM != 0) begin : g_block
        (* ram_style = "block" *) logic [WIDTH-1:0] mem [DEPTH];
        always_ff @(posedge clk) begin
            for (int l = 0; l < LANES; l++)
                if (we[l])
                    mem[waddr][l*LANE_WIDTH +: LANE_WIDTH] <= wdata[l*LANE_WIDTH +: LANE_WIDTH];
        end
        always_ff @(posedge rd_clk) if (re) rdata <= mem[raddr];
    end else begin : g_lut
        (* ram_style = "distributed" *) logic [WIDTH-1:0] mem [DEPTH];
        always_ff @(posedge clk) begin
            for (int l = 0; l < LANES; l++)
                if (we[l])
                    mem[waddr][l*LANE_WIDTH +: LANE_WIDTH] <= wdata[l*LANE_WIDTH +: LANE_WIDTH];
        end
        always_ff @(posedge rd_clk) if (re) rdata <= mem[raddr];
    end
endmodule
