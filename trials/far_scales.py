"""Random operators of several tensors whose scales lie far apart, judged by ONNX Runtime.

Each case is a small QDQ file as other quantisers write them: int8 or uint8, any zero points or
none, powers of two or free scales from 2**-30 to 2**30, batch 1 to 4. `judge` holds what vtaops
makes of it against ONNX Runtime's integers and against the real value before rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import vtaops
from trials.campaign import Campaign, Result, result
from vtaops.frontends import import_model
from vtaops.graph import evaluate
from vtaops.graph.probe import Probe

KINDS = (
    *("Add", "Sub", "Mul", "Max", "Min", "Where", "Concat", "Gather", "MatMul", "Sum"),
    *("gate", "Residual", "Constant", "Bias", "LeakyRelu", "Pad", "Relu"),
)
"""Operators of ONNX, and combinations: a vector for each channel, a convolution and a sum."""

NAMED = "Gemm", "Bounds"
"""More of them, in cases of their own: ``Gemm/7``."""

ERROR = 2.0**-14
"""The smaller of two terms is kept to this part of the greater one."""

RESIDUAL_ERROR = 1 / 128
"""A residual's integer factor is as exact as this."""

OWN = 0.5
"""The most steps of a result by which factors and biases of integers move it."""


@dataclass
class Case:
    """A random file with what its judge needs."""

    seed: int
    named: str = ""
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        rng = self.rng
        drawn = KINDS[int(rng.integers(len(KINDS)))]
        self.kind = self.named or drawn
        self.powers = bool(rng.random() < 0.5)
        self.dtype = np.dtype(rng.choice(["int8", "uint8"]))
        self.batch = int(rng.integers(1, 5))
        self.start = rng.uniform(-25, 25)
        self.spread = float(rng.choice([1, 4, 12, 24]))
        self.nodes, self.constants = [], {}
        self.samples, self.scales = {}, []
        self.model = self._model()

    @staticmethod
    def kind_of(seed: int) -> str:
        """Return the kind of the case of a seed, which is not made."""
        return KINDS[int(np.random.default_rng(seed).integers(len(KINDS)))]

    def scale(self) -> float:
        exponent = np.clip(self.start + self.rng.uniform(-self.spread, self.spread), -30, 30)
        return float(np.float32(2.0 ** (np.rint(exponent) if self.powers else exponent)))

    def zero(self) -> int:
        low = np.iinfo(self.dtype).min
        return low + int(self.rng.choice([128, 128, 0, 255, self.rng.integers(256)]))

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [result], **attributes))
        return result

    def constant(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def pair(self, tensor: str, scale: float, zero: int) -> str:
        grid = [self.constant(np.float32(scale)), self.constant(np.array(zero, self.dtype))]
        if zero == 0 and self.dtype == np.uint8 and self.rng.random() < 0.5:
            del grid[1]  # its default
        return self.add("DequantizeLinear", self.add("QuantizeLinear", tensor, *grid), *grid)

    def tensor(self, shape: tuple[int, ...]) -> str:
        """Add an input on a grid of its own; its values are all over the grid."""
        name, scale, zero = f"x{len(self.samples)}", self.scale(), self.zero()
        low = np.iinfo(self.dtype).min
        steps = self.rng.integers(low, low + 256, shape) - zero
        steps[self.rng.random(shape) < 0.2] = 0
        self.samples[name] = (steps * np.float32(scale)).astype(np.float32)
        self.scales.append(scale)
        return self.pair(name, scale, zero)

    def image(self) -> str:
        return self.tensor((self.batch, 8, 4, 5))

    def weights(self, *shape: int, axis: int | None = None) -> tuple[str, float]:
        scale = self.scale() if self.rng.random() < 0.3 else 2.0**-7
        values = self.rng.integers(-127, 128, shape).astype(np.int8)
        inputs = map(self.constant, (values, np.float32(scale), np.int8(0)))
        return self.add("DequantizeLinear", *inputs), scale

    def _model(self) -> onnx.ModelProto:
        self.before = getattr(self, f"_{self.kind.lower()}")()
        shapes = {n: onnx_value(n, v.shape) for n, v in self.samples.items()}
        bare = self._assembled(list(shapes.values()), [onnx.ValueInfoProto(name=self.before)])
        found = Probe(bare).run(self.samples)[self.before]
        reach = float(np.abs(found).max()) or 1.0
        scale = reach / self.rng.uniform(60, 260) if self.rng.random() < 0.8 else self.scale()
        scale = 2.0 ** np.rint(np.log2(scale)) if self.powers else scale
        self.result_scale = float(np.float32(np.clip(scale, 2.0**-60, 2.0**60)))
        self.result_zero = self.zero()
        result = self.pair(self.before, self.result_scale, self.result_zero)
        self.rounded = self.nodes[-1].input[0]
        return self._assembled(list(shapes.values()), [onnx_value(result, found.shape)])

    def _assembled(self, inputs: list, outputs: list) -> onnx.ModelProto:
        constants = [numpy_helper.from_array(v, k) for k, v in self.constants.items()]
        graph = helper.make_graph(self.nodes, "far", inputs, outputs, constants)
        opset = [helper.make_opsetid("", 17)]
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=opset, ir_version=8)
        )

    # ------------------------------------------------------------------------ operators

    def _two(self) -> str:
        return self.add(self.kind, self.image(), self.image())

    _add = _sub = _mul = _max = _min = _two

    def _sum(self) -> str:
        return self.add("Sum", self.image(), self.image(), self.image())

    def _where(self) -> str:
        condition = self.constant(self.rng.random((1, 8, 4, 5)) < 0.5)
        return self.add("Where", condition, self.image(), self.image())

    def _concat(self) -> str:
        return self.add("Concat", self.image(), self.image(), axis=int(self.rng.choice([1, 1, 2])))

    def _gather(self) -> str:
        joined = self.add("Concat", self.image(), self.image(), axis=1)
        return self.add("Gather", joined, self.constant(self.rng.permutation(16)[:9]), axis=1)

    def _matmul(self) -> str:
        a, b = (self.tensor((self.batch, 2, *shape)) for shape in ((5, 7), (7, 6)))
        return self.add("MatMul", a, b)

    def _gemm(self) -> str:
        """Two tensors, with any attributes and a term of any shape."""
        turned = {name: int(self.rng.integers(2)) for name in ("transA", "transB")}
        shapes = (7, 5) if turned["transA"] else (5, 7), (6, 7) if turned["transB"] else (7, 6)
        more = {"alpha": float(self.rng.uniform(0.2, 3)), "beta": 0.5}
        terms = []
        if self.rng.random() < 0.3:
            shape = [(), (6,), (5, 1), (5, 6)][int(self.rng.integers(4))]
            term = self.rng.uniform(-1, 1, shape) * self.scale()
            terms = [self.constant(term.astype(np.float32))]
        given = {name: value for name, value in (more | turned).items() if self.rng.random() < 0.7}
        given |= {name: value for name, value in turned.items() if value}
        return self.add("Gemm", *map(self.tensor, shapes), *terms, **given)

    def _bounds(self) -> str:
        """Extrema with numbers, of which some exclude others."""
        y = self.image()
        for _ in range(int(self.rng.integers(1, 4))):
            bound = self.constant(np.float32(self.rng.uniform(-100, 100) * self.scales[0]))
            y = self.add(str(self.rng.choice(["Max", "Min"])), y, bound)
        return y

    def _gate(self) -> str:
        operands = [self.image(), self.tensor((self.batch, 8, 1, 1))]
        if self.rng.random() < 0.3:
            operands.reverse()
        return self.add(str(self.rng.choice(["Mul", "Add", "Sub"])), *operands)

    def _convolution(self, *bias: str) -> str:
        weight, scale = self.weights(8, 8, 1, 1)
        y = self.add("Conv", self.image(), weight, *bias)
        self.scales[-1] *= scale * 8 * 127  # the reach of its sums
        return y

    def _residual(self) -> str:
        operands = [self._convolution(), self.image()]
        return self.add("Add", *(operands if self.rng.random() < 0.7 else operands[::-1]))

    def _bias(self) -> str:
        bias = self.rng.standard_normal(8) * self.scale() * 100
        return self._convolution(self.constant(bias.astype(np.float32)))

    def _constant(self) -> str:
        shape = self.rng.choice([0, 1])
        value = self.rng.uniform(-1, 1, [(), (1, 8, 1, 1)][shape]) * self.scale() * 100
        kind = str(self.rng.choice(["Add", "Mul", "Sub"]))
        return self.add(kind, self.image(), self.constant(value.astype(np.float32)))

    def _leakyrelu(self) -> str:
        return self.add("LeakyRelu", self.image(), alpha=float(self.rng.uniform(-0.3, 1.2)))

    def _pad(self) -> str:
        amount = self.constant(np.array(self.rng.integers(-127, 128), np.int8))
        one = self.add("DequantizeLinear", amount, self.constant(np.float32(self.scale())))
        self.scales.append(0.0)
        ends = self.constant(np.array([0, 0, 1, 0, 0, 0, 1, 2]))
        return self.add("Pad", self.image(), ends, one)

    def _relu(self) -> str:
        return self.add("Relu", self.add("Add", self.image(), self.image()))


