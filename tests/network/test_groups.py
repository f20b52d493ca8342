"""Which steps of a network run together: convolutions, a sum or a pool behind, small layers."""

import numpy as np
import pytest

import vtaops
from vtaops.graph import Add, Convolution, Graph, MaxPool, Requantization
from vtaops.machine.isa import Load, Memory, Store
from vtaops.network import fragments
from vtaops.network.fragments import FusionCandidate

CONFIG = "pynq_512"
RELU = Requantization(multiplier=np.full(16, 40_000), shift=25, clip=(0, 127))


def convolution(graph, x, kernel):
    """Add a convolution with 16 results."""
    rng = np.random.default_rng(kernel)
    weight = rng.integers(-128, 128, (16, x.shape[1], kernel, kernel), np.int8)
    return graph.add(
        Convolution(weight, np.zeros(16, np.int32), RELU, padding=(kernel // 2,) * 4), x
    )


def narrow_then_wide(pixels=32):
    """A convolution that the port bounds, and one that the array bounds."""
    graph = Graph("two")
    x = graph.input("x", (1, 32, pixels, pixels))
    graph.output(convolution(graph, convolution(graph, x, 1), 3))
    return graph


def sum_behind(swapped=False):
    """A convolution and a sum of its result and another tensor."""
    graph = Graph("sum")
    x = graph.input("x", (1, 64, 32, 32))
    other = graph.input("other", (1, 16, 32, 32))
    y = convolution(graph, x, 1)
    pair = (other, y) if swapped else (y, other)
    graph.output(graph.add(Add.from_ratios(0.5, 0.7, 0), *pair))
    return graph


def pool_behind():
    """A convolution that the array bounds, and a pool that the port bounds."""
    graph = Graph("pool")
    x = graph.input("x", (1, 32, 32, 32))
    graph.output(graph.add(MaxPool((3, 3), (2, 2), (1, 1, 1, 1)), convolution(graph, x, 3)))
    return graph


def compiled(graph, **options):
    model = vtaops.compile_model(graph, CONFIG, **options)
    (program,) = model.programs
    return model, program


@pytest.fixture
def alone(monkeypatch):
    """Every step of a network runs alone."""
    monkeypatch.setattr("vtaops.network.regions.find_groups", lambda *_, **__: {})


GRAPHS = {
    "convolutions": narrow_then_wide(),
    "sum": sum_behind(),
    "sum swapped": sum_behind(swapped=True),
    "pool": pool_behind(),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_steps_of_which_one_waits_run_together(graph, request):
    model, program = compiled(graph)
    rng = np.random.default_rng(0)
    given = [rng.integers(-128, 128, tensor.shape, np.int8) for tensor in graph.inputs]
    assert np.array_equal(model.run(*given), model.reference(*given))
    request.getfixturevalue("alone")
    _, apart = compiled(graph, prove=False)
    dram = fragments.planned(program.config)
    assert program.cycles(dram) < 0.975 * apart.cycles(dram)


def test_a_result_of_few_tiles_is_read_from_the_output_memory():
    """It costs no load more, and spares the way to DRAM and back."""
    _, program = compiled(narrow_then_wide(pixels=1))
    loads = [i for i in program if isinstance(i, Load) and i.memory == Memory.INP]
    assert sum(i.forward for i in loads) == 1
    assert sum(isinstance(i, Store) and not i.is_nop for i in program) == 1


def test_depthwise_steps_together_finish_a_block_before_the_next():
    """So the parameters of more blocks than rows are loaded once, not in each band."""
    graph, channels = Graph("scales"), 256
    x = graph.input("x", (1, channels, 28, 28))
    scale = Requantization(multiplier=np.full(channels, 40_000), shift=22)
    for _ in range(3):
        weight = np.full((channels, 1, 1, 1), 64, np.int8)
        x = graph.add(Convolution(weight, None, scale, groups=channels), x)
    graph.output(x)
    _, program = compiled(graph, prove=False)
    loads = [i for i in program if isinstance(i, Load)]
    rows = sum(i.x_size for i in loads if i.memory == Memory.POST)
    assert rows == 3 * channels // program.config.block_out
    assert sum(i.forward for i in loads) >= 2 * channels // program.config.block_out


def test_weights_that_stay_count_no_loads(monkeypatch):
    """So other groups may pay; what takes fewer cycles in later runs is chosen."""
    asked = []
    real = FusionCandidate.__init__

    def told(self, steps, fragments, resident):
        real(self, steps, fragments, resident)
        asked.append((resident, self._cycles))

    monkeypatch.setattr(FusionCandidate, "__init__", told)
    model, _ = compiled(narrow_then_wide(pixels=8), pin_weights=True, prove=False)
    cycles = dict(asked)
    assert cycles[True] < cycles[False]
    assert model.steady_cycles() < model.cycles()
