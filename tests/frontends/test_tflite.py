"""int8 TFLite files: TVM's front end, images turned to NCHW, integers as of every other source."""

import numpy as np
import pytest
import tvm
from tvm import relax
from vtaops.frontends.tflite_files import from_tflite_file

import vtaops
from trials.tflite_models import small_tflite
from vtaops import ModelError, UnsupportedError
from vtaops.frontends import import_model
from vtaops.graph import evaluate


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "model.tflite"
        path.write_bytes(content)
        return path

    return write


def by_tvm(path, image):
    """Run the module of TVM's front end as it is, on the CPU."""
    mod = relax.get_pipeline("zero")(from_tflite_file(path))
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(image)).numpy()


@pytest.mark.parametrize("kind", ["int8", "float32"])
def test_a_network_means_what_tvm_computes(kind, write):
    """But for steps here and there: TVM rounds halves to even, and integer averages down."""
    path = write(small_tflite(kind))
    rng = np.random.default_rng(1)
    image = rng.integers(-128, 128, (1, 12, 10, 3)).astype(np.int8)
    if kind == "float32":
        image = ((image.astype(np.float32) - 3) * 0.02).astype(np.float32)
    graph = import_model(path)
    (found,), expected = evaluate(graph, image), by_tvm(path, image)
    assert found.dtype == expected.dtype == np.int8
    difference = np.abs(found.astype(int) - expected)
    assert difference.max() <= 4
    assert difference.mean() <= 1.5
    assert len(np.unique(expected)) > 5
    kinds = [node.op.kind for node in graph.nodes]
    assert not [node.op.reason for node in graph.nodes if node.op.kind == "host"]
    assert kinds.count("transpose") == 1  # the image, at the border


def test_a_network_runs_on_vta(write):
    model = vtaops.compile_model(write(small_tflite()), "pynq_ext")
    image = np.random.default_rng(2).integers(-128, 128, (1, 12, 10, 3)).astype(np.int8)
    assert np.array_equal(model.run(image), model.reference(image))
    assert [row.operator for row in model.plan if row.where == "host"] == ["transpose"]


def test_bad_files(write, tmp_path):
    with pytest.raises(ModelError, match=r"cannot read .*none\.tflite: No such file"):
        import_model(tmp_path / "none.tflite")
    with pytest.raises(ModelError, match="not a TFLite model"):
        import_model(write(b"no model"))
    with pytest.raises(UnsupportedError, match="'PAD'"):
        import_model(write(small_tflite(pad=True)))
    whole = small_tflite()
    with pytest.raises(ModelError, match="is damaged: an offset leads out"):
        import_model(write(whole[: len(whole) // 2]))
