"""Random float networks, quantised: the file against float, the compiled model against its file.

Activations stand behind convolutions, batch norms and sums, before residuals, concatenations, pads
and layer scales; batches are 1 to 4, factors 1 to 1e-6. Nothing here comes from `quantize`: what a
file may lose is what ONNX Runtime's own quantiser loses, with a margin for coarser scales.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnxruntime.quantization as runtime

import vtaops
from trials.campaign import Campaign, Counts, Result, Results, result, summed
from trials.onnx_models import Builder
from vtaops.graph import onnx_files
from vtaops.graph.probe import Probe

SIZE = 8
SCHEMES = [(scales, zeros) for scales in ("pow2", "free") for zeros in (False, True)]
CONFIGS = {"pow2": ("pynq", "tiny", "4x8_i8w8a32_15_16_16_18"), "free": ("pynq_ext", "pynq_exact")}
MARGIN = {"pow2": 14.0, "free": 9.0}
"""dB that a file may have less than one of ONNX Runtime, which has free scales by channel."""

ENOUGH = 26.0
"""dB that are enough with any network."""


def network(seed: int) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return a random float network, and six inputs of it, stacked."""
    rng = np.random.default_rng(seed)
    batch, channels = int(rng.integers(1, 5)), int(rng.choice([4, 6, 8, 16]))
    b = Builder(seed)
    x = b.conv(b.input([batch, 3, SIZE, SIZE]), 3, channels, relu=bool(rng.integers(2)))
    for _ in range(int(rng.integers(2, 6))):
        x = BLOCKS[int(rng.integers(len(BLOCKS)))](b, rng, x, channels)
    if rng.random() < 0.3:
        x = b.add("Flatten", b.add("GlobalAveragePool", x))
        x = b.gemm(x, channels, 10)
    b.output(x)
    images = rng.standard_normal((6 * batch, 3, SIZE, SIZE)) * 2.0 ** rng.integers(-3, 4)
    model = b.model()
    if seed % 2:  # as exporters of TensorFlow do
        for node in model.graph.node:
            node.name = node.output[0]
    return model, images.astype(np.float32)


def _conv(b: Any, rng: Any, x: str, channels: int) -> str:
    """Return a convolution, maybe with a batch norm, then maybe an activation."""
    y = b.conv(x, channels, channels, kernel=int(rng.choice([1, 3])), bias=bool(rng.integers(2)))
    if rng.random() < 0.4:
        given = rng.uniform(0.5, 2, (4, channels)) * [[1], [0.2], [0.2], [1]]
        parts = [b.constant(row.astype(np.float32)) for row in given]
        y = b.add("BatchNormalization", y, *parts)
    return _active(b, rng, y)


def _active(b: Any, rng: Any, x: str) -> str:
    kind = str(rng.choice(["", "", "Relu", "Relu", "Relu6", "Clip", "LeakyRelu", "HardSwish"]))
    bounds = {"Relu6": (0.0, 6.0), "Clip": (-0.5, 1.0)}.get(kind)
    if bounds:
        return str(b.add("Clip", x, *(b.constant(np.float32(v)) for v in bounds)))
    more = {"alpha": float(rng.choice([0.01, 0.1, 0.25]))} if kind == "LeakyRelu" else {}
    return str(b.add(kind, x, **more)) if kind else x


def _residual(b: Any, rng: Any, x: str, channels: int) -> str:
    y = _conv(b, rng, x, channels)
    return _active(b, rng, b.add("Add", *((y, x) if rng.integers(2) else (x, y))))


def _layer_scale(b: Any, rng: Any, x: str, channels: int) -> str:
    """Return a tensor plus a branch with small factors, as in ConvNeXt."""
    factor = 10.0 ** -rng.integers(0, 7) * rng.uniform(0.5, 1.5, (1, channels, 1, 1))
    y = b.add("Mul", _conv(b, rng, x, channels), b.constant(factor.astype(np.float32)))
    return str(b.add("Add", x, y))


def _joined(b: Any, rng: Any, x: str, channels: int) -> str:
    parts = [_conv(b, rng, x, channels), x if rng.integers(2) else _conv(b, rng, x, channels)]
    joined = _active(b, rng, b.add("Concat", *parts, axis=1))
    return str(b.conv(joined, 2 * channels, channels, kernel=1))


def _split(b: Any, rng: Any, x: str, channels: int) -> str:
    first, second = b.add("Split", x, outputs=2, axis=1)
    half = channels // 2
    y = _active(b, rng, b.conv(first, half, half))
    return str(b.add("Concat", *((second, y) if rng.integers(2) else (y, second)), axis=1))


def _padded(b: Any, rng: Any, x: str, channels: int) -> str:
    y = _active(b, rng, x)
    value = b.constant(np.float32(rng.choice([0.0, 0.0, 1.0, -0.5])))
    y = b.add("Pad", y, b.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1])), value)
    weight = rng.standard_normal((channels, channels, 2, 2)) / np.sqrt(4 * channels)
    return str(b.add("Conv", y, b.constant(weight.astype(np.float32))))


def _pooled(b: Any, rng: Any, x: str, channels: int) -> str:
    kind = str(rng.choice(["MaxPool", "AveragePool"]))
    return str(b.add(kind, x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4))


