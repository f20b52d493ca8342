// DRAM port: combines the read clients (fetch, load, compute; weights, unless they have a separate
// port) on one read channel. (Only the store unit writes, so it has the write channels to itself.)
// Reads carry the number of their client, which
// the memory returns with the data, so bursts of all clients can be outstanding at the same time.
//
// Ports:   client_*: one request channel per client; the clients share the data channel.
//          A client requests only data that its buffer has room for: data cannot be refused. A
//          request that is not selected at once waits here, so client_ready is a flip-flop.
//          rd_req_*, rd_*: the memory's read channels. Data of a client return in order.
// Timing:  round robin between clients, one burst request per cycle; requests are registered,
//          data pass through combinationally.
module dram_port
    import vta_pkg::*, stream_pkg::*;
#(
    parameter int CLIENTS = READ_CLIENTS
) (
    input  logic                               clk,
    input  logic                               rst,
    // read clients
    input  logic [CLIENTS-1:0]            client_valid,
    output logic [CLIENTS-1:0]            client_ready,
    input  burst_t [CLIENTS-1:0]          client_req,
    output logic [CLIENTS-1:0]            client_data_valid,
    output logic [PORT_BITS-1:0]               client_data,
    // memory
    output logic                               rd_req_valid,
    input  logic                               rd_req_ready,
    output burst_t                             rd_req,
    output logic [CLIENT_BITS-1:0]             rd_req_client,
    input  logic                               rd_valid,
    input  logic [CLIENT_BITS-1:0]             rd_client,
    input  logic                               rd_last,
    input  logic [PORT_BITS-1:0]               rd_data,
    output logic                               reading
);
    localparam int OUTSTANDING_BITS = $clog2(OUTSTANDING + 1);

    logic [CLIENT_BITS-1:0]      first;        // client with the highest priority
    logic [CLIENT_BITS-1:0]      chosen;
    logic [OUTSTANDING_BITS-1:0] outstanding;  // bursts accepted here and not yet returned
    logic [CLIENTS-1:0]     held;         // `waiting` holds a request of this client
    burst_t [CLIENTS-1:0]   waiting;
    burst_t [CLIENTS-1:0]   offered;      // of each client, known before it is chosen
    wire [CLIENTS-1:0]      asks = held | client_valid;
    wire                    any  = asks != '0;

    // The first client with a request, counting from `first`: none behind it is the lowest of all.
    always_comb begin
        chosen = first;
        for (int c = CLIENTS - 1; c >= 0; c--) if (asks[c]) chosen = CLIENT_BITS'(c);
        for (int c = CLIENTS - 1; c >= 0; c--)
            if (asks[c] && CLIENT_BITS'(c) >= first) chosen = CLIENT_BITS'(c);
    end

    wire room   = outstanding != OUTSTANDING_BITS'(OUTSTANDING);
    wire accept = any && room && (!rd_req_valid || rd_req_ready);
    wire retire = rd_valid && rd_last;

    assign client_data  = rd_data;
    assign client_ready = ~held;
    assign reading      = outstanding != '0 || held != '0;
    for (genvar c = 0; c < CLIENTS; c++) begin : g_client
        wire granted = accept && chosen == CLIENT_BITS'(c);
        assign offered[c] = held[c] ? waiting[c] : client_req[c];
        always_ff @(posedge clk) begin
            held[c] <= !rst && asks[c] && !granted;
            if (!held[c]) waiting[c] <= client_req[c];
        end
        assign client_data_valid[c] = rd_valid && rd_client == CLIENT_BITS'(c);
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            first        <= '0;
            outstanding  <= '0;
            rd_req_valid <= 1'b0;
        end else begin
            if (accept != retire)
                outstanding <= accept ? outstanding + 1'b1 : outstanding - 1'b1;
            if (accept) begin
                first <= chosen == CLIENT_BITS'(CLIENTS - 1) ? '0 : chosen + 1'b1;
                rd_req_valid <= 1'b1;
            end else if (rd_req_ready) rd_req_valid <= 1'b0;
        end
        if (accept) begin
            rd_req        <= offered[chosen];
            rd_req_client <= chosen;
        end
    end
endmodule
