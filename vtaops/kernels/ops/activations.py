"""Activations and the exponential, in arithmetic that every vector unit supports.

Calls of a math library would not vectorize. NaN and infinities behave as in NumPy and PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

from tvm import tirx

from vtaops.kernels.ops.common import Expr, at_least, at_most, dtype_of

_LOG2_E = 1.4426950408889634
_ROUNDING = 12582912.0
"""1.5 * 2**23: adding it to a float32 rounds that to an integer, in its lowest bits."""

_UNDERFLOW = -87.33654
"""The logarithm of the smallest normal float32."""


_ERF = (
    (1.9748956e-06, 0.00028802499, 0.0040030455, 0.053465626, 0.19623532, 1.128379),
    (3.7480687e-05, 0.0012162087, 0.015443227, 0.11647074, 0.50724019, 1.0),
)
"""P and Q of erf, highest power first."""


def exponential(x: Expr) -> Expr:
    """Return exp(x) for float32 x <= 0; results below the least normal number are 0.

    exp(x) = 2**n * exp(r) with n = round(x / ln 2) and |r| <= ln(2)/2 (Cody & Waite, 1980: ln 2 in
    two parts); exp(r) by its Taylor polynomial of degree 7, whose remainder is below half a unit
    in the last place. 2**n is built from its exponent bits.
    """
    # As an integer, since TVM's simplifier would cancel the constant.
    rounded = tirx.reinterpret("int32", x * _f32(_LOG2_E) + _f32(_ROUNDING))
    n = tirx.reinterpret("float32", rounded) - _f32(_ROUNDING)
    r = x - n * _f32(0.693359375) - n * _f32(-2.12194440e-4)
    power = _polynomial(r, [1.0 / n for n in (5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0)])
    exponent = (rounded + tirx.const(127, "int32")) << tirx.const(23, "int32")
    scale = tirx.reinterpret("float32", exponent)
    return tirx.Select(x < _f32(_UNDERFLOW), _f32(0.0), power * scale)


def relu(x: Expr) -> Expr:
    """Return max(x, 0)."""
    return at_least(tirx.const(0, dtype_of(x)), x)


def relu6(x: Expr) -> Expr:
    """Return min(max(x, 0), 6)."""
    return at_most(tirx.const(6, dtype_of(x)), relu(x))


def sigmoid(x: Expr) -> Expr:
    """Return 1 / (1 + exp(-x)) of float32."""
    small = exponential(_minus_magnitude(x))
    return tirx.Select(x < _f32(0.0), small, _f32(1.0)) / (small + _f32(1.0))


def silu(x: Expr) -> Expr:
    """Return x * sigmoid(x) of float32 (also called swish)."""
    return x * sigmoid(x)


def hard_sigmoid(x: Expr) -> Expr:
    """Return min(max(x + 3, 0), 6) / 6 of float32."""
    return relu6(x + _f32(3.0)) * _f32(1.0 / 6.0)


def hard_swish(x: Expr) -> Expr:
    """Return x * hard_sigmoid(x) of float32."""
    return x * hard_sigmoid(x)


def gelu(x: Expr) -> Expr:
    """Return x * (1 + erf(x / sqrt(2))) / 2 of float32.

    erf(z) = z * P(z**2) / Q(z**2) for |z| <= 4, where it reaches 1 in float32: a rational function
    of degrees 5 and 5, fitted by weighted least squares to an error of at most 2.2e-8. Results err
    by up to 1.2e-6 where 1 + erf cancels, as PyTorch's do.
    """
    z = at_most(_f32(4.0), at_least(_f32(-4.0), x * _f32(1.0 / sqrt(2.0))))
    square = z * z
    over, under = (_polynomial(square, terms) for terms in _ERF)
    return x * _f32(0.5) * (_f32(1.0) + z * over / under)


def tanh(x: Expr) -> Expr:
    """Return tanh(x) of float32: (1 - e) / (1 + e) with e = exp(-2 |x|), odd near 0."""
    small = exponential(_minus_magnitude(x) * _f32(2.0))
    size = (_f32(1.0) - small) / (_f32(1.0) + small)
    square = x * x
    # Near 0 the difference would cancel: use the series of degree 7, with a remainder below 1e-8.
    near = _polynomial(square, (-17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0))
    far = tirx.Select(x < _f32(0.0), -size, size)
    return tirx.Select(square < _f32(0.04), x * near, far)


ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "relu": relu,
    "relu6": relu6,
    "sigmoid": sigmoid,
    "silu": silu,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": hard_swish,
    "gelu": gelu,
    "tanh": tanh,
}
"""Activation functions by name."""


def _f32(value: float) -> Expr:
    return tirx.const(value, "float32")


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Evaluate a polynomial; coefficients start with the highest power."""
    value = _f32(coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + _f32(coefficient)
    return value


def _minus_magnitude(x: Expr) -> Expr:
    return -tirx.abs(x)  # not a select: LLVM would evaluate its uses for both signs
