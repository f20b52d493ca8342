// Simulation of a netlist of ECP5 cells: replaces Verilator's model of the system when the virtual
// board runs on the cells to which Yosys maps it.
//
// The text has one port or cell per line (vtaops/board/netlist.py writes it). Logic becomes tables
// of four inputs: look-up tables, multiplexers, carry chains, and the reads of small memories, whose
// writes change the tables. Only elements with a changed input are evaluated: tables in topological
// order and then, at the clock's edge, flip-flops and memories.
//
// Cells follow Yosys's models (share/ecp5) and, where it has none, Lattice's FPGA-TN-02204 (block
// RAMs) and TN-02205 (multipliers). A cell used in another way is refused. Memories start with ones
// if the netlist leaves their contents open, so that nothing relies on zeros.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ecp5 {

using Net = uint32_t;
using Bus = std::vector<Net>;

constexpr Net ZERO = 0, ONE = 1;       // constants; Yosys counts its nets from 2
constexpr uint16_t CHOICE = 0xCACA;    // selects input 0 or 1 by input 2
constexpr uint16_t EITHER = 0x6666;    // input 0 or input 1, not both
constexpr int BYTE_BITS = 9, BLOCK_BYTES = 2048, FACTOR_BITS = 18;

// A line of the text: a type, and values of parameters and pins by name.
class Cell {
public:
    Cell(std::string type, std::istream &rest) : type_(std::move(type)) {
        for (std::string fact; rest >> fact;) {
            const size_t at = fact.find('=');
            facts_[fact.substr(0, at)] = fact.substr(at + 1);
        }
    }

    const std::string &type() const { return type_; }

    bool has(const std::string &name) const { return facts_.count(name) != 0; }

    std::string value(const std::string &name, const std::string &otherwise) const {
        return has(name) ? facts_.at(name) : otherwise;
    }

    void must(const std::string &name, const std::string &only) const {
        if (value(name, only) != only) {
            throw std::runtime_error(
                "a " + type_ + " whose " + name + " is " + facts_.at(name) + ", not " + only);
        }
    }

    // A pin that is not connected reads 0.
    Net pin(const std::string &name) const { return (Net)std::stoul(value(name, "0")); }

    Bus bus(const std::string &name, int width) const {
        Bus nets;
        for (int i = 0; i < width; i++) nets.push_back(pin(name + std::to_string(i)));
        return nets;
    }

    unsigned long binary(const std::string &name) const {
        return std::stoul(value(name, "0"), nullptr, 2);
    }

    // Whether a parameter in pieces, NAME_00 and so on, has a 1 anywhere.
    bool ones(const std::string &prefix) const {
        for (auto at = facts_.lower_bound(prefix); at != facts_.end(); ++at) {
            if (at->first.compare(0, prefix.size(), prefix) != 0) break;
            if (at->second.find('1') != std::string::npos) return true;
        }
        return false;
    }

private:
    std::string type_;
    std::map<std::string, std::string> facts_;
};

class Netlist {
public:
    // Throws std::runtime_error, naming the cell, if a cell has no model.
    explicit Netlist(std::istream &text) {
        std::vector<Cell> cells;
        for (std::string line, name; std::getline(text, line);) {
            std::istringstream rest(line);
            rest >> name;
            if (name == "nets") {
                rest >> nets_;
            } else if (name == "port") {
                rest >> name;
                for (Net net; rest >> net;) ports_[name].push_back(net);
            } else {
                cells.emplace_back(name, rest);
            }
        }
        for (const Cell &cell : cells) add(cell);
        order();
        levels_[ONE] = 1;
        for (const auto &[net, level] : initial_) levels_[net] = level;
        settle();
    }

    const Bus &port(const std::string &name) const { return ports_.at(name); }

    // Nets that drive a bidirectional port, and those that enable it.
    const Bus &driven() const { return driven_; }
    const Bus &driving() const { return driving_; }

