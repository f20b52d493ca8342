"""Programs of several operators: fragments joined by `link`, in one arena, equal to NumPy."""

import random
from dataclasses import replace

import numpy as np
import pytest

from trials.placed import is_right
from trials.random_cases import FAMILIES, random_arguments, random_conv2d, random_gemm
from vtaops import Conv2d, compile
from vtaops.compiler.driver import emit_operator
from vtaops.errors import ProgramError, ShapeError, VerificationError
from vtaops.lowering import BufferSlice, PlacedFragment, Strides, link, whole
from vtaops.machine.capabilities import HLS_2020
from vtaops.ops.reference import evaluate
from vtaops.program import Role
from vtaops.program.file_format import dumps, loads
from vtaops.program.interpreter import interpret
from vtaops.runtime.fsim import Fsim

SIGNED = (-128, 127)
FIRST = Conv2d(
    in_channels=16, out_channels=32, height=9, width=7, kernel=3, padding=1, shift=10, clip=SIGNED
)
SECOND = Conv2d(
    in_channels=32,
    out_channels=16,
    height=9,
    width=7,
    kernel=3,
    strides=2,
    padding=1,
    shift=11,
    clip=SIGNED,
)


def renamed(buffer, name, role=None, **fields):
    return replace(buffer, name=name, role=role or buffer.role, **fields)


def chain():
    """Two convolutions: the output of one is the input of the other."""
    a, b = emit_operator(FIRST, "pynq"), emit_operator(SECOND, "pynq")
    buffers = (
        renamed(a.buffers[0], "data"),
        renamed(a.buffers[1], "kernel 1"),
        renamed(a.buffers[2], "between", Role.SCRATCH, offset=0),
        renamed(b.buffers[1], "kernel 2"),
        renamed(b.buffers[2], "out"),
    )
    return (PlacedFragment(a, (0, 1, 2), "first"), PlacedFragment(b, (2, 3, 4), "second")), buffers


def random_inputs(program, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(-128, 128, b.shape).astype(b.dtype) for b in program.inputs]


def assert_equal(program, arrays, *expected):
    """On fsim, twice on one loaded program, and by the interpreter."""
    program.verify(HLS_2020)
    with Fsim("pynq") as device:
        results = program.run(device, *arrays)
    for got in (results, interpret(program, *arrays), interpret(loads(dumps(program)), *arrays)):
        got = got if len(expected) > 1 else (got,)
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert all(len(np.unique(one)) > 20 for one in expected)


def test_the_output_of_one_is_the_input_of_the_other():
    parts, buffers = chain()
    program = link(parts, buffers, {"network": "two"})
    data, first, second = arrays = random_inputs(program)
    assert_equal(program, arrays, evaluate(SECOND, [evaluate(FIRST, [data, first]), second]))
    assert [o.name for o in program.operators] == ["first", "second"]
    covered = sorted(i for o in program.operators for s in o.spans for i in range(*s))
    assert covered == [*range(len(program))]
    assert program.arena_nbytes == buffers[2].nbytes


def test_linking_changes_no_fragment():
    """Linked again, the same parts give the same program; a fragment can be used twice."""
    parts, buffers = chain()
    assert dumps(link(parts, buffers)) == dumps(link(parts, buffers))
    alone = link([whole(parts[0].fragment)], parts[0].fragment.buffers)
    assert np.array_equal(alone.instructions, compile(FIRST).instructions)


def test_one_fragment_serves_equal_operators():
    """Three times the same convolution, each with weights of its own, in two slots by turns."""
    op = Conv2d(
        in_channels=16,
        out_channels=16,
        height=10,
        width=10,
        kernel=3,
        padding=1,
        shift=10,
        clip=SIGNED,
    )
    fragment = emit_operator(op, "pynq")
    data, kernel, out = fragment.buffers
    slots = [renamed(out, f"slot {i}", Role.SCRATCH, offset=1600 * i) for i in range(2)]
    kernels = [renamed(kernel, f"kernel {i}") for i in range(4)]
    buffers = (renamed(data, "data"), *slots, *kernels, renamed(out, "out"))
    ways = ((0, 3, 1), (1, 4, 2), (2, 5, 1), (1, 6, 7))
    program = link([PlacedFragment(fragment, way) for way in ways], buffers)
    arrays = random_inputs(program)
    expected = arrays[0]
    for kernel in arrays[1:]:
        expected = evaluate(op, [expected, kernel])
    assert_equal(program, arrays, expected)
    assert program.arena_nbytes == 2 * 1600


def test_several_outputs():
    """What the host reads, a later operator may load too."""
    parts, buffers = chain()
    between = replace(buffers[2], role=Role.OUTPUT, offset=None)
    program = link(parts, (*buffers[:2], between, *buffers[3:]))
    data, first, second = arrays = random_inputs(program)
    middle = evaluate(FIRST, [data, first])
    assert_equal(program, arrays, middle, evaluate(SECOND, [middle, second]))


