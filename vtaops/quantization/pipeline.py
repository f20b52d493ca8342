"""Quantise a float model with calibration data to a QDQ model: all steps in order."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any, Literal, get_args

import numpy as np

from vtaops.base.errors import AccuracyWarning, ModelError, PlacementWarning
from vtaops.base.names import checked_call
from vtaops.graph.grid import Grid
from vtaops.graph.onnx_files import (
    ModelProto,
    float_tensors,
    initializers,
    input_dtypes,
    require,
)
from vtaops.network.compile import target_of
from vtaops.network.target import Target
from vtaops.quantization.activations import norms
from vtaops.quantization.costs import Cost, costs
from vtaops.quantization.departures import Departure, changed_outputs, departures
from vtaops.quantization.equalize import equalize
from vtaops.quantization.host import float_parts
from vtaops.quantization.insert import given_floats, insert_pairs, integer_weights
from vtaops.quantization.masks import choose_masks
from vtaops.quantization.observers import (
    Moments,
    PerSample,
    SquaredErrors,
    ends,
    lost,
    means,
    observe,
    ranges,
    row_sizes,
)
from vtaops.quantization.pictures import Preparation
from vtaops.quantization.prepare import prepare
from vtaops.quantization.quality import GOOD_DB, Quality, compare
from vtaops.quantization.reach import reached
from vtaops.quantization.relief import Relief, relieved, worst_output
from vtaops.quantization.rounding import correct_biases, correctable, learn_rounding, learnable
from vtaops.quantization.samples import Calibration, Sample
from vtaops.quantization.scales import (
    WeightScale,
    covering_grid,
    no_finer_than_totals,
    power_of_two_grids,
    shared_ranges,
)
from vtaops.quantization.sources import load

Scales = Literal["pow2", "free"]

PUBLISHED = "pynq"
"""The configuration whose rules say what needs rounding for powers of two, if none is given."""

LEAST_GAIN = 1.0
"""Least gain in dB for which an option is taken that nobody asked for; less is chance."""

TRIED = {"bias_correction": math.inf, "equalization": GOOD_DB}
"""Options that are tried without a device, and the dB of the worst output from which not."""


@dataclass(frozen=True)
class Recipe:
    """The options of `quantize` that are chosen where nobody gives them."""

    zero_points: bool
    equalization: bool = False
    learned_rounding: bool = False
    bias_correction: bool = False

    def __str__(self) -> str:
        taken = [name.replace("_", " ") for name, taken in asdict(self).items() if taken]
        return ", ".join(taken) or "plain"


@dataclass(frozen=True)
class Quantization:
    """A quantised model, with what its comparison with the float model needs.

    Attributes
    ----------
    model
        The QDQ model, a standard ONNX file.
    prepared
        The float model whose tensors are quantised: optimised, and equalised if requested.
    corrected
        The same with learned weights and corrected biases.
    samples
        The calibration data.
    recipe
        The options that were taken.
    equalized
        Number of tensors whose channels were equalised.
    departures
        The outputs that the prepared model computes differently from the user's, and the tensors
        that the file computes differently from the prepared model, other than by rounding.
    relief
        The products that stay float, because an output would keep too little; None if all fit.
    """

    model: ModelProto
    prepared: ModelProto
    corrected: ModelProto
    samples: list[Sample]
    recipe: Recipe
    equalized: int = 0
    departures: tuple[Departure, ...] = ()
    relief: Relief | None = None

    @property
    def on_integers(self) -> bool:
        """Whether any part is computed on integers."""
        return any(node.op_type == "QuantizeLinear" for node in self.model.graph.node)

    def costs(self, count: int = 10) -> list[Cost]:
        """Return the tensors whose rounding costs the outputs most, and what would help."""
        return costs(self.prepared, self.model, self.samples, count)

    def quality(self) -> Quality:
        """Compare every layer with the float model on the calibration data."""
        return compare(self.prepared, self.model, self.samples)


@checked_call
def quantize(
    model: Any,
    calibration: Calibration,
    *,
    config: Any = None,
    scales: Scales | None = None,
    zero_points: bool | None = None,
    equalization: bool | None = None,
    learned_rounding: bool | None = None,
    bias_correction: bool | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    preparation: Preparation | None = None,
    float_nodes: Sequence[str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    weight_bits: int = 8,
) -> ModelProto:
    """Quantise a float model to 8 bits; the result is a standard QDQ model.

    Parameters
    ----------
    model : str, Path, onnx.ModelProto, torch.nn.Module, torch.export.ExportedProgram, IRModule
        A float ONNX or TFLite file, or a model.
    calibration
        Representative inputs: an `.npz` file with an array for each input, a folder of `.npz` or
        `.npy` files or pictures, arrays by name, or a loader of PyTorch. The first axis counts
        images. Integers for a quantised input represent real numbers, too.
    config : HardwareConfig, str or Path, optional
        The device. Zero points, equalisation, learned rounding and bias correction are then tried
        where they are not given, each on top of the best so far. Every fourth sample is held out
        from calibration and judges.
    scales
        "free": each scale as its values ask for, one per output channel for weights, which needs
        fixed-point multipliers. "pow2": every scale is a power of two, one per tensor, so
        requantisation is a shift and the model runs on every VTA, including the published
        bitstreams ("pynq"). Default: what the device supports; "free" without one.
    zero_points
        Whether activations may be asymmetric (a tensor after a Relu then uses all 256 steps).
        Default: only with free scales.
    equalization
        First bring the channels of each tensor to one range; the float network is equivalent.
    learned_rounding
        Round the weights of a result up or down so that their errors cancel on the calibration
        data (`vtaops.quantization.rounding`).
    bias_correction
        Remove the mean error of rounded weights from the biases. Default without `config`: if the
        worst output gains a decibel on the calibration data.
    shapes
        Shapes of inputs with dynamic dimensions; those of the calibration data by default.
    preparation
        Preparation of pictures in the calibration data; by default their pixels become -1..1.
    float_nodes
        Nodes, or tensors that they write, that stay float: the host computes them. Default: those
        products without which an output keeps less than 15 dB.
    fixed
        Values of inputs of an ONNX model that become constants, such as a sample rate: an `If` that
        they decide becomes one of its branches.
    weight_bits
        8; or 4 for the weights of products of one group, with free scales: hardware with the
        extension ``nibbles`` reads them twice as fast. Their rounding is learned by default.

    Returns
    -------
    ModelProto
        int8 activations, int8 weights, int32 biases with the scale of input times weight.

    Raises
    ------
    ModelError
        If the model or the data are malformed, missing, or do not match; or if the model is
        quantised already.
    UnsupportedError
        If the model is not float32.
    """
    return run_quantization(
        model,
        calibration,
        config=config,
        scales=scales,
        zero_points=zero_points,
        equalization=equalization,
        learned_rounding=learned_rounding,
        bias_correction=bias_correction,
        shapes=shapes,
        preparation=preparation,
        float_nodes=float_nodes,
        fixed=fixed,
        weight_bits=weight_bits,
    ).model


def run_quantization(
    model: Any,
    calibration: Calibration,
    *,
    config: Any = None,
    scales: Scales | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    preparation: Preparation | None = None,
    float_nodes: Sequence[str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    weight_bits: int = 8,
    **options: bool | None,
) -> Quantization:
    """Quantise like `quantize`, and keep what the comparison with the float model needs.

    `options` are the fields of `Recipe` that are given; one that is None, or missing, is chosen.
    """
    target, free = _target(config, scales, weight_bits)
    floats, samples = load(model, calibration, shapes, preparation, fixed)
    prepared = prepare(floats)
    kept = judges = samples
    if config is not None:
        kept, judges = [s for i, s in enumerate(samples) if i % 4 < 3], samples[3::4] or samples
    left = given_floats(prepared, float_nodes or ()) | choose_masks(prepared, kept)
    start, tried = _recipes(options, free, weight_bits, searched=config is not None)
    learned = start.learned_rounding or "learned_rounding" in tried
    quantizer = _Quantizer(prepared, kept, target, left, free, weight_bits, learned)
    done = _checked(floats, quantizer.quantized(start))
    if not done.departures:
        best = quantizer.chosen(done, judges, tried)
        if float_nodes is None:
            best = relieved(best, judges, partial(quantizer.quantized, best.recipe))
        done = done if best is done else _checked(floats, best)
    return _told(done)


def _target(config: Any, scales: Scales | None, bits: int) -> tuple[Target, bool]:
    """Return the device, and whether scales are free: if it supports such, unless one says."""
    if scales not in (None, *get_args(Scales)):
        raise ModelError(f"scales are 'pow2' or 'free', not {scales!r}")
    default = PUBLISHED if scales == "pow2" else None
    target = target_of(default if config is None else config, None)
    scales = scales or ("free" if target.scales else "pow2")
    if bits not in ((4, 8) if scales == "free" else (8,)):
        raise ModelError(
            f"weight_bits is {bits}; weights have 8 bits, or with free scales 4 (scales are "
            f"{scales!r})"
        )
    return target, scales == "free"


def _recipes(
    options: Mapping[str, bool | None], free: bool, bits: int, *, searched: bool
) -> tuple[Recipe, dict[str, float]]:
    """Return the first recipe, and the options to try, each with the dB from which not."""
    given = {name: value for name, value in options.items() if value is not None}
    default = {"zero_points": free, "learned_rounding": bits < 8}
    start = Recipe(**(default | given))
    tried = dict.fromkeys(asdict(start), math.inf) if searched else TRIED
    return start, {option: most for option, most in tried.items() if option not in given}


def _checked(floats: ModelProto, done: Quantization) -> Quantization:
    """Hold a file against the user's float model."""
    changed = changed_outputs(floats, done.prepared, done.samples[0])
    changed += departures(done.corrected, done.model, done.samples[0])
    return replace(done, departures=changed)