    void write(const Bus &bus, uint64_t data) {
        for (size_t i = 0; i < bus.size(); i++) set(bus[i], data >> i & 1);
    }

    uint64_t read(const Bus &bus) const {
        uint64_t data = 0;
        for (size_t i = 0; i < bus.size(); i++) data |= (uint64_t)levels_[bus[i]] << i;
        return data;
    }

    // Updates the tables from their inputs.
    void settle() {
        for (size_t word = 0; word < edge_ / 64; word++) {
            while (dirty_[word]) {
                const size_t id = 64 * word + __builtin_ctzll(dirty_[word]);
                dirty_[word] &= dirty_[word] - 1;
                evaluate(gates_[id]);
            }
        }
    }

    // Executes the rising edge of the clock; the tables must be up to date.
    void edge() {
        for (size_t word = edge_ / 64; word < dirty_.size(); word++) {
            for (uint64_t bits = std::exchange(dirty_[word], 0); bits; bits &= bits - 1) {
                clocked_[64 * word + __builtin_ctzll(bits) - edge_]();
            }
        }
        for (const auto &[net, level] : changes_) set(net, level);
        changes_.clear();
    }

private:
    struct Gate {
        Net in[4], out;
        uint16_t table;
        int product = -1;  // a multiplier instead
    };
    struct Product {
        Bus factors[2], out;
        Net is_signed[2];
    };
    struct Block {  // a block RAM
        int width[2];
        Net enable[2], write[2];
        Bus address[2], in[2], out[2];
        std::vector<uint16_t> bytes = std::vector<uint16_t>(BLOCK_BYTES, 0);
    };

    // ------------------------------------------------------------------------- simulation

    void mark(size_t id) { dirty_[id / 64] |= 1ull << id % 64; }

    void set(Net net, uint8_t level) {
        if (levels_[net] == level) return;
        levels_[net] = level;
        for (const uint32_t id : loads_[net]) mark(id);
    }

    // Sets a net after all clocked elements have read the levels before the edge.
    void change(Net net, uint8_t level) {
        if (levels_[net] != level) changes_.emplace_back(net, level);
    }

    void evaluate(const Gate &gate) {
        if (gate.product >= 0) return multiply(products_[gate.product]);
        const int index = levels_[gate.in[0]] | levels_[gate.in[1]] << 1 |
                          levels_[gate.in[2]] << 2 | levels_[gate.in[3]] << 3;
        set(gate.out, gate.table >> index & 1);
    }

    void multiply(const Product &product) {
        int64_t factors[2];
        for (int i = 0; i < 2; i++) {
            factors[i] = (int64_t)read(product.factors[i]);
            if (levels_[product.is_signed[i]] && factors[i] >> (FACTOR_BITS - 1)) {
                factors[i] -= 1 << FACTOR_BITS;
            }
        }
        const int64_t result = factors[0] * factors[1];
        write(product.out, (uint64_t)result);
    }

    // Returns whether it wrote.
    bool access(Block &block) {
        const bool wide = block.width[0] == 36;  // port A writes with the pins of both ports, and B reads
        int at[2];
        for (int p = 0; p < 2; p++) {
            const int address = (int)read(block.address[p]);
            at[p] = block.width[p] == 9    ? address >> 3
                    : block.width[p] == 18 ? address >> 4 << 1
                                           : address >> 5 << 2;
        }
        for (int p = 0; p < 2; p++) {
            if (!levels_[block.enable[p]] || (wide && p == 0)) continue;
            for (int byte = 0; byte < (wide ? 4 : 2); byte++) {
                const Bus &out = block.out[wide ? byte / 2 : p];
                for (int i = 0; i < BYTE_BITS; i++) {
                    change(out[byte % 2 * BYTE_BITS + i], block.bytes[at[p] | byte] >> i & 1);
                }
            }
        }
        bool wrote = false;
        for (int p = 0; p < (wide ? 1 : 2); p++) {
            if (!levels_[block.enable[p]] || !levels_[block.write[p]]) continue;
            for (int byte = 0; byte < block.width[p] / BYTE_BITS; byte++) {
                if (block.width[p] > BYTE_BITS && !levels_[block.address[p][byte]]) continue;
                const uint64_t data = read(block.in[wide ? byte / 2 : p]);
                block.bytes[at[p] | byte] = data >> byte % 2 * BYTE_BITS & 0x1FF;
                wrote = true;
            }
        }
        return wrote;
    }

