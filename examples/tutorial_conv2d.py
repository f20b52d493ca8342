"""The VTA tutorial on convolution, end to end: declare, block, thread, copy, tensorize, run, check.

python examples/tutorial_conv2d.py
"""

import numpy as np

import vtaops
from vtaops import Conv2d, HardwareConfig, Tiling
from vtaops.ops.reference import evaluate
from vtaops.runtime.fsim import Fsim

# The ninth convolution of ResNet-18.
op = Conv2d(
    in_channels=256,
    out_channels=256,
    height=14,
    width=14,
    kernel=3,
    padding=1,
    shift=8,
    clip=(0, 127),
)
config = HardwareConfig.load("pynq")

print("=== the computation on packed tensors")
print(op.declare(config).script())

# Blocks of 128 channels and 7 x 14 pixels; two virtual threads hide each other's loads.
tiling = Tiling(oc=128, ic=16, h=7, w=14, oc_threads=2)
print("=== scheduled: scratchpads, cthread, intrinsics")
print(op.schedule(config, tiling).mod.script())

program = vtaops.compile(op, config, tiling)
print("=== the program")
print("\n".join(program.disassemble().splitlines()[:40]))

rng = np.random.default_rng(0)
data = rng.integers(-128, 128, (1, 256, 14, 14)).astype(np.int8)
kernel = rng.integers(-128, 128, (256, 256, 3, 3)).astype(np.int8)
device = Fsim(config)
result = program.run(device, data, kernel)
np.testing.assert_array_equal(result, evaluate(op, [data, kernel]))

print("=== execution statistics")
for name, value in device.stats().as_dict().items():
    print(f"{name:<16}: {value:>10}")
print("Successful 2D convolution test!")
