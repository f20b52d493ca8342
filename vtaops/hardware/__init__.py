"""The RTL: parameters, registers and counters, and builds for Verilator, Yosys and Vivado."""
