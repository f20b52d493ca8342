"""Random programs: legal, of every kind, and judged alike by the interpreter and by devices."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers.tsim_support import needs_tools

from trials.boards import programmed
from vtaops import HardwareConfig
from vtaops.board.pynq import PynqDevice
from vtaops.board.random_programs import PIPELINE_STEPS, random_inputs, random_program
from vtaops.errors import ShapeError, UnsupportedError
from vtaops.machine.capabilities import CHISEL, FULL, HLS_2020, PORTABLE
from vtaops.machine.config import Extension, Memory
from vtaops.machine.isa import Alu, AluOp, Encoding, Gemm, Load, Store, words_to_array
from vtaops.program.interpreter import Interpreter, interpret
from vtaops.runtime import Fsim, Tsim
from vtaops.runtime.instruction_check import check_instructions

NAMES = ("pynq", "pynq_ext", "tiny", "4x8_i8w8a32_15_16_16_18", "1x32_i8w8a32_15_15_20_17")
CONFIGS = {name: HardwareConfig.load(name) for name in NAMES}
CONFIGS["extended"] = replace(CONFIGS["tiny"], extensions=tuple(Extension))
PYNQ = HardwareConfig.load("pynq")


def drawn(config, seed, capabilities=FULL):
    """Return a program, its inputs, and what the interpreter says."""
    rng = np.random.default_rng(seed)
    program = random_program(config, rng, capabilities)
    arrays = random_inputs(program, rng)
    return program, arrays, interpret(program, *arrays)


@pytest.mark.parametrize("capabilities", [FULL, HLS_2020, PORTABLE], ids=lambda c: c.name)
@pytest.mark.parametrize("name", CONFIGS)
def test_the_simulator_agrees_with_the_interpreter(name, capabilities):
    """It behaves like the target, and every memory of it holds garbage at first: a sample."""
    config = CONFIGS[name]
    for seed in range(5):
        program, arrays, expected = drawn(config, seed, capabilities)
        check_instructions(config, program.instructions, capabilities)
        with Fsim(config, seed=seed, capabilities=capabilities) as device:
            assert np.array_equal(program.run(device, *arrays), expected), seed
            assert device.stats() == program.stats()
            assert np.array_equal(program.run(device, *arrays), expected), (seed, "again")


@needs_tools
@pytest.mark.parametrize("name", ["pynq_ext", "extended"])
def test_our_rtl_agrees_with_the_interpreter(name):
    config = CONFIGS[name]
    for seed in range(8):
        program, arrays, expected = drawn(config, seed)
        with Tsim(config, jitter_seed=seed) as device:
            assert np.array_equal(program.run(device, *arrays), expected), seed


def test_the_virtual_board_agrees_with_the_interpreter(tmp_path):
    _, accelerator = programmed(tmp_path)
    with PynqDevice(accelerator) as device:
        for seed in range(8):
            program, arrays, expected = drawn(PYNQ, seed, device.capabilities)
            assert np.array_equal(program.run(device, *arrays), expected), seed


@pytest.mark.parametrize("seed", range(8))
def test_the_smallest_memories_are_enough(seed):
    """Two elements of each, and devices that hold one micro-op."""
    rng = np.random.default_rng(seed)
    block, extra = int(rng.integers(3, 5)), rng.integers(0, 3, 4).tolist()
    config = HardwareConfig(
        log_block=block,
        log_uop_buff_size=3 + extra[0],
        log_inp_buff_size=block + 1 + extra[1],
        log_wgt_buff_size=2 * block + 1 + extra[2],
        log_acc_buff_size=block + 3 + extra[3],
    )
    able = replace(PORTABLE if seed % 2 else FULL, micro_ops=seed % 3)
    program, arrays, expected = drawn(config, seed, able)
    with Fsim(config, seed=seed, capabilities=able) as device:
        assert np.array_equal(program.run(device, *arrays), expected)


def test_one_seed_one_program():
    programs = [random_program(PYNQ, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    words = [program.instructions.tobytes() for program in programs]
    assert words[0] == words[1] != words[2]


ERRORS = {
    "a GEMM writes zeros": lambda i: isinstance(i, Gemm) and not i.reset and {"reset": 1},
    "a GEMM omits an iteration": lambda i: isinstance(i, Gemm) and {"iter_in": i.iter_in - 1},
    "an immediate is wrong": lambda i: isinstance(i, Alu) and i.use_imm and {"imm": ~i.imm},
    "a STORE is one tile off": lambda i: isinstance(i, Store) and {"sram_base": i.sram_base + 1},
    "a LOAD is one tile off": lambda i: isinstance(i, Load) and i.memory == Memory.INP and {
        "dram_base": i.dram_base + 1
    },
}  # fmt: skip


@pytest.mark.parametrize("error", ERRORS)
def test_a_device_that_errs_in_one_instruction_is_noticed(error):
    """Not by each program: what an instruction computes may not be used, or not be in doubt."""
    noticed = 0
    for seed in range(10):
        program, arrays, expected = drawn(PYNQ, seed)
        steps = program.decode()
        places = [*range(len(steps) // 2, len(steps)), *range(len(steps) // 2)]
        wrong = next(place for place in places if ERRORS[error](steps[place]))
        step = replace(steps[wrong], **ERRORS[error](steps[wrong]))
        words = program.instructions.copy()
        words[wrong] = words_to_array([Encoding.of(PYNQ).encode(step)])
        result = interpret(replace(program, instructions=words), *arrays)
        noticed += not np.array_equal(result, expected)
    assert noticed >= 5


def test_every_kind_of_instruction_occurs():
    seen = Counter()
    for seed in range(20):
        for insn in random_program(PYNQ, np.random.default_rng(seed)):
            if isinstance(insn, Load) and not insn.is_nop:
                seen["padded", insn.memory] += insn.sram_size > insn.x_size * insn.y_size
                seen["rows", insn.memory] += insn.y_size > 1
            if isinstance(insn, Gemm):
                seen["reset", insn.reset] += 1
                seen["loops"] += insn.iter_out > 1 and insn.iter_in > 1
            if isinstance(insn, Alu):
                seen[insn.alu_op, insn.use_imm] += 1
            if isinstance(insn, Store):
                seen["gaps"] += insn.y_size > 1 and insn.x_stride > insn.x_size
    kinds = [("padded", m) for m in (Memory.INP, Memory.WGT, Memory.ACC, Memory.ACC_8BIT)]
    kinds += [("rows", m) for _, m in kinds]
    kinds += [(op, use) for op in AluOp for use in (0, 1)]
    kinds += [("reset", 0), ("reset", 1), "loops", "gaps"]
    assert not [kind for kind in kinds if not seen[kind]]


@pytest.mark.parametrize("capabilities", [HLS_2020, PORTABLE], ids=lambda c: c.name)
def test_hardware_without_forwarding_is_not_asked_for_it(capabilities):
    for seed in range(10):
        program = random_program(PYNQ, np.random.default_rng(seed), capabilities)
        machine = Interpreter(PYNQ, 1 << 12)
        table = Encoding.of(PYNQ).decode_micro_ops(program.micro_ops)
        for insn in program:
            if isinstance(insn, Load) and insn.memory == Memory.UOP:
                rows = table[insn.dram_base : insn.dram_base + insn.x_size]
                machine.uop[insn.sram_base : insn.sram_base + insn.x_size] = rows
            if isinstance(insn, Alu) or (isinstance(insn, Gemm) and not insn.reset):
                recent = []
                for dst, src, _ in machine.steps(insn):
                    reads = {dst} | ({src} if isinstance(insn, Alu) and not insn.use_imm else set())
                    assert not reads & {*recent}
                    recent = [*recent, dst][-(PIPELINE_STEPS - 1) :]


def test_hardware_with_forwarding_is():
    repeated = 0
    for seed in range(10):
        program = random_program(PYNQ, np.random.default_rng(seed))
        repeated += sum(
            isinstance(i, Gemm) and not i.reset and i.iter_in > 1 and i.dst_factor_in == 0
            and i.uop_end == i.uop_begin + 1
            for i in program
        )  # fmt: skip
    assert repeated


def test_what_cannot_be_drawn_or_interpreted():
    with pytest.raises(UnsupportedError, match="no ALU for tiles of 4 rows"):
        random_program(
            HardwareConfig.load("4x8_i8w8a32_15_16_16_18"), np.random.default_rng(0), CHISEL
        )
    program, arrays, _ = drawn(PYNQ, 0)
    with pytest.raises(ShapeError, match="3 arrays given; the program takes 4"):
        interpret(program, *arrays[:-1])