    // ------------------------------------------------------------------------ construction

    void add(const Cell &cell) {
        const std::string &type = cell.type();
        if (type == "LUT4") {
            const Bus in{cell.pin("A"), cell.pin("B"), cell.pin("C"), cell.pin("D")};
            table(cell.binary("INIT"), in, output(cell, "Z"));
        } else if (type == "PFUMX") {
            table(CHOICE, {cell.pin("BLUT"), cell.pin("ALUT"), cell.pin("C0")}, output(cell, "Z"));
        } else if (type == "L6MUX21") {
            table(CHOICE, {cell.pin("D0"), cell.pin("D1"), cell.pin("SD")}, output(cell, "Z"));
        } else if (type == "CCU2C") {
            add_carry(cell);
        } else if (type == "$_TBUF_") {
            add_buffer(cell);
        } else if (type == "MULT18X18D") {
            add_product(cell);
        } else if (type == "TRELLIS_FF") {
            add_flip_flop(cell);
        } else if (type == "TRELLIS_DPR16X4") {
            add_memory(cell);
        } else if (type == "DP16KD") {
            add_block(cell);
        } else {
            throw std::runtime_error("a " + type);
        }
    }

    Net output(const Cell &cell, const std::string &name) {
        return cell.has(name) ? cell.pin(name) : nets_++;
    }

    Bus outputs(const Cell &cell, const std::string &name, int width) {
        Bus nets;
        for (int i = 0; i < width; i++) nets.push_back(output(cell, name + std::to_string(i)));
        return nets;
    }

    size_t table(unsigned long bits, Bus in, Net out) {
        in.resize(4, ZERO);
        gates_.push_back({{in[0], in[1], in[2], in[3]}, out, (uint16_t)bits});
        return gates_.size() - 1;
    }

    void clocked(Bus senses, std::function<void()> act) {
        senses_.push_back(std::move(senses));
        clocked_.push_back(std::move(act));
    }

    // The system has one clock.
    void check_clock(const Cell &cell, const std::string &pin) {
        const Bus &clock = ports_.at("clock");
        cell.must(pin, std::to_string(clock[0]));
        cell.must(pin + "MUX", pin);
    }

    // Two bits of a sum: S = t ^ carry; the next carry is carry or, if t is 0, a bit of A or B.
    void add_carry(const Cell &cell) {
        Net carry = cell.pin("CIN");
        for (const std::string half : {"0", "1"}) {
            const Net sum = nets_++, own = nets_++;
            const Net next = half == "1" ? output(cell, "COUT") : nets_++;
            const Bus in{cell.pin("A" + half), cell.pin("B" + half), cell.pin("C" + half),
                         cell.pin("D" + half)};
            const unsigned long init = cell.binary("INIT" + half);
            const bool injects = cell.value("INJECT1_" + half, "YES") == "YES";
            table(init, in, sum);
            table(injects ? 0 : (init & 15) * 0x1111, {in[0], in[1]}, own);
            table(EITHER, {sum, injects ? ZERO : carry}, output(cell, "S" + half));
            table(CHOICE, {own, carry, sum}, next);
            carry = next;
        }
    }

    // A pin of a bidirectional port: readers see the value driven here or the one from outside.
    void add_buffer(const Cell &cell) {
        for (auto &[name, bus] : ports_) {
            for (size_t i = 0; i < bus.size(); i++) {
                if (bus[i] != cell.pin("Y")) continue;
                bus[i] = nets_++;
                driven_.resize(bus.size(), ZERO);
                driving_.resize(bus.size(), ZERO);
                driven_[i] = cell.pin("A");
                driving_[i] = cell.pin("E");
                table(CHOICE, {bus[i], driven_[i], driving_[i]}, cell.pin("Y"));
                return;
            }
        }
        throw std::runtime_error("a $_TBUF_ that is not at a port");
    }

