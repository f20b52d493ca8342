# %% [markdown]
# # 1. Tokens
#
# One tile product by hand, as in step 1 of the course: `out = inp @ wgt.T`. The instructions are
# all there, and on most days a simulator gives the right result. But nobody waits for anybody:
# the three units run concurrently, and the only order between them is that of tokens.
#
# **Your task:** send and take the tokens that are needed. An instruction sends one to the unit
# before its own with `push_prev=1`, after its own with `push_next=1`, and takes one with
# `pop_prev=1`, `pop_next=1`; the units are in the order load, compute, store. Every token that is
# sent is taken. Do not use more than needed: which pairs of instructions touch the same element?
#
# `vtaops course check 1_tokens.py` judges the file. *Hint:* where does it say "race", and between
# whom?

# %%
import vtaops
from vtaops.machine.config import Memory
from vtaops.program import ProgramBuilder, Role

TASK = vtaops.Gemm(m=1, n=16, k=16, shift=0, clip=None)
LIMITS = {"instructions": 7}


# %%
def program():
    b = ProgramBuilder("pynq")
    inp = b.tiles("inp", Role.INPUT, 1, Memory.INP)
    wgt = b.tiles("wgt", Role.PARAMETER, 1, Memory.WGT)
    out = b.tiles("out", Role.OUTPUT, 1)
    b.load_micro_ops(b.micro_ops((0, 0, 0)), 1)
    b.reset(uop=0, count=1)
    b.load(Memory.INP, inp, sram=0, dram=0, count=1)
    b.load(Memory.WGT, wgt, sram=0, dram=0, count=1, push_next=1)
    b.gemm(uop=0, count=1, pop_prev=1, push_next=1)
    b.store(out, sram=0, dram=0, count=1, pop_prev=1, push_prev=1)
    b.finish(pop_next=1)
    return b.build()
