"""Whole networks against ONNX Runtime: every difference of every layer with its cause, counted.

Networks are those of examples/networks.py (PyTorch builds most of them), with powers of two and
with free scales.
"""

from __future__ import annotations

from examples import networks
from trials.campaign import Campaign, Result, result
from vtaops import quantize
from vtaops.frontends import differences

NETWORKS = ("resnet20", "light_squeezenet", "resnet18", "mobilenet_v2")
COUNTS = ("values", "differences", "halves", "scales")


def trial(case: str) -> Result:
    """Quantise a network and count its differences on one image, layer by layer."""
    name, scales = case.split("/")
    model, data = networks.network(name, count=4)
    quantized = quantize(model, data, scales=scales)  # type: ignore[arg-type]
    ((key, images),) = data.items()
    layers = differences(quantized, {key: images[:1]})
    totals = {name: sum(getattr(layer, name) for layer in layers.values()) for name in COUNTS}
    return result(case, layers=len(layers), **totals)


CAMPAIGN = Campaign(
    lambda count: [f"{name}/{scales}" for name in NETWORKS[:count] for scales in ("pow2", "free")],
    trial,
    count=1,
)
