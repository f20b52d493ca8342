"""TFLite files of one operator: every operator that is read, as int8, uint8 and float."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trials.tflite_models import Writer

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """An operator: its name, shapes of its operands and of its results, constants, options.

    Attributes
    ----------
    operands
        In order: a shape for an activation, an array for a constant that is not quantised.
    grids
        Dtype, scale and zero point of activations; none for a file of floats.
    low
        Least real value that operands have.
    same
        Whether the result has the grid of the operands.
    """

    kind: str
    operands: tuple[Shape | np.ndarray, ...]
    results: tuple[Shape, ...]
    options: dict[str, Any]
    low: float = -3.0
    same: bool = False
    floats_only: bool = False
    result_kind: str = ""

    def file(self, dtype: str) -> bytes:
        """Return the file with activations of a dtype."""
        w = Writer(0)
        numbers, inputs = [], []
        for operand in self.operands:
            if isinstance(operand, tuple):
                numbers.append(self._activation(w, operand, dtype, self.low, 3.0))
                inputs.append(numbers[-1])
            else:
                numbers.append(w.tensor(operand.shape, str(operand.dtype), data=operand))
        low, high = (self.low, 3.0) if self.same else RANGES.get(self.kind, (-4.0, 4.0))
        results = [
            w.tensor(shape, self.result_kind)
            if self.result_kind
            else self._activation(w, shape, dtype, low, high)
            for shape in self.results
        ]
        w.operator(self.kind, numbers, results, **self.options)
        return w.finish(inputs, results)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of activations with which it is tried."""
        return ("float32",) if self.floats_only else ("float32", "int8", "uint8")

    @staticmethod
    def _activation(w: Writer, shape: Shape, dtype: str, low: float, high: float) -> int:
        if dtype == "float32":
            return w.tensor(shape, dtype)
        scale, least = (high - min(low, 0)) / 255, (-128 if dtype == "int8" else 0)
        zero = round(-min(low, 0) / scale) + least
        return w.tensor(shape, dtype, scale, zero)


RANGES = {
    "LOGISTIC": (0.0, 255 / 256),
    "SOFTMAX": (0.0, 255 / 256),
    "TANH": (-1.0, 127 / 128),
    "EXP": (0.0, 20.0),
    "LOG": (-6.0, 1.2),
    "L2_NORMALIZATION": (-1.0, 127 / 128),
    "LOG_SOFTMAX": (-255 / 16, 0.0),
    "SUM": (-40.0, 40.0),
    "MUL": (-9.0, 9.0),
    "BATCH_MATMUL": (-30.0, 30.0),
}


def inputs(case: Case, dtype: str, seed: int = 1) -> list[np.ndarray]:
    """Return activations for a case: over the whole range of the dtype."""
    rng = np.random.default_rng(seed)
    shapes = [operand for operand in case.operands if isinstance(operand, tuple)]
    if dtype == "float32":
        return [rng.uniform(case.low, 3, shape).astype(np.float32) for shape in shapes]
    limits = np.iinfo(dtype)
    return [rng.integers(limits.min, limits.max + 1, s).astype(dtype) for s in shapes]


def ints(*numbers: Any) -> np.ndarray:
    """Return a constant of int32."""
    return np.array(numbers, np.int32)


def cases(batch: int = 1) -> Iterator[Case]:
    """Return the operators, on some batch."""
    for group in (_elementwise, _vectors, _windows, _reductions, _resizes, _movement, _slices):
        yield from group(batch, (batch, 5, 6, 8))


