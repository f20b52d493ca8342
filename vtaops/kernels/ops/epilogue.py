"""Epilogue: the elementwise tail that is fused behind a convolution or matrix product.

The order is defined here: bias, scale and shift (given, or folded from a batch normalisation),
residual, activation; for int8, bias, arithmetic right shift, clip.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import te, tirx
from tvm.sym import Analyzer

from vtaops.base.errors import ShapeError
from vtaops.kernels.ops.activations import ACTIVATIONS
from vtaops.kernels.ops.common import Expr, Tensor, TensorOp, TensorSpec, dtype_of

INTEGER_ACTIVATIONS = ("relu", "relu6")
"""Activations of int32 sums."""

VECTORS = {
    "bias": ("bias",),
    "scale_shift": ("scale", "shift"),
    "batch_norm": ("gamma", "beta", "mean", "variance"),
}
"""The per-channel vectors of the operations that have some, in the order of a kernel's inputs."""


@dataclass(frozen=True)
class Epilogue:
    """Elementwise operations on each element of a result, per channel where vectors are needed.

    Attributes
    ----------
    bias : bool
        Add a vector (channels,).
    scale_shift : bool
        Multiply by a vector (channels,), then add another.
    batch_norm : float or None
        Normalise with gamma, beta, mean, variance (channels,) and this epsilon.
    residual : bool
        Add a tensor of the shape of the result.
    activation : str or None
        A key of `ACTIVATIONS`; of integers one of `INTEGER_ACTIVATIONS`.
    shift : int or None
        Arithmetic right shift of an int32 result.
    clip : (int, int) or None
        Lowest and highest value of an int8 result.
    """

    bias: bool = False
    scale_shift: bool = False
    batch_norm: float | None = None
    residual: bool = False
    activation: str | None = None
    shift: int | None = None
    clip: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.activation is not None and self.activation not in ACTIVATIONS:
            raise ShapeError(
                f"activation is {self.activation!r}; give one of {', '.join(ACTIVATIONS)}"
            )
        if self.scale_shift and self.batch_norm is not None:
            raise ShapeError("scale_shift and batch_norm exclude each other: fold them into one")
        if self.shift is not None and not 0 <= self.shift <= 31:
            raise ShapeError(f"shift is {self.shift}; it must lie in 0..31")
        if self.clip is not None and not -128 <= self.clip[0] <= self.clip[1] <= 127:
            raise ShapeError(f"clip is {self.clip}; give (low, high) within -128..127")

    @property
    def empty(self) -> bool:
        """Whether nothing is done."""
        return self == NOTHING

    def result_dtype(self, accumulator: str) -> str:
        """Return the dtype of the result of accumulators of a dtype."""
        return "int8" if self.clip is not None else accumulator

    def inputs(self, channels: int, shape: tuple[int, ...], dtype: str) -> tuple[TensorSpec, ...]:
        """Return the additional inputs, in call order.

        Parameters
        ----------
        channels : int
            Length of the per-channel vectors.
        shape : tuple of int
            Shape of the result.
        dtype : str
            Accumulator dtype.
        """
        fused = [name for name in VECTORS if getattr(self, name) not in (None, False)]
        vectors = [vector for name in fused for vector in VECTORS[name]]
        specs = [TensorSpec(name, (channels,), dtype) for name in vectors]
        if self.residual:
            specs.append(TensorSpec("residual", shape, dtype))
        return tuple(specs)

    def arguments(
        self, name: str, channels: int, shape: tuple[int, ...], dtype: str
    ) -> tuple[TensorSpec, ...]:
        """Return the additional inputs (see `inputs`), then the result, of a name."""
        result = TensorSpec(name, shape, self.result_dtype(dtype))
        return (*self.inputs(channels, shape, dtype), result)

    @property
    def scales(self) -> bool:
        """Whether results are multiplied by a vector."""
        return self.scale_shift or self.batch_norm is not None

    def bind(
        self, arguments: dict[str, Tensor], dtype: str = "float32", *, scaled: bool = False
    ) -> Callable[..., Expr]:
        """Return ``f(accumulator, channel, *index)``, the expression of one result element.

        Parameters
        ----------
        arguments : dict
            te tensors of (at least) the additional inputs, by name. Where "scale" and "shift" are
            among them, a batch normalisation has been folded into them already.
        dtype : str
            Accumulator dtype.
        scaled : bool
            Accumulators are multiplied by "scale" already.
        """
        tensors = dict(arguments)
        if self.batch_norm is not None and "scale" not in tensors:
            tensors["scale"], tensors["shift"] = fold_batch_norm(tensors, self.batch_norm)

        def apply(value: Expr, channel: Expr, *index: Expr) -> Expr:
            if self.bias:
                bias = tensors["bias"][channel]
                value = value + (bias * tensors["scale"][channel] if scaled else bias)
            if self.scales:
                value = value if scaled else value * tensors["scale"][channel]
                value = value + tensors["shift"][channel]
            if self.residual:
                value = value + tensors["residual"][index]
            if self.shift is not None:
                value = value >> tirx.const(self.shift, dtype)
            return self._limit(value, dtype)

        return reading_sums(apply)

    def _limit(self, value: Expr, dtype: str) -> Expr:
        if self.activation is not None:
            value = ACTIVATIONS[self.activation](value)
        if self.clip is not None:
            low, high = (tirx.const(limit, dtype) for limit in self.clip)
            value = tirx.max(tirx.min(value, high), low).astype("int8")
        return value


