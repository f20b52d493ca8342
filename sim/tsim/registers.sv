// Control and status registers: the map of upstream's VCR, extended by status and counters.
//
//   0x00  control: write bit 0 to launch; ignored while it reads 1, which is from a launch to its
//         FINISH, or a reset; bit 1: FINISH has executed; bit 2: nothing is active
//         (with bit 1 low: the units wait for tokens that will never be sent);
//         bit 4: there are no performance counters
//   0x04  cycles in which bit 0 of 0x00 is high, over all launches since reset, like the performance
//         counters (low half)                          0x08  number of instructions
//   0x0c  address of the instructions                  0x10, 0x14, 0x18, 0x1c, 0x20  origin of the
//         DRAM addresses of UOP, INP, WGT, ACC, OUT    0x24  writes of accumulator elements
//   0x28  faults since reset, one bit per cause        0x2c  tokens that a unit waits for:
//         bit 0 load for compute, 1 compute for load, 2 compute for store, 3 store for compute;
//         queues that hold tokens: bit 4 load to compute, 5 compute to load, 6 compute to store,
//         7 store to compute
//   0x30  cycles (high half)
//   0x80 + 8 i  performance counter i, low half; + 4 high half; 0 where there are none (HAS_COUNTERS)
// Addresses and origins are in bytes; origins are multiples of 64.
// The AXI shell adds to 0x00: write bit 1 to stop; bit 3: not yet stopped (axi/axi_shell.sv).
//
// Ports:   csr_*: register access; events: increment of each counter in this cycle.
// Timing:  a write takes effect at the next clock edge; csr_rdata follows csr_read_address
//          combinationally; events are counted one cycle late.
module registers
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  csr_we,
    input  logic [11:0]           csr_address,
    input  logic [11:0]           csr_read_address,
    input  logic [31:0]           csr_wdata,
    output logic [31:0]           csr_rdata,
    output logic                  launch,
    output logic [27:0]           insn_count,
    output logic [ADDR_BITS-1:0]  insn_address,
    output origins_t              origins,
    output logic                  finished,
    output logic                  fault,
    input  logic                  finish,
    input  logic                  quiet,
    input  faults_t               faults,
    input  waits_t                waits,
    input  tokens_t               tokens,
    input  logic                  acc_written,
    input  events_t               events
);
    logic        running;
    logic [31:0] count, address, acc_writes;
    logic [31:0] origin [5];
    logic [63:0] cycles;
    faults_t faults_seen;

    // A second launch would mix the instructions of two programs.
    wire launches       = csr_we && csr_address == 12'h000 && csr_wdata[0] && !running && !launch;
    always_ff @(posedge clk) launch <= launches && !rst;
    assign insn_count   = count[27:0];
    assign insn_address = ADDR_BITS'(address);
    assign origins      = '{uop: ADDR_BITS'(origin[0]), inp: ADDR_BITS'(origin[1]),
                            wgt: ADDR_BITS'(origin[2]), acc: ADDR_BITS'(origin[3]),
                            out: ADDR_BITS'(origin[4])};

    always_ff @(posedge clk) begin
        if (rst) begin
            running     <= 1'b0;
            finished    <= 1'b0;
            faults_seen <= '0;
            fault       <= 1'b0;
            cycles      <= '0;
            acc_writes  <= '0;
            for (int m = 0; m < 5; m++) origin[m] <= '0;
        end else begin
            if (launch) running <= 1'b1;
            else if (finish) running <= 1'b0;
            if (launches) finished <= 1'b0;
            else if (finish) finished <= 1'b1;
            faults_seen <= faults_seen | faults;
            fault       <= (faults_seen | faults) != '0;
            if (running) cycles <= cycles + 1'b1;
            if (acc_written) acc_writes <= acc_writes + 1'b1;
            if (csr_we) begin
                if (csr_address == 12'h008) count <= csr_wdata;
                if (csr_address == 12'h00c) address <= csr_wdata;
                for (int m = 0; m < 5; m++)
                    if (csr_address == 12'h010 + 12'(4 * m)) origin[m] <= csr_wdata;
            end
        end
    end

    // Performance counters.
    logic [31:0] counted;  // the counter half selected by csr_read_address
    if (HAS_COUNTERS != 0) begin : g_counters
        // Events arrive late in a cycle, so they are registered and counted in the next one.
        logic                                counting;
        logic [COUNTERS-1:0][EVENT_BITS-1:0] steps;  // the events, by index
        logic [63:0]                         counters [COUNTERS];
        always_ff @(posedge clk) begin
            counting <= !rst && (running || !quiet && !launch);
            steps    <= events;
            for (int i = 0; i < COUNTERS; i++)
                if (rst) counters[i] <= '0;
                else if (counting) counters[i] <= counters[i] + 64'(steps[i]);
        end

        wire [11:0] offset = csr_read_address - 12'h080;
        localparam int COUNTER_BITS = $clog2(COUNTERS);
        wire is_counter = csr_read_address >= 12'h080 && 32'(offset[11:3]) < COUNTERS;
        wire [COUNTER_BITS-1:0] index = offset[3 +: COUNTER_BITS];
        assign counted = !is_counter ? '0
                       : offset[2] ? counters[index][63:32] : counters[index][31:0];
        wire unused_offset = &offset[1:0];
    end else begin : g_no_counters
        assign counted = '0;
        wire unused_events = ^events;
    end

    always_comb begin
        csr_rdata = '0;
        case (csr_read_address)
            12'h000: csr_rdata = {27'b0, HAS_COUNTERS == 0, 1'b0, quiet, finished, running || launch};
            12'h004: csr_rdata = cycles[31:0];
            12'h008: csr_rdata = count;
            12'h00c: csr_rdata = address;
            12'h010: csr_rdata = origin[0];
            12'h014: csr_rdata = origin[1];
            12'h018: csr_rdata = origin[2];
            12'h01c: csr_rdata = origin[3];
            12'h020: csr_rdata = origin[4];
            12'h024: csr_rdata = acc_writes;
            12'h028: csr_rdata = 32'(faults_seen);
            12'h02c: csr_rdata = {24'b0, tokens, waits};
            12'h030: csr_rdata = cycles[63:32];
            default: csr_rdata = counted;
        endcase
    end
    wire unused_count = &count[31:28];
endmodule
