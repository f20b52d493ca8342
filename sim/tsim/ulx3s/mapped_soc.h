// The cells to which Yosys maps the system, with the pins of its Verilator model.
#pragma once

#include "netlist.h"

#include <istream>
#include <utility>
#include <vector>

struct Vsoc {
    uint16_t clock = 0, reset = 0, serial_rx = 1, serial_tx = 1, quiet = 0;
    uint16_t sdram_cke = 0, sdram_cs_n = 1, sdram_ras_n = 1, sdram_cas_n = 1, sdram_we_n = 1;
    uint16_t sdram_ba = 0, sdram_a = 0, sdram_dm = 0;
    uint16_t sdram_dq = 0, sdram_dq__out = 0, sdram_dq__en = 0;

    explicit Vsoc(std::istream &text) : cells_(text) {}
    Vsoc(const Vsoc &) = delete;

    void eval() {
        for (const auto &[bus, pins] : inputs_) cells_.write(bus, *pins);
        cells_.settle();
        if (clock && !before_) {
            cells_.edge();
            cells_.settle();
        }
        before_ = clock;
        for (const auto &[bus, pins] : outputs_) *pins = (uint16_t)cells_.read(bus);
    }

private:
    using Pins = std::pair<ecp5::Bus, uint16_t *>;

    Pins pins(const char *name, uint16_t &at) const { return {cells_.port(name), &at}; }

    ecp5::Netlist cells_;
    bool before_ = false;  // previous level of the clock
    const std::vector<Pins> inputs_{
        pins("reset", reset), pins("serial_rx", serial_rx), pins("sdram_dq", sdram_dq)};
    const std::vector<Pins> outputs_{
        pins("serial_tx", serial_tx), pins("quiet", quiet), pins("sdram_cke", sdram_cke),
        pins("sdram_cs_n", sdram_cs_n), pins("sdram_ras_n", sdram_ras_n),
        pins("sdram_cas_n", sdram_cas_n), pins("sdram_we_n", sdram_we_n),
        pins("sdram_ba", sdram_ba), pins("sdram_a", sdram_a), pins("sdram_dm", sdram_dm),
        {cells_.driven(), &sdram_dq__out}, {cells_.driving(), &sdram_dq__en}};
};
