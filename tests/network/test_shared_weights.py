"""What several operators read is stored once: in DRAM, in the model's file, in a C bundle."""

import numpy as np
import pytest

import vtaops
from trials.onnx_models import Builder


def unrolled(times, units=64, groups=1):
    """Products of one weight in a row, as an unrolled recurrent network has them."""
    b = Builder(1)
    weights = [
        b.constant((b.rng.standard_normal((units, units)) / 8).astype(np.float32))
        for _ in range(groups)
    ]
    x = b.input([1, units])
    for time in range(times):
        x = b.add("Relu", b.add("MatMul", x, weights[time % groups]))
    b.output(x)
    data = b.rng.standard_normal((8, units)).astype(np.float32)
    return vtaops.quantize(b.model(), data), data[:1]


@pytest.mark.parametrize("groups", [1, 2])
def test_one_weight_of_eight_products_is_stored_once(groups, tmp_path):
    file, x = unrolled(8, groups=groups)
    apart, _ = unrolled(8, groups=8)
    model, other = (vtaops.compile_model(each) for each in (file, apart))
    weight = 64 * 64
    images = [a for region in model.regions for a in region.parameters.values()]
    assert sum(array.nbytes >= weight for array in images) == groups
    assert model.report().weights_nbytes < other.report().weights_nbytes - (8 - groups) * weight
    assert np.array_equal(model.run(x), model.reference(x))
    assert "unproven" not in str(model.report())
    sizes = []
    for each in (model, other):
        each.save(tmp_path / "model.vtam")
        blob = each.export_c(tmp_path / f"c{len(sizes)}").blob_nbytes
        sizes.append((blob, (tmp_path / "model.vtam").stat().st_size))
    assert all(few < many - (8 - groups) * weight for few, many in zip(*sizes, strict=True))
    model.save(tmp_path / "model.vtam")
    loaded = vtaops.load_model(tmp_path / "model.vtam")
    assert np.array_equal(loaded.run(x), model.run(x))


@pytest.mark.parametrize("shape", [(250, 256), (60, 62, 3, 3)], ids=["matrix", "filters"])
def test_weights_are_in_the_file_once(shape, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "model.vtam"
    weight = rng.integers(-128, 128, shape, np.int8)
    op = (vtaops.graph.Dense if len(shape) == 2 else vtaops.graph.Convolution)(weight)
    graph = vtaops.Graph()
    graph.output(graph.add(op, graph.input("x", (1, *shape[1:]))))
    model = vtaops.compile_model(graph, "pynq_ext")
    model.save(path)
    assert path.stat().st_size - model.report().instructions_nbytes < 1.5 * weight.size
    loaded = vtaops.load_model(path)
    assert np.array_equal(loaded.graph.nodes[0].op.weight, weight)
    assert loaded.reference(np.ones((1, *shape[1:]), np.int8)).any()
