# %% [markdown]
# # 3. From sums to int8
#
# A layer of a quantised network: a product of a row of 256 numbers and a matrix of 256 x 256,
# whose sums are shifted right by 8 and clipped to 0..127, a ReLU. The schedule below stores the
# low 8 bits of the sums.
#
# **Your task:** declare the missing stages between `total` and `res`, put each into
# `vta.acc_scope`, and map each to the vector ALU: `vta.tensorize(s, "name", vta.alu(config,
# "shr", 8))`; `max` and `min` take a number too. The tutorial of the blocked matrix product has
# such stages.
#
# *Then:* what if the clip stands before the shift? What must its bounds be? Try a shift of 7.

# %%
from tvm import te, tirx  # tirx.max and tirx.min are what you need

import vtaops
from vtaops import schedule as vta

TASK = vtaops.Gemm(m=1, n=256, k=256, shift=8, clip=(0, 127))
LIMITS = {"alu_counter": 48, "gemm_counter": 256}

config = vtaops.HardwareConfig.load("pynq")


# %%
def declared():
    data = te.placeholder((1, 16, 1, 16), "int8", name="data")
    weight = te.placeholder((16, 16, 16, 16), "int8", name="weight")
    data_buf = te.compute(data.shape, lambda *i: data(*i), name="data_buf")
    weight_buf = te.compute(weight.shape, lambda *i: weight(*i), name="weight_buf")
    ko, ki = te.reduce_axis((0, 16), name="ko"), te.reduce_axis((0, 16), name="ki")
    total = te.compute(
        data.shape,
        lambda m, n, mi, ni: te.sum(
            data_buf[m, ko, mi, ki].astype("int32") * weight_buf[n, ko, ni, ki].astype("int32"),
            axis=[ko, ki],
        ),
        name="total",
    )
    res = te.compute(total.shape, lambda *i: total(*i).astype("int8"), name="res")
    return vta.Schedule([data, weight, res])


def program():
    s = declared()
    for block in ("total",):
        s.set_scope(s.get_sblock(block), 0, vta.acc_scope)
    s.set_scope(s.get_sblock("data_buf"), 0, vta.inp_scope)
    s.set_scope(s.get_sblock("weight_buf"), 0, vta.wgt_scope)
    m, n, mi, ni, ko, ki = s.get_loops(s.get_sblock("total"))
    s.reorder(ko, m, n, mi, ni, ki)
    s.decompose_reduction(s.get_sblock("total"), ko)
    vta.tensorize(s, "total_init", vta.reset(config))
    vta.tensorize(s, "total_update", vta.gemm(config))
    return vtaops.compile_schedule(s, config)