    void add_product(const Cell &cell) {
        for (const char *name : {"REG_INPUTA_CLK", "REG_INPUTB_CLK", "REG_PIPELINE_CLK",
                                 "REG_OUTPUT_CLK"}) {
            cell.must(name, "NONE");
        }
        Product product{{cell.bus("A", FACTOR_BITS), cell.bus("B", FACTOR_BITS)},
                        outputs(cell, "P", 2 * FACTOR_BITS),
                        {cell.pin("SIGNEDA"), cell.pin("SIGNEDB")}};
        gates_.push_back({{}, ZERO, 0, (int)products_.size()});
        products_.push_back(std::move(product));
    }

    void add_flip_flop(const Cell &cell) {
        check_clock(cell, "CLK");
        cell.must("SRMODE", "LSR_OVER_CE");
        cell.must("LSRMUX", "LSR");
        cell.must("LSRMODE", "LSR");
        const std::string mode = cell.value("CEMUX", "1");
        const bool inverted = mode == "INV", preset = cell.value("REGSET", "RESET") == "SET";
        const Net enable = mode == "1" ? ONE : cell.pin("CE");
        const Net data = cell.pin("DI"), reset = cell.pin("LSR"), out = output(cell, "Q");
        initial_.emplace_back(out, preset);
        clocked({data, enable, reset}, [=] {
            if (levels_[reset]) {
                change(out, preset);
            } else if (levels_[enable] != inverted) {
                change(out, levels_[data]);
            }
        });
    }

    // 16 words of four bits, each of which is read through a table.
    void add_memory(const Cell &cell) {
        check_clock(cell, "WCK");
        cell.must("WREMUX", "WRE");
        const Bus out = outputs(cell, "DO", 4), data = cell.bus("DI", 4);
        const Bus address = cell.bus("WAD", 4);
        const Net enable = cell.pin("WRE");
        const std::string initial = cell.value("INITVAL", std::string(64, 'x'));
        std::vector<size_t> tables;
        for (int bit = 0; bit < 4; bit++) {
            unsigned long bits = 0;
            for (int word = 0; word < 16; word++) {
                bits |= (unsigned long)(initial[63 - 4 * word - bit] != '0') << word;
            }
            tables.push_back(table(bits, cell.bus("RAD", 4), out[bit]));
        }
        Bus senses{enable};
        for (int i = 0; i < 4; i++) senses.insert(senses.end(), {data[i], address[i]});
        clocked(senses, [=] {
            if (!levels_[enable]) return;
            const int word = (int)read(address);
            for (int bit = 0; bit < 4; bit++) {
                const size_t id = place_[tables[bit]];
                uint16_t &bits = gates_[id].table;
                bits = (bits & ~(1 << word)) | levels_[data[bit]] << word;
                mark(id);
            }
        });
    }

    void add_block(const Cell &cell) {
        Block block;
        for (int p = 0; p < 2; p++) {
            const std::string port = p ? "B" : "A";
            check_clock(cell, "CLK" + port);
            for (const char *pin : {"RST", "CS"}) {
                cell.must(pin + port + (pin[0] == 'C' ? "0" : ""), "0");
            }
            cell.must("REGMODE_" + port, "NOREG");
            cell.must("WRITEMODE_" + port, "READBEFOREWRITE");
            block.width[p] = (int)cell.binary("DATA_WIDTH_" + port);
            block.enable[p] = cell.pin("CE" + port);
            block.write[p] = cell.pin("WE" + port);
            block.address[p] = cell.bus("AD" + port, 14);
            block.in[p] = cell.bus("DI" + port, 2 * BYTE_BITS);
            block.out[p] = outputs(cell, "DO" + port, 2 * BYTE_BITS);
        }
        const bool wide[2] = {block.width[0] == 36, block.width[1] == 36};
        if (wide[0] != wide[1] || cell.ones("INITVAL")) {
            throw std::runtime_error("a DP16KD of other widths, or that does not begin empty");
        }
        Bus senses;
        for (int p = 0; p < 2; p++) {
            senses.insert(senses.end(), {block.enable[p], block.write[p]});
            for (const Bus *bus : {&block.address[p], &block.in[p]}) {
                senses.insert(senses.end(), bus->begin(), bus->end());
            }
        }
        blocks_.push_back(std::move(block));
        clocked(senses, [this, number = blocks_.size() - 1, id = clocked_.size()] {
            if (access(blocks_[number])) mark(edge_ + id);  // to read the written value
        });
    }

