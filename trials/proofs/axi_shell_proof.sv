// axi_shell, around any core that holds its requests: what is offered on AR, AW and W stays until it
// is taken, whatever happens (a fault, a stop); no burst begins after a fault; the core is reset
// only while no burst is under way; an error response reaches the core.
//
// The core has no content here: what it drives (`dut.rd_req_valid` and the like) is anything.
module axi_shell_proof
    import vta_pkg::*;
(
    input logic                   clk,
    input logic                   rst,
    input logic                   s_axi_awvalid,
    input logic [11:0]            s_axi_awaddr,
    input logic                   s_axi_wvalid,
    input logic [31:0]            s_axi_wdata,
    input logic [3:0]             s_axi_wstrb,
    input logic                   s_axi_bready,
    input logic                   s_axi_arvalid,
    input logic [11:0]            s_axi_araddr,
    input logic                   s_axi_rready,
    input logic                   m_axi_arready,
    input logic                   m_axi_rvalid,
    input logic [1:0]             m_axi_rid,
    input logic [1:0]             m_axi_rresp,
    input logic                   m_axi_rlast,
    input logic                   m_axi_awready,
    input logic                   m_axi_wready,
    input logic                   m_axi_bvalid,
    input logic [1:0]             m_axi_bresp,
    input logic                   w_axi_arready,
    input logic                   w_axi_rvalid,
    input logic [1:0]             w_axi_rresp,
    input logic                   w_axi_rlast
);
    logic s_axi_awready, s_axi_wready, s_axi_bvalid, s_axi_arready, s_axi_rvalid;
    logic [1:0] s_axi_bresp, s_axi_rresp;
    logic [31:0] s_axi_rdata;
    logic m_axi_arvalid, m_axi_rready, m_axi_awvalid, m_axi_wvalid, m_axi_wlast, m_axi_bready;
    logic [1:0] m_axi_arid, m_axi_awid, m_axi_arburst, m_axi_awburst, m_axi_bid;
    logic [ADDR_BITS-1:0] m_axi_araddr, m_axi_awaddr;
    logic [7:0] m_axi_arlen, m_axi_awlen;
    logic [2:0] m_axi_arsize, m_axi_awsize, m_axi_arprot, m_axi_awprot;
    logic [3:0] m_axi_arcache, m_axi_awcache;
    logic [PORT_BITS-1:0] m_axi_rdata, m_axi_wdata;
    logic [PORT_BYTES-1:0] m_axi_wstrb;
    logic w_axi_arvalid, w_axi_rready;
    logic [ADDR_BITS-1:0] w_axi_araddr;
    logic [7:0] w_axi_arlen;
    logic [2:0] w_axi_arsize, w_axi_arprot;
    logic [1:0] w_axi_arburst;
    logic [3:0] w_axi_arcache;
    logic [PORT_BITS-1:0] w_axi_rdata;
    logic finished, quiet, fault;
    assign w_axi_rdata = '0;
    assign {m_axi_rdata, m_axi_bid} = '0;
    axi_shell dut (.aclk(clk), .array_clk(clk), .aresetn(!rst), .*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    // What the memory has taken and answered; complete_words counts bursts by their last word.
    logic [15:0] ar_taken, r_complete, aw_offered, aw_taken, complete_words, b_given;
    wire word_goes = m_axi_wvalid && m_axi_wready;
    logic was_aw;
    always_ff @(posedge clk) begin
        ar_taken       <= rst ? '0 : ar_taken + 16'(m_axi_arvalid && m_axi_arready);
        r_complete     <= rst ? '0 : r_complete + 16'(m_axi_rvalid && m_axi_rlast);
        aw_taken       <= rst ? '0 : aw_taken + 16'(m_axi_awvalid && m_axi_awready);
        complete_words <= rst ? '0 : complete_words + 16'(word_goes && m_axi_wlast);
        b_given        <= rst ? '0 : b_given + 16'(m_axi_bvalid);
    end
    assign aw_offered = aw_taken + 16'(m_axi_awvalid);
    wire [15:0] reads_left  = ar_taken - r_complete;
    wire [15:0] writes_left = aw_taken - b_given;
    wire [15:0] words_left  = aw_offered - complete_words;  // bursts

    // The cycle before.
    logic was_reset, was_ar, was_w, was_fault, was_word, was_last;
    logic [1:0] was_arid;
    logic [7:0] was_arlen, was_awlen;
    logic [ADDR_BITS-1:0] was_araddr, was_awaddr;
    always_ff @(posedge clk) begin
        was_reset  <= rst;
        was_ar     <= !rst && m_axi_arvalid && !m_axi_arready;
        was_aw     <= !rst && m_axi_awvalid && !m_axi_awready;
        was_w      <= !rst && m_axi_wvalid && !m_axi_wready;
        was_last   <= m_axi_wlast;
        was_word   <= !rst && dut.wr_valid && !(m_axi_wready && m_axi_wvalid);
        was_fault  <= !rst && dut.fault;
        {was_arid, was_arlen, was_araddr} <= {m_axi_arid, m_axi_arlen, m_axi_araddr};
        {was_awlen, was_awaddr}           <= {m_axi_awlen, m_axi_awaddr};
    end

    always_comb begin
        assume (started || rst);
        // The core keeps a word that it offers, unless it is reset; its bursts have words.
        assume (!was_word || dut.core_reset || dut.wr_valid);
        assume (dut.wr_req_beats != '0 && 32'(dut.wr_req_beats) <= BURST_BEATS);
        // The memory answers what it has taken, a write when it has all its words.
        assume (!m_axi_rvalid || reads_left != '0);
        assume (!m_axi_bvalid || writes_left != '0 && complete_words != b_given);
        if (started && !was_reset) begin
            assert (!was_ar || m_axi_arvalid && m_axi_arid == was_arid
                    && m_axi_arlen == was_arlen && m_axi_araddr == was_araddr);
            assert (!was_aw || m_axi_awvalid && m_axi_awlen == was_awlen
                    && m_axi_awaddr == was_awaddr);
            assert (!was_w || m_axi_wvalid && m_axi_wlast == was_last);
            assert (!was_fault || (!m_axi_arvalid || was_ar) && (!m_axi_awvalid || was_aw));
            assert (!dut.core_reset || !m_axi_arvalid && reads_left == '0 && !m_axi_awvalid
                    && writes_left == '0 && words_left == '0 && !m_axi_wvalid);
            assert (!m_axi_wvalid || words_left != '0);
            assert (m_axi_rready && m_axi_bready);
            assert (dut.memory_error
                    == (m_axi_rvalid && m_axi_rresp[1] || m_axi_bvalid && m_axi_bresp[1]));
        end
        if (started) begin
            // How the shell keeps the same facts.
            assert (was_reset || !dut.core_reset || dut.reads_idle && dut.writes_idle);
            assert (16'(dut.reads.count) == reads_left + 16'(m_axi_arvalid));
            assert (16'(dut.writes.count) == writes_left + 16'(m_axi_awvalid));
            assert (32'(dut.reads.count) <= OUTSTANDING && 32'(dut.writes.count) <= OUTSTANDING);
            assert (reads_left <= 16'(OUTSTANDING) && writes_left <= 16'(OUTSTANDING));
            assert (words_left == 16'(dut.words.some) + 16'(dut.words.next_valid)
                    + 16'(dut.words.lengths.count));
            assert (complete_words - b_given <= aw_offered - b_given);
            assert (!dut.words.next_valid || dut.words.next != '0);
            assert (!dut.words.some || dut.words.left != '0);
            assert (dut.words.out_last == (dut.words.some && 32'(dut.words.left) == 1));
            assert (dut.words.lengths.count <= 5'd16);
            assert (dut.words.lengths.tail
                    == 4'(dut.words.lengths.head + 4'(dut.words.lengths.count)));
            for (int i = 0; i < 16; i++)
                if (5'(i) < dut.words.lengths.count)
                    assert (dut.words.lengths.mem[4'(dut.words.lengths.head + 4'(i))] != '0);
        end
    end
endmodule
