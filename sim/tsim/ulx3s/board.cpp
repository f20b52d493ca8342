// The virtual ULX3S: the system on chip at its pins, with its SDRAM chip and the bits of its UART.
//
// `board_run` transfers bytes of the host. Time advances while a byte is in transit or VTA works,
// and for SETTLE cycles after that; then it stands still until the host sends something. Faults are
// injected at the pins, at any cycle.
#include "sdram_chip.h"
#ifdef MAPPED
#include "mapped_soc.h"
#else
#include "Vsoc.h"
#include "verilated.h"
#endif

#include <cstdio>
#include <deque>
#include <exception>
#include <memory>
#include <sstream>

namespace {

constexpr long SETTLE = 250000;  // for the effects of a byte, or for the UART bridge to time out
constexpr int FRAME = 10;      // bits of a byte on the line

enum Fault { RESET, FLIP_TO_BOARD, FLIP_FROM_BOARD, STARVE_REFRESH, CUT_TO_BOARD, CUT_FROM_BOARD };

struct Board {
#ifndef MAPPED
    VerilatedContext context;
#endif
    std::unique_ptr<Vsoc> top;
    SdramChip chip;
    const int bit;  // cycles of a bit of the UART
    long cycle = 0, active = 0;
    std::deque<uint8_t> in, out;
    int sending = 0, receiving = 0;  // bits left of the byte on each line
    long send_at = 0, receive_at = 0;
    unsigned send_bits = 0, received_bits = 0;
    struct { int kind = -1; long at = 0, until = 0; } fault;

    Board(double period_ns, int cas_latency, int cycles_per_bit, [[maybe_unused]] const char *cells)
        : chip(period_ns, cas_latency), bit(cycles_per_bit) {
#ifdef MAPPED
        std::istringstream text(cells);
        top = std::make_unique<Vsoc>(text);
#else
        top = std::make_unique<Vsoc>(&context);
#endif
        top->serial_rx = 1;
        top->sdram_dq = 0;
    }

    bool disturbed(Fault kind) const {
        return fault.kind == kind && cycle >= fault.at && cycle < fault.until;
    }

    void to_board() {
        if (!sending && !in.empty()) {
            send_bits = 1u << (FRAME - 1) | in.front() << 1;
            in.pop_front();
            sending = FRAME;
            send_at = cycle;
        }
        bool level = true;
        if (sending) {
            level = send_bits & 1;
            active = cycle;
            if (cycle == send_at + bit - 1) {
                send_bits >>= 1;
                send_at += bit;
                sending--;
            }
        }
        top->serial_rx = (level ^ disturbed(FLIP_TO_BOARD)) | disturbed(CUT_TO_BOARD);
    }

    void from_board() {
        const bool level =
            (top->serial_tx ^ disturbed(FLIP_FROM_BOARD)) | disturbed(CUT_FROM_BOARD);
        if (!receiving && !level && cycle > 16) {
            receiving = FRAME;
            receive_at = cycle + bit / 2;
            received_bits = 0;
        }
        if (!receiving) return;
        active = cycle;
        if (cycle != receive_at) return;
        received_bits |= (unsigned)level << (FRAME - receiving);
        receive_at += bit;
        if (--receiving == 0 && (received_bits >> (FRAME - 1) & 1)) {  // else no stop bit: noise
            out.push_back(received_bits >> 1);
        }
    }

    void step() {
        top->reset = cycle < 8 || disturbed(RESET);
        chip.starved = disturbed(STARVE_REFRESH);
        to_board();
        top->clock = 1;
        top->eval();
        top->sdram_dq = chip.edge({
            !!top->sdram_cke, !!top->sdram_cs_n, !!top->sdram_ras_n, !!top->sdram_cas_n,
            !!top->sdram_we_n, top->sdram_ba, top->sdram_a, top->sdram_dq__out, top->sdram_dm,
            top->sdram_dq__en != 0});
        top->clock = 0;
        top->eval();
        from_board();
        if (!top->quiet) active = cycle;
        cycle++;
    }
};

}  // namespace

extern "C" {

// `cells`: the netlist of a mapped system. Returns null, and why in `refusal`, if one has no model.
Board *board_new(double period_ns, int cas_latency, int cycles_per_bit, const char *cells,
                 char *refusal, int room) {
    try {
        return new Board(period_ns, cas_latency, cycles_per_bit, cells);
    } catch (const std::exception &error) {
        snprintf(refusal, room, "%s", error.what());
        return nullptr;
    }
}

void board_free(Board *board) { delete board; }

// Sends the host's bytes and runs at most `cycles` cycles. Returns the number of bytes from the board
// in `out`; negative if there is nothing left to do and no byte.
int board_run(Board *board, const uint8_t *in, int count, uint8_t *out, int room, long cycles) {
    board->in.insert(board->in.end(), in, in + count);
    if (count) board->active = board->cycle;
    const long end = board->cycle + cycles;
    bool idle = false;
    while (board->cycle < end && !idle && board->chip.violation.empty()) {
        board->step();
        idle = board->cycle - board->active > SETTLE;
    }
    int ready = 0;
    for (; ready < room && !board->out.empty(); board->out.pop_front()) {
        out[ready++] = board->out.front();
    }
    return ready || !idle ? ready : -1;
}

// Number of bytes from the host that have not been sent yet.
int board_waiting(const Board *board) { return (int)board->in.size(); }

long board_cycles(const Board *board) { return board->cycle; }

// The SDRAM rule that was violated; empty if none was. After a violation the board stands still.
const char *board_violation(const Board *board) { return board->chip.violation.c_str(); }

// Disturbs a pin for `cycles` cycles, from `after` cycles from now; one fault at a time.
void board_disturb(Board *board, int kind, long after, long cycles) {
    board->fault.kind = kind;
    board->fault.at = board->cycle + after;
    board->fault.until = board->fault.at + cycles;
}

void board_counts(const Board *board, long counts[4]) {
    const SdramChip &chip = board->chip;
    const long found[] = {chip.reads, chip.writes, chip.activates, chip.refreshes};
    for (int i = 0; i < 4; i++) counts[i] = found[i];
}

}  // extern "C"
