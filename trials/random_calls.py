"""Random calls of `vtaops.cpu` against NumPy and SciPy in double precision.

Sizes up to 200 (several whole tiles of every kernel), strided and read-only views, NaN and
infinities; float32, float16 or bfloat16; on this processor and as on poorer ones.
``python -m trials random_calls`` runs many of them, between guard pages.
"""

from __future__ import annotations

from contextlib import contextmanager

import ml_dtypes
import numpy as np
from scipy import special

from trials.campaign import Campaign, Result, result
from trials.guarded_memory import guarded_kernels
from trials.kernel_reference import conv2d_reference, depthwise_reference, windows
from vtaops import cpu
from vtaops.kernels import cache
from vtaops.kernels.cpu import layers
from vtaops.kernels.cpu.kernel import kernel
from vtaops.kernels.cpu.target import CpuTarget, lacking, thread_count

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, 1e30], "float32")

INTEGERS = ("int8", "uint8", "int32")

STORED = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}

_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512vl", "avx512bw", "avx512dq")
_HIDDEN = tuple(sorted({"avx512f", *lacking("znver4")}))
"""AVX-512, and what else a Zen 4 has and this machine may lack, such as GFNI."""

PROCESSORS = (
    CpuTarget("nehalem", (), (), thread_count()),
    CpuTarget("haswell", _AVX2, (), thread_count()),
    CpuTarget("haswell", (*_AVX2, "avx512f"), (), thread_count()),
    CpuTarget("znver4", (*_AVX2, "avx512f"), _HIDDEN, thread_count()),
    CpuTarget("skylake-avx512", _AVX512, (), thread_count()),
    CpuTarget.detect(),
)
"""SSE4.2; AVX2; the schedules of AVX-512, wide and narrow, in AVX2's code, for LLVM halves their
vectors; AVX-512 without dot products of bytes; this one."""


@contextmanager
def processor(target):
    """Compile as for another processor meanwhile; for this one where it lacks what that has."""
    detect, plans = CpuTarget.detect, cpu._cpu._plans
    emulated = {"avx512f"} if "avx512vl" not in target.features else set()
    if set(target.features) - emulated <= set(detect().features):
        CpuTarget.detect = classmethod(lambda cls: target)
    cpu._cpu._plans = {}
    kernel.cache_clear()
    try:
        yield
    finally:
        CpuTarget.detect, cpu._cpu._plans = detect, plans
        kernel.cache_clear()