def test_parts_of_a_concatenation_are_stored_side_by_side():
    """Two convolutions store into channel blocks of one buffer; a third loads a slice of it."""
    a, b = emit_operator(FIRST, "pynq"), emit_operator(replace(FIRST, out_channels=16), "pynq")
    slice_op = replace(SECOND, in_channels=32)
    c = emit_operator(slice_op, "pynq")
    joined = renamed(a.buffers[2], "joined", Role.SCRATCH, shape=(1, 48, 9, 7), offset=0)
    block = joined.nbytes // 3
    buffers = (
        a.buffers[0],
        renamed(a.buffers[1], "kernel 1"),
        renamed(b.buffers[1], "kernel 2"),
        renamed(c.buffers[1], "kernel 3"),
        joined,
        renamed(c.buffers[2], "out"),
    )
    parts = [
        PlacedFragment(a, (0, 1, 4)),
        PlacedFragment(b, (0, 2, BufferSlice(4, 2 * block))),
        PlacedFragment(c, (BufferSlice(4, block), 3, 5)),
    ]
    program = link(parts, buffers)
    data, first, second, third = arrays = random_inputs(program)
    other = evaluate(replace(FIRST, out_channels=16), [data, second])
    whole_array = np.concatenate([evaluate(FIRST, [data, first]), other], axis=1)
    assert_equal(program, arrays, evaluate(slice_op, [whole_array[:, 16:], third]))


@pytest.mark.parametrize("seed", range(18))
@pytest.mark.parametrize("config", ["tiny", "ulx3s_batch"])
def test_an_operator_steps_by_the_images_that_its_own_are_parts_of(config, seed):
    kinds = [random_conv2d, random_gemm, *FAMILIES.values()]
    op = kinds[seed % len(kinds)](random.Random(seed))
    arrays = random_arguments(op, np.random.default_rng(seed))
    with Fsim(config, seed=seed) as device:
        assert is_right(op, device.config, None, arrays, device, seed)


def framed(fill):
    """A convolution that stores into a bordered image, and two that load it with its border."""
    framed = 1, 2, 12, 10  # two rows above, one below, one column on the left, two on the right
    first = emit_operator(FIRST, "pynq", strides={"res": Strides.of(framed, top=2, left=1)})
    inner = Strides.of(framed, top=1)  # the second consumer needs less of the border
    wide = Conv2d(
        in_channels=32, out_channels=16, height=12, width=10, kernel=3, shift=11, clip=SIGNED
    )
    less = replace(wide, height=11, width=9)
    consumers = emit_operator(wide, "pynq"), emit_operator(less, "pynq", strides={"data": inner})
    image = renamed(consumers[0].buffers[0], "image", Role.SCRATCH, fill=fill)
    buffers = (
        first.buffers[0],
        renamed(first.buffers[1], "kernel 1"),
        image,
        renamed(consumers[0].buffers[1], "kernel 2"),
        renamed(consumers[1].buffers[1], "kernel 3"),
        renamed(consumers[0].buffers[2], "wide"),
        renamed(consumers[1].buffers[2], "less"),
    )
    parts = (
        PlacedFragment(first, (0, 1, 2)),
        PlacedFragment(consumers[0], (2, 3, 5)),
        PlacedFragment(consumers[1], (2, 4, 6)),
    )
    return (wide, less), parts, buffers


@pytest.mark.parametrize("fill", [-7, 127])
def test_a_border_holds_its_fill(fill):
    (wide, less), parts, buffers = framed(fill)
    program = link(parts, buffers)
    data, first, second, third = arrays = random_inputs(program)
    image = evaluate(FIRST, [data, first])
    image = np.pad(image, ((0, 0), (0, 0), (2, 1), (1, 2)), constant_values=fill)
    expected = evaluate(wide, [image, second]), evaluate(less, [image[:, :, 1:, :-1], third])
    assert_equal(program, arrays, *expected)


def test_a_border_without_fill_is_undefined():
    _, parts, buffers = framed(None)
    with pytest.raises(VerificationError, match=r"undefined-dram.*'image'.*was never written"):
        link(parts, buffers).verify()


def test_what_was_read_as_fill_is_never_stored():
    """The consumer first: it would see the fill, and in the next run the image."""
    _, parts, buffers = framed(3)
    with pytest.raises(VerificationError, match=r"'fill'.*'image'"):
        link(parts[1:] + parts[:1], buffers).verify()


@pytest.mark.parametrize("bad", [{"offset": 0}, {"role": Role.OUTPUT}, {"fill": 128}])
def test_a_filled_buffer_is_scratch_of_its_own(bad):
    _, _, buffers = framed(3)
    with pytest.raises(ProgramError, match="image"):
        replace(buffers[2], **bad)


def test_a_slot_is_not_read_after_others_used_it():
    """Three in a row share one slot: the second overwrites what it reads."""
    parts, buffers = chain()
    out = renamed(buffers[4], "out", Role.SCRATCH, offset=0)
    again = emit_operator(SECOND, "pynq")
    final = renamed(again.buffers[2], "final")
    parts = (*parts, PlacedFragment(again, (2, 3, 5), "again"))
    link(parts, (*buffers, final)).verify()
    with pytest.raises(VerificationError, match=r"undefined-dram.*'between'.*another buffer left"):
        link(parts, (*buffers[:4], out, final)).verify()


def test_a_kernel_is_no_part_of_an_image():
    with pytest.raises(ShapeError, match="kernel has layout OIHW"):
        emit_operator(FIRST, "pynq", strides={"kernel": Strides(40, 20, 5)})
