# %% [markdown]
# # 7. Other hardware
#
# A 1x1 convolution has few products for each result, so that shift and clip, three passes of the
# vector ALU, cannot hide behind them. No tiling helps; hardware does.
#
# **Your task:** choose *one* extension that brings the layer within its cycles. `docs/isa.md`
# describes them; a configuration with one of them is `dataclasses.replace(config,
# extensions=("pool",))`.
#
# *Then:* what does it cost? `vtaops hardware synth` and the page on exploration tell LUTs. Would a
# wider tile (`vtaops list configs`) be the better use of them?

# %%
from dataclasses import replace

import vtaops

TASK = vtaops.Conv2d(
    in_channels=64,
    out_channels=128,
    height=56,
    width=56,
    kernel=1,
    strides=2,
    shift=8,
    clip=(0, 127),
)
LIMITS = {"extensions": 1, "cycles": 40_000}

plain = vtaops.HardwareConfig.load("pynq")


# %%
def program():
    config = replace(plain, extensions=("post",))
    return vtaops.compile(TASK, config)
