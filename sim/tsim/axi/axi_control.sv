// AXI4-Lite slave of the control registers (registers.sv describes their map).
//
// Ports:   s_axi_*: the bus; csr_*: register access.
//          A register is written as a whole: a write with only some byte enables changes nothing and
//          is answered with SLVERR. The two low bits of an address are ignored.
// Timing:  addresses and data of writes may arrive in any order. A write takes one cycle after both
//          have arrived, as does a read unless a write takes that cycle; answers wait in a register.
module axi_control (
    input  logic        clk,
    input  logic        rst,
    input  logic        s_axi_awvalid,
    output logic        s_axi_awready,
    input  logic [11:0] s_axi_awaddr,
    input  logic        s_axi_wvalid,
    output logic        s_axi_wready,
    input  logic [31:0] s_axi_wdata,
    input  logic [3:0]  s_axi_wstrb,
    output logic        s_axi_bvalid,
    input  logic        s_axi_bready,
    output logic [1:0]  s_axi_bresp,
    input  logic        s_axi_arvalid,
    output logic        s_axi_arready,
    input  logic [11:0] s_axi_araddr,
    output logic        s_axi_rvalid,
    input  logic        s_axi_rready,
    output logic [31:0] s_axi_rdata,
    output logic [1:0]  s_axi_rresp,
    output logic        csr_we,
    output logic [11:0] csr_address,
    output logic [11:0] csr_read_address,
    output logic [31:0] csr_wdata,
    input  logic [31:0] csr_rdata
);
    localparam logic [1:0] OKAY = 2'b00, SLVERR = 2'b10;

    logic        address_held, data_held, read_held;
    logic [9:0]  write_address, read_address;  // of 32-bit registers
    logic [31:0] write_data;
    logic [3:0]  write_strobe;

    wire write = address_held && data_held && (!s_axi_bvalid || s_axi_bready);
    wire read  = read_held && !write && (!s_axi_rvalid || s_axi_rready);
    wire whole = &write_strobe;

    assign s_axi_awready = !address_held;
    assign s_axi_wready  = !data_held;
    assign s_axi_arready = !read_held;
    assign s_axi_rresp   = OKAY;
    assign csr_we        = write && whole;
    assign csr_address   = {write_address, 2'b00};
    assign csr_read_address = {read_address, 2'b00};
    assign csr_wdata     = write_data;

    always_ff @(posedge clk) begin
        if (rst) begin
            address_held <= 1'b0;
            data_held    <= 1'b0;
            read_held    <= 1'b0;
            s_axi_bvalid <= 1'b0;
            s_axi_rvalid <= 1'b0;
        end else begin
            if (write) {address_held, data_held} <= 2'b00;
            if (s_axi_awvalid && s_axi_awready) address_held <= 1'b1;
            if (s_axi_wvalid && s_axi_wready) data_held <= 1'b1;
            if (write) s_axi_bvalid <= 1'b1;
            else if (s_axi_bready) s_axi_bvalid <= 1'b0;

            if (read) read_held <= 1'b0;
            if (s_axi_arvalid && s_axi_arready) read_held <= 1'b1;
            if (read) s_axi_rvalid <= 1'b1;
            else if (s_axi_rready) s_axi_rvalid <= 1'b0;
        end
        if (s_axi_awvalid && s_axi_awready) write_address <= s_axi_awaddr[11:2];
        if (s_axi_wvalid && s_axi_wready) begin
            write_data   <= s_axi_wdata;
            write_strobe <= s_axi_wstrb;
        end
        if (s_axi_arvalid && s_axi_arready) read_address <= s_axi_araddr[11:2];
        if (write) s_axi_bresp <= whole ? OKAY : SLVERR;
        if (read) s_axi_rdata <= csr_rdata;
    end

    wire unused_low_bits = &{s_axi_awaddr[1:0], s_axi_araddr[1:0]};
endmodule
