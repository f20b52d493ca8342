// Divides the bursts of VTA's AXI master between two ports to the same DRAM, if HAS_SPLIT_PORT is set;
// otherwise wires to the first port.
//
// Ports:   s_*: the master. m_*[0], m_*[1]: the ports, which need not keep step. Reads are halved,
//          writes cut by their addresses (axi_halves). A port sees ID 0 only, so it returns its halves in order; what the other one
//          is ahead waits here, up to two bursts, then RREADY falls. The master has at most OUTSTANDING
//          bursts of each kind in flight, and is always ready.
//          Words reach the master in the order of its requests, whatever their ID. An error response
//          of either port reaches it with its word, or with the response of its write.
// Timing:  no cycle for addresses; two for words in either direction, and for write responses.
module axi_split
    import vta_pkg::*;
#(
    parameter int DATA_BITS    = PORT_BITS,
    parameter int ADDRESS_BITS = ADDR_BITS,
    localparam int STROBES     = DATA_BITS / 8
) (
    input  logic                         clk,
    input  logic                         rst,

    input  logic                         s_arvalid,
    output logic                         s_arready,
    input  logic [1:0]                   s_arid,
    input  logic [ADDRESS_BITS-1:0]      s_araddr,
    input  logic [7:0]                   s_arlen,
    output logic                         s_rvalid,
    output logic [1:0]                   s_rid,
    output logic [DATA_BITS-1:0]         s_rdata,
    output logic [1:0]                   s_rresp,
    output logic                         s_rlast,
    input  logic                         s_awvalid,
    output logic                         s_awready,
    input  logic [ADDRESS_BITS-1:0]      s_awaddr,
    input  logic [7:0]                   s_awlen,
    input  logic                         s_wvalid,
    output logic                         s_wready,
    input  logic [DATA_BITS-1:0]         s_wdata,
    input  logic [STROBES-1:0]           s_wstrb,
    input  logic                         s_wlast,
    output logic                         s_bvalid,
    output logic [1:0]                   s_bresp,

    output logic [1:0]                   m_arvalid,
    input  logic [1:0]                   m_arready,
    output logic [1:0][1:0]              m_arid,
    output logic [1:0][ADDRESS_BITS-1:0] m_araddr,
    output logic [1:0][7:0]              m_arlen,
    input  logic [1:0]                   m_rvalid,
    output logic [1:0]                   m_rready,
    input  logic [1:0][1:0]              m_rid,
    input  logic [1:0][DATA_BITS-1:0]    m_rdata,
    input  logic [1:0][1:0]              m_rresp,
    input  logic [1:0]                   m_rlast,
    output logic [1:0]                   m_awvalid,
    input  logic [1:0]                   m_awready,
    output logic [1:0][ADDRESS_BITS-1:0] m_awaddr,
    output logic [1:0][7:0]              m_awlen,
    output logic [1:0]                   m_wvalid,
    input  logic [1:0]                   m_wready,
    output logic [1:0][DATA_BITS-1:0]    m_wdata,
    output logic [1:0][STROBES-1:0]      m_wstrb,
    output logic [1:0]                   m_wlast,
    input  logic [1:0]                   m_bvalid,
    output logic [1:0]                   m_bready,
    input  logic [1:0][1:0]              m_bresp
);
    if (HAS_SPLIT_PORT != 0) begin : g_split
        localparam int BURSTS = 1 << $clog2(OUTSTANDING < 2 ? 2 : OUTSTANDING);
        localparam int WORDS  = 2 * BURST_BEATS;
        logic [2:0] has_room;  // always: more bursts are never in flight

        // --------------------------------------------------------------------------- reads
        logic read_burst, read_turn, read_single;
        /* verilator lint_off UNUSEDSIGNAL */
        logic [7:0] read_first;  // RLAST tells where a half ends
        /* verilator lint_on UNUSEDSIGNAL */
        axi_halves #(.ADDRESS_BITS(ADDRESS_BITS), .WORD_BYTES(STROBES)) read_addresses (
            .clk, .rst, .in_valid(s_arvalid), .in_ready(s_arready), .in_address(s_araddr),
            .in_length(s_arlen), .out_valid(m_arvalid), .out_ready(m_arready),
            .out_address(m_araddr), .out_length(m_arlen), .burst(read_burst), .turn(read_turn),
            .first(read_first), .single(read_single));
        assign m_arid = '0;

        // The oldest burst, and where its next word comes from.
        logic known, of_turn, of_single, behind;  // behind: the second half
        wire from   = of_turn ^ behind;
        wire passes = s_rvalid;
        fifo #(.WIDTH(4), .DEPTH(BURSTS)) read_order (
            .clk, .rst, .in_valid(read_burst), .in_ready(has_room[0]),
            .in_data({s_arid, read_turn, read_single}), .out_valid(known),
            .out_ready(passes && s_rlast), .out_data({s_rid, of_turn, of_single}));

        logic [1:0]                came, ends;
        logic [1:0][DATA_BITS-1:0] data;
        logic [1:0][1:0]           response;
        for (genvar p = 0; p < 2; p++) begin : g_reads
            fifo #(.WIDTH(DATA_BITS + 3), .DEPTH(WORDS)) words (
                .clk, .rst, .in_valid(m_rvalid[p]), .in_ready(m_rready[p]),
                .in_data({m_rlast[p], m_rresp[p], m_rdata[p]}), .out_valid(came[p]),
                .out_ready(known && from == 1'(p)), .out_data({ends[p], response[p], data[p]}));
        end
        assign s_rvalid = known && came[from];
        assign s_rdata  = data[from];
        assign s_rresp  = response[from];
        assign s_rlast  = ends[from] && (behind || of_single);
        always_ff @(posedge clk) begin
            if (rst) behind <= 1'b0;
            else if (passes && ends[from]) behind <= !s_rlast;
        end

        // -------------------------------------------------------------------------- writes
        logic write_burst, write_turn, write_single;
        logic [7:0] write_first;
        axi_halves #(
            .ADDRESS_BITS(ADDRESS_BITS), .WORD_BYTES(STROBES), .HALF(BURST_BEATS / 2)
        ) write_addresses (
            .clk, .rst, .in_valid(s_awvalid), .in_ready(s_awready), .in_address(s_awaddr),
            .in_length(s_awlen), .out_valid(m_awvalid), .out_ready(m_awready),
            .out_address(m_awaddr), .out_length(m_awlen), .burst(write_burst), .turn(write_turn),
            .first(write_first), .single(write_single));

        // The burst whose words come now; `passed` of them have.
        logic sends, to_turn, rests;  // rests: the second half
        logic [7:0] to_first, passed;
        wire to   = to_turn ^ rests;
        wire goes = s_wvalid && s_wready;
        wire half = passed == to_first;
        logic [1:0] free;
        fifo #(.WIDTH(9), .DEPTH(BURSTS)) word_order (
            .clk, .rst, .in_valid(write_burst), .in_ready(has_room[1]),
            .in_data({write_turn, write_first}), .out_valid(sends), .out_ready(goes && s_wlast),
            .out_data({to_turn, to_first}));
        assign s_wready = sends && free[to];
        for (genvar p = 0; p < 2; p++) begin : g_writes
            fifo #(.WIDTH(DATA_BITS + STROBES + 1), .DEPTH(WORDS)) words (
                .clk, .rst, .in_valid(s_wvalid && sends && to == 1'(p)), .in_ready(free[p]),
                .in_data({s_wlast || half, s_wstrb, s_wdata}), .out_valid(m_wvalid[p]),
                .out_ready(m_wready[p]), .out_data({m_wlast[p], m_wstrb[p], m_wdata[p]}));
        end
        always_ff @(posedge clk) begin
            if (rst || goes && s_wlast) {rests, passed} <= '0;
            else if (goes) {rests, passed} <= {rests || half, passed + 1'b1};
        end

        // A burst is written when both ports say so.
        logic waits, by_turn, by_single;
        logic [1:0] said;
        logic [1:0][1:0] answer;
        wire [1:0] needed = by_single ? {by_turn, !by_turn} : 2'b11;
        fifo #(.WIDTH(2), .DEPTH(BURSTS)) answer_order (
            .clk, .rst, .in_valid(write_burst), .in_ready(has_room[2]),
            .in_data({write_turn, write_single}), .out_valid(waits), .out_ready(s_bvalid),
            .out_data({by_turn, by_single}));
        for (genvar p = 0; p < 2; p++) begin : g_answers
            fifo #(.WIDTH(2), .DEPTH(BURSTS)) answers (
                .clk, .rst, .in_valid(m_bvalid[p]), .in_ready(m_bready[p]), .in_data(m_bresp[p]),
                .out_valid(said[p]), .out_ready(s_bvalid && needed[p]), .out_data(answer[p]));
        end
        assign s_bvalid = waits && (said & needed) == needed;
        assign s_bresp  = answer[0] & {2{needed[0]}} | answer[1] & {2{needed[1]}};

        wire unused = &{m_rid, has_room};
    end else begin : g_wires
        assign m_arvalid = {1'b0, s_arvalid};
        assign m_arid    = {2'b00, s_arid};
        assign m_araddr  = {ADDRESS_BITS'(0), s_araddr};
        assign m_arlen   = {8'd0, s_arlen};
        assign m_rready  = 2'b11;
        assign m_awvalid = {1'b0, s_awvalid};
        assign m_awaddr  = {ADDRESS_BITS'(0), s_awaddr};
        assign m_awlen   = {8'd0, s_awlen};
        assign m_wvalid  = {1'b0, s_wvalid};
        assign m_wdata   = {DATA_BITS'(0), s_wdata};
        assign m_wstrb   = {STROBES'(0), s_wstrb};
        assign m_wlast   = {1'b0, s_wlast};
        assign m_bready  = 2'b11;
        assign {s_arready, s_awready, s_wready} = {m_arready[0], m_awready[0], m_wready[0]};
        assign {s_rvalid, s_rid, s_rdata} = {m_rvalid[0], m_rid[0], m_rdata[0]};
        assign {s_rresp, s_rlast} = {m_rresp[0], m_rlast[0]};
        assign {s_bvalid, s_bresp} = {m_bvalid[0], m_bresp[0]};
        wire unused_second = ^{clk, rst, m_arready[1], m_rvalid[1], m_rid[1], m_rdata[1], m_rresp[1],
                               m_rlast[1], m_awready[1], m_wready[1], m_bvalid[1], m_bresp[1]};
    end
endmodule
