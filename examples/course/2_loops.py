# %% [markdown]
# # 2. Loops
#
# A product of 4 x 4 tiles has 64 tile products. The program below is right, and has an
# instruction for each of them. An instruction takes 16 bytes of DRAM; the array waits for
# instructions rather than computes.
#
# **Your task:** one GEMM instruction. It runs two loops around its micro-ops, as here in Python:
#
#     for o in range(iter_out):
#         for i in range(iter_in):
#             for dst, src, wgt in micro_ops:
#                 acc[dst + o * dst_factor_out + i * dst_factor_in] += (
#                     inp[src + o * src_factor_out + i * src_factor_in]
#                     @ wgt[wgt + o * wgt_factor_out + i * wgt_factor_in].T
#                 )
#
# Tiles lie in DRAM as `inp[i * 4 + k]`, `wgt[j * 4 + k]` and `out[i * 4 + j]`. `Gemm` of
# `vtaops.machine.isa` names the fields; `b.add(Gemm(...))` appends it.
#
# *Then:* which of the three loops over i, j and k can be the micro-ops? How many are there in
# each case?

# %%
import vtaops
from vtaops.machine.config import Memory
from vtaops.machine.isa import Gemm
from vtaops.program import ProgramBuilder, Role

TASK = vtaops.Gemm(m=4, n=64, k=64, shift=0, clip=None)
LIMITS = {"instructions": 7, "uop_load_nbytes": 16}


# %%
def program():
    b = ProgramBuilder("pynq")
    inp = b.tiles("inp", Role.INPUT, 16, Memory.INP)
    wgt = b.tiles("wgt", Role.PARAMETER, 16, Memory.WGT)
    out = b.tiles("out", Role.OUTPUT, 16)
    products = [
        (i * 4 + j, i * 4 + k, j * 4 + k) for i in range(4) for j in range(4) for k in range(4)
    ]
    b.load_micro_ops(b.micro_ops(*products), 64)
    b.add(Gemm(reset=1, uop_begin=0, uop_end=1, iter_out=1, iter_in=16, dst_factor_in=1))
    b.load(Memory.INP, inp, 0, 0, 16)
    b.load(Memory.WGT, wgt, 0, 0, 16, push_next=1)
    for n in range(64):
        tokens = {"pop_prev": n == 0, "push_next": n == 63}
        b.add(Gemm(uop_begin=n, uop_end=n + 1, iter_out=1, iter_in=1, **tokens))
    b.store(out, 0, 0, 16, pop_prev=1, push_prev=1)
    b.finish(pop_next=1)
    return b.build()
