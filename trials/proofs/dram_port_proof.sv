// dram_port: a request is that of a client, once, and stays until the memory takes it; those of a client
// stay in order; never more than OUTSTANDING bursts are at the memory, and `reading` tells whether any
// is or waits; data reach the client that the memory names. It is fair: while a client waits, each of
// the others is served once at most. Whether a client is served tells it a flip-flop.
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

    // The specification: a request that a client has handed over waits until it is chosen; then it is
    // the one of the memory. `latest` is the last one of each client.
    typedef logic [15:0] number_t;
    logic [READ_CLIENTS-1:0]           waits;
    burst_t [READ_CLIENTS-1:0]         latest;
    number_t                           chosen, taken, answered;
    wire [READ_CLIENTS-1:0] hands  = client_valid & client_ready;
    wire [READ_CLIENTS-1:0] asks   = waits | hands;
    wire takes   = rd_req_valid && rd_req_ready;
    wire answers = rd_valid && rd_last;
    logic [READ_CLIENTS-1:0] chooses;  // what the block did in the cycle before
    always_comb
        for (int c = 0; c < READ_CLIENTS; c++)
            chooses[c] = dut.accept && 32'(dut.chosen) == c;
    always_ff @(posedge clk) begin
        waits    <= rst ? '0 : asks & ~chooses;
        chosen   <= rst ? '0 : chosen + number_t'(|chooses);
        taken    <= rst ? '0 : taken + number_t'(takes);
        answered <= rst ? '0 : answered + number_t'(answers);
        for (int c = 0; c < READ_CLIENTS; c++) if (hands[c]) latest[c] <= client_req[c];
    end
    wire number_t under_way = chosen - answered;
    wire number_t at_memory = taken - answered;

    logic was_chosen, was_pending;
    logic [CLIENT_BITS-1:0] was_client, client;
    burst_t                 was;
    always_comb begin
        client = '0;
        for (int c = 0; c < READ_CLIENTS; c++) if (chooses[c]) client = CLIENT_BITS'(c);
    end
    always_ff @(posedge clk) begin
        was_chosen  <= !rst && |chooses;
        was_pending <= !rst && rd_req_valid && !rd_req_ready;
        was_client  <= |chooses ? client : rd_req_client;
        was         <= !(|chooses) ? rd_req : waits[client] ? latest[client] : client_req[client];
    end

    // For each client that waits, how often others were served meanwhile.
    logic [READ_CLIENTS-1:0][2:0] passed;
    always_ff @(posedge clk) begin
        for (int c = 0; c < READ_CLIENTS; c++)
            passed[c] <= rst || !asks[c] || chooses[c] ? '0 : passed[c] + 3'(|chooses);
    end

    always_comb begin
        assume (started || rst);
        assume (!rd_valid || at_memory != '0);  // the memory answers what it has taken
        if (started) begin
            assert (client_ready == ~waits);
            assert ((chooses & ~asks) == '0);
            assert (under_way <= 16'(OUTSTANDING));
            assert (reading == (under_way != '0 || waits != '0));
            assert (rd_req_valid == (chosen != taken));
            assert (16'(dut.outstanding) == under_way);
            assert (chosen - taken <= 16'd1 && at_memory <= under_way);
            assert (rd_req_valid == (was_chosen || was_pending));
            assert (!rd_req_valid || rd_req_client == was_client && rd_req == was);
            // Nobody waits where the memory could have a request.
            assert (asks == '0 || |chooses || under_way == 16'(OUTSTANDING)
                    || rd_req_valid && !rd_req_ready);
            assert (32'(dut.first) < READ_CLIENTS);
            assert (client_data == rd_data);
            for (int c = 0; c < READ_CLIENTS; c++) begin
                assert (dut.held[c] == waits[c] && (!waits[c] || dut.waiting[c] == latest[c]));
                // Counting from `first`, nobody who asks is before the one that is chosen.
                assert (!dut.asks[c] || (c + READ_CLIENTS - 32'(dut.first)) % READ_CLIENTS
                        >= (32'(dut.chosen) + READ_CLIENTS - 32'(dut.first)) % READ_CLIENTS);
                // As many may go before a client as lie between `first` and it.
                assert (32'(passed[c]) + (c + READ_CLIENTS - 32'(dut.first)) % READ_CLIENTS
                        < READ_CLIENTS);
                assert (client_data_valid[c] == (rd_valid && rd_client == CLIENT_BITS'(c)));
            end
        end
    end
endmodule
