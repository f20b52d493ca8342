"""Programs of torch.export, float and quantised by torchao's PT2E, become integer graphs."""

import numpy as np
import pytest

import vtaops
from vtaops.frontends import import_model
from vtaops.graph import Host, evaluate
from vtaops.quantization.sources import from_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

# Of PyTorch's own: what TVM's front end and torchao call of it is to change.
pytestmark = pytest.mark.filterwarnings("ignore")


class Block(torch.nn.Module):
    """Convolutions with batch norm, residual, depthwise convolution, pooling and a classifier."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.inner = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU6())
        self.pool = nn.MaxPool2d(2)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.classify = nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        x = self.pool(torch.relu(self.inner(x) + x))
        return self.classify(torch.relu(self.depthwise(x)).mean((2, 3)))


@pytest.fixture
def block():
    torch.manual_seed(0)
    return Block().eval(), torch.randn(1, 3, 12, 12)


def test_a_float_program_runs_on_the_host(block):
    module, x = block
    with torch.no_grad():
        network = import_model(torch.export.export(module, (x,)))
        expected = module(x).numpy()
    assert [type(node.op) for node in network.nodes] == [Host]
    (found,) = evaluate(network, x.numpy())
    np.testing.assert_allclose(found, expected, atol=1e-5)


def by_pt2e(module, x, *, per_channel, linear=True):
    """Return a program quantised by PT2E, the linear layer or not, and what it computes."""
    pt2e = pytest.importorskip("torchao.quantization.pt2e", reason="torchao is not installed")
    quantize = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    quantizers = pytest.importorskip("torchao.testing.pt2e._xnnpack_quantizer")
    scheme = quantizers.get_symmetric_quantization_config(is_per_channel=per_channel)
    with torch.no_grad():
        program = torch.export.export(module, (x,)).module()
        quantizer = quantizers.XNNPACKQuantizer().set_global(scheme)
        if not linear:
            quantizer.set_module_type(torch.nn.Linear, None)
        prepared = quantize.prepare_pt2e(program, quantizer)
        for _ in range(4):
            prepared(torch.randn(1, 3, 12, 12))
        converted = quantize.convert_pt2e(prepared)
        pt2e.move_exported_model_to_eval(converted)
        return torch.export.export(converted, (x,)), converted(x).numpy()


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_program_quantised_by_pt2e_runs_on_integers(block, per_channel):
    program, expected = by_pt2e(*block, per_channel=per_channel)
    _, x = block
    network = import_model(program)
    assert not any(isinstance(node.op, Host) for node in network.nodes)
    (found,) = evaluate(network, x.numpy())
    step = network.nodes[-1].inputs[0].scale
    assert np.abs(found - expected).max() <= 2.01 * step
    model = vtaops.compile_model(network)
    np.testing.assert_array_equal(model.run(x.numpy()), found)


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_float_linear_layer_of_pt2e_runs_on_the_host(block, per_channel):
    program, expected = by_pt2e(*block, per_channel=per_channel, linear=False)
    _, x = block
    network = import_model(program)
    assert [node.op.kind for node in network.nodes if isinstance(node.op, Host)] == ["Gemm"]
    (found,) = evaluate(network, x.numpy())
    np.testing.assert_allclose(found, expected, atol=0.02)
    model = vtaops.compile_model(network, "pynq_ext")
    np.testing.assert_array_equal(model.run(x.numpy()), found)
    assert len(model.regions) == 1


@pytest.mark.parametrize("batch", [None, "dynamic"])
def test_quantize_takes_modules_and_programs(block, batch):
    """For one image, whatever batch a program was exported for."""
    module, x = block
    data = np.random.default_rng(0).standard_normal((6, 3, 12, 12)).astype(np.float32)
    source = module
    if batch:
        shapes = ({0: torch.export.Dim("batch")},)
        source = torch.export.export(module, (x.repeat(2, 1, 1, 1),), dynamic_shapes=shapes)
        assert import_model(source).inputs[0].shape == (1, 3, 12, 12)
    compiled = vtaops.compile_model(vtaops.quantize(source, data))
    assert len(compiled.regions) == 1
    with torch.no_grad():
        expected = module(torch.from_numpy(data[:1])).numpy()
    assert np.abs(compiled.run(data[:1]) - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("name", "sizes", "shape"),
    [
        ("RMSNorm", (8,), (2, 5, 8)),
        ("RMSNorm", ((5, 8), 1e-3, False), (2, 5, 8)),
    ],
)
def test_operators_that_pytorch_does_not_export(name, sizes, shape):
    onnxruntime = pytest.importorskip("onnxruntime")
    module = getattr(torch.nn, name)(*sizes)
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    model = from_torch(module, [data], None)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {session.get_inputs()[0].name: data[:1]})
    assert np.abs(found - module(torch.from_numpy(data[:1])).detach().numpy()).max() < 1e-6