class Draw:
    """Random arguments from a seed.

    Attributes
    ----------
    real : dtype
        Of all numbers that are no integers.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.real = np.dtype("float32")

    def size(self, most: int = 200) -> int:
        """Small sizes, sizes around tiles, and any."""
        kind = self.rng.integers(3)
        if kind == 0:
            return int(self.rng.integers(1, min(most, 9) + 1))
        if kind == 1:
            near = int(self.rng.integers(1, 5)) * 16 + int(self.rng.integers(-1, 2))
            return max(1, min(most, near))
        return int(self.rng.integers(1, most + 1))

    def channels(self, groups: int, most: int) -> int:
        """Results of a group: of several, often some whole vectors, which tiles join."""
        if groups > 1 and self.below(2):
            return self.pick(4, 8, 16) * (1 + self.below(5))
        return self.size(most)

    def below(self, most: int) -> int:
        return int(self.rng.integers(most))

    def pick(self, *values):
        return values[self.rng.integers(len(values))]

    def array(self, *shape, dtype="", specials=False):
        """Return an array: plain, a strided view, transposed in memory, reversed, or read-only."""
        dtype = dtype or self.real
        kind = self.below(5)
        real = tuple(2 * n for n in shape) if kind == 1 and np.prod(shape) < 1e5 else shape
        if dtype not in INTEGERS:
            values = self.rng.standard_normal(real).astype(dtype)
            if specials:
                at = self.rng.random(real) < 0.02
                values[at] = self.rng.choice(SPECIAL, int(at.sum())).astype(dtype)
        else:
            limits = np.iinfo(dtype)
            values = self.rng.integers(limits.min, limits.max + 1, real).astype(dtype)
        if real != shape:
            values = values[tuple(slice(None, None, 2) for _ in shape)]
        elif kind == 2:
            values = np.asfortranarray(values)
        elif kind == 3 and shape:
            values = values[::-1]
        elif kind == 4:
            values.flags.writeable = False
        return values

    def space(self, most: int, largest_kernel: int = 5):
        """Return (height, width, kernel, strides, padding, dilation) that admit a result."""
        kernel = tuple(int(self.rng.integers(1, largest_kernel + 1)) for _ in "hw")
        dilation = tuple(self.pick(1, 1, 1, 2) for _ in "hw")
        strides = tuple(self.pick(1, 1, 2, 3) for _ in "hw")
        padding = tuple(self.below(3) for _ in "tlbr")
        if self.below(2):  # as networks have them
            kernel, dilation = (kernel[0],) * 2, (1, 1)
            strides, padding = (strides[0],) * 2, (kernel[0] // 2,) * 4
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        height, width = (max(self.size(most), span) for span in spans)
        return height, width, kernel, strides, padding, dilation


def _wide(x):
    return x.astype("float64")


def _epilogue(draw, shape, channels):
    """Return fused keywords, and the function of the sums that they mean."""
    fused, steps = {}, []
    at = (1, -1) + (1,) * (len(shape) - 2)
    if draw.below(2):
        bias = fused["bias"] = draw.array(channels)
        steps.append(lambda t: t + _wide(bias).reshape(at))
    if draw.below(4) == 0:
        scale, shift = fused["scale_shift"] = (draw.array(channels), draw.array(channels))
        steps.append(lambda t: t * _wide(scale).reshape(at) + _wide(shift).reshape(at))
    if draw.below(4) == 0:
        residual = fused["residual"] = draw.array(*shape)
        steps.append(lambda t: t + _wide(residual))
    if draw.below(2):
        name = fused["activation"] = draw.pick(*ACTIVATIONS)
        steps.append(ACTIVATIONS[name])

    def finish(total):
        for step in steps:
            total = step(total)
        return total

    return fused, finish


def _shape(n, c, height, width, kernel, strides, padding, dilation):
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    rows = (height + padding[0] + padding[2] - spans[0]) // strides[0] + 1
    columns = (width + padding[1] + padding[3] - spans[1]) // strides[1] + 1
    return n, c, rows, columns


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": special.expit,
    "silu": lambda x: x * special.expit(x),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_swish": lambda x: x * (np.clip(x + 3, 0, 6) / 6),
    "gelu": lambda x: x * special.ndtr(x),
    "tanh": np.tanh,
}


def matmul(draw):
    m, n, k = draw.size(), draw.size(), draw.size()
    transposed = draw.below(2)
    a, b = draw.array(m, k), draw.array(*((n, k) if transposed else (k, n)))
    fused, finish = _epilogue(draw, (m, n), n)
    call = cpu.dense if transposed else cpu.matmul
    total = _wide(a) @ _wide(b.T if transposed else b)
    return call(a, b, **fused), finish(total)


def stacked_matmul(draw):
    batch = draw.pick((3,), (2, 2), (1, 3), (1, 1), (17,))
    m, n, k = draw.size(90), draw.size(90), draw.size(90)
    kinds = draw.pick((draw.real,) * 2, (draw.real,) * 2, ("int8", "int8"), ("uint8", "int8"))
    a = draw.array(*batch, m, k, dtype=kinds[0])
    shared = draw.below(3) == 0
    b = draw.array(*(() if shared else batch), n, k, dtype=kinds[1]).swapaxes(-1, -2)
    if draw.below(2):
        b = np.ascontiguousarray(b)
    if kinds[1] == "int8":
        return cpu.matmul(a, b), a.astype("int32") @ b.astype("int32")
    bias, fused = draw.array(n), draw.pick({}, {"activation": "relu"})
    total = _wide(a) @ _wide(b) + _wide(bias)
    return cpu.matmul(a, b, bias=bias, **fused), np.maximum(total, 0) if fused else total


def int8_matmul(draw):
    m, n, k = draw.size(), draw.size(), draw.size()
    transposed = draw.below(2)
    a = draw.array(m, k, dtype=draw.pick("int8", "uint8"))
    b = draw.array(*((n, k) if transposed else (k, n)), dtype="int8")
    call = cpu.dense if transposed else cpu.matmul
    return call(a, b), a.astype("int32") @ (b.T if transposed else b).astype("int32")


def conv2d(draw):
    groups = draw.pick(1, 1, 1, 2, 3)
    ins, outs = draw.size(40), draw.channels(groups, 70)
    height, width, *rest = draw.space(200 if ins * outs < 200 else 40)
    kernel, strides, padding, dilation = rest
    if draw.below(3) == 0:
        kernel, padding = (1, 1), (0, 0, 0, 0)
    n = draw.pick(1, 1, 2)
    x, w = draw.array(n, groups * ins, height, width), draw.array(groups * outs, ins, *kernel)
    shape = _shape(n, groups * outs, height, width, kernel, strides, padding, dilation)
    fused, finish = _epilogue(draw, shape, groups * outs)
    total = conv2d_reference(x, w, strides, padding, dilation, groups)
    keywords = dict(strides=strides, padding=padding, dilation=dilation, groups=groups, **fused)
    return cpu.conv2d(x, w, **keywords), finish(total)


def int8_conv2d(draw):
    groups, ins = draw.pick(1, 1, 2), draw.size(40)
    outs = draw.channels(groups, 50)
    height, width, kernel, strides, padding, dilation = draw.space(40, 3)
    x = draw.array(1, groups * ins, height, width, dtype=draw.pick("int8", "uint8"))
    w = draw.array(groups * outs, ins, *kernel, dtype="int8")
    keywords = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    total = conv2d_reference(x, w, strides, padding, dilation, groups)
    return cpu.conv2d(x, w, **keywords), total.astype("int32")


def depthwise(draw):
    channels, multiplier = draw.size(40), draw.pick(1, 1, 2)
    height, width, kernel, strides, padding, dilation = draw.space(200 if channels < 9 else 50)
    kind = draw.pick(draw.real, draw.real, "int8", "uint8")
    x = draw.array(1, channels, height, width, dtype=kind)
    w = draw.array(channels, multiplier, *kernel, dtype="int8" if kind in INTEGERS else kind)
    keywords = {"strides": strides, "padding": padding, "dilation": dilation}
    total = depthwise_reference(x, w, strides, padding, dilation)
    if kind in INTEGERS:
        return cpu.depthwise_conv2d(x, w, **keywords), total.astype("int32")
    fused, finish = _epilogue(draw, total.shape, total.shape[1])
    keywords |= fused
    return cpu.depthwise_conv2d(x, w, **keywords), finish(total)


def pool(draw):
    height, width, kernel, strides, padding, dilation = draw.space(200, 4)
    padding = tuple(min(p, kernel[i % 2] // 2) for i, p in enumerate(padding))
    x = draw.array(1, draw.size(12), height, width, specials=True)
    keywords = {"strides": strides, "padding": padding}
    if draw.below(2):
        view = windows(_wide(x), kernel, strides, padding, dilation, -np.inf)
        return cpu.max_pool2d(x, kernel, dilation=dilation, **keywords), view.max(axis=(4, 5))
    include = bool(draw.below(2))
    result = cpu.avg_pool2d(x, kernel, count_include_pad=include, **keywords)
    total = windows(_wide(x), kernel, strides, padding, (1, 1)).sum(axis=(4, 5))
    inside = windows(np.ones(x.shape), kernel, strides, padding, (1, 1)).sum(axis=(4, 5))
    return result, total / (kernel[0] * kernel[1] if include else inside)


def global_pool(draw):
    x = draw.array(draw.size(4), draw.size(20), draw.size(60), draw.size(60), specials=True)
    if draw.below(2):
        return cpu.global_max_pool2d(x), _wide(x).max(axis=(2, 3), keepdims=True)
    return cpu.global_avg_pool2d(x), _wide(x).mean(axis=(2, 3), keepdims=True)


def softmax(draw):
    x = draw.array(draw.size(50), draw.size(), specials=draw.below(2))
    x = x * draw.real.type(5)
    axis = draw.pick(-1, -1, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        return cpu.softmax(x, axis=axis), special.softmax(_wide(x), axis)


def arithmetic(draw):
    name = draw.pick("add", "subtract", "multiply", "minimum", "maximum")
    shape = [draw.size(60) for _ in range(draw.below(4))]
    kind = draw.pick(draw.real, draw.real, "int8", "uint8", "int32", "float64")
    pair = []
    for _ in "ab":
        kept = [1 if draw.below(3) == 0 else extent for extent in shape]
        kept = kept[draw.below(len(kept) + 1) :] if draw.below(2) else kept
        pair.append(draw.array(*kept, dtype=kind, specials=True))
    return getattr(cpu, name)(*pair), getattr(np, name)(*pair)


def overlapping(draw):
    n = draw.size(60)
    buffer = np.array(draw.array(2 * n, n), order="C")
    start = draw.below(n + 1)
    out, a, b = buffer[start : start + n], buffer[:n], draw.array(n, n)
    if draw.below(2):
        expected = _wide(a) @ _wide(b)
        return cpu.matmul(a, b, out=out), expected
    expected = _wide(a) + _wide(b)
    return cpu.add(a, b, out=out), expected


def activation(draw):
    name = draw.pick(*ACTIVATIONS)
    x = draw.array(draw.size(), draw.size(9), specials=True) * draw.real.type(4)
    return cpu.activation(x, name), ACTIVATIONS[name](_wide(x))


def conv1d(draw):
    length, taps = draw.size(), draw.pick(1, 3, 7, 13)
    length = max(length, taps)
    if draw.below(2):
        x, w, ends = (
            draw.array(1, 1, length),
            draw.array(1, 1, taps),
            (draw.below(6), draw.below(6)),
        )
        total = np.correlate(np.pad(_wide(x[0, 0]), ends), _wide(w[0, 0]), "valid")
        return cpu.conv1d(x, w, padding=ends), total[None, None]
    c, o, padding, stride = draw.size(20), draw.size(40), draw.below(taps // 2 + 1), draw.pick(1, 2)
    x, w = draw.array(2, c, length), draw.array(o, c, taps)
    sides = (0, padding, 0, padding)
    total = conv2d_reference(x[:, :, None], w[:, :, None], (1, stride), sides, (1, 1))
    return cpu.conv1d(x, w, padding=padding, strides=stride), total[:, :, 0]


def batch_norm(draw):
    shape = (draw.size(4), draw.size(60), draw.size(40), draw.size(40))[: draw.pick(2, 3, 4)]
    x, c = draw.array(*shape, specials=True), shape[1]
    gamma, beta, mean = (draw.array(c) for _ in range(3))
    variance = np.abs(draw.array(c)) + draw.real.type(0.1)
    at = (1, -1) + (1,) * (len(shape) - 2)
    scale = _wide(gamma) / np.sqrt(_wide(variance) + 1e-5)
    expected = _wide(x) * scale.reshape(at) + (_wide(beta) - _wide(mean) * scale).reshape(at)
    return cpu.batch_norm(x, gamma, beta, mean, variance), expected


def chained_layers(draw):
    """A convolution, a depthwise one, a pooling, a 1x1 with a residual: data stay packed."""
    n, c, o = draw.pick(1, 1, 2), draw.size(40), draw.size(70)
    height, width, *window = draw.space(200 if c * o < 200 else 40)
    x, w = draw.array(n, c, height, width), draw.array(o, c, *window[0])
    fused, finish = _epilogue(draw, _shape(n, o, height, width, *window), o)
    if {"scale_shift", "residual"} & fused.keys():
        fused, finish = {}, lambda total: total
    total = finish(conv2d_reference(x, w, *window[1:]))
    steps = dict(zip(("strides", "padding", "dilation"), window[1:], strict=True))
    packed = layers.PackedConv2d(w, **steps, **fused)(draw.pick(x, layers.pack(x)))
    size = int(draw.pick(1, 3, 5)), int(draw.pick(1, 3))
    w, sides = draw.array(o, 1, *size), (size[0] // 2, size[1] // 2) * 2
    stride = draw.pick(1, 2)
    depthwise = layers.PackedConv2d(w, groups=o, padding=sides, strides=stride) if o > 1 else None
    if depthwise is not None:
        packed = depthwise(packed)
        total = depthwise_reference(total, w, (stride, stride), sides, (1, 1))
    kind = draw.pick("max", "avg", "global")
    if kind == "global":
        packed, total = (
            layers.PackedGlobalAvgPool2d()(packed),
            total.mean(axis=(2, 3), keepdims=True),
        )
    elif min(total.shape[2:]) > 1:
        pool = layers.PackedMaxPool2d if kind == "max" else layers.PackedAvgPool2d
        packed = pool(3, strides=2, padding=1)(packed)
        outside = -np.inf if kind == "max" else 0
        view = windows(total, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), outside)
        total = view.max(axis=(4, 5)) if kind == "max" else view.mean(axis=(4, 5))
    w, bias = draw.array(o, o, 1, 1), draw.array(o)
    layer = layers.PackedConv2d(w, bias=bias, activation="relu")
    sums = conv2d_reference(total, w, (1, 1), (0, 0, 0, 0), (1, 1))
    sums = sums + _wide(bias).reshape(1, -1, 1, 1)
    result = layers.PackedAdd()(layer(packed, packed), packed).numpy()
    return result, np.maximum(sums + total, 0) + total


def byte_layers(draw):
    """A quantized convolution, a depthwise one and a dense layer over channels, weights packed."""
    n, c, o = draw.pick(1, 1, 2), int(draw.pick(draw.size(40), 64, 128)), draw.size(70)
    height, width, kernel, strides, padding, dilation = draw.space(40, 3)
    x = draw.array(n, c, height, width, dtype=draw.pick("int8", "uint8"))
    w = draw.array(o, c, *kernel, dtype="int8")
    steps = {"strides": strides, "padding": padding, "dilation": dilation}
    ends = {
        "shift": int(draw.below(12)),
        "clip": draw.pick((-100, 127), (-100, 127), (7, 7)),
        "activation": draw.pick(None, "relu"),
    }
    bias = draw.array(o, dtype="int8").astype("int32")
    packed = layers.PackedConv2d(w, bias=bias, **steps, **ends)(draw.pick(x, layers.pack(x)))
    total = conv2d_reference(x, w, strides, padding, dilation) + bias.reshape(1, -1, 1, 1)
    total = total.astype("int32") >> ends["shift"]
    total = np.clip(np.maximum(total, 0) if ends["activation"] else total, *ends["clip"])
    if o > 1:
        w = draw.array(o, 1, 3, 3, dtype="int8")
        layer = layers.PackedConv2d(w, groups=o, padding=1, shift=7, clip=(-128, 127))
        packed = layer(packed)
        total = depthwise_reference(total, w, (1, 1), (1, 1, 1, 1), (1, 1)).astype("int32") >> 7
        total = np.clip(total, -128, 127)
    rows = np.ascontiguousarray(packed.numpy().transpose(0, 2, 3, 1))
    w = draw.array(draw.size(50), o, dtype="int8")
    return layers.PackedDense(w)(rows), total.transpose(0, 2, 3, 1).astype("int32") @ w.T.astype(
        "int32"
    )


def dense_layer(draw):
    m, n, k = draw.size(), draw.size(), draw.size()
    a, w = draw.array(m, k), draw.array(n, k)
    fused, finish = _epilogue(draw, (m, n), n)
    if "scale_shift" in fused:
        fused, finish = {}, lambda total: total
    residual = fused.pop("residual", None)
    result = layers.PackedDense(w, **fused)(a, residual)
    return result, finish(_wide(a) @ _wide(w.T))


FAMILIES = (
    byte_layers,
    dense_layer,
    chained_layers,
    matmul,
    stacked_matmul,
    int8_matmul,
    conv2d,
    int8_conv2d,
    depthwise,
    pool,
    global_pool,
    softmax,
    arithmetic,
    overlapping,
    activation,
    conv1d,
    batch_norm,
)


def check(seed: int) -> None:
    """Make the call of a seed and compare it with its reference.

    Raises
    ------
    AssertionError
        If they differ by more than float32 sums may.
    """
    family, draw = FAMILIES[seed % len(FAMILIES)], Draw(seed)
    target = draw.pick(*PROCESSORS)
    kinds = [STORED[name] for name in target.storage]
    draw.real = np.dtype(np.random.default_rng((seed, 1)).choice([np.float32, *kinds]))
    with np.errstate(all="ignore"), processor(target):
        result, expected = family(draw)
        assert result.shape == np.shape(expected), family.__name__
        if result.dtype.kind in "iu":
            assert result.dtype == expected.dtype, family.__name__
            assert np.array_equal(result, expected), family.__name__
            return
        result, expected, about = _wide(result), _wide(expected), ml_dtypes.finfo(result.dtype)
        most = min(3e37, float(about.max) * 0.99)
        finite = np.isfinite(expected) & (np.abs(expected) < most)
        # What overflows the dtype alone may be infinite, or NaN where infinities met.
        plain = ~finite & ~np.isfinite(expected)
        near, far = 1e-3, 1e-3 + float(about.eps) / 2
        if about.bits == 16 and family in (chained_layers,):  # rounded between layers
            near = 4 * float(about.eps) * np.abs(expected[finite]).max(initial=1)
        np.testing.assert_allclose(
            result[finite], expected[finite], rtol=far, atol=near, err_msg=family.__name__
        )
        np.testing.assert_array_equal(result[plain], expected[plain], family.__name__)


def trial(case: str) -> Result:
    """Make the call of a seed between guard pages, with kernels that are not kept.

    A kernel that leaves its arrays ends the process; the case after the last one that is noted is
    the one.
    """
    cache._store = lambda executable, path: None  # type: ignore[assignment]
    guarded_kernels().start()
    family = FAMILIES[int(case) % len(FAMILIES)].__name__
    try:
        check(int(case))
    except AssertionError as error:
        return result(family, f"{Draw(int(case)).pick(*PROCESSORS).mcpu}: {error}", calls=1)
    return result(family, calls=1)


CAMPAIGN = Campaign(lambda count: [str(seed) for seed in range(count)], trial, count=2000)
