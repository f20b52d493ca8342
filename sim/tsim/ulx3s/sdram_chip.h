// An SDR SDRAM at its pins: 4 banks of 8192 rows of 512 words of 16 bits (MT48LC16M16 and the like).
//
// Stores data, and checks every rule of the data sheet that a controller can violate: the times
// between commands, timely refresh, no access to a closed row, no other driver on the data bus. The
// first violation is kept as text; data read afterwards are meaningless.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

struct SdramPins {
    bool cke, cs_n, ras_n, cas_n, we_n;
    unsigned bank, address, data, masked_bytes;
    bool driven;  // by the controller
};

class SdramChip {
public:
    SdramChip(double period_ns, int cas_latency)
        : period_(period_ns), latency_(cas_latency), cells_(4u << 22, 0xDEAD) {}

    bool starved = false;  // an injected fault: refresh commands are lost
    std::string violation;
    long reads = 0, writes = 0, activates = 0, refreshes = 0;

    // Executes a rising edge of the chip's clock; returns the data bus at the controller's next one.
    uint16_t edge(const SdramPins &pins) {
        if (pins.cke && !pins.cs_n) {
            execute(pins.ras_n << 2 | pins.cas_n << 1 | pins.we_n, pins);
        }
        if (pins.driven && out_[now_ & 7].valid) breach("two drivers of the data bus", 0);
        out_[now_ & 7].valid = false;
        now_++;
        const Word &word = out_[now_ & 7];
        return word.valid ? word.data : 0xDEAD;
    }

private:
    // In nanoseconds, for the slowest of the chips used on the board.
    static constexpr double RP = 20, RCD = 20, RC = 66, RAS = 44, RRD = 15, WR = 15, RFC = 66;
    static constexpr double MOST_REFRESH = 9 * 64e6 / 8192;  // eight may be postponed
    static constexpr int CLOSED = -1, LONG_AGO = -100000;

    struct Word {
        uint16_t data = 0;
        bool valid = false;
    };
    struct Bank {
        int row = CLOSED;
        int64_t activated = LONG_AGO, precharged = LONG_AGO, written = LONG_AGO;
    };

    double period_;
    int latency_;
    std::vector<uint16_t> cells_;
    std::array<Word, 8> out_;
    std::array<Bank, 4> banks_;
    int64_t now_ = 0, refreshed_ = LONG_AGO, activated_ = LONG_AGO;
    int mode_ = -1;
    bool refreshing_ = false, forgetful_ = false;  // since the mode was set

    double nanoseconds(int64_t since) const { return (now_ - since) * period_; }

    void breach(const char *rule, unsigned bank) {
        if (violation.empty()) {
            violation = std::string("SDRAM: ") + rule + ", bank " + std::to_string(bank) +
                        ", cycle " + std::to_string(now_);
        }
    }

    void at_least(int64_t since, double ns, const char *rule, unsigned bank) {
        if (nanoseconds(since) + 0.01 < ns) breach(rule, bank);
    }

    void close(unsigned number) {
        Bank &bank = banks_[number];
        if (bank.row == CLOSED) return;
        at_least(bank.activated, RAS, "tRAS", number);
        at_least(bank.written, WR, "tWR", number);
        bank.row = CLOSED;
        bank.precharged = now_;
    }

    bool late() const { return refreshing_ && nanoseconds(refreshed_) > MOST_REFRESH; }

    void access(const SdramPins &pins, bool write) {
        Bank &bank = banks_[pins.bank];
        if (mode_ < 0) return breach("access before its mode is set", pins.bank);
        if (bank.row == CLOSED) return breach("access to a closed bank", pins.bank);
        if (forgetful_ || late()) return breach("access after a refresh too late", pins.bank);
        at_least(bank.activated, RCD, "tRCD", pins.bank);
        uint16_t &cell = cells_[pins.bank << 22 | bank.row << 9 | (pins.address & 511)];
        if (write) {
            if (!pins.driven) breach("write without data", pins.bank);
            const uint16_t kept = (pins.masked_bytes & 1 ? 0xFF : 0) |
                                  (pins.masked_bytes & 2 ? 0xFF00 : 0);
            cell = (cell & kept) | (pins.data & ~kept);
            bank.written = now_;
            writes++;
        } else {
            out_[(now_ + latency_) & 7] = {cell, true};
            reads++;
        }
        if (!(pins.address >> 10 & 1)) return;
        // The chip closes the row by itself as soon as it may.
        const int64_t busy = write ? (int64_t)std::ceil(WR / period_) : 1;
        const int64_t allowed = bank.activated + (int64_t)std::ceil(RAS / period_);
        bank.precharged = std::max(now_ + busy, allowed);
        bank.row = CLOSED;
    }

    void activate(const SdramPins &pins) {
        Bank &bank = banks_[pins.bank];
        if (bank.row != CLOSED) breach("ACTIVATE of an open bank", pins.bank);
        at_least(bank.precharged, RP, "tRP", pins.bank);
        at_least(bank.activated, RC, "tRC", pins.bank);
        at_least(activated_, RRD, "tRRD", pins.bank);
        at_least(refreshed_, RFC, "tRFC", pins.bank);
        bank.row = pins.address;
        bank.activated = activated_ = now_;
        activates++;
    }

    void refresh() {
        for (unsigned number = 0; number < 4; number++) {
            if (banks_[number].row != CLOSED) breach("REFRESH of an open bank", number);
            at_least(banks_[number].precharged, RP, "tRP before REFRESH", number);
        }
        at_least(refreshed_, RFC, "tRFC", 0);
        forgetful_ |= late();
        refreshing_ = mode_ >= 0;
        refreshed_ = now_;
        refreshes++;
    }

    void set_mode(unsigned mode) {
        if ((mode >> 4 & 7) != (unsigned)latency_) breach("mode of another CAS latency", 0);
        if (mode & 7) breach("mode with bursts", 0);
        mode_ = mode;
        refreshing_ = forgetful_ = false;
    }

    void execute(int command, const SdramPins &pins) {
        switch (command) {
        case 0: return set_mode(pins.address);
        case 1: return starved ? void() : refresh();
        case 2:
            for (unsigned n = 0; n < 4; n++) {
                if (n == pins.bank || pins.address >> 10 & 1) close(n);
            }
            return;
        case 3: return activate(pins);
        case 4: return access(pins, true);
        case 5: return access(pins, false);
        default: return;  // NOP, burst terminate
        }
    }
};
