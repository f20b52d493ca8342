"""Epilogue: the elementwise operations fused after a convolution or matrix product.

Their order is defined here: bias, scale and shift (given, or folded from a batch normalization),
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
"""Activations that apply to int32 sums."""

VECTORS = {
    "bias": ("bias",),
    "scale_shift": ("scale", "shift"),
    "batch_norm": ("gamma", "beta", "mean", "variance"),
}
"""Per-channel vectors of each operation, in the order of kernel inputs."""


@dataclass(frozen=True)
class Epilogue:
    """Elementwise operations on a result, with per-channel vectors if needed.

    Attributes
    ----------
    bias : bool
        Add a vector (channels,).
    scale_shift : bool
        Multiply by a vector (channels,), then add another.
    batch_norm : float or None
        Normalize with gamma, beta, mean, variance (channels,) and this epsilon.
    residual : bool
        Add a tensor of the shape of the result.
    activation : str or None
        A key of `ACTIVATIONS`; for integers one of `INTEGER_ACTIVATIONS`.
    shift : int or None
        Arithmetic right shift of an int32 result.
    clip : (int, int) or None
        Bounds of an int8 result.
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
        """Whether it has no operations."""
        return self == NOTHING

    def result_dtype(self, accumulator: str) -> str:
        """Return the result dtype for an accumulator dtype."""
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
        absent = None, False  # an epsilon of 0 is none of these, though it equals False
        fused = [name for name in VECTORS if not any(getattr(self, name) is a for a in absent)]
        vectors = [vector for name in fused for vector in VECTORS[name]]
        specs = [TensorSpec(name, (channels,), dtype) for name in vectors]
        if self.residual:
            specs.append(TensorSpec("residual", shape, dtype))
        return tuple(specs)

    def arguments(
        self, name: str, channels: int, shape: tuple[int, ...], dtype: str
    ) -> tuple[TensorSpec, ...]:
        """Return the additional inputs (see `inputs`), then the result named `name`."""
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
            te tensors of (at least) the additional inputs, by name. If "scale" and "shift" are
            given, a batch normalization is already folded into them.
        dtype : str
            Accumulator dtype.
        scaled : bool
            Whether the accumulators are already multiplied by "scale".
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
"""The identity epilogue."""


def reading_sums(epilogue: Callable[..., Expr]) -> Callable[..., Expr]:
    """Return a bound epilogue whose results always read their sums.

    TVM simplifies a clip to one value to a constant, which hides the sum from a schedule. It does
    not simplify comparisons.
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
"""Axis names of a result, by rank, for readable kernels."""


class FusedOp(TensorOp):
    """An operator that ends in an epilogue."""

    epilogue: Epilogue

    @property
    @abstractmethod
    def accumulator(self) -> str:
        """Accumulator dtype."""

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
        """Declare the result: a bound epilogue of each element of `total`.

        If `tiled` is given, it is the shape: whole tiles, whose elements lie at ``places(*index)``.
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
        """Declare the sum `tap` followed by the epilogue, if any."""
        if self.epilogue.empty:
            return te.compute(self.output.shape, tap, name=self.output.name)
        total = te.compute(self.output.shape, tap, name="total")
        return self.result(total, self.epilogue.bind(given, self.accumulator))


def fold_batch_norm(tensors: dict[str, Tensor], epsilon: float) -> tuple[Tensor, Tensor]:
    """Declare the scale and shift equivalent to a batch normalization (Ioffe & Szegedy, 2015).

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