NOTHING = Epilogue()
"""The epilogue that leaves a result as it is."""


def reading_sums(epilogue: Callable[..., Expr]) -> Callable[..., Expr]:
    """Return a bound epilogue whose results read their sums.

    TVM simplifies a clip to one value to a constant, and a schedule would not find the sum behind
    it. Comparisons it leaves alone.
    """

    def apply(value: Expr, *index: Expr) -> Expr:
        result = epilogue(value, *index)
        constant = Analyzer().simplify(result)
        if not isinstance(constant, tirx.IntImm):
            return result
        bound = tirx.const(constant.value, dtype_of(value))
        kept = tirx.Select(value < bound, bound, tirx.Select(value > bound, bound, value))
        return kept.astype(dtype_of(result))

    return apply


_AXES = {2: "ij", 3: "ncp", 4: "ncij", 5: "ncijb"}
"""Names of the axes of a result, by their number, for the readers of a kernel."""


class FusedOp(TensorOp):
    """An operator that ends in an epilogue."""

    epilogue: Epilogue

    @property
    @abstractmethod
    def accumulator(self) -> str:
        """The dtype of the sums."""

    def channel(self, *index: Expr) -> Expr:
        """Return the channel of an element of the result."""
        return index[1]

    def result(
        self,
        total: Callable[..., Expr],
        epilogue: Callable[..., Expr],
        tiled: tuple[int, ...] = (),
        places: Callable[..., Sequence[Expr]] = lambda *index: index,
    ) -> Tensor:
        """Declare the result: an epilogue, as bound, of each element of `total`.

        Of the shape `tiled` if it is given: whole tiles, whose elements lie at ``places(*index)``.
        """

        def element(*index: Expr) -> Expr:
            at = places(*index)
            return epilogue(total(*index), self.channel(*at), *at)

        return te.compute(
            tiled or self.output.shape,
            element,
            name=self.output.name,
            varargs_names=[*_AXES[len(self.output.shape)]],
        )

    def finished(self, tap: Callable[..., Expr], given: dict[str, Tensor]) -> Tensor:
        """Declare the sum `tap` with its epilogue; without one it is the result."""
        if self.epilogue.empty:
            return te.compute(self.output.shape, tap, name=self.output.name)
        total = te.compute(self.output.shape, tap, name="total")
        return self.result(total, self.epilogue.bind(given, self.accumulator))


def fold_batch_norm(tensors: dict[str, Tensor], epsilon: float) -> tuple[Tensor, Tensor]:
    """Declare the scale and shift that equal a batch normalisation (Ioffe & Szegedy, 2015).

    scale = gamma / sqrt(variance + epsilon), shift = beta - mean * scale.
    """
    gamma, variance = tensors["gamma"], tensors["variance"]
    small = tirx.const(epsilon, gamma.dtype)
    scale = te.compute(
        gamma.shape, lambda c: gamma[c] / tirx.sqrt(variance[c] + small), name="bn_scale"
    )
    shift = te.compute(
        gamma.shape, lambda c: tensors["beta"][c] - tensors["mean"][c] * scale[c], name="bn_shift"
    )
    return scale, shift
