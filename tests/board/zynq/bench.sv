// The system of vta_zynq.v with a processing system whose two ports tests/board/zynq/bench.cpp drives.
module bench (
    input  logic        clk,
    input  logic        resetn,
    input  logic        awvalid, wvalid, bready, arvalid, rready,
    input  logic [11:0] awid, arid,
    input  logic [31:0] awaddr, araddr, wdata,
    input  logic [3:0]  awlen, arlen, wstrb,
    output logic        awready, wready, bvalid, arready, rvalid, rlast,
    output logic [11:0] bid, rid,
    output logic [1:0]  bresp, rresp,
    output logic [31:0] rdata,
    input  logic        m_awready, m_wready, m_bvalid, m_arready, m_rvalid, m_rlast,
    input  logic [5:0]  m_bid, m_rid,
    input  logic [63:0] m_rdata,
    output logic        m_awvalid, m_wvalid, m_wlast, m_bready, m_arvalid, m_rready,
    output logic [5:0]  m_awid, m_arid,
    output logic [31:0] m_awaddr, m_araddr,
    output logic [3:0]  m_awlen, m_arlen,
    output logic [63:0] m_wdata,
    output logic [7:0]  m_wstrb,
    output logic        irq
);
    vta_zynq system ();
    assign awready = system.ps.MAXIGP0AWREADY;
    assign wready = system.ps.MAXIGP0WREADY;
    assign {bvalid, bid, bresp} =
        {system.ps.MAXIGP0BVALID, system.ps.MAXIGP0BID, system.ps.MAXIGP0BRESP};
    assign arready = system.ps.MAXIGP0ARREADY;
    assign {rvalid, rid, rresp, rdata, rlast} =
        {system.ps.MAXIGP0RVALID, system.ps.MAXIGP0RID, system.ps.MAXIGP0RRESP,
         system.ps.MAXIGP0RDATA, system.ps.MAXIGP0RLAST};
    assign {m_awvalid, m_awid, m_awaddr, m_awlen} =
        {system.ps.SAXIHP0AWVALID, system.ps.SAXIHP0AWID, system.ps.SAXIHP0AWADDR,
         system.ps.SAXIHP0AWLEN};
    assign {m_wvalid, m_wdata, m_wstrb, m_wlast} =
        {system.ps.SAXIHP0WVALID, system.ps.SAXIHP0WDATA, system.ps.SAXIHP0WSTRB,
         system.ps.SAXIHP0WLAST};
    assign {m_arvalid, m_arid, m_araddr, m_arlen} =
        {system.ps.SAXIHP0ARVALID, system.ps.SAXIHP0ARID, system.ps.SAXIHP0ARADDR,
         system.ps.SAXIHP0ARLEN};
    assign m_bready = system.ps.SAXIHP0BREADY;
    assign m_rready = system.ps.SAXIHP0RREADY;
    assign irq = system.ps.IRQF2P[0];
endmodule

module BUFG (input logic I, output logic O);
    assign O = I;
endmodule

