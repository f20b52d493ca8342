"""TVM's MetaSchedule samples the splits of a matrix product; the timing model tells the best.

MetaSchedule needs the extra `tune`: pip install -e ".[tune]"
"""

import sys

import tvm
from tvm import te

import vtaops
from vtaops import schedule as vta
from vtaops.compiler import metaschedule

CONFIG = vtaops.HardwareConfig.load("pynq")


def declare(rows: int = 32, tiles: int = 16) -> tvm.IRModule:
    """Return ``res = (a @ b.T) >> 8`` on packed matrices."""
    a = te.placeholder((rows, tiles, 1, 16), "int8", name="a")
    b = te.placeholder((tiles, tiles, 16, 16), "int8", name="b")
    a_buf = te.compute(a.shape, lambda *i: a(*i), name="a_buf")
    b_buf = te.compute(b.shape, lambda *i: b(*i), name="b_buf")
    k, lane = te.reduce_axis((0, tiles), name="k"), te.reduce_axis((0, 16), name="lane")

    def product(m, n, r, v):
        left, right = a_buf[m, k, r, lane], b_buf[n, k, v, lane]
        return te.sum(left.astype("int32") * right.astype("int32"), [k, lane])

    mm = te.compute((rows, tiles, 1, 16), product, name="mm")
    shr = te.compute(mm.shape, lambda *i: mm(*i) >> 8, name="shr")
    res = te.compute(mm.shape, lambda *i: shr(*i).astype("int8"), name="res")
    return tvm.IRModule({"main": te.create_prim_func([a, b, res])})


def schedule(s: tvm.s_tir.Schedule) -> None:
    """Block the product; how large the blocks are, TVM samples."""
    m, n, r, v = s.get_loops(s.get_sblock("res"))
    (m, m_in), (n, n_in) = (s.split(i, s.sample_perfect_tile(i, 2, 64)) for i in (m, n))
    s.reorder(m, n, m_in, n_in, r, v)
    s.compute_at(s.get_sblock("shr"), n, preserve_unit_loops=True)
    s.compute_at(s.get_sblock("mm"), n, preserve_unit_loops=True)
    *_, m, n, r, v, k, lane = s.get_loops(s.get_sblock("mm"))
    k, k_in = s.split(k, s.sample_perfect_tile(k, 2, 64))
    s.reorder(k, k_in, m, n, r, v, lane)
    s.compute_at(s.get_sblock("a_buf"), k, preserve_unit_loops=True)
    s.compute_at(s.get_sblock("b_buf"), k, preserve_unit_loops=True)
    for block, kind in (("a_buf", "inp"), ("b_buf", "wgt"), ("mm", "acc"), ("shr", "acc")):
        s.set_scope(s.get_sblock(block), 0, getattr(vta, f"{kind}_scope"))
    s.decompose_reduction(s.get_sblock("mm"), k)
    vta.tensorize(s, "mm_init", vta.reset(CONFIG))
    vta.tensorize(s, "mm_update", vta.gemm(CONFIG))
    vta.tensorize(s, "shr", vta.alu(CONFIG, "shr", 8))


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    best = metaschedule.tune(declare(), schedule, CONFIG, trials=trials, seed=1)
    print(best.script(), f"# {vtaops.compile_schedule(best, CONFIG).cycles():,} cycles")
