"""Chains of convolutions and classifiers: linked, run in turns, compared with the reference."""

from dataclasses import replace

import numpy as np

from vtaops import AvgPool2d, Conv2d, Gemm, HardwareConfig
from vtaops.compiler.driver import emit_operator
from vtaops.lowering.linking.ordering import LAG
from vtaops.machine.config import Extension
from vtaops.network.fragments import chained, parameter_rows
from vtaops.network.placement import pack_side_by_side
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime import Fsim

PYNQ = HardwareConfig.load("pynq_ext")
TINY = replace(HardwareConfig.load("tiny"), extensions=tuple(Extension))
SMALL = replace(  # what a tiling for it leaves of TINY is room for two more
    TINY,
    log_inp_buff_size=TINY.log_inp_buff_size - 2,
    log_wgt_buff_size=TINY.log_wgt_buff_size - 2,
    log_acc_buff_size=TINY.log_acc_buff_size - 2,
)


def chain(channels, size, stride=1, inputs=16, outputs=16):
    """Return convolutions of which each reads what the one before it gives."""
    scaled = {"bias": True, "scales": True, "shift": 0}
    image = {"height": size, "width": size}
    first = Conv2d(
        in_channels=inputs, out_channels=channels, **image, kernel=1, zero_point=3, **scaled
    )
    wide = {"in_channels": channels, "out_channels": channels, "groups": channels}
    second = Conv2d(**wide, **image, kernel=3, strides=stride, padding=1, **scaled)
    size = (size - 1) // stride + 1
    third = Conv2d(
        in_channels=channels, out_channels=outputs, height=size, width=size, kernel=1, **scaled
    )
    return first, replace(second, zero_point=-5, clip=(-100, 90)), third


def classifier(inputs, channels, size, classes):
    """Return a convolution, the mean of its image, and the product of the means and weights."""
    scaled = {"bias": True, "scales": True, "shift": 0}
    image = {"height": size, "width": size}
    first = Conv2d(in_channels=inputs, out_channels=channels, **image, kernel=1, **scaled)
    mean = AvgPool2d(channels=channels, **image, kernel=size, multiplier=40_000, shift=21)
    product = Gemm(m=1, n=classes, k=channels, zero_point=7, **scaled)
    return replace(first, zero_point=-9), mean, product


def linked(ops, tilings, config, *, together, close=False):
    """Return the program of operators in scratchpads side by side."""
    parts = zip(ops, tilings, parameter_rows(tilings, config), strict=True)
    fragments = pack_side_by_side(
        [emit_operator(op, config, tiling, rows=rows) for op, tiling, rows in parts]
    )
    assert fragments is not None
    program = chained(fragments, (0 if close else LAG) if together else None)
    program.verify()
    return program


def check(program, ops, config):
    """Compare with the reference, on the functional simulator."""
    with Fsim(config, seed=2) as device:
        check_on(device, program, ops)


def check_on(device, program, ops):
    """Compare with the reference."""
    rng = np.random.default_rng(0)
    arrays = [random_arguments(op, rng) for op in ops]
    value = arrays[0][0]
    for op, own in zip(ops, arrays, strict=True):
        value = evaluate(op, [value.reshape(own[0].shape), *own[1:]])
    found = program.run(device, arrays[0][0], *(a for own in arrays for a in own[1:]))
    assert np.array_equal(found, value)
