"""The extension ``nibbles``: weights of four bits, from hardware to networks and their files."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.program_builder import TINY, ProgramBuilder

import vtaops
from trials.reference_isa import launch, place, serialise
from vtaops import Conv2d, Gemm, HardwareConfig, Tiling
from vtaops.board.random_programs import random_inputs, random_program
from vtaops.errors import ConfigError, DeviceError, ScheduleError, ShapeError
from vtaops.graph import Convolution, Dense, Graph, Requantization
from vtaops.machine.config import Memory
from vtaops.machine.isa import Load
from vtaops.machine.layout import Layout, has_nibbles
from vtaops.machine.text import disassemble
from vtaops.model.artefact import dumps, loads
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program.assembly import assemble
from vtaops.program.interpreter import interpret
from vtaops.runtime import Fsim

SMALL = replace(TINY, extensions=("nibbles",), name="small")
WIDE = HardwareConfig.load("pynq_512_nibbles")


def nibble_loads(program):
    return [i for i in program if isinstance(i, Load) and i.nibbles]


def test_two_weights_share_a_byte_the_first_one_low():
    layout = Layout("OI4o4i/2")
    weights = np.arange(-8, 8, dtype=np.int8).reshape(4, 4)
    image = layout.pack(weights)
    assert image.shape == layout.packed_shape((4, 4)) == (1, 1, 4, 2)
    assert image.view(np.uint8).ravel().tolist() == [0x98, 0xBA, 0xDC, 0xFE, 0x10, 0x32, 0x54, 0x76]
    assert np.array_equal(layout.unpack(image, (4, 4)), weights)
    assert has_nibbles(weights)
    with pytest.raises(ShapeError, match=r"lie in -8\.\.7; these lie in -7\.\.8"):
        layout.pack(-weights)
    with pytest.raises(ShapeError, match="is not a layout"):
        Layout("OI4o3i/2")


def test_a_tile_has_two_port_words():
    with pytest.raises(ConfigError, match=r"tiles of 64 bytes have no two of 64 bytes"):
        replace(SMALL, port_bytes=64)


def test_only_weights_are_expanded():
    with Fsim(SMALL) as device:
        data = place(device, np.zeros(64, np.uint8))
        load = Load(memory=Memory.INP, dram_base=data.address // 8, y_size=1, x_size=1, nibbles=1)
        with pytest.raises(DeviceError, match=r"four bits to memory 2; only to WGT"):
            launch(device, serialise([load]))


def test_random_programs_expand_weights_on_fsim_and_in_the_interpreter():
    used = 0
    for seed in range(12):
        config = (SMALL, WIDE)[seed % 2]
        rng = np.random.default_rng(seed)
        program = random_program(config, rng)
        loads_ = nibble_loads(program)
        used += len(loads_)
        assert all(" nibbles" in disassemble(i) for i in loads_)
        arrays = random_inputs(program, rng)
        assert np.array_equal(interpret(program, *arrays), program.run(Fsim(config), *arrays))
        assert assemble(program.disassemble()).decode() == program.decode()
    assert used > 20


OPERATORS = [
    Gemm(m=1, n=288, k=288, weight_bits=4),
    Gemm(m=3, n=50, k=80, bias=True, weight_bits=4),
    Conv2d(in_channels=32, out_channels=48, height=6, width=6, kernel=3, padding=1, weight_bits=4),
]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.summary)
def test_operators_read_half_as_many_bytes(op):
    program, plain = (vtaops.compile(o, WIDE) for o in (op, replace(op, weight_bits=8)))
    assert 2 * program.stats().wgt_load_nbytes == plain.stats().wgt_load_nbytes
    assert not program.prove().unproven
    arrays = random_arguments(op, np.random.default_rng(0))
    expected = evaluate(op, arrays)
    assert np.array_equal(program.run(Fsim(WIDE), *arrays), expected)
    assert np.array_equal(plain.run(Fsim(WIDE), *arrays), expected)
    other = vtaops.compile(op, "pynq_512")
    assert not any(b.layout.nibbles for b in other.buffers)
    assert np.array_equal(other.run(Fsim(other.config), *arrays), expected)


def test_tiles_are_loaded_by_pairs():
    op = Gemm(m=1, n=48, k=48, weight_bits=4)
    assert not nibble_loads(vtaops.compile(op, WIDE))  # nine tiles
    with pytest.raises(ScheduleError, match="a row of 3 from tile 0 on"):
        vtaops.compile(replace(op, n=64), WIDE, Tiling(oc=16, ic=48, h=1, w=1))
    assert nibble_loads(vtaops.compile(replace(op, n=64), WIDE, Tiling(oc=32, ic=48, h=1, w=1)))
    uneven = replace(op, n=64, k=96)  # of six blocks, the last tile holds two
    program = vtaops.compile(uneven, WIDE, Tiling(oc=64, ic=64, h=1, w=1), prove=False)
    arrays = random_arguments(uneven, np.random.default_rng(0))
    assert np.array_equal(program.run(Fsim(WIDE), *arrays), evaluate(uneven, arrays))
    with pytest.raises(ShapeError, match="need one group; groups is 2"):
        Conv2d(in_channels=4, out_channels=4, height=4, width=4, kernel=1, groups=2, weight_bits=4)
    with pytest.raises(ShapeError, match="weight_bits is 5; weights have 4 or 8 bits"):
        replace(op, weight_bits=5)


def small_network(low=-8):
    """A convolution and a product, whose weights have four bits if `low` is -8."""
    rng, graph = np.random.default_rng(0), Graph("narrow")
    scaling = Requantization.from_ratio(0.004)
    x = graph.input("x", (1, 32, 4, 4))
    kernel = rng.integers(low, 8, (32, 32, 3, 3)).astype(np.int8)
    x = graph.add(Convolution(kernel, None, scaling, padding=(1, 1, 1, 1)), x)
    weight = rng.integers(low, 8, (64, 512)).astype(np.int8)
    flat = graph.add(vtaops.graph.Reshape((1, 512)), x)
    graph.output(graph.add(Dense(weight, None, scaling), flat))
    return graph


def test_networks_choose_by_their_weights():
    x = np.random.default_rng(1).integers(-128, 128, (1, 32, 4, 4)).astype(np.int8)
    graph = small_network()
    (expected,) = vtaops.graph.evaluate(graph, x)
    sizes = {}
    for pinned in (False, True):
        model = vtaops.compile_model(graph, WIDE, pin_weights=pinned)
        assert nibble_loads(model.programs[0])
        assert not model.prove().unproven
        data = dumps(model)
        sizes[pinned] = len(data)
        read = loads(data)
        assert np.array_equal(read.run(x), expected)
        weights = [node.op.weight for node in graph.nodes if hasattr(node.op, "weight")]
        kept = [node.op.weight for node in read.graph.nodes if hasattr(node.op, "weight")]
        assert all(np.array_equal(a, b) for a, b in zip(weights, kept, strict=True))
    plain = vtaops.compile_model(small_network(-9), WIDE)
    assert not nibble_loads(plain.programs[0])
    assert sizes[False] < len(dumps(plain)) - 20_000


def test_a_builder_refuses_what_no_hardware_expands():
    builder = ProgramBuilder(TINY)
    builder.add(Load(memory=Memory.WGT, y_size=1, x_size=1, nibbles=1))
    with pytest.raises(vtaops.errors.EncodingError, match="lacks the extension 'nibbles'"):
        builder.build()
