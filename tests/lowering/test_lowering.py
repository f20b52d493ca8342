"""The parts of lowering, each against what it means: copies, micro-ops, tokens, addresses."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.random_cases import CONFIGS, random_conv2d, random_gemm, random_tiling
from trials.random_streams import insert_tokens, with_tokens
from vtaops import HardwareConfig, Program
from vtaops.lowering import LoweringOptions, build_tree, link, whole
from vtaops.lowering.copies import MAX_PAD, SKIP, ZERO, cover
from vtaops.lowering.emission.microcode import PIPELINE_DISTANCE, AffineLoop, kernels
from vtaops.lowering.emission.scratchpads import Addresses, Capacity
from vtaops.lowering.operation import Fragment, Operation
from vtaops.machine.accesses import DRAM, distinct, listed
from vtaops.machine.config import Memory
from vtaops.machine.isa import Alu, Finish, Gemm, Load, Store, Unit
from vtaops.machine.layout import Layout
from vtaops.machine.text import TOKENS
from vtaops.program import Buffer, OperatorRecord, Role
from vtaops.program.verifier import TOKEN_CAPACITY
from vtaops.schedule import blocked_shape


@given(st.lists(st.integers(0, 99)))
def test_distinct_elements_are_those_of_numpy(listed_elements):
    elements = np.array(listed_elements, np.int64)
    assert distinct(elements).tolist() == np.unique(elements).tolist()


# --------------------------------------------------------------------------------- copies


def written_by(accesses, size):
    """Execute accesses on element numbers; -9 marks what nobody wrote."""
    sram = np.full(size, -9)
    for a in accesses:
        row = a.x_pad_left + a.x_size + a.x_pad_right
        block = np.full((a.y_pad_top + a.y_size + a.y_pad_bottom, row), ZERO)
        for y in range(a.y_size):
            elements = a.dram_base + y * a.x_stride + np.arange(a.x_size)
            block[a.y_pad_top + y, a.x_pad_left : a.x_pad_left + a.x_size] = elements
        sram[a.sram_base : a.sram_base + block.size] = block.ravel()
    return sram


def assert_covers(grid, accesses):
    flat = grid.ravel()
    written = written_by(accesses, flat.size)
    needed = flat != SKIP
    np.testing.assert_array_equal(written[needed], flat[needed])
    # What is skipped may be zeroed, never filled with data.
    assert set(written[~needed].tolist()) <= {-9, ZERO}


@st.composite
def padded_images(draw):
    """Grids as convolutions copy them: blocks of rows with borders of zeros and overhang."""
    blocks, rows, columns = (draw(st.integers(1, n)) for n in (3, 6, 7))
    width = columns + draw(st.integers(0, 4))
    step = draw(st.integers(1, 2))
    grid = np.arange(blocks)[:, None, None] * 1000 + np.arange(rows)[:, None] * width * step
    grid = grid + np.arange(columns) + draw(st.integers(0, 50))
    sides = [draw(st.integers(0, side)) for side in (rows, rows, columns, columns)]
    fills = [draw(st.sampled_from([ZERO, SKIP])) for _ in sides]
    grid[:, : sides[0]] = fills[0]
    grid[:, rows - sides[1] :] = fills[1]
    grid[:, :, : sides[2]] = fills[2]
    grid[:, :, columns - sides[3] :] = fills[3]
    return grid


@given(padded_images())
def test_cover_writes_exactly_what_is_asked(grid):
    accesses = cover(grid, pads=True)
    assert_covers(grid, accesses)
    for a in accesses:
        assert max(a.y_pad_top, a.y_pad_bottom, a.x_pad_left, a.x_pad_right) <= MAX_PAD


@given(st.lists(st.integers(-2, 6), min_size=1, max_size=24), st.integers(1, 4))
def test_cover_of_arbitrary_elements(elements, width):
    usable = elements[: max(1, len(elements) // width) * width]
    grid = np.array(usable)
    if len(usable) % width == 0:
        grid = grid.reshape(-1, width)
    assert_covers(grid, cover(grid, pads=True))


@given(st.lists(st.sampled_from([SKIP, 0, 1, 2, 3, 7]), min_size=1, max_size=24))
def test_cover_without_padding(elements):
    grid = np.array(elements)
    accesses = cover(grid, pads=False)
    assert_covers(grid, accesses)
    assert not any(a.y_pad_top + a.y_pad_bottom + a.x_pad_left + a.x_pad_right for a in accesses)


def test_cover_finds_the_single_access():
    rows = np.arange(8)[:, None] * 14 + np.arange(14)
    padded = np.pad(rows, ((1, 0), (1, 1)), constant_values=ZERO)
    (access,) = cover(padded, pads=True)
    assert (access.y_size, access.x_size, access.x_stride) == (8, 14, 14)
    assert (access.y_pad_top, access.x_pad_left, access.x_pad_right) == (1, 1, 1)
    (column,) = cover(np.arange(16) * 16, pads=False)
    assert (column.y_size, column.x_size, column.x_stride) == (16, 1, 16)


# ------------------------------------------------------------------------------ micro-code

loop_strategy = st.builds(
    AffineLoop,
    st.integers(1, 5),
    st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)),
)


def executed(kernel):
    rows = kernel.micro_ops[None, None]
    outer = np.arange(kernel.outer.extent)[:, None, None, None] * np.array(kernel.outer.strides)
    inner = np.arange(kernel.inner.extent)[None, :, None, None] * np.array(kernel.inner.strides)
    return (outer + inner + rows).reshape(-1, 3)


@given(
    st.lists(loop_strategy, max_size=5),
    st.tuples(*[st.integers(0, 9)] * 3),
    st.integers(1, 64),
)
def test_kernels_execute_the_nest(loops, base, limit):
    expected = np.array([base])
    for loop in loops:
        steps = np.arange(loop.extent)[:, None] * np.array(loop.strides)
        expected = (expected[:, None] + steps[None]).reshape(-1, 3)
    found = list(kernels(base, loops, limit))
    assert all(len(kernel.micro_ops) <= limit for kernel in found)
    rows = np.concatenate([executed(kernel) for kernel in found])
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, expected.tolist()))


def test_kernel_of_the_tutorial_is_small_and_keeps_its_distance():
    nest = [(8, (98, 0, 9)), (7, (14, 16, 0)), (3, (0, 16, 3)), (3, (0, 1, 1)), (14, (1, 1, 0))]
    (kernel,) = kernels((0, 0, 0), [AffineLoop(*loop) for loop in nest], 8192)
    assert len(kernel.micro_ops) == 63
    order = executed(kernel)[:, 0].tolist()
    last = {}
    for step, dst in enumerate(order):
        assert step - last.get(dst, -PIPELINE_DISTANCE) >= PIPELINE_DISTANCE
        last[dst] = step


def test_equal_micro_ops_are_stored_once_and_memory_is_reused():
    config = HardwareConfig.load("tiny")  # 64 micro-ops
    kernels_ = [np.arange(i, i + 90).reshape(-1, 3) % 60 for i in (0, 0, 1, 2, 0)]
    operations = [
        Operation(Gemm(uop_end=len(k), iter_out=1, iter_in=1), micro_ops=k) for k in kernels_
    ]
    fragment = Fragment(config, tuple(operations), (), LoweringOptions(), OperatorRecord())
    program = link([whole(fragment)], ())
    loads = [i for i in program.decode() if isinstance(i, Load)]
    firsts = [i.uop_begin for i in program.decode() if isinstance(i, Gemm)]
    # Stretches: {0, 1}, {2, 0}: two sequences of 30 fit 64 together, three do not.
    assert [load.x_size for load in loads] == [60, 60]
    assert firsts == [0, 0, 30, 0, 30]
    assert len(program.micro_ops) == 120
    assert all(load.x_size <= config.uop.depth for load in loads)


# --------------------------------------------------------------------------------- tokens


def stub(instruction, *accesses):
    """An operation that accesses what a test says."""
    return Operation(instruction).having(operands=accesses)


def random_operations(rng, length):
    """Operations of the three units on a few elements of each memory, and of one DRAM buffer."""
    operations = []
    for _ in range(length):
        kind = rng.choice(["inp", "wgt", "gemm", "gemm", "alu", "acc", "store", "dram"])

        def some(memory, writes):
            elements = np.array(sorted(rng.sample(range(4), rng.randint(1, 2))))
            return listed(memory, elements, writes=writes)

        if kind in ("inp", "wgt"):
            memory = Memory.INP if kind == "inp" else Memory.WGT
            operations.append(stub(Load(memory=memory), some(memory, True)))
        elif kind == "dram":
            accesses = some(DRAM, False), some(Memory.INP, True)
            operations.append(stub(Load(memory=Memory.INP), *accesses))
        elif kind == "acc":
            operations.append(stub(Load(memory=Memory.ACC), some(Memory.ACC, True)))
        elif kind == "gemm":
            accesses = some(Memory.ACC, True), some(Memory.INP, False), some(Memory.WGT, False)
            operations.append(stub(Gemm(), *accesses))
        elif kind == "alu":
            operations.append(stub(Alu(), some(Memory.ACC, True), some(Memory.ACC, False)))
        else:
            accesses = some(Memory.ACC, False), some(DRAM, True)
            operations.append(stub(Store(memory=Memory.OUT), *accesses))
    return operations


def happens_before(operations):
    """Reachability over program order within units and token pairs: a boolean matrix."""
    count = len(operations)
    edge = np.zeros((count, count), dtype=bool)
    queues = {}
    last = {}
    for index, operation in enumerate(operations):
        i, unit = operation.instruction, operation.instruction.unit
        if unit in last:
            edge[last[unit], index] = True
        last[unit] = index
        for flag, source in ((i.pop_prev, unit - 1), (i.pop_next, unit + 1)):
            if flag:
                edge[queues[source, unit].pop(0), index] = True
        for flag, target in ((i.push_prev, unit - 1), (i.push_next, unit + 1)):
            if flag:
                queues.setdefault((unit, target), []).append(index)
    assert not any(queues.values())
    for middle in range(count):
        edge |= np.outer(edge[:, middle], edge[middle])
    return edge


def conflict(a, b):
    return a.instruction.unit != b.instruction.unit and any(
        x.memory == y.memory
        and (x.writes or y.writes)
        and np.intersect1d(x.elements, y.elements).size
        for x in a.scratchpads
        for y in b.scratchpads
    )


def all_ordered(operations, order):
    last = len(operations) - 1
    return all(order[i, last] for i in range(last)) and all(
        order[i, j]
        for j in range(len(operations))
        for i in range(j)
        if conflict(operations[i], operations[j])
    )


def without_token(operations, pusher):
    """Drop the tokens that `pusher` pushes to one unit, and their pops, one variant a unit."""
    from dataclasses import replace

    unit = operations[pusher].instruction.unit
    for push, pop, target in (
        ("push_next", "pop_prev", unit + 1),
        ("push_prev", "pop_next", unit - 1),
    ):
        if not getattr(operations[pusher].instruction, push):
            continue
        earlier = sum(
            getattr(o.instruction, push) for o in operations[:pusher] if o.instruction.unit == unit
        )
        poppers = [
            index
            for index, o in enumerate(operations)
            if o.instruction.unit == target and getattr(o.instruction, pop)
        ]
        changed = list(operations)
        for index, flag in ((pusher, push), (poppers[earlier], pop)):
            instruction = replace(changed[index].instruction, **{flag: 0})
            changed[index] = changed[index].having(instruction=instruction)
        yield changed


@pytest.mark.parametrize("seed", range(25))
def test_tokens_are_exact_and_minimal(seed):
    rng = random.Random(seed)
    operations = with_tokens(random_operations(rng, rng.randint(2, 24)))
    assert isinstance(operations[-1].instruction, Finish)
    assert all_ordered(operations, happens_before(operations))
    for pusher in range(len(operations)):
        for fewer in without_token(operations, pusher):
            assert not all_ordered(fewer, happens_before(fewer)), "a token is superfluous"


def test_store_to_load_hazard_travels_through_compute():
    store = stub(Store(memory=Memory.OUT), listed(DRAM, np.array([3]), writes=True))
    load = stub(Load(memory=Memory.INP), listed(DRAM, np.array([3])))
    units = [o.instruction.unit for o in insert_tokens([store, load])[0]]
    assert units == [Unit.STORE, Unit.COMPUTE, Unit.LOAD, Unit.COMPUTE]


def test_tiles_that_nothing_orders_overflow_no_queue():
    """Four hundred results in places of their own: stores could be behind by all of them."""
    pairs = [
        (
            stub(Gemm(), listed(Memory.ACC, np.array([place]), writes=True)),
            stub(Store(memory=Memory.OUT), listed(Memory.ACC, np.array([place]))),
        )
        for place in range(400)
    ]
    ordered, _, flags = insert_tokens([operation for pair in pairs for operation in pair])
    pending, most = 0, 0
    for operation, row in zip(ordered, flags.tolist(), strict=True):
        tokens = dict(zip(TOKENS, row, strict=True))
        if operation.instruction.unit == Unit.COMPUTE:
            # What it waits for is the store of all that it has pushed.
            pending = tokens["push_next"] + (0 if tokens["pop_next"] else pending)
            most = max(most, pending)
    assert 100 < most <= TOKEN_CAPACITY


# ------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize("config", [*CONFIGS, "pynq_ext"])
@pytest.mark.parametrize("seed", range(6))
def test_footprint_is_what_lowering_allocates(config, seed):
    """The check before scheduling and the allocation after it agree on every scratchpad."""
    rng = random.Random(f"footprint {config} {seed}")
    hardware = HardwareConfig.load(config)
    op = rng.choice([random_conv2d, random_gemm])(rng)
    if config == "pynq_ext":
        op = replace(op, scales=True, shift=0, clip=(-128, 127))
    tiling = random_tiling(rng, op, hardware)
    tree = build_tree(op, hardware, tiling)
    capacity = Capacity(tiling.inp_tiles, tiling.wgt_tiles, tiling.acc_tiles, rows=1)
    addresses = Addresses(tree, hardware, capacity)
    expected = blocked_shape(op, hardware).footprint(tiling, hardware)
    used = {memory: addresses.used[memory] for memory in ("inp", "wgt", "acc")}
    used["post"] = 2 * addresses.used["scale"]  # whoever has scales has room for biases
    for memory, elements in used.items():
        assert elements <= expected[memory]
        if divided(blocked_shape(op, hardware).in_parts(tiling.taps), tiling, hardware):
            assert elements == expected[memory]


def divided(shape, tiling, config):
    """Whether all tiles have full size and all virtual threads equally many."""
    return not (
        shape.oc % (tiling.oc // config.block_out * tiling.oc_threads)
        or shape.ic % (tiling.ic // config.block_in)
        or shape.rows.extent % (tiling.h * tiling.h_threads)
        or shape.columns.extent % tiling.w
    )


def test_program_refuses_inconsistent_arrays():
    from vtaops.base.errors import ProgramError

    config = HardwareConfig.load("tiny")
    buffer = Buffer("x", Role.OUTPUT, (8,), "int8", Layout("C8c"))
    words = np.zeros((2, 2), dtype=np.uint64)
    none = np.full(2, -1, dtype=np.int32)
    uops = np.zeros(0, dtype=np.uint32)
    with pytest.raises(ProgramError, match="needs uint64"):
        Program(config, words.astype(np.int64), none, uops, (buffer,))
    with pytest.raises(ProgramError, match="instruction 1 refers to buffer 1"):
        Program(config, words, np.array([-1, 1], dtype=np.int32), uops, (buffer,))
