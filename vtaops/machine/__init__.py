"""The machine: configuration, instruction set, ALU operations, capabilities, data layouts."""