// The ports that the system names, of the widths of the primitive.
module PS7 (
    output logic [3:0]  FCLKCLK, FCLKRESETN,
    input  logic [19:0] IRQF2P,
    input  logic        MAXIGP0ACLK, MAXIGP0AWREADY, MAXIGP0WREADY, MAXIGP0BVALID,
    input  logic        MAXIGP0ARREADY, MAXIGP0RVALID, MAXIGP0RLAST,
    input  logic [11:0] MAXIGP0BID, MAXIGP0RID,
    input  logic [1:0]  MAXIGP0BRESP, MAXIGP0RRESP,
    input  logic [31:0] MAXIGP0RDATA,
    output logic        MAXIGP0AWVALID, MAXIGP0WVALID, MAXIGP0BREADY, MAXIGP0ARVALID,
    output logic        MAXIGP0RREADY,
    output logic [11:0] MAXIGP0AWID, MAXIGP0ARID,
    output logic [31:0] MAXIGP0AWADDR, MAXIGP0ARADDR, MAXIGP0WDATA,
    output logic [3:0]  MAXIGP0AWLEN, MAXIGP0ARLEN, MAXIGP0WSTRB,
    input  logic        SAXIHP0ACLK, SAXIHP0RDISSUECAP1EN, SAXIHP0WRISSUECAP1EN,
    input  logic        SAXIHP0ARVALID, SAXIHP0RREADY, SAXIHP0AWVALID, SAXIHP0WVALID,
    input  logic        SAXIHP0WLAST, SAXIHP0BREADY,
    input  logic [5:0]  SAXIHP0ARID, SAXIHP0AWID, SAXIHP0WID,
    input  logic [31:0] SAXIHP0ARADDR, SAXIHP0AWADDR,
    input  logic [3:0]  SAXIHP0ARLEN, SAXIHP0AWLEN, SAXIHP0ARCACHE, SAXIHP0AWCACHE,
    input  logic [3:0]  SAXIHP0ARQOS, SAXIHP0AWQOS,
    input  logic [1:0]  SAXIHP0ARSIZE, SAXIHP0AWSIZE, SAXIHP0ARBURST, SAXIHP0AWBURST,
    input  logic [1:0]  SAXIHP0ARLOCK, SAXIHP0AWLOCK,
    input  logic [2:0]  SAXIHP0ARPROT, SAXIHP0AWPROT,
    input  logic [63:0] SAXIHP0WDATA,
    input  logic [7:0]  SAXIHP0WSTRB,
    output logic        SAXIHP0ARREADY, SAXIHP0RVALID, SAXIHP0RLAST, SAXIHP0AWREADY,
    output logic        SAXIHP0WREADY, SAXIHP0BVALID,
    output logic [5:0]  SAXIHP0RID, SAXIHP0BID,
    output logic [1:0]  SAXIHP0RRESP, SAXIHP0BRESP,
    output logic [63:0] SAXIHP0RDATA
);
    assign FCLKCLK = {3'b000, bench.clk};
    assign FCLKRESETN = {4{bench.resetn}};
    assign {MAXIGP0AWVALID, MAXIGP0AWID, MAXIGP0AWADDR, MAXIGP0AWLEN} =
        {bench.awvalid, bench.awid, bench.awaddr, bench.awlen};
    assign {MAXIGP0WVALID, MAXIGP0WDATA, MAXIGP0WSTRB} = {bench.wvalid, bench.wdata, bench.wstrb};
    assign {MAXIGP0ARVALID, MAXIGP0ARID, MAXIGP0ARADDR, MAXIGP0ARLEN} =
        {bench.arvalid, bench.arid, bench.araddr, bench.arlen};
    assign {MAXIGP0BREADY, MAXIGP0RREADY} = {bench.bready, bench.rready};
    assign {SAXIHP0ARREADY, SAXIHP0AWREADY, SAXIHP0WREADY} =
        {bench.m_arready, bench.m_awready, bench.m_wready};
    assign {SAXIHP0RVALID, SAXIHP0RID, SAXIHP0RDATA, SAXIHP0RLAST, SAXIHP0RRESP} =
        {bench.m_rvalid, bench.m_rid, bench.m_rdata, bench.m_rlast, 2'b00};
    assign {SAXIHP0BVALID, SAXIHP0BID, SAXIHP0BRESP} = {bench.m_bvalid, bench.m_bid, 2'b00};

    // What the port of a Zynq takes: words of 8 bytes, consecutive.
    always_ff @(posedge SAXIHP0ACLK) begin
        if (SAXIHP0ARVALID && (SAXIHP0ARSIZE != 2'b11 || SAXIHP0ARBURST != 2'b01))
            $fatal(1, "a read burst of another size or type");
        if (SAXIHP0AWVALID && (SAXIHP0AWSIZE != 2'b11 || SAXIHP0AWBURST != 2'b01))
            $fatal(1, "a write burst of another size or type");
    end
endmodule
