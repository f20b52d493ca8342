// dram_port: a request is that of a client, once, and stays until the memory takes it; never more
// than OUTSTANDING bursts are under way, and `reading` tells whether any is; data reach the client
// that the memory names. It is fair: while a client waits, each of the others is served once at most.
module dram_port_proof
    import vta_pkg::*, stream_pkg::*;
(
    input logic                               clk,
    input logic                               rst,
    input logic [READ_CLIENTS-1:0]            client_valid,
    input burst_t [READ_CLIENTS-1:0]          client_req,
    input logic                               rd_req_ready,
    input logic                               rd_valid,
    input logic [CLIENT_BITS-1:0]             rd_client,
    input logic                               rd_last,
    input logic [PORT_BITS-1:0]               rd_data
);
    logic [READ_CLIENTS-1:0] client_ready, client_data_valid;
    logic [PORT_BITS-1:0]    client_data;
    logic                    rd_req_valid, reading;
    burst_t                  rd_req;
    logic [CLIENT_BITS-1:0]  rd_req_client;
    dram_port dut (.*);

    logic started = 1'b0;
    always_ff @(posedge clk) started <= 1'b1;

    // Requests that clients handed over, that the memory took, and that it answered completely.
    logic [15:0] handed, taken, answered;
    wire [READ_CLIENTS-1:0] hands = client_valid & client_ready;
    wire one_hands = |hands;
    wire takes     = rd_req_valid && rd_req_ready;
    wire answers   = rd_valid && rd_last;
    always_ff @(posedge clk) begin
        handed   <= rst ? '0 : handed + 16'(one_hands);
        taken    <= rst ? '0 : taken + 16'(takes);
        answered <= rst ? '0 : answered + 16'(answers);
    end
    wire [15:0] under_way = handed - answered;
    wire [15:0] at_memory = taken - answered;

    logic was_handed, was_pending;
    logic [CLIENT_BITS-1:0] was_client, client;
    burst_t                 was;
    always_comb begin
        client = '0;
        for (int c = 0; c < READ_CLIENTS; c++) if (hands[c]) client = CLIENT_BITS'(c);
    end
    always_ff @(posedge clk) begin
        was_handed  <= !rst && one_hands;
        was_pending <= !rst && rd_req_valid && !rd_req_ready;
        was_client  <= one_hands ? client : rd_req_client;
        was         <= one_hands ? client_req[client] : rd_req;
    end

    // For each client that waits, how often others were served meanwhile.
    logic [READ_CLIENTS-1:0][2:0] passed;
    always_ff @(posedge clk) begin
        for (int c = 0; c < READ_CLIENTS; c++)
            passed[c] <= rst || !client_valid[c] || hands[c] ? '0 : passed[c] + 3'(one_hands);
    end

    always_comb begin
        assume (started || rst);
        assume (!rd_valid || at_memory != '0);  // the memory answers what it has taken
        if (started) begin
            assert ((hands & (hands - 1'b1)) == '0);
            assert ((client_ready & ~client_valid) == '0);
            assert (under_way <= 16'(OUTSTANDING));
            assert (reading == (under_way != '0));
            assert (rd_req_valid == (handed != taken));
            assert (16'(dut.outstanding) == under_way);
            assert (handed - taken <= 16'd1 && at_memory <= under_way);
            assert (rd_req_valid == (was_handed || was_pending));
            assert (!rd_req_valid || rd_req_client == was_client && rd_req == was);
            assert (32'(dut.first) < READ_CLIENTS);
            assert (client_data == rd_data);
            // As many may go before a client as lie between `first` and it.
            for (int c = 0; c < READ_CLIENTS; c++)
                assert (32'(passed[c]) + (c + READ_CLIENTS - 32'(dut.first)) % READ_CLIENTS
                        < READ_CLIENTS);
            for (int c = 0; c < READ_CLIENTS; c++)
                assert (client_data_valid[c] == (rd_valid && rd_client == CLIENT_BITS'(c)));
        end
    end
endmodule
