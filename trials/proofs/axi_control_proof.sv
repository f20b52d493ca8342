// axi_control: every write and every read is answered once, an answer stays until it is taken, a
// register is written once for a write with all byte enables and for no other, with its address and
// data; what is read is the register of the address at one moment after it came.
module axi_control_proof (
    input logic        clk,
    input logic        rst,
    input logic        s_axi_awvalid,
    input logic [11:0] s_axi_awaddr,
    input logic        s_axi_wvalid,
    input logic [31:0] s_axi_wdata,
    input logic [3:0]  s_axi_wstrb,
    input logic        s_axi_bready,
    input logic        s_axi_arvalid,
    input logic [11:0] s_axi_araddr,
    input logic        s_axi_rready,
    input logic [31:0] csr_rdata
);
    logic s_axi_awready, s_axi_wready, s_axi_bvalid, s_axi_arready, s_axi_rvalid, csr_we;
    logic [1:0] s_axi_bresp, s_axi_rresp;
    logic [31:0] s_axi_rdata, csr_wdata;
    logic [11:0] csr_address, csr_read_address;
    axi_control dut (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    // How often each channel has moved, and what moved last.
    logic [15:0] addresses, words, answers, reads, read_answers, written;
    logic [11:0] address, read_address;
    logic [31:0] word;
    logic [3:0]  strobe;
    wire address_moves = s_axi_awvalid && s_axi_awready;
    wire word_moves    = s_axi_wvalid && s_axi_wready;
    wire read_moves    = s_axi_arvalid && s_axi_arready;
    wire both_here     = addresses != written && words != written;
    wire writes        = both_here && (!s_axi_bvalid || s_axi_bready);
    always_ff @(posedge clk) begin
        addresses    <= rst ? '0 : addresses + 16'(address_moves);
        words        <= rst ? '0 : words + 16'(word_moves);
        written      <= rst ? '0 : written + 16'(writes);
        answers      <= rst ? '0 : answers + 16'(s_axi_bvalid && s_axi_bready);
        reads        <= rst ? '0 : reads + 16'(read_moves);
        read_answers <= rst ? '0 : read_answers + 16'(s_axi_rvalid && s_axi_rready);
        if (address_moves) address <= s_axi_awaddr;
        if (word_moves) {word, strobe} <= {s_axi_wdata, s_axi_wstrb};
        if (read_moves) read_address <= s_axi_araddr;
    end

    logic was_b, was_r, was_written, was_whole;
    logic [1:0] was_bresp;
    logic [31:0] was_rdata;
    wire reads_now = reads - read_answers != 16'(s_axi_rvalid) && !writes
                     && (!s_axi_rvalid || s_axi_rready);
    logic was_read;
    logic [31:0] was_register;
    always_ff @(posedge clk) begin
        was_b        <= !rst && s_axi_bvalid && !s_axi_bready;
        was_bresp    <= s_axi_bresp;
        was_r        <= !rst && s_axi_rvalid && !s_axi_rready;
        was_rdata    <= s_axi_rdata;
        was_written  <= !rst && writes;
        was_whole    <= strobe == 4'b1111;
        was_read     <= !rst && reads_now;
        was_register <= csr_rdata;
    end

    always_comb begin
        assume (started || rst);
        if (started) begin
            assert (!was_b || s_axi_bvalid && s_axi_bresp == was_bresp);
            assert (!was_r || s_axi_rvalid && s_axi_rdata == was_rdata);
            assert (s_axi_bvalid == (was_b || was_written));
            assert (s_axi_rvalid == (was_r || was_read));
            assert (!was_written || s_axi_bresp == (was_whole ? 2'b00 : 2'b10));
            assert (!was_read || s_axi_rdata == was_register);
            assert (s_axi_rresp == 2'b00);
            assert (csr_we == (writes && strobe == 4'b1111));
            assert (!csr_we || csr_address == {address[11:2], 2'b00} && csr_wdata == word);
            assert (!reads_now || csr_read_address == {read_address[11:2], 2'b00});
            // Nothing is answered that was not asked, and at most two are under way.
            assert (written - answers == 16'(s_axi_bvalid));
            assert (addresses - written == 16'(dut.address_held));
            assert (words - written == 16'(dut.data_held));
            assert (reads - read_answers == 16'(dut.read_held) + 16'(s_axi_rvalid));
            assert (!dut.address_held || dut.write_address == address[11:2]);
            assert (!dut.data_held || dut.write_data == word && dut.write_strobe == strobe);
            assert (!dut.read_held || dut.read_address == read_address[11:2]);
        end
    end
endmodule
