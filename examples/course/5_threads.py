# %% [markdown]
# # 5. Hiding the loads
#
# The same convolution. While a tile is loaded the array waits, and while it computes the port is
# idle.
#
# **Your task:** as few cycles as within the limit, by virtual threads: `oc_threads=2` or
# `h_threads=2` declare that a loop is two threads; each has its half of the scratchpads, and one
# computes while the other loads. `vtaops.compile(...).timeline()` in a notebook shows who waits
# for whom.
#
# *Then:* which scratchpad does each of the two split? What is the rest, compared with the bound
# that the checker tells? `vtaops tune resnet18.C8` shows what a search finds.

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
LIMITS = {"cycles": 485_000}


# %%
def program():
    return vtaops.compile(TASK, "pynq", vtaops.Tiling(oc=128, ic=16, h=7, w=14))
