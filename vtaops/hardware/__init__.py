"""The RTL as parameters, registers and counters; its builds for Verilator, Yosys and Vivado."""