def _told(done: Quantization) -> Quantization:
    """Warn of the tensors that a file computes differently from float."""
    for departure in done.departures:
        warnings.warn(f"the quantised file: {departure}", AccuracyWarning, stacklevel=5)
    if done.relief is not None:
        warnings.warn(str(done.relief), PlacementWarning, stacklevel=5)
    if not done.on_integers:
        kinds = ", ".join(sorted({node.op_type for node in done.model.graph.node}))
        text = f"no part of the network ({kinds}) is computed in integers on the device: the file"
        warnings.warn(f"{text} stays float", PlacementWarning, stacklevel=5)
    return done


_Placed = tuple[dict[str, Grid], dict[str, WeightScale], frozenset[str]]
"""Where pairs stand: the grids of tensors, the scales of weights, results that stay float."""


@dataclass(eq=False)
class _Quantizer:
    """Quantises a model by any recipe; what two recipes share is computed once.

    Attributes
    ----------
    prepared
        The float model.
    samples
        Those that calibrate.
    given
        Results that stay float.
    free
        Whether scales are free, not powers of two.
    bits
        Of the weights of products.
    learned
        Whether a recipe may learn rounding.
    """

    prepared: ModelProto
    samples: list[Sample]
    target: Target
    given: frozenset[str]
    free: bool
    bits: int
    learned: bool

    def __post_init__(self) -> None:
        self.observed, self.placed = cache(partial(_Observed, self)), cache(self._placed)

    def _placed(self, equalization: bool, zero_points: bool, left: frozenset[str]) -> _Placed:
        """Return where pairs stand in an observed model: where the device computes on integers."""
        observed = self.observed(equalization)
        model = observed.model
        ranges, groups = shared_ranges(model, observed.ranges)
        grids = {name: covering_grid(reach, zero_points) for name, reach in ranges.items()}
        if not self.free:
            grids = power_of_two_grids(
                model, observed.errors, ranges, groups, zero_points=zero_points
            )
        excluded = left.union(lost(observed.rows.told, grids))
        weigh = partial(integer_weights, model, free=self.free, bits=self.bits)
        weights = weigh(grids, excluded)
        floats, joined = float_parts(insert_pairs(model, grids, weights, excluded), self.target)
        results = excluded.union(joined)
        if not self.free:
            grids = no_finer_than_totals(model, grids, groups, results)
        kept = {n: grid for n, grid in grids.items() if n not in floats}
        return kept, weigh(kept, results), results

    def quantized(self, recipe: Recipe, nodes: Sequence[str] = ()) -> Quantization:
        """Quantise by a recipe, some nodes left float."""
        floats = given_floats(self.prepared, nodes) if nodes else self.given
        observed = self.observed(recipe.equalization)
        placed = self.placed(recipe.equalization, recipe.zero_points, floats)
        corrected, (_, weights, _) = deepcopy(observed.model), placed
        if recipe.learned_rounding:
            learn_rounding(corrected, weights, observed.moments.moments)
        if recipe.bias_correction:
            plain = initializers(observed.model)
            correct_biases(corrected, weights, observed.means.told, plain)
        model = insert_pairs(corrected, *placed)
        return Quantization(
            model, observed.model, corrected, self.samples, recipe, observed.equalized
        )

    def chosen(
        self, done: Quantization, judges: Sequence[Sample], tried: Mapping[str, float]
    ) -> Quantization:
        """Return what is quantised, or better: with each option on top of the best so far."""
        kept = worst_output(done, judges)
        least = LEAST_GAIN if judges is self.samples else 0.0
        for option, most in tried.items():
            if kept < most:
                taken = getattr(done.recipe, option)
                changed = self.quantized(replace(done.recipe, **{option: not taken}))
                if (decibels := worst_output(changed, judges)) > kept + least:
                    done, kept = changed, decibels
        return done


class _Observed:
    """A float model, maybe equalised, and what one pass over the calibration data shows of it."""

    def __init__(self, quantizer: _Quantizer, equalization: bool) -> None:
        model, samples, self.equalized = deepcopy(quantizer.prepared), quantizer.samples, 0
        if equalization:
            self.equalized = equalize(model, samples)
            model = require("onnx").shape_inference.infer_shapes(model)
        self.model, constants = model, initializers(model)
        floats = [n for n, kind in input_dtypes(model).items() if kind == np.float32]
        names = [*floats, *float_tensors(model)]
        layers = learnable(model, constants) if quantizer.learned else []
        found = PerSample(names, ends)
        self.errors = SquaredErrors([] if quantizer.free else names)
        self.means = PerSample({node.input[0] for node in correctable(model, constants)}, means)
        self.moments = Moments(layers, constants, len(samples))
        self.rows = PerSample([norm.root for norm in norms(model)], row_sizes)
        shown = found, self.errors, self.means, self.moments, self.rows
        observe(model, samples, shown, "calibrate image")
        self.ranges = reached(model, ranges(found.told))
