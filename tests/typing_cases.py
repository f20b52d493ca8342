"""Calls for the type checker: lines that end in ``# refused`` are wrong, the others right."""

import numpy as np

import vtaops
from vtaops import Conv2d, Elementwise, Gemm, HardwareConfig, MaxPool2d, Session, Tiling

x, w = np.ones((1, 16, 8, 8), np.int8), np.ones((16, 16, 3, 3), np.int8)
bias = np.zeros(16, np.int32)
op = Conv2d(in_channels=16, out_channels=16, height=8, width=8, kernel=3, padding="same")

y = vtaops.conv2d(x, w, padding=(1, 0, 1, 0), bias=bias, clip=(0, 127))
Session("fsim").run(op, x, w, tiling=Tiling(oc=16, ic=16))
Session("fsim").conv2d(x, w, padding=1)
vtaops.max_pool2d(y, 3, strides=(2, 1)).astype(np.float32)
vtaops.matmul(x[0, 0], x[0, 0], shift=4, rounding="half_up", clip=None)
program = vtaops.compile(op, HardwareConfig.load("pynq"), capabilities="hls-2020")
cycles: int = program.cycles()

vtaops.conv2d(x)  # refused
vtaops.conv2d(x, w, 1)  # refused
vtaops.conv2d(x, w, pading=1)  # refused
vtaops.conv2d(x, w, padding="full")  # refused
vtaops.conv2d(x, w, strides=1.5)  # refused
vtaops.conv2d(x, w, clip=127)  # refused
vtaops.conv2d(x, w, rounding="nearest")  # refused
vtaops.conv2d(x, w, device="fsim")  # refused
Session("fsim").run(op, x, w, tiling=(16, 16))  # refused
vtaops.conv2d(x, w).show()  # refused
vtaops.gemm(x, w, strides=2)  # refused
vtaops.max_pool2d(x)  # refused
vtaops.clip(x, 0)  # refused
vtaops.depthwise_conv2d(x, w, groups=16)  # refused
Conv2d(256, 256, 14, 14, 3)  # refused
Conv2d(in_channels=16, out_channels=16, height=8, width=8)  # refused
Conv2d(in_channels=16, out_channels=16, height=8, width=8, kernel=3, bias=bias)  # refused
Gemm(m=1, n=2, k=3, clip="relu")  # refused
MaxPool2d(channels=16, height=8, width=8, kernel=3, strides="2")  # refused
Elementwise(function="divide", shape=(3,))  # refused
Tiling(ic=16)  # refused
Tiling(oc=16, ic=16, keep="out")  # refused
Session("fsim", fallback="gpu")  # refused
vtaops.compile("resnet18.C8")  # refused
op.kernel = 5  # refused
