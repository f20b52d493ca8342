// AXI shell: VTA with the buses of a system on chip: an AXI4-Lite slave for its registers and an
// AXI4 master for DRAM. vta_axi.v is the same for tools that require a Verilog module.
//
// Ports:   aresetn: low resets, at a clock edge. s_axi_*: registers, one page of 4 KiB.
//          m_axi_*: DRAM. Read bursts carry the number of their client as ID: the memory returns the
//          data of one ID in order and may interleave IDs; RREADY is always high, because buffer
//          space is reserved before a burst is requested. Write bursts have ID 0. A burst is of
//          type INCR, aligned to the port, at most BURST_BEATS long, and crosses no multiple of
//          4 KiB (burst_generator). WVALID rises after the AWVALID of its burst and does not wait for
//          AWREADY. Accesses are non-cacheable, bufferable, modifiable (AxCACHE 0011) and
//          unprivileged, secure data (AxPROT 000): for a port that is not coherent with the
//          processor's caches (HP of a Zynq), which the driver therefore flushes and invalidates.
//          w_axi_*: a second master for DRAM if HAS_WEIGHT_PORT is set, which only reads weights.
//          Otherwise it is silent and may be left unconnected.
//          finished, quiet, fault: as in vta.sv, for an interrupt, LEDs or a logic analyser.
// Control: as in registers.sv; in addition, writing bit 1 of register 0x00 stops: no further burst
//          begins, those in flight end, then everything but this shell is reset; bit 3 reads 1 until then.
//          Logic must not be reprogrammed while bursts are in flight, because the port of the processing
//          system would wait for them forever. A fault also prevents new bursts.
//          An error response (RRESP or BRESP) is a fault.
// Timing:  a request takes one cycle more than on the bare port; data pass through combinationally.
module axi_shell
    import vta_pkg::*;
