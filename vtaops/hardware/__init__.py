"""The RTL: parameters, registers and counters, and its builds for Verilator and Yosys."""
