# %% [markdown]
# # 6. A schedule of your own
#
# A one-dimensional convolution: 64 channels, 100 pixels, five taps. It is declared for you; the
# schedule makes a tile of one block of channels and eight pixels. It is proven, and slow.
#
# **Your task:** within the cycles. Choose the tile, and hide the loads: by two virtual threads
# (`s.bind(loop, vta.vthread)` before `decompose_reduction`), or with two places for each operand
# (`vtaops.compile_schedule(s, config, capacity=Capacity(inp=2, wgt=2))`, from `vtaops.lowering`).
#
# *Then:* let TVM's MetaSchedule find the tile (`examples/metaschedule.py`).

# %%
from tvm import te

import vtaops
from vtaops import schedule as vta

TASK = vtaops.Conv2d(
    in_channels=64, out_channels=64, height=1, width=100, kernel=(1, 5), shift=8, clip=None
)
LIMITS = {"cycles": 10_500, "gemm_counter": 7680}

config = vtaops.HardwareConfig.load("pynq")


# %%
def declared():
    data = te.placeholder((4, 100, 1, 16), "int8", name="data")
    kernel = te.placeholder((4, 4, 5, 16, 16), "int8", name="kernel")
    data_buf = te.compute(data.shape, lambda *i: data(*i), name="data_buf")
    kernel_buf = te.compute(kernel.shape, lambda *i: kernel(*i), name="kernel_buf")
    c, t, k = (te.reduce_axis((0, n), name=m) for m, n in (("c", 4), ("t", 5), ("k", 16)))
    total = te.compute(
        (4, 96, 1, 16),
        lambda o, x, r, v: te.sum(
            data_buf[c, x + t, r, k].astype("int32") * kernel_buf[o, c, t, v, k].astype("int32"),
            axis=[c, t, k],
        ),
        name="total",
    )
    shr = te.compute(total.shape, lambda *i: total(*i) >> 8, name="shr")
    res = te.compute(total.shape, lambda *i: shr(*i).astype("int8"), name="res")
    return vta.Schedule([data, kernel, res])


# %%
def program():
    s = declared()
    o, x, r, v = s.get_loops(s.get_sblock("res"))
    o_out, o_in = s.split(o, [None, 1])
    tile, x_in = s.split(x, [None, 8])
    s.reorder(o_out, tile, o_in, x_in, r, v)
    for block in ("shr", "total"):
        s.compute_at(s.get_sblock(block), tile, preserve_unit_loops=True)
        s.set_scope(s.get_sblock(block), 0, vta.acc_scope)
    *_, o, x, r, v, c, t, k = s.get_loops(s.get_sblock("total"))
    s.reorder(c, o, t, x, r, v, k)
    for block, scope in (("data_buf", vta.inp_scope), ("kernel_buf", vta.wgt_scope)):
        s.compute_at(s.get_sblock(block), c, preserve_unit_loops=True)
        s.set_scope(s.get_sblock(block), 0, scope)
    s.decompose_reduction(s.get_sblock("total"), c)
    vta.tensorize(s, "total_init", vta.reset(config))
    vta.tensorize(s, "total_update", vta.gemm(config))
    vta.tensorize(s, "shr", vta.alu(config, "shr", 8))
    return vtaops.compile_schedule(s, config)
