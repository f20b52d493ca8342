// VTA on a Zynq-7000 for open tools: the processing system as its primitive, without an interconnect.
//
// Registers: M_AXI_GP0 through axi3_control.sv, at the address that the driver uses; every page of
//          that port shows them. DRAM: S_AXI_HP0 directly, which is an AXI3 port of 8 bytes: a burst
//          must not exceed 16 words. The interrupt is the first one from the logic (number 61).
// Clock and reset: FCLK 0, as the boot loader or the driver set it. The processing system has no
//          configuration of its own in the bitstream: DRAM, pins and clocks are the boot loader's.
module vta_zynq;
    wire [3:0] clocks, resets;
    wire       clk;
    BUFG clock_buffer (.I(clocks[0]), .O(clk));

    wire      reset_n = resets[0];
    reg [1:0] released;
    always @(posedge clk or negedge reset_n)
        if (!reset_n) released <= 2'b00;
        else released <= {released[0], 1'b1};
    wire aresetn = released[1];

    // GP0 of the processing system.
    wire        gp_awvalid, gp_awready, gp_wvalid, gp_wready, gp_bvalid, gp_bready;
    wire        gp_arvalid, gp_arready, gp_rvalid, gp_rready, gp_rlast;
    wire [11:0] gp_awid, gp_bid, gp_arid, gp_rid;
    wire [31:0] gp_awaddr, gp_araddr, gp_wdata, gp_rdata;
    wire [3:0]  gp_awlen, gp_arlen, gp_wstrb;
    wire [1:0]  gp_bresp, gp_rresp;
    // The registers.
    wire        csr_awvalid, csr_awready, csr_wvalid, csr_wready, csr_bvalid, csr_bready;
    wire        csr_arvalid, csr_arready, csr_rvalid, csr_rready;
    wire [11:0] csr_awaddr, csr_araddr;
    wire [31:0] csr_wdata, csr_rdata;
    wire [3:0]  csr_wstrb;
    wire [1:0]  csr_bresp, csr_rresp;
    // DRAM.
    wire        m_awvalid, m_awready, m_wvalid, m_wready, m_wlast, m_bvalid, m_bready;
    wire        m_arvalid, m_arready, m_rvalid, m_rready, m_rlast;
    wire [31:0] m_awaddr, m_araddr;
    wire [63:0] m_wdata, m_rdata;
    wire [7:0]  m_awlen, m_arlen, m_wstrb;
    wire [5:0]  m_bid, m_rid;
    wire [3:0]  m_awcache, m_arcache;
    wire [2:0]  m_awsize, m_arsize, m_awprot, m_arprot;
    wire [1:0]  m_awid, m_arid, m_awburst, m_arburst, m_bresp, m_rresp;
    wire        irq;

    axi3_control control (
        .clk(clk), .rst(!aresetn),
        .s_axi_awvalid(gp_awvalid), .s_axi_awready(gp_awready), .s_axi_awid(gp_awid),
        .s_axi_awaddr(gp_awaddr[11:0]), .s_axi_awlen(gp_awlen),
        .s_axi_wvalid(gp_wvalid), .s_axi_wready(gp_wready), .s_axi_wdata(gp_wdata),
        .s_axi_wstrb(gp_wstrb),
        .s_axi_bvalid(gp_bvalid), .s_axi_bready(gp_bready), .s_axi_bid(gp_bid),
        .s_axi_bresp(gp_bresp),
        .s_axi_arvalid(gp_arvalid), .s_axi_arready(gp_arready), .s_axi_arid(gp_arid),
        .s_axi_araddr(gp_araddr[11:0]), .s_axi_arlen(gp_arlen),
        .s_axi_rvalid(gp_rvalid), .s_axi_rready(gp_rready), .s_axi_rid(gp_rid),
        .s_axi_rdata(gp_rdata), .s_axi_rresp(gp_rresp), .s_axi_rlast(gp_rlast),
        .m_axi_awvalid(csr_awvalid), .m_axi_awready(csr_awready), .m_axi_awaddr(csr_awaddr),
        .m_axi_wvalid(csr_wvalid), .m_axi_wready(csr_wready), .m_axi_wdata(csr_wdata),
        .m_axi_wstrb(csr_wstrb),
        .m_axi_bvalid(csr_bvalid), .m_axi_bready(csr_bready), .m_axi_bresp(csr_bresp),
        .m_axi_arvalid(csr_arvalid), .m_axi_arready(csr_arready), .m_axi_araddr(csr_araddr),
        .m_axi_rvalid(csr_rvalid), .m_axi_rready(csr_rready), .m_axi_rdata(csr_rdata),
        .m_axi_rresp(csr_rresp));

    vta_axi vta (
        .aclk(clk), .array_clk(clk), .aresetn(aresetn),
        .s_axi_awvalid(csr_awvalid), .s_axi_awready(csr_awready), .s_axi_awaddr(csr_awaddr),
        .s_axi_awprot(3'b000), .s_axi_wvalid(csr_wvalid), .s_axi_wready(csr_wready),
        .s_axi_wdata(csr_wdata), .s_axi_wstrb(csr_wstrb),
        .s_axi_bvalid(csr_bvalid), .s_axi_bready(csr_bready), .s_axi_bresp(csr_bresp),
        .s_axi_arvalid(csr_arvalid), .s_axi_arready(csr_arready), .s_axi_araddr(csr_araddr),
        .s_axi_arprot(3'b000), .s_axi_rvalid(csr_rvalid), .s_axi_rready(csr_rready),
        .s_axi_rdata(csr_rdata), .s_axi_rresp(csr_rresp),
        .m_axi_arvalid(m_arvalid), .m_axi_arready(m_arready), .m_axi_arid(m_arid),
        .m_axi_araddr(m_araddr), .m_axi_arlen(m_arlen), .m_axi_arsize(m_arsize),
        .m_axi_arburst(m_arburst), .m_axi_arcache(m_arcache), .m_axi_arprot(m_arprot),
        .m_axi_rvalid(m_rvalid), .m_axi_rready(m_rready), .m_axi_rid(m_rid[1:0]),
        .m_axi_rdata(m_rdata), .m_axi_rresp(m_rresp), .m_axi_rlast(m_rlast),
        .m_axi_awvalid(m_awvalid), .m_axi_awready(m_awready), .m_axi_awid(m_awid),
        .m_axi_awaddr(m_awaddr), .m_axi_awlen(m_awlen), .m_axi_awsize(m_awsize),
        .m_axi_awburst(m_awburst), .m_axi_awcache(m_awcache), .m_axi_awprot(m_awprot),
        .m_axi_wvalid(m_wvalid), .m_axi_wready(m_wready), .m_axi_wdata(m_wdata),
        .m_axi_wstrb(m_wstrb), .m_axi_wlast(m_wlast),
        .m_axi_bvalid(m_bvalid), .m_axi_bready(m_bready), .m_axi_bid(m_bid[1:0]),
        .m_axi_bresp(m_bresp),
        .w_axi_arvalid(), .w_axi_arready(1'b0), .w_axi_araddr(), .w_axi_arlen(), .w_axi_arsize(),
        .w_axi_arburst(), .w_axi_arcache(), .w_axi_arprot(), .w_axi_rvalid(1'b0),
        .w_axi_rready(), .w_axi_rdata(64'd0), .w_axi_rresp(2'b00), .w_axi_rlast(1'b0),
        .finished(), .quiet(), .fault(), .irq(irq));

    // Inputs that are not named are tied to zero by place and route.
    (* keep *)
    PS7 ps (
        .FCLKCLK(clocks), .FCLKRESETN(resets), .IRQF2P({19'd0, irq}),
        .MAXIGP0ACLK(clk),
        .MAXIGP0AWVALID(gp_awvalid), .MAXIGP0AWREADY(gp_awready), .MAXIGP0AWID(gp_awid),
        .MAXIGP0AWADDR(gp_awaddr), .MAXIGP0AWLEN(gp_awlen),
        .MAXIGP0WVALID(gp_wvalid), .MAXIGP0WREADY(gp_wready), .MAXIGP0WDATA(gp_wdata),
        .MAXIGP0WSTRB(gp_wstrb),
        .MAXIGP0BVALID(gp_bvalid), .MAXIGP0BREADY(gp_bready), .MAXIGP0BID(gp_bid),
        .MAXIGP0BRESP(gp_bresp),
        .MAXIGP0ARVALID(gp_arvalid), .MAXIGP0ARREADY(gp_arready), .MAXIGP0ARID(gp_arid),
        .MAXIGP0ARADDR(gp_araddr), .MAXIGP0ARLEN(gp_arlen),
        .MAXIGP0RVALID(gp_rvalid), .MAXIGP0RREADY(gp_rready), .MAXIGP0RID(gp_rid),
        .MAXIGP0RDATA(gp_rdata), .MAXIGP0RRESP(gp_rresp), .MAXIGP0RLAST(gp_rlast),
        .SAXIHP0ACLK(clk), .SAXIHP0RDISSUECAP1EN(1'b0), .SAXIHP0WRISSUECAP1EN(1'b0),
        .SAXIHP0ARVALID(m_arvalid), .SAXIHP0ARREADY(m_arready), .SAXIHP0ARID({4'd0, m_arid}),
        .SAXIHP0ARADDR(m_araddr), .SAXIHP0ARLEN(m_arlen[3:0]), .SAXIHP0ARSIZE(m_arsize[1:0]),
        .SAXIHP0ARBURST(m_arburst), .SAXIHP0ARCACHE(m_arcache), .SAXIHP0ARPROT(m_arprot),
        .SAXIHP0ARLOCK(2'b00), .SAXIHP0ARQOS(4'd0),
        .SAXIHP0RVALID(m_rvalid), .SAXIHP0RREADY(m_rready), .SAXIHP0RID(m_rid),
        .SAXIHP0RDATA(m_rdata), .SAXIHP0RRESP(m_rresp), .SAXIHP0RLAST(m_rlast),
        .SAXIHP0AWVALID(m_awvalid), .SAXIHP0AWREADY(m_awready), .SAXIHP0AWID({4'd0, m_awid}),
        .SAXIHP0AWADDR(m_awaddr), .SAXIHP0AWLEN(m_awlen[3:0]), .SAXIHP0AWSIZE(m_awsize[1:0]),
        .SAXIHP0AWBURST(m_awburst), .SAXIHP0AWCACHE(m_awcache), .SAXIHP0AWPROT(m_awprot),
        .SAXIHP0AWLOCK(2'b00), .SAXIHP0AWQOS(4'd0),
        .SAXIHP0WVALID(m_wvalid), .SAXIHP0WREADY(m_wready), .SAXIHP0WID(6'd0),
        .SAXIHP0WDATA(m_wdata), .SAXIHP0WSTRB(m_wstrb), .SAXIHP0WLAST(m_wlast),
        .SAXIHP0BVALID(m_bvalid), .SAXIHP0BREADY(m_bready), .SAXIHP0BID(m_bid),
        .SAXIHP0BRESP(m_bresp));

    wire unused = &{gp_awaddr[31:12], gp_araddr[31:12], m_arlen[7:4], m_awlen[7:4], m_arsize[2],
                    m_awsize[2], m_rid[5:2], m_bid[5:2], clocks[3:1], resets[3:1]};
endmodule
