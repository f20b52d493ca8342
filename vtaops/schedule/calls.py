"""The names that schedules and lowering share: scratchpads, marks and calls.

The operands of a call are one tile each:

    vta.gemm(acc, inp, wgt)         acc += inp @ wgt.T
    vta.window(acc, inp, wgt)       acc += a window of inp tiles * rows of wgt (``depthwise``)
    vta.reset(acc)                  acc = 0
    vta.reset(acc, value)           acc = value: a reset, then an ALU addition
    vta.alu(op, dst, src, operand)  dst = op(src, operand); operand: an immediate or a third tile
    vta.pool(acc, inp)              acc = max(acc, inp) (extension ``pool``)
    vta.requantize(zero_point, low, high, fine, dst, src, bias, scales)
                                    dst = src, scaled per channel; the bias is optional

The ALU works in place; lowering gives ``dst`` and ``src`` one SRAM address.
"""

INP_SCOPE = "local.inp_buffer"
WGT_SCOPE = "local.wgt_buffer"
ACC_SCOPE = "local.acc_buffer"

VTHREAD = "cthread"
"""Thread axis of virtual threads: ``s.bind(loop, VTHREAD)``."""

DMA_COPY = "vta.dma_copy"
"""Annotation of a copy: ``s.annotate(loop, DMA_COPY, True)``. One transfer per marked loop."""

GEMM_CALL = "vta.gemm"
WINDOW_CALL = "vta.window"
PRODUCT_CALLS = GEMM_CALL, WINDOW_CALL
RESET_CALL = "vta.reset"
ALU_CALL = "vta.alu"
REQUANTIZE_CALL = "vta.requantize"
POOL_CALL = "vta.pool"