def onnx_value(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def judge(case: Case, config: str = "") -> str:
    """Return how vtaops differs from ONNX Runtime without a promise; empty if it does not.

    Without a configuration, the imported graph is judged; with one, the compiled model also has to
    compute its own graph, at most two steps from ONNX Runtime.
    """
    values = Probe(case.model, [case.before, case.rounded]).run(case.samples)
    exact = values[case.before].astype(np.float64) / case.result_scale
    theirs = values[case.rounded].astype(np.int64)
    low = np.iinfo(case.dtype).min
    ours = _steps(evaluate(import_model(case.model), *case.samples.values())[0], case)
    error = np.abs(exact) * 2.0**-15 + min(_error(case), OWN) + 1e-3
    clipped = np.clip(exact, low - case.result_zero, low + 255 - case.result_zero)
    distance = np.abs(clipped - (ours - case.result_zero))
    wrong = (ours != theirs) & ((distance > 0.5 + error) | (np.abs(ours - theirs) > 1))
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0].tolist())
        return f"{at}: {ours[at]} where ONNX Runtime has {theirs[at]}, exactly {exact[at]:.6g}"
    return _judge_compiled(case, config, theirs) if config else ""


def _error(case: Case) -> float:
    """Return what integer factors and biases may move a result by, in steps."""
    error = 255 * sum(case.scales) * ERROR
    if case.kind == "Residual":
        error += 255 * case.scales[-1] * RESIDUAL_ERROR
    if case.kind == "Bias":  # in steps of the sums
        error += case.scales[-1] / (2 * 8 * 127)
    return error / case.result_scale