def _elementwise(n: int, image: Shape) -> Iterator[Case]:
    """Operators on elements."""
    relu = {"FusedActivationFunction": 1}
    none = {"FusedActivationFunction": 0}
    for kind in ("ADD", "SUB", "MUL"):
        yield Case(kind, (image, image), (image,), none)
        yield Case(kind, (image, image), (image,), relu)
        yield Case(kind, (image, (1, 1, 1, 8)), (image,), none)
        yield Case(kind, ((n, 8), (n, 8)), ((n, 8),), none)
    yield Case("DIV", (image, image), (image,), none, low=0.5, floats_only=True)
    yield Case("POW", (image, image), (image,), {}, low=0.1, floats_only=True)
    yield Case("SQUARED_DIFFERENCE", (image, image), (image,), {})
    for kind in ("MAXIMUM", "MINIMUM"):
        yield Case(kind, (image, image), (image,), {}, same=True)
    for kind in ("RELU", "RELU6", "RELU_N1_TO_1", "ABS", "NEG"):
        yield Case(kind, (image,), (image,), {}, floats_only=kind == "NEG")
    for kind in ("LOGISTIC", "TANH", "ELU", "HARD_SWISH", "EXP"):
        yield Case(kind, (image,), (image,), {})
    for kind in ("FLOOR", "CEIL", "ROUND", "SIN", "COS", "SQUARE", "SIGN"):
        yield Case(kind, (image,), (image,), {}, floats_only=True)
    for kind in ("LOG", "SQRT", "RSQRT"):
        yield Case(kind, (image,), (image,), {}, low=0.1, floats_only=kind == "SQRT")
    yield Case("LEAKY_RELU", (image,), (image,), {"Alpha": 0.2})
    for approximate in (False, True):
        yield Case("GELU", (image,), (image,), {"Approximate": approximate})
    yield Case("PRELU", (image, (1, 1, 8)), (image,), {})


def _vectors(n: int, image: Shape) -> Iterator[Case]:
    """Operators on vectors."""
    none = {"FusedActivationFunction": 0}
    yield Case("SOFTMAX", ((n, 10),), ((n, 10),), {"Beta": 1.0})
    yield Case("SOFTMAX", ((n, 10),), ((n, 10),), {"Beta": 0.5})
    yield Case("LOG_SOFTMAX", ((n, 10),), ((n, 10),), {})
    yield Case("L2_NORMALIZATION", ((n, 10),), ((n, 10),), none)


def _windows(n: int, image: Shape) -> Iterator[Case]:
    """Pools."""
    none = {"FusedActivationFunction": 0}
    for same, size in ((0, (3, 3)), (1, (2, 2))):
        window = {"Padding": same, "StrideH": 2, "StrideW": 2, "FilterHeight": 3}
        window |= {"FilterWidth": 3, **none}
        yield Case("AVERAGE_POOL_2D", (image,), ((n, *size, 8),), window, same=True)
        yield Case("MAX_POOL_2D", (image,), ((n, *size, 8),), window, same=True)


def _reductions(n: int, image: Shape) -> Iterator[Case]:
    """Reductions, of some axes."""
    for kind in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
        same = kind in ("REDUCE_MAX", "REDUCE_MIN")
        for axes in ((1, 2), (3,), (1,), (1, 2, 3), (-1, 1)):
            for keep in (False, True):
                kept = [1 if a in [x % 4 for x in axes] else e for a, e in enumerate(image)]
                left = [e for a, e in enumerate(image) if a not in [x % 4 for x in axes]]
                shape = tuple(kept if keep else left)
                options = {"KeepDims": keep}
                yield Case(
                    kind, (image, ints(*axes)), (shape,), options, same=same,
                    floats_only=kind == "REDUCE_PROD",
                )  # fmt: skip


def _resizes(n: int, image: Shape) -> Iterator[Case]:
    """Resizes, in three modes."""
    for corners, halves in ((False, False), (False, True), (True, False)):
        for size in ((10, 12), (7, 9), (3, 4), (5, 12)):
            modes = {"AlignCorners": corners, "HalfPixelCenters": halves}
            for kind in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
                yield Case(kind, (image, ints(*size)), ((n, *size, 8),), modes, same=True)


