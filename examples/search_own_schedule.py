"""TVM samples the tile sizes of a schedule of one's own; the timing model counts the cycles.

python examples/search_own_schedule.py [TRIALS]
"""

import sys

import tvm
from tvm import te

import vtaops
from vtaops import schedule as vta

CONFIG = vtaops.HardwareConfig.load("pynq")


def declare(rows: int = 64, tiles: int = 32) -> tvm.IRModule:
    """Return ``res = (a @ b.T) >> 8`` on packed matrices."""
    a = te.placeholder((rows, tiles, 1, 16), "int8", name="a")
    b = te.placeholder((tiles, tiles, 16, 16), "int8", name="b")
    a_buf = te.compute(a.shape, lambda *i: a(*i), name="a_buf")
    b_buf = te.compute(b.shape, lambda *i: b(*i), name="b_buf")
    ko, ki = te.reduce_axis((0, tiles), name="ko"), te.reduce_axis((0, 16), name="ki")
    product = te.compute(
        (rows, tiles, 1, 16),
        lambda m, n, r, v: te.sum(
            a_buf[m, ko, r, ki].astype("int32") * b_buf[n, ko, v, ki].astype("int32"), [ko, ki]
        ),
        name="product",
    )
    shr = te.compute(product.shape, lambda *i: product(*i) >> 8, name="shr")
    res = te.compute(product.shape, lambda *i: shr(*i).astype("int8"), name="res")
    return tvm.IRModule({"main": te.create_prim_func([a, b, res])})


def sample(module: tvm.IRModule, seed: int) -> tvm.s_tir.Schedule:
    """Return a schedule whose splits TVM has drawn."""
    s = tvm.s_tir.Schedule(module, seed=seed)
    m, n, r, v = s.get_loops(s.get_sblock("res"))
    m_out, m_in = s.split(m, s.sample_perfect_tile(m, 2, 64))
    n_out, n_in = s.split(n, s.sample_perfect_tile(n, 2, 64))
    s.reorder(m_out, n_out, m_in, n_in, r, v)
    for block in ("shr", "product"):
        s.compute_at(s.get_sblock(block), n_out, preserve_unit_loops=True)
        s.set_scope(s.get_sblock(block), 0, vta.acc_scope)
    *_, m, n, r, v, ko, ki = s.get_loops(s.get_sblock("product"))
    step, k_in = s.split(ko, s.sample_perfect_tile(ko, 2, 64))
    s.reorder(step, k_in, m, n, r, v, ki)
    for block, scope in (("a_buf", vta.inp_scope), ("b_buf", vta.wgt_scope)):
        s.compute_at(s.get_sblock(block), step, preserve_unit_loops=True)
        s.set_scope(s.get_sblock(block), 0, scope)
    s.decompose_reduction(s.get_sblock("product"), step)
    vta.tensorize(s, "product_init", vta.reset(CONFIG))
    vta.tensorize(s, "product_update", vta.gemm(CONFIG))
    vta.tensorize(s, "shr", vta.alu(CONFIG, "shr", 8))
    return s


def search(trials: int) -> dict[int, int]:
    """Return the cycles of each seed whose schedule fits the scratchpads."""
    cycles = {}
    for seed in range(1, trials + 1):
        try:
            cycles[seed] = vtaops.build(sample(declare(), seed), CONFIG).cycles()
        except vtaops.ScheduleError:
            continue  # a scratchpad overflows
    return cycles


if __name__ == "__main__":
    found = search(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
    best = min(found, key=lambda seed: found[seed])
    print(f"{len(found)} schedules fit; {min(found.values()):,} to {max(found.values()):,} cycles")
    tiles = [i for i in sample(declare(), best).trace.insts if "SamplePerfectTile" in str(i.kind)]
    print(f"the best, seed {best}, samples {len(tiles)} tiles:")
    print(sample(declare(), best).trace)