def _judge_compiled(case: Case, config: str, theirs: np.ndarray) -> str:
    model = vtaops.compile_model(case.model, config, host=True)
    found, own = (each(*case.samples.values()) for each in (model.run, model.reference))
    if not np.array_equal(found, own):
        return f"{np.count_nonzero(found != own)} results differ from the model's own graph"
    apart = np.abs(_steps(found, case) - theirs).max()
    return f"compiled, {apart} steps from ONNX Runtime" if apart > 2 else ""


def _steps(real: np.ndarray, case: Case) -> np.ndarray:
    return np.rint(real.astype(np.float64) / case.result_scale).astype(np.int64) + case.result_zero


CONFIGS = ("", "", "pynq", "pynq_ext", "pynq_exact")
"""Where a file is compiled, if it is; by seed."""


def trial(case: str) -> Result:
    """Judge the file of one seed, ``7``, or of one of a kind, ``Gemm/7``."""
    named, _, seed = case.rpartition("/")
    made = Case(int(seed), named)
    error = judge(made, CONFIGS[int(seed) % len(CONFIGS)])
    return result(made.kind, error, files=1, right=not error)


CAMPAIGN = Campaign(
    lambda count: [
        *map(str, range(count)),
        *(f"{kind}/{seed}" for seed in range(count // 10) for kind in NAMED),
    ],
    trial,
    count=2600,
)