def _gate(b: Any, rng: Any, x: str, channels: int) -> str:
    return str(b.add("Mul", x, b.add("Sigmoid", b.conv(x, channels, channels, kernel=1))))


def _compared(b: Any, rng: Any, x: str, channels: int) -> str:
    y = b.conv(x, channels, channels, kernel=1)
    pair = (y, x) if rng.integers(2) else (x, y)
    return _active(b, rng, b.add(str(rng.choice(["Sub", "Max", "Min"])), *pair))


BLOCKS = (
    *(_conv, _residual, _residual, _layer_scale, _joined, _split, _padded, _pooled, _gate),
    _compared,
)


def check(seed: int, scales: str, zeros: bool, config: str | None = None) -> dict[str, Any]:
    """Quantise a network, hold the file against float and the model against the file.

    Without a configuration, nothing is compiled.

    Returns
    -------
    dict
        dB of the file, of ONNX Runtime's own and of the model; what `quantize` itself said; values
        that differ for no reason; `error`, empty if all is right.
    """
    model, images = network(seed)
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    samples = [{"x": part} for part in images.reshape(6, batch, 3, SIZE, SIZE)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            file = vtaops.quantize(model, {"x": images}, scales=scales, zero_points=zeros)
        except (vtaops.errors.ModelError, vtaops.errors.UnsupportedError) as error:
            return {"refused": str(error), "error": ""}
    said = [str(w.message) for w in told if w.category.__name__ == "AccuracyWarning"]
    exact, found = _outputs(model, samples), _outputs(file, samples)
    result: dict[str, Any] = {"said": said, "file": sqnr(exact, found)}
    result["runtime"] = sqnr(exact, _outputs(by_runtime(model, samples), samples))
    wanted = min(ENOUGH, result["runtime"] - MARGIN[scales])
    errors = [*said]
    if result["file"] < wanted:
        errors.append(f"the file keeps {result['file']:.1f} dB of {result['runtime']:.1f}")
    if config is not None:
        errors += _compiled(file, samples[0], config, result, found[0])
    return {**result, "error": "; ".join(errors)}


def _compiled(
    file: Any, sample: dict[str, Any], config: str, result: dict[str, Any], expected: Any
) -> list[str]:
    """Compile and run a file; return what is wrong with the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled = vtaops.compile_model(file, config)
        except (vtaops.errors.ModelError, vtaops.errors.UnsupportedError) as error:
            result["refused"] = str(error)
            return []
    ours = compiled.run(sample["x"])
    result["model"] = sqnr(expected, ours)
    errors = []
    if not np.array_equal(ours, compiled.reference(sample["x"])):
        errors.append("the device differs from the reference")
    if result["model"] < ENOUGH - 10:
        errors.append(f"the model keeps {result['model']:.1f} dB of the file")
    return errors


def by_runtime(model: Any, samples: list[dict[str, Any]], *, per_channel: bool = True) -> Any:
    """Return the model quantised by ONNX Runtime: free scales, zero points."""

    class Reader(runtime.CalibrationDataReader):  # type: ignore[misc]
        rest = iter(samples)

        def get_next(self) -> Any:
            return next(self.rest, None)

    from vtaops.base.temporary import TemporaryFolder

    with TemporaryFolder() as folder:
        path = folder / "foreign.onnx"
        runtime.quantize_static(model, path, Reader(), per_channel=per_channel)
        return onnx_files.read(path)


def _outputs(model: Any, samples: list[dict[str, Any]]) -> Any:
    probe = Probe(model)
    return np.stack([next(iter(probe.run(sample).values())) for sample in samples])


def sqnr(exact: Any, found: Any) -> float:
    """Return 10 log10(sum x^2 / sum (x - q)^2), 99 for equal values."""
    exact = np.asarray(exact, np.float64)
    noise = float(np.square(exact - found).sum())
    signal = float(np.square(exact).sum())
    return round(float(10 * np.log10(signal / noise)), 1) if noise and signal else 99.0


def cases(count: int) -> list[str]:
    """Return the names of the cases: so many networks in each scheme."""
    return [f"{scales}/{int(zeros)}/{seed}" for seed in range(count) for scales, zeros in SCHEMES]


def trial(case: str) -> Result:
    """Quantise, compile, run and compare one network in one scheme: ``pow2/1/7``."""
    scales, zeros, seed = case.split("/")
    configs = CONFIGS[scales]
    found = check(int(seed), scales, zeros == "1", configs[int(seed) % len(configs)])
    kept = {name: found[name] for name in ("file", "runtime") if "runtime" in found}
    counts = {"networks": 1, "right": not found["error"], "refused": "refused" in found}
    return {**result(f"{scales}/{zeros}", found["error"], **counts), **kept}


def tables(results: Results) -> dict[str, Counts]:
    """Return the counts, and the mean dB of the files and of ONNX Runtime's."""
    made = summed(results)
    for scheme, row in made["counts"].items():
        kept = [r for case, r in results.items() if case.startswith(scheme) and "runtime" in r]
        for name in ("file", "runtime") if kept else ():
            row[f"{name}, mean dB"] = round(sum(r[name] for r in kept) / len(kept), 1)
    return made


CAMPAIGN = Campaign(cases, trial, count=100, tables=tables)
