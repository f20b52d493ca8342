// Bridge from an AXI3 master of a processor (M_AXI_GP0 of a Zynq) to the AXI4-Lite slave of the
// control registers (axi_control.sv).
//
// Ports:   s_axi_*: the master's side, with IDs and bursts of type INCR; m_axi_*: the registers.
// Timing:  one burst in each direction at a time; each of its words is an access of its own. The
//          answer to a write burst is SLVERR if that to any of its words is.
module axi3_control (
    input  logic        clk,
    input  logic        rst,

    input  logic        s_axi_awvalid,
    output logic        s_axi_awready,
    input  logic [11:0] s_axi_awid,
    input  logic [11:0] s_axi_awaddr,
    input  logic [3:0]  s_axi_awlen,
    input  logic        s_axi_wvalid,
    output logic        s_axi_wready,
    input  logic [31:0] s_axi_wdata,
    input  logic [3:0]  s_axi_wstrb,
    output logic        s_axi_bvalid,
    input  logic        s_axi_bready,
    output logic [11:0] s_axi_bid,
    output logic [1:0]  s_axi_bresp,
    input  logic        s_axi_arvalid,
    output logic        s_axi_arready,
    input  logic [11:0] s_axi_arid,
    input  logic [11:0] s_axi_araddr,
    input  logic [3:0]  s_axi_arlen,
    output logic        s_axi_rvalid,
    input  logic        s_axi_rready,
    output logic [11:0] s_axi_rid,
    output logic [31:0] s_axi_rdata,
    output logic [1:0]  s_axi_rresp,
    output logic        s_axi_rlast,

    output logic        m_axi_awvalid,
    input  logic        m_axi_awready,
    output logic [11:0] m_axi_awaddr,
    output logic        m_axi_wvalid,
    input  logic        m_axi_wready,
    output logic [31:0] m_axi_wdata,
    output logic [3:0]  m_axi_wstrb,
    input  logic        m_axi_bvalid,
    output logic        m_axi_bready,
    input  logic [1:0]  m_axi_bresp,
    output logic        m_axi_arvalid,
    input  logic        m_axi_arready,
    output logic [11:0] m_axi_araddr,
    input  logic        m_axi_rvalid,
    output logic        m_axi_rready,
    input  logic [31:0] m_axi_rdata,
    input  logic [1:0]  m_axi_rresp
);
    logic       writing, reading;             // a burst
    logic       address_sent, data_sent, asked;  // of its next word
    logic [3:0] write_left, read_left;        // words after that one

    // ---------------------------------------------------------------------------------- writes
    assign s_axi_awready = !writing && !s_axi_bvalid;
    assign m_axi_awvalid = writing && s_axi_wvalid && !address_sent;
    assign m_axi_wvalid  = writing && s_axi_wvalid && !data_sent;
    assign m_axi_wdata   = s_axi_wdata;
    assign m_axi_wstrb   = s_axi_wstrb;
    assign m_axi_bready  = writing;
    assign s_axi_wready  = writing && m_axi_bvalid;  // a word is taken when it is answered

    always_ff @(posedge clk) begin
        if (rst) begin
            writing      <= 1'b0;
            address_sent <= 1'b0;
            data_sent    <= 1'b0;
            s_axi_bvalid <= 1'b0;
        end else begin
            if (s_axi_awvalid && s_axi_awready) writing <= 1'b1;
            if (m_axi_awvalid && m_axi_awready) address_sent <= 1'b1;
            if (m_axi_wvalid && m_axi_wready) data_sent <= 1'b1;
            if (s_axi_bready) s_axi_bvalid <= 1'b0;
            if (s_axi_wready) begin
                address_sent <= 1'b0;
                data_sent    <= 1'b0;
                if (write_left == 0) begin
                    writing      <= 1'b0;
                    s_axi_bvalid <= 1'b1;
                end
            end
        end
        if (s_axi_awvalid && s_axi_awready) begin
            s_axi_bid    <= s_axi_awid;
            s_axi_bresp  <= 2'b00;
            m_axi_awaddr <= s_axi_awaddr;
            write_left   <= s_axi_awlen;
        end else if (s_axi_wready) begin
            s_axi_bresp  <= s_axi_bresp | m_axi_bresp;
            m_axi_awaddr <= m_axi_awaddr + 12'd4;
            write_left   <= write_left - 1'b1;
        end
    end

    // ----------------------------------------------------------------------------------- reads
    assign s_axi_arready = !reading;
    assign m_axi_arvalid = reading && !asked;
    assign m_axi_rready  = reading && s_axi_rready;
    assign s_axi_rvalid  = reading && m_axi_rvalid;
    assign s_axi_rdata   = m_axi_rdata;
    assign s_axi_rresp   = m_axi_rresp;
    assign s_axi_rlast   = read_left == 0;

    wire taken = s_axi_rvalid && s_axi_rready;

    always_ff @(posedge clk) begin
        if (rst) begin
            reading <= 1'b0;
            asked   <= 1'b0;
        end else begin
            if (s_axi_arvalid && s_axi_arready) reading <= 1'b1;
            else if (taken && read_left == 0) reading <= 1'b0;
            if (m_axi_arvalid && m_axi_arready) asked <= 1'b1;
            else if (taken) asked <= 1'b0;
        end
        if (s_axi_arvalid && s_axi_arready) begin
            s_axi_rid    <= s_axi_arid;
            m_axi_araddr <= s_axi_araddr;
            read_left    <= s_axi_arlen;
        end else if (taken) begin
            m_axi_araddr <= m_axi_araddr + 12'd4;
            read_left    <= read_left - 1'b1;
        end
    end
endmodule
