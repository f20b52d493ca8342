"""torch.compile with the backend `vtaops`: the integers of `compile_model`, or floating point."""

import numpy as np
import pytest

import vtaops
from vtaops.errors import ArgumentError, PlacementWarning

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn

from vtaops.quantization.dynamo import backend  # noqa: E402

IMAGE = (3, 12, 12)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        y = torch.relu(self.first(x))
        return torch.relu(self.second(y) + y)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.gate = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 1)

    def forward(self, x):
        y = self.conv(x)
        return y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))


def head(*layers):
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *layers)


MODULES = {
    "Conv2d": lambda: head(nn.ReLU()),
    "same padding": lambda: head(nn.Conv2d(16, 8, 3, padding="same")),
    "BatchNorm2d": lambda: head(nn.BatchNorm2d(16), nn.ReLU6()),
    "depthwise": lambda: head(nn.Conv2d(16, 16, 3, groups=16), nn.Hardswish()),
    "MaxPool2d": lambda: head(nn.MaxPool2d(2), nn.Conv2d(16, 8, 1)),
    "AvgPool2d": lambda: head(nn.AvgPool2d(2), nn.LeakyReLU(0.1)),
    "Linear": lambda: head(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)),
    "ConvTranspose2d": lambda: head(nn.ConvTranspose2d(16, 8, 2, stride=2)),
    "residual": Residual,
    "gate": Gate,
}


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_gives_the_integers_of_compile_model(name):
    module = MODULES[name]().eval()
    data = torch.randn(4, *IMAGE)
    compiled = torch.compile(module, backend=backend, options={"calls": 2})
    with torch.no_grad():
        for part in data.split(2):
            torch.testing.assert_close(compiled(part), module(part))
        found = compiled(data[:2]).numpy()
    model = vtaops.compile_model(vtaops.quantize(module, data.numpy()), "pynq_ext")
    expected = np.concatenate([model.run(data[i : i + 1].numpy()) for i in range(2)])
    np.testing.assert_array_equal(found, expected)
    assert len(model.regions) == 1


def test_given_data_calibrate_before_the_first_call():
    module, data = MODULES["Conv2d"]().eval(), torch.randn(4, *IMAGE)
    options = {"calibration": data.numpy(), "scales": "pow2", "config": "pynq"}
    with torch.no_grad():
        found = torch.compile(module, backend=backend, options=options)(data[:1])
    model = vtaops.compile_model(vtaops.quantize(module, data.numpy(), scales="pow2"), "pynq")
    np.testing.assert_array_equal(found.numpy(), model.run(data[:1].numpy()))


def test_what_vtaops_does_not_take_stays_in_floating_point():
    module, x = nn.Linear(4, 4).double().eval(), torch.randn(2, 4).double()
    compiled = torch.compile(module, backend=backend, options={"calls": 1})
    with torch.no_grad():
        compiled(x)
        with pytest.warns(PlacementWarning, match="stays in floating point"):
            found = compiled(x)
        torch.testing.assert_close(found, module(x))


def test_options_are_checked():
    with pytest.raises(ArgumentError, match="calls is 0"):
        backend(None, [], options={"calls": 0})
