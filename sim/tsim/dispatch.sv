// Dispatch: routes each instruction, in program order, to the unit that executes it. An instruction
// that the ISA does not define is dropped and reported.
//
// Ports:   insn_*: from fetch; unit_valid/unit_ready: to the units.
//          stalled: the unit's queue is full. fault: the ISA does not define the instruction.
// Timing:  combinational.
module dispatch
    import vta_pkg::*, stream_pkg::*;
(
    input  logic                 insn_valid,
    output logic                 insn_ready,
    input  logic [INSN_BITS-1:0] insn,
    output units_t               unit_valid,
    input  units_t               unit_ready,
    output logic                 stalled,
    output logic                 fault
);
    // Opcode and memory have the same bits in all instructions that contain them.
    /* verilator lint_off UNUSEDSIGNAL */
    load_t fields;
    alu_t  alu;
    /* verilator lint_on UNUSEDSIGNAL */
    assign fields = insn;
    assign alu = insn;

    localparam units_t NONE = '0, TO_LOAD = '{load: 1'b1, default: 1'b0},
                       TO_COMPUTE = '{compute: 1'b1, default: 1'b0},
                       TO_STORE = '{store: 1'b1, default: 1'b0};
    units_t target;
    always_comb begin
        target = NONE;
        case (fields.opcode)
            OP_LOAD:
                case (fields.memory)
                    MEM_INP, MEM_WGT: target = TO_LOAD;
                    MEM_UOP, MEM_ACC, MEM_ACC_8BIT: target = TO_COMPUTE;
                    MEM_POST: target = HAS_POST != 0 ? TO_LOAD : NONE;
                    MEM_TABLE: target = HAS_TABLE != 0 ? TO_LOAD : NONE;
                    default: target = NONE;
                endcase
            OP_STORE: target = fields.memory == MEM_OUT ? TO_STORE : NONE;
            OP_GEMM, OP_FINISH: target = TO_COMPUTE;
            OP_DEPTHWISE: target = HAS_DEPTHWISE != 0 ? TO_COMPUTE : NONE;
            OP_POOL: target = HAS_POOL != 0 ? TO_COMPUTE : NONE;
            OP_POST: target = HAS_POST != 0 ? TO_COMPUTE : NONE;
            OP_ALU: target = alu.alu_op <= ALU_LAST ? TO_COMPUTE : NONE;
            default: target = NONE;
        endcase
    end

    assign fault      = insn_valid && target == NONE;
    assign unit_valid = insn_valid ? target : NONE;
    assign insn_ready = target == NONE || (target & unit_ready) != NONE;
    assign stalled    = insn_valid && !insn_ready;
endmodule