    Bus inputs(const Gate &gate) const {
        if (gate.product < 0) return {gate.in, gate.in + 4};
        const Product &product = products_[gate.product];
        Bus nets{product.is_signed[0], product.is_signed[1]};
        for (const Bus &bus : product.factors) nets.insert(nets.end(), bus.begin(), bus.end());
        return nets;
    }

    // Sorts the gates topologically, and records the readers of every net.
    void order() {
        const size_t count = gates_.size();
        std::vector<bool> is_driven(nets_);
        for (const Gate &gate : gates_) {
            if (gate.product < 0) is_driven[gate.out] = true;
            else for (const Net net : products_[gate.product].out) is_driven[net] = true;
        }
        std::vector<std::vector<uint32_t>> loads(nets_);
        std::vector<int> waits(count, 0);
        std::vector<uint32_t> ready;
        for (size_t id = 0; id < count; id++) {
            for (const Net net : inputs(gates_[id])) {
                loads[net].push_back((uint32_t)id);
                waits[id] += is_driven[net];
            }
            if (!waits[id]) ready.push_back((uint32_t)id);
        }
        std::vector<Gate> sorted;
        place_.resize(count);
        for (size_t i = 0; i < ready.size(); i++) {
            const Gate &gate = gates_[ready[i]];
            place_[ready[i]] = i;
            sorted.push_back(gate);
            const Bus own{gate.out};
            for (const Net net : gate.product < 0 ? own : products_[gate.product].out) {
                for (const uint32_t id : loads[net]) {
                    if (!--waits[id]) ready.push_back(id);
                }
            }
        }
        if (sorted.size() < count) throw std::runtime_error("logic that drives itself");
        gates_ = std::move(sorted);
        edge_ = (count + 63) / 64 * 64;
        loads_.resize(nets_);
        for (Net net = 0; net < nets_; net++) {
            for (const uint32_t id : loads[net]) loads_[net].push_back((uint32_t)place_[id]);
        }
        for (size_t i = 0; i < senses_.size(); i++) {
            for (const Net net : senses_[i]) loads_[net].push_back((uint32_t)(edge_ + i));
        }
        levels_.resize(nets_, 0);
        dirty_.resize((edge_ + clocked_.size() + 63) / 64, 0);
        for (size_t id = 0; id < count; id++) mark(id);
        for (size_t id = 0; id < clocked_.size(); id++) mark(edge_ + id);
    }

    std::map<std::string, Bus> ports_;
    Bus driven_, driving_;
    Net nets_ = 2;
    std::vector<Gate> gates_;  // logic first, then
    std::vector<std::function<void()>> clocked_;
    size_t edge_ = 0;           // clocked elements have numbers from here on
    std::vector<Product> products_;
    std::vector<Block> blocks_;
    std::vector<Bus> senses_;    // nets read by clocked elements
    std::vector<size_t> place_;  // of a gate, by the order in which gates were added
    std::vector<std::pair<Net, uint8_t>> initial_, changes_;
    std::vector<uint8_t> levels_;
    std::vector<std::vector<uint32_t>> loads_;  // by net
    std::vector<uint64_t> dirty_;               // one bit per gate: an input has changed
};

}  // namespace ecp5