def _movement(n: int, image: Shape) -> Iterator[Case]:
    """Operators that move elements."""
    none = {"FusedActivationFunction": 0}
    pads = ints([0, 0], [1, 2], [0, 1], [0, 3])
    padded = (n, 8, 7, 11)
    yield Case("PAD", (image, pads), (padded,), {}, same=True)
    yield Case("PAD", ((n, 8), ints([0, 0], [1, 2])), ((n, 11),), {}, same=True)
    yield Case("PADV2", (image, pads, (1,)), (padded,), {}, same=True)
    for mode in (0, 1):
        yield Case("MIRROR_PAD", (image, pads), (padded,), {"Mode": mode}, same=True)
    yield Case("RESHAPE", (image, ints(n, -1)), ((n, 240),), {}, same=True)
    yield (
        Case("SQUEEZE", ((n, 1, 1, 8),), ((n, 8),), {}, same=True)
        if n > 1
        else Case("SQUEEZE", ((2, 1, 1, 8),), ((2, 8),), {}, same=True)
    )
    yield Case("EXPAND_DIMS", (image, ints(1)[0]), ((n, 1, 5, 6, 8),), {}, same=True)
    yield Case("TRANSPOSE", (image, ints(0, 3, 1, 2)), ((n, 8, 5, 6),), {}, same=True)
    yield Case("TRANSPOSE", (image, ints(2, 0, 3, 1)), ((6, n, 8, 5),), {}, same=True)
    for axis, shape in ((3, (n, 5, 6, 16)), (1, (n, 10, 6, 8)), (-2, (n, 5, 12, 8))):
        options = {"Axis": axis, **none}
        yield Case("CONCATENATION", (image, image), (shape,), options, same=True)
    yield Case("PACK", (image, image), ((n, 2, 5, 6, 8),), {"Axis": 1, "ValuesCount": 2}, same=True)
    yield Case("SPLIT", (ints(3)[0], image), ((n, 5, 6, 4),) * 2, {"NumSplits": 2}, same=True)
    shapes = (n, 5, 6, 3), (n, 5, 6, 1), (n, 5, 6, 4)
    options = {"NumSplits": 3}
    yield Case("SPLIT_V", (image, ints(3, 1, -1), ints(3)[0]), shapes, options, same=True)
    yield Case("UNPACK", ((n, 3, 4),), ((n, 4),) * 3, {"Num": 3, "Axis": 1}, same=True)


def _slices(n: int, image: Shape) -> Iterator[Case]:
    """Operators that take some elements, and others."""
    yield Case("GATHER", (image, ints(2, 0, 3)), ((n, 3, 6, 8),), {"Axis": 1}, same=True)
    yield Case(
        "SLICE", (image, ints(0, 1, 2, 3), ints(-1, 3, -1, 4)), ((n, 3, 4, 4),), {}, same=True
    )
    yield Case(
        "STRIDED_SLICE", (image, ints(0, 1, -5, 0), ints(1, 5, 0, 8), ints(1, 2, 2, 3)),
        ((n, 2, 3, 3),), {"BeginMask": 0, "EndMask": 5}, same=True,
    )  # fmt: skip
    yield Case(
        "STRIDED_SLICE", (image, ints(0, 2), ints(1, 3), ints(1, 1)),
        ((n, 6, 8),), {"BeginMask": 1, "EndMask": 1, "ShrinkAxisMask": 2}, same=True,
    )  # fmt: skip
    block, crops = ints(2, 2), ints([0, 1], [1, 1])
    yield Case("SPACE_TO_BATCH_ND", (image, block, crops), ((4 * n, 3, 4, 8),), {}, same=True)
    small = (4 * n, 3, 4, 8)
    yield Case("BATCH_TO_SPACE_ND", (small, block, crops), ((n, 5, 6, 8),), {}, same=True)
    yield Case("DEPTH_TO_SPACE", (image,), ((n, 10, 12, 2),), {"BlockSize": 2}, same=True)
    yield Case("SPACE_TO_DEPTH", ((n, 4, 6, 8),), ((n, 2, 3, 32),), {"BlockSize": 2}, same=True)
    yield Case("TILE", (image, ints(1, 2, 1, 3)), ((n, 10, 6, 24),), {}, same=True)
    yield Case("BROADCAST_TO", ((n, 1, 6, 8), ints(*image)), (image,), {}, same=True)
    product = (n, 3, 4, 6), (n, 3, 6, 5)
    yield Case("BATCH_MATMUL", product, ((n, 3, 4, 5),), {"AdjX": False, "AdjY": False})
    product = (n, 3, 6, 4), (n, 3, 5, 6)
    yield Case("BATCH_MATMUL", product, ((n, 3, 4, 5),), {"AdjX": True, "AdjY": True})
    yield Case("ARG_MAX", (image, ints(3)[0]), ((n, 5, 6),), {"OutputType": 2}, result_kind="int32")
    yield Case("ARG_MIN", (image, ints(1)[0]), ((n, 6, 8),), {"OutputType": 2}, result_kind="int32")
    for kind in ("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "EQUAL", "NOT_EQUAL"):
        yield Case(kind, (image, image), (image,), {}, result_kind="bool")
    yield Case(
        "CAST",
        (image,),
        (image,),
        {"InDataType": 0, "OutDataType": 2},
        floats_only=True,
        result_kind="int32",
    )
    yield Case("ADD_N", (image, image, image), (image,), {}, floats_only=True)