#(
    parameter int DATA_BITS    = PORT_BITS,  // expected by the surrounding design
    parameter int ADDRESS_BITS = ADDR_BITS
) (
    input  logic                    aclk,
    input  logic                    array_clk,  // see vta.sv
    input  logic                    aresetn,

    input  logic                    s_axi_awvalid,
    output logic                    s_axi_awready,
    input  logic [11:0]             s_axi_awaddr,
    input  logic                    s_axi_wvalid,
    output logic                    s_axi_wready,
    input  logic [31:0]             s_axi_wdata,
    input  logic [3:0]              s_axi_wstrb,
    output logic                    s_axi_bvalid,
    input  logic                    s_axi_bready,
    output logic [1:0]              s_axi_bresp,
    input  logic                    s_axi_arvalid,
    output logic                    s_axi_arready,
    input  logic [11:0]             s_axi_araddr,
    output logic                    s_axi_rvalid,
    input  logic                    s_axi_rready,
    output logic [31:0]             s_axi_rdata,
    output logic [1:0]              s_axi_rresp,

    output logic                    m_axi_arvalid,
    input  logic                    m_axi_arready,
    output logic [1:0]              m_axi_arid,
    output logic [ADDRESS_BITS-1:0] m_axi_araddr,
    output logic [7:0]              m_axi_arlen,
    output logic [2:0]              m_axi_arsize,
    output logic [1:0]              m_axi_arburst,
    output logic [3:0]              m_axi_arcache,
    output logic [2:0]              m_axi_arprot,
    input  logic                    m_axi_rvalid,
    output logic                    m_axi_rready,
    input  logic [1:0]              m_axi_rid,
    input  logic [DATA_BITS-1:0]    m_axi_rdata,
    input  logic [1:0]              m_axi_rresp,
    input  logic                    m_axi_rlast,
    output logic                    m_axi_awvalid,
    input  logic                    m_axi_awready,
    output logic [1:0]              m_axi_awid,
    output logic [ADDRESS_BITS-1:0] m_axi_awaddr,
    output logic [7:0]              m_axi_awlen,
    output logic [2:0]              m_axi_awsize,
    output logic [1:0]              m_axi_awburst,
    output logic [3:0]              m_axi_awcache,
    output logic [2:0]              m_axi_awprot,
    output logic                    m_axi_wvalid,
    input  logic                    m_axi_wready,
    output logic [DATA_BITS-1:0]    m_axi_wdata,
    output logic [DATA_BITS/8-1:0]  m_axi_wstrb,
    output logic                    m_axi_wlast,
    input  logic                    m_axi_bvalid,
    output logic                    m_axi_bready,
    input  logic [1:0]              m_axi_bid,
    input  logic [1:0]              m_axi_bresp,

    output logic                    w_axi_arvalid,
    input  logic                    w_axi_arready,
    output logic [ADDRESS_BITS-1:0] w_axi_araddr,
    output logic [7:0]              w_axi_arlen,
    output logic [2:0]              w_axi_arsize,
    output logic [1:0]              w_axi_arburst,
    output logic [3:0]              w_axi_arcache,
    output logic [2:0]              w_axi_arprot,
    input  logic                    w_axi_rvalid,
    output logic                    w_axi_rready,
    input  logic [DATA_BITS-1:0]    w_axi_rdata,
    input  logic [1:0]              w_axi_rresp,
    input  logic                    w_axi_rlast,

    output logic                    finished,
    output logic                    quiet,
    output logic                    fault
);
    if (DATA_BITS != PORT_BITS || ADDRESS_BITS != ADDR_BITS) begin : g_widths
        $error("the widths of the AXI ports differ from those of vta_pkg");
    end
    if (CLIENT_BITS != 2) begin : g_clients
        $error("the ports for IDs have two bits");
    end
    if (BURST_BEATS > 256) begin : g_burst
        $error("an AXI4 burst has at most 256 words");
    end

    localparam logic [2:0] SIZE      = 3'($clog2(PORT_BYTES));
    localparam logic [1:0] INCR      = 2'b01;
    localparam logic [3:0] CACHE     = 4'b0011;
    localparam logic [2:0] PROT      = 3'b000;
    localparam int         ERROR_BIT = 1;  // of a response: SLVERR and DECERR
    localparam int         STOP_BIT = 1, STOPPING_BIT = 3;  // of the control register

    // ----------------------------------------------------------------------- registers, stop
    logic csr_we, stopping, core_reset, reads_idle, weights_idle, writes_idle;
    wire idle = reads_idle && weights_idle && writes_idle;
    logic [11:0] csr_address, csr_read_address;
    logic [31:0] csr_wdata, csr_rdata, core_rdata;
    wire rst  = !aresetn;
    wire hold = stopping || core_reset || fault;

    axi_control control (
        .clk(aclk), .rst, .s_axi_awvalid, .s_axi_awready, .s_axi_awaddr, .s_axi_wvalid,
        .s_axi_wready, .s_axi_wdata, .s_axi_wstrb, .s_axi_bvalid, .s_axi_bready, .s_axi_bresp,
        .s_axi_arvalid, .s_axi_arready, .s_axi_araddr, .s_axi_rvalid, .s_axi_rready, .s_axi_rdata,
        .s_axi_rresp, .csr_we, .csr_address, .csr_read_address, .csr_wdata, .csr_rdata);

    wire at_control = csr_address == 12'h000;
    always_comb begin
        csr_rdata = core_rdata;
        if (csr_read_address == 12'h000) csr_rdata[STOPPING_BIT] = stopping || core_reset;
    end

    initial core_reset = 1'b1;  // the core is reset a cycle late; nothing is written before
    always_ff @(posedge aclk) begin
        if (rst) begin
            stopping   <= 1'b0;
            core_reset <= 1'b1;
        end else begin
            if (csr_we && at_control && csr_wdata[STOP_BIT]) stopping <= 1'b1;
            else if (idle) stopping <= 1'b0;
            core_reset <= stopping && idle;
        end
    end

    // --------------------------------------------------------------------------------- VTA
    logic rd_req_valid, rd_req_ready, wr_req_valid, wr_req_ready, wr_valid, wr_ready;
    logic [ADDR_BITS-1:0]   rd_req_address, wr_req_address;
    logic [BEATS_BITS-1:0]  rd_req_beats, wr_req_beats;
    logic [CLIENT_BITS-1:0] rd_req_client;
    logic [PORT_BITS-1:0]   wr_data;
    logic [PORT_BYTES-1:0]  wr_strobe;
    wire received  = m_axi_rvalid && m_axi_rready;
    wire responded = m_axi_bvalid && m_axi_bready;
    logic weights_received, wgt_req_valid, wgt_req_ready;
    logic [ADDR_BITS-1:0]  wgt_req_address;
    logic [BEATS_BITS-1:0] wgt_req_beats;
    wire memory_error = received && m_axi_rresp[ERROR_BIT] || responded && m_axi_bresp[ERROR_BIT]
                        || weights_received && w_axi_rresp[ERROR_BIT];

    vta core (
        .clk(aclk), .array_clk, .rst(core_reset),  // one cycle after aresetn, from a flip-flop
        .csr_we, .csr_address, .csr_read_address, .csr_wdata, .csr_rdata(core_rdata),
        .rd_req_valid, .rd_req_ready, .rd_req_address, .rd_req_beats, .rd_req_client,
        .rd_valid(received), .rd_client(m_axi_rid), .rd_last(m_axi_rlast), .rd_data(m_axi_rdata),
        .wgt_req_valid, .wgt_req_ready, .wgt_req_address, .wgt_req_beats,
        .wgt_valid(weights_received), .wgt_last(w_axi_rlast), .wgt_data(w_axi_rdata),
        .wr_req_valid, .wr_req_ready, .wr_req_address, .wr_req_beats,
        .wr_valid, .wr_ready, .wr_data, .wr_strobe, .wr_ack(responded),
        .memory_error, .token_hold(4'b0000), .finished, .quiet, .fault);

    // -------------------------------------------------------------------------------- reads
    wire [BEATS_BITS-1:0] read_length = rd_req_beats - 1'b1;
    axi_bursts #(.BITS(CLIENT_BITS + 8 + ADDR_BITS), .LIMIT(OUTSTANDING)) reads (
        .clk(aclk), .rst, .hold,
        .in_valid(rd_req_valid), .in_ready(rd_req_ready),
        .in_data({rd_req_client, 8'(read_length), rd_req_address}),
        .out_valid(m_axi_arvalid), .out_ready(m_axi_arready),
        .out_data({m_axi_arid, m_axi_arlen, m_axi_araddr}),
        .complete(received && m_axi_rlast), .idle(reads_idle));
    assign m_axi_rready  = 1'b1;
    assign m_axi_arsize  = SIZE;
    assign m_axi_arburst = INCR;
    assign m_axi_arcache = CACHE;
    assign m_axi_arprot  = PROT;

    wire [BEATS_BITS-1:0] wgt_length = wgt_req_beats - 1'b1;
    if (HAS_WEIGHT_PORT != 0) begin : g_weights
        assign weights_received = w_axi_rvalid;  // always ready
        axi_bursts #(.BITS(8 + ADDR_BITS), .LIMIT(OUTSTANDING)) weights (
            .clk(aclk), .rst, .hold, .in_valid(wgt_req_valid), .in_ready(wgt_req_ready),
            .in_data({8'(wgt_length), wgt_req_address}), .out_valid(w_axi_arvalid),
            .out_ready(w_axi_arready), .out_data({w_axi_arlen, w_axi_araddr}),
            .complete(weights_received && w_axi_rlast), .idle(weights_idle));
    end else begin : g_one_master
        assign {weights_received, wgt_req_ready, w_axi_arvalid} = '0;
        assign weights_idle = 1'b1;
        assign {w_axi_arlen, w_axi_araddr} = '0;
        wire unused_weights = ^{w_axi_rvalid, w_axi_arready, wgt_req_valid, wgt_length, wgt_req_address};
    end
    assign w_axi_rready  = 1'b1;
    assign w_axi_arsize  = SIZE;
    assign w_axi_arburst = INCR;
    assign w_axi_arcache = CACHE;
    assign w_axi_arprot  = PROT;

    // ------------------------------------------------------------------------------- writes
    logic lengths_ready, address_ready;
    wire [BEATS_BITS-1:0] write_length = wr_req_beats - 1'b1;
    assign wr_req_ready = lengths_ready && address_ready;
    axi_bursts #(.BITS(8 + ADDR_BITS), .LIMIT(OUTSTANDING)) writes (
        .clk(aclk), .rst, .hold,
        .in_valid(wr_req_valid && lengths_ready), .in_ready(address_ready),
        .in_data({8'(write_length), wr_req_address}),
        .out_valid(m_axi_awvalid), .out_ready(m_axi_awready),
        .out_data({m_axi_awlen, m_axi_awaddr}),
        .complete(responded), .idle(writes_idle));
    axi_words #(.BITS(PORT_BITS + PORT_BYTES), .LENGTH_BITS(BEATS_BITS)) words (
        .clk(aclk), .rst(rst || core_reset),
        .burst_valid(wr_req_valid && address_ready), .burst_ready(lengths_ready),
        .burst_length(wr_req_beats),
        .in_valid(wr_valid), .in_ready(wr_ready), .in_data({wr_strobe, wr_data}),
        .out_valid(m_axi_wvalid), .out_ready(m_axi_wready),
        .out_data({m_axi_wstrb, m_axi_wdata}), .out_last(m_axi_wlast));
    assign m_axi_awid    = '0;
    assign m_axi_awsize  = SIZE;
    assign m_axi_awburst = INCR;
    assign m_axi_awcache = CACHE;
    assign m_axi_awprot  = PROT;
    assign m_axi_bready  = 1'b1;

    wire unused_responses = &{m_axi_rresp[0], m_axi_bresp[0], m_axi_bid, w_axi_rresp[0]};
endmodule
