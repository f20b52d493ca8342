// VTA for a block design: axi_shell.sv as a Verilog module, because Vivado's block designs take no
// SystemVerilog module as a reference. What the ports mean stands there; the attributes tell the
// tool which clock and reset belong to the buses, which it recognises by the names of their ports.
//
// PORT_BYTES and ADDRESS_BITS must be those of the generated package vta_pkg; it is checked.
module vta_axi #(
    parameter PORT_BYTES   = 8,
    parameter ADDRESS_BITS = 32
) (
    (* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 aclk CLK" *)
    (* X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF s_axi:m_axi:n_axi:w_axi, ASSOCIATED_RESET aresetn" *)
    input  wire                    aclk,
    (* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 array_clk CLK" *)
    input  wire                    array_clk,
    (* X_INTERFACE_INFO = "xilinx.com:signal:reset:1.0 aresetn RST" *)
    (* X_INTERFACE_PARAMETER = "POLARITY ACTIVE_LOW" *)
    input  wire                    aresetn,

    input  wire                    s_axi_awvalid,
    output wire                    s_axi_awready,
    input  wire [11:0]             s_axi_awaddr,
    input  wire [2:0]              s_axi_awprot,
    input  wire                    s_axi_wvalid,
    output wire                    s_axi_wready,
    input  wire [31:0]             s_axi_wdata,
    input  wire [3:0]              s_axi_wstrb,
    output wire                    s_axi_bvalid,
    input  wire                    s_axi_bready,
    output wire [1:0]              s_axi_bresp,
    input  wire                    s_axi_arvalid,
    output wire                    s_axi_arready,
    input  wire [11:0]             s_axi_araddr,
    input  wire [2:0]              s_axi_arprot,
    output wire                    s_axi_rvalid,
    input  wire                    s_axi_rready,
    output wire [31:0]             s_axi_rdata,
    output wire [1:0]              s_axi_rresp,

    output wire                    m_axi_arvalid,
    input  wire                    m_axi_arready,
    output wire [1:0]              m_axi_arid,
    output wire [ADDRESS_BITS-1:0] m_axi_araddr,
    output wire [7:0]              m_axi_arlen,
    output wire [2:0]              m_axi_arsize,
    output wire [1:0]              m_axi_arburst,
    output wire [3:0]              m_axi_arcache,
    output wire [2:0]              m_axi_arprot,
    input  wire                    m_axi_rvalid,
    output wire                    m_axi_rready,
    input  wire [1:0]              m_axi_rid,
    input  wire [8*PORT_BYTES-1:0] m_axi_rdata,
    input  wire [1:0]              m_axi_rresp,
    input  wire                    m_axi_rlast,
    output wire                    m_axi_awvalid,
    input  wire                    m_axi_awready,
    output wire [1:0]              m_axi_awid,
    output wire [ADDRESS_BITS-1:0] m_axi_awaddr,
    output wire [7:0]              m_axi_awlen,
    output wire [2:0]              m_axi_awsize,
    output wire [1:0]              m_axi_awburst,
    output wire [3:0]              m_axi_awcache,
    output wire [2:0]              m_axi_awprot,
    output wire                    m_axi_wvalid,
    input  wire                    m_axi_wready,
    output wire [8*PORT_BYTES-1:0] m_axi_wdata,
    output wire [PORT_BYTES-1:0]   m_axi_wstrb,
    output wire                    m_axi_wlast,
    input  wire                    m_axi_bvalid,
    output wire                    m_axi_bready,
    input  wire [1:0]              m_axi_bid,
    input  wire [1:0]              m_axi_bresp,

    output wire                    n_axi_arvalid,
    input  wire                    n_axi_arready,
    output wire [1:0]              n_axi_arid,
    output wire [ADDRESS_BITS-1:0] n_axi_araddr,
    output wire [7:0]              n_axi_arlen,
    output wire [2:0]              n_axi_arsize,
    output wire [1:0]              n_axi_arburst,
    output wire [3:0]              n_axi_arcache,
    output wire [2:0]              n_axi_arprot,
    input  wire                    n_axi_rvalid,
    output wire                    n_axi_rready,
    input  wire [1:0]              n_axi_rid,
    input  wire [8*PORT_BYTES-1:0] n_axi_rdata,
    input  wire [1:0]              n_axi_rresp,
    input  wire                    n_axi_rlast,
    output wire                    n_axi_awvalid,
    input  wire                    n_axi_awready,
    output wire [1:0]              n_axi_awid,
    output wire [ADDRESS_BITS-1:0] n_axi_awaddr,
    output wire [7:0]              n_axi_awlen,
    output wire [2:0]              n_axi_awsize,
    output wire [1:0]              n_axi_awburst,
    output wire [3:0]              n_axi_awcache,
    output wire [2:0]              n_axi_awprot,
    output wire                    n_axi_wvalid,
    input  wire                    n_axi_wready,
    output wire [8*PORT_BYTES-1:0] n_axi_wdata,
    output wire [PORT_BYTES-1:0]   n_axi_wstrb,
    output wire                    n_axi_wlast,
    input  wire                    n_axi_bvalid,
    output wire                    n_axi_bready,
    input  wire [1:0]              n_axi_bid,
    input  wire [1:0]              n_axi_bresp,

    output wire                    w_axi_arvalid,
    input  wire                    w_axi_arready,
    output wire [ADDRESS_BITS-1:0] w_axi_araddr,
    output wire [7:0]              w_axi_arlen,
    output wire [2:0]              w_axi_arsize,
    output wire [1:0]              w_axi_arburst,
    output wire [3:0]              w_axi_arcache,
    output wire [2:0]              w_axi_arprot,
    input  wire                    w_axi_rvalid,
    output wire                    w_axi_rready,
    input  wire [8*PORT_BYTES-1:0] w_axi_rdata,
    input  wire [1:0]              w_axi_rresp,
    input  wire                    w_axi_rlast,

    output wire                    finished,
    output wire                    quiet,
    output wire                    fault,

    // High from FINISH or a fault to the next launch.
    (* X_INTERFACE_INFO = "xilinx.com:signal:interrupt:1.0 irq INTERRUPT" *)
    (* X_INTERFACE_PARAMETER = "SENSITIVITY LEVEL_HIGH" *)
    output wire                    irq
);
    assign irq = finished || fault;

    // The shell's master, which axi_split.sv connects to one port or to two.
    wire                    arvalid, arready, rvalid, rready, rlast;
    wire                    awvalid, awready, wvalid, wready, wlast, bvalid, bready;
    wire [1:0]              arid, rid, rresp, bresp;
    wire [ADDRESS_BITS-1:0] araddr, awaddr;
    wire [7:0]              arlen, awlen;
    wire [8*PORT_BYTES-1:0] rdata, wdata;
    wire [PORT_BYTES-1:0]   wstrb;

    axi_shell #(.DATA_BITS(8 * PORT_BYTES), .ADDRESS_BITS(ADDRESS_BITS)) shell (
        .aclk(aclk), .array_clk(array_clk), .aresetn(aresetn),
        .s_axi_awvalid(s_axi_awvalid), .s_axi_awready(s_axi_awready), .s_axi_awaddr(s_axi_awaddr),
        .s_axi_wvalid(s_axi_wvalid), .s_axi_wready(s_axi_wready), .s_axi_wdata(s_axi_wdata),
        .s_axi_wstrb(s_axi_wstrb),
        .s_axi_bvalid(s_axi_bvalid), .s_axi_bready(s_axi_bready), .s_axi_bresp(s_axi_bresp),
        .s_axi_arvalid(s_axi_arvalid), .s_axi_arready(s_axi_arready), .s_axi_araddr(s_axi_araddr),
        .s_axi_rvalid(s_axi_rvalid), .s_axi_rready(s_axi_rready), .s_axi_rdata(s_axi_rdata),
        .s_axi_rresp(s_axi_rresp),
        .m_axi_arvalid(arvalid), .m_axi_arready(arready), .m_axi_arid(arid), .m_axi_araddr(araddr),
        .m_axi_arlen(arlen), .m_axi_arsize(m_axi_arsize), .m_axi_arburst(m_axi_arburst),
        .m_axi_arcache(m_axi_arcache), .m_axi_arprot(m_axi_arprot),
        .m_axi_rvalid(rvalid), .m_axi_rready(rready), .m_axi_rid(rid), .m_axi_rdata(rdata),
        .m_axi_rresp(rresp), .m_axi_rlast(rlast),
        .m_axi_awvalid(awvalid), .m_axi_awready(awready), .m_axi_awid(m_axi_awid),
        .m_axi_awaddr(awaddr), .m_axi_awlen(awlen), .m_axi_awsize(m_axi_awsize),
        .m_axi_awburst(m_axi_awburst), .m_axi_awcache(m_axi_awcache), .m_axi_awprot(m_axi_awprot),
        .m_axi_wvalid(wvalid), .m_axi_wready(wready), .m_axi_wdata(wdata), .m_axi_wstrb(wstrb),
        .m_axi_wlast(wlast), .m_axi_bvalid(bvalid), .m_axi_bready(bready), .m_axi_bid(m_axi_bid),
        .m_axi_bresp(bresp),
        .w_axi_arvalid(w_axi_arvalid), .w_axi_arready(w_axi_arready), .w_axi_araddr(w_axi_araddr),
        .w_axi_arlen(w_axi_arlen), .w_axi_arsize(w_axi_arsize), .w_axi_arburst(w_axi_arburst),
        .w_axi_arcache(w_axi_arcache), .w_axi_arprot(w_axi_arprot), .w_axi_rvalid(w_axi_rvalid),
        .w_axi_rready(w_axi_rready), .w_axi_rdata(w_axi_rdata), .w_axi_rresp(w_axi_rresp),
        .w_axi_rlast(w_axi_rlast),
        .finished(finished), .quiet(quiet), .fault(fault));

    axi_split #(.DATA_BITS(8 * PORT_BYTES), .ADDRESS_BITS(ADDRESS_BITS)) split (
        .clk(aclk), .rst(!aresetn),
        .s_arvalid(arvalid), .s_arready(arready), .s_arid(arid), .s_araddr(araddr),
        .s_arlen(arlen), .s_rvalid(rvalid), .s_rid(rid), .s_rdata(rdata), .s_rresp(rresp),
        .s_rlast(rlast), .s_awvalid(awvalid), .s_awready(awready), .s_awaddr(awaddr),
        .s_awlen(awlen), .s_wvalid(wvalid), .s_wready(wready), .s_wdata(wdata), .s_wstrb(wstrb),
        .s_wlast(wlast), .s_bvalid(bvalid), .s_bresp(bresp),
        .m_arvalid({n_axi_arvalid, m_axi_arvalid}), .m_arready({n_axi_arready, m_axi_arready}),
        .m_arid({n_axi_arid, m_axi_arid}), .m_araddr({n_axi_araddr, m_axi_araddr}),
        .m_arlen({n_axi_arlen, m_axi_arlen}), .m_rvalid({n_axi_rvalid, m_axi_rvalid}),
        .m_rready({n_axi_rready, m_axi_rready}), .m_rid({n_axi_rid, m_axi_rid}),
        .m_rdata({n_axi_rdata, m_axi_rdata}), .m_rresp({n_axi_rresp, m_axi_rresp}),
        .m_rlast({n_axi_rlast, m_axi_rlast}), .m_awvalid({n_axi_awvalid, m_axi_awvalid}),
        .m_awready({n_axi_awready, m_axi_awready}), .m_awaddr({n_axi_awaddr, m_axi_awaddr}),
        .m_awlen({n_axi_awlen, m_axi_awlen}), .m_wvalid({n_axi_wvalid, m_axi_wvalid}),
        .m_wready({n_axi_wready, m_axi_wready}), .m_wdata({n_axi_wdata, m_axi_wdata}),
        .m_wstrb({n_axi_wstrb, m_axi_wstrb}), .m_wlast({n_axi_wlast, m_axi_wlast}),
        .m_bvalid({n_axi_bvalid, m_axi_bvalid}), .m_bready({n_axi_bready, m_axi_bready}),
        .m_bresp({n_axi_bresp, m_axi_bresp}));

    assign n_axi_awid = m_axi_awid;
    assign {n_axi_arsize, n_axi_arburst, n_axi_arcache} = {m_axi_arsize, m_axi_arburst, m_axi_arcache};
    assign {n_axi_awsize, n_axi_awburst, n_axi_awcache} = {m_axi_awsize, m_axi_awburst, m_axi_awcache};
    assign {n_axi_arprot, n_axi_awprot} = {m_axi_arprot, m_axi_awprot};

    wire unused_protection = &{s_axi_awprot, s_axi_arprot, rready, bready, n_axi_bid};
endmodule
