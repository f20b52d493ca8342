# %% [markdown]
# # 4. Traffic
#
# A convolution of ResNet-18: 50 kB of inputs, 590 kB of weights, and scratchpads of 32 and 256
# KiB. The tiling of TVM's tutorial reads every weight twice.
#
# **Your task:** a tiling that reads each weight once and each input at most twice. `oc` and `ic`
# are the channels of a tile, `h` and `w` its pixels. Calculate before you try: how many bytes
# does a tile take in each scratchpad (accumulators have 4 bytes)? How often is each operand read?
#
# *Then:* why is there no tiling that reads both just once? Which scratchpad would have to grow?

# %%
import vtaops

TASK = vtaops.Conv2d(
    in_channels=256,
    out_channels=256,
    height=14,
    width=14,
    kernel=3,
    padding=1,
    shift=8,
    clip=(0, 127),
)
LIMITS = {"wgt_load_nbytes": 589_824, "inp_load_nbytes": 100_352}


# %%
def program():
    return vtaops.compile(TASK, "pynq", vtaops.Tiling(oc=128, ic=16, h=14, w=14))
