// Dispatch: routes each instruction, in program order, to the unit that executes it. An instruction
// that is none of the ISA is dropped and reported.
//
// Ports:   insn_*: from fetch; unit_valid/unit_ready: load, compute, store (in this order).
//          stalled: the queue of the unit is full. fault: the instruction is not of the ISA.
// Timing:  combinational.
module dispatch
    import vta_pkg::*;
(
    input  logic                 insn_valid,
    output logic                 insn_ready,
    input  logic [INSN_BITS-1:0] insn,
    output logic [2:0]           unit_valid,
    input  logic [2:0]           unit_ready,
    output logic                 stalled,
    output logic                 fault
);
    // Opcode and memory lie at the same bits in all instructions that have them.
    /* verilator lint_off UNUSEDSIGNAL */
    load_t fields;
    alu_t  alu;
    /* verilator lint_on UNUSEDSIGNAL */
    assign fields = insn;
    assign alu = insn;

    logic [2:0] target;
    always_comb begin
        target = 3'b000;
        case (fields.opcode)
            OP_LOAD:
                case (fields.memory)
                    MEM_INP, MEM_WGT: target = 3'b001;
                    MEM_UOP, MEM_ACC, MEM_ACC_8BIT: target = 3'b010;
                    MEM_POST: target = HAS_POST != 0 ? 3'b001 : 3'b000;
                    default: target = 3'b000;
                endcase
            OP_STORE: target = fields.memory == MEM_OUT ? 3'b100 : 3'b000;
            OP_GEMM, OP_FINISH: target = 3'b010;
            OP_POST: target = HAS_POST != 0 ? 3'b010 : 3'b000;
            OP_ALU: target = alu.alu_op <= ALU_LAST ? 3'b010 : 3'b000;
            default: target = 3'b000;
        endcase
    end

    assign fault      = insn_valid && target == 3'b000;
    assign unit_valid = insn_valid ? target : 3'b000;
    assign insn_ready = target == 3'b000 || (target & unit_ready) != 3'b000;
    assign stalled    = insn_valid && !insn_ready;
endmodule
