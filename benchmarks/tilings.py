"""Tilings: the default one, the reference searches of the gym, and TVM's MetaSchedule.

    python -m benchmarks tilings --budget 24 --json tilings.json
    python -m benchmarks tilings --only resnet18.C8 --trials 128
    python -m benchmarks tilings --random 50

Fewest cycles by the timing model that each search of `examples/tiling_gym.py` finds for some layers
within so many evaluations; for those with random choices, the median of the seeds. MetaSchedule
samples and mutates the splits of the same schedule (perfect divisions, two tiles of each operand);
`examples/metaschedule.py` counts the cycles of each candidate in place of measuring. Candidates
that overflow a scratchpad fail, as on any device. It needs the extra ``tune``, and a stride of 1.

With ``--random``: for every shipped configuration and so many random ones, the cycles of the
default tiling over those of the best that `vtaops.compiler.search` times, for one layer of
ResNet-18 or MobileNet, and the estimate over the cycles.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer

from benchmarks.options import Config, Json, Only, Row, Rows, Seed, chosen, show, write_json
from vtaops import Conv2d, HardwareConfig
from vtaops.base.errors import ConfigError, VTAError
from vtaops.compiler import search
from vtaops.explore import Design, Engine
from vtaops.lowering import Capacity, LoweringOptions, emit, link, whole
from vtaops.lowering.tree.tir import parse
from vtaops.program import Program
from vtaops.schedule import flatten
from vtaops.schedule.candidates import TilingList
from vtaops.schedule.steps import attach_loads, attach_output_stages, tensorize
from vtaops.schedule.workloads import WORKLOADS, find

LAYERS = ("resnet18.C2", "resnet18.C8", "resnet18.C10", "mobilenet.D9")
DRAWN = [name for name in WORKLOADS if name.startswith(("resnet18.", "mobilenet."))]
RANDOM = ("evolutionary", "random")
"""Searches whose result depends on the seed."""

RANGES = {
    "LOG_BATCH": (0, 0, 0, 1, 2),
    "LOG_BLOCK": (3, 4, 4, 5),
    "LOG_UOP_BUFF_SIZE": range(13, 16),
    "LOG_INP_BUFF_SIZE": range(12, 18),
    "LOG_WGT_BUFF_SIZE": range(14, 21),
    "LOG_ACC_BUFF_SIZE": range(13, 19),
    "EXTENSIONS": ("", "", "overwrite", "overwrite+post"),
}
"""Of random designs."""

OPTIONS = LoweringOptions(Capacity(inp=2, wgt=2, acc=2), skip_padding=True)


def schedule_with(op: Conv2d, config: HardwareConfig) -> Callable[[Any], None]:
    """Return the schedule of a convolution with sampled tile sizes in place of a tiling."""

    def apply(s: Any) -> None:
        batch, oc, y, x, *lanes = s.get_loops(s.get_sblock("res"))
        outer, inner = [], []
        for loop in (oc, y, x):
            factors = s.sample_perfect_tile(loop, n=2, max_innermost_factor=64)
            o, i = s.split(loop, factors)
            outer.append(o)
            inner.append(i)
        s.reorder(outer[0], batch, *outer[1:], *inner, *lanes)
        attach_output_stages(s, "res_conv", op.stages, outer[2], outer[0])
        *_, b, co, i, j, bi, ci, ic, dy, dx, ic_tns = s.get_loops(s.get_sblock("res_conv"))
        factors = s.sample_perfect_tile(ic, n=2, max_innermost_factor=64)
        step, ic_i = s.split(ic, factors)
        s.reorder(step, b, co, i, ic_i, dy, dx, j, bi, ci, ic_tns)
        attach_loads(s, step)
        tensorize(s, config, "res_conv", op.stages, step)

    return apply


def metaschedule(op: Any, config: HardwareConfig, trials: int) -> Row:
    """Return what MetaSchedule finds, after how many candidates, of which some overflow."""
    if not isinstance(op, Conv2d) or op.strides not in (1, (1, 1)):
        return {}
    from examples.metaschedule import tune

    tried, failed, start = 0, 0, time.perf_counter()

    def make(module: Any) -> Program:
        nonlocal tried, failed
        tried += 1
        try:
            tree = parse(flatten(module)["main"], config)
            fragment = emit(tree, op.buffers(config), config, OPTIONS)
        except VTAError:
            failed += 1
            raise
        return link([whole(fragment)], fragment.buffers)

    space = schedule_with(op, config)
    options = {"trials": trials, "seed": 1, "strategy": "evolutionary", "make": make}
    try:
        best = make(tune(op.declare(config), space, config, **options))
    except VTAError:
        return {}  # nothing legal
    found = {"MetaSchedule": best.cycles(), "tried": tried, "overflow": failed}
    return found | {"seconds": time.perf_counter() - start}


def reached(layer: str, design: Design, budget: int, seeds: int, engine: Engine) -> Row:
    """Return the fewest cycles that each search of the gym finds for a layer."""
    from examples.tiling_gym import SEARCHES, Problem

    row: Row = {}
    for name, run in SEARCHES.items():
        problems = []
        for seed in range(seeds if name in RANDOM else 1):
            problems.append(Problem(find(layer).op, design, engine))
            run(problems[-1], budget, seed)
        best = [problem.best[0] for problem in problems if problem.best]
        row[name] = int(statistics.median(best)) if best else "nothing legal"
    return row


def random_design(rng: random.Random) -> Design:
    """Return a design that can be."""
    while True:
        with suppress(ConfigError):
            return Design.of({axis: rng.choice(values) for axis, values in RANGES.items()})


def compared(config: HardwareConfig, layer: str) -> Row:
    """Return the cycles of a layer with its default tiling over the best of a search.

    Raises
    ------
    VTAError
        If no tile fits.
    """
    op = WORKLOADS[layer].op
    found = search(op, config)
    default, guess = next(TilingList(op, config).estimated(config))
    cycles = next(one.cost for one in found if one.tiling == default)
    texts = {"default": default.text, "best": found[0].tiling.text}
    ratios = {"over_best": cycles / found[0].cost, "estimate": guess / cycles}
    return {"layer": layer, "cycles": cycles, **ratios, **texts}


def over_configurations(count: int, seed: int) -> Rows:
    """Compare the default with the best on all shipped configurations, and on random ones."""
    rng = random.Random(seed)
    shipped = [HardwareConfig.load(name) for name in HardwareConfig.names()]
    rows = {}
    for number, config in enumerate([*shipped, *(random_design(rng).config for _ in range(count))]):
        layer = random.Random(f"{seed} {number}").choice(DRAWN)
        with suppress(VTAError):
            rows[f"{number} {config.bitstream_id}"] = compared(config, layer)
    worst_first = sorted(rows.items(), key=lambda item: -item[1]["over_best"])
    columns = ("layer", "over_best", "estimate")
    show(f"The worst of {len(rows)}: default over best", dict(worst_first[:12]), columns, "design")
    over = [row["over_best"] for row in rows.values()]
    within = sum(ratio <= 1.01 for ratio in over)
    print(f"within 1 %: {within} of {len(over)}; median {statistics.median(over):.4f}, ", end="")
    print(f"largest {max(over):.4f}")
    return rows


def main(
    config_name: Config = "pynq",
    only: Only = [],  # noqa: B006
    budget: Annotated[int, typer.Option(help="Evaluations of each search.")] = 24,
    seeds: Annotated[int, typer.Option(help="Of searches with random choices.")] = 3,
    trials: Annotated[int, typer.Option(help="Of MetaSchedule; 0: without it.")] = 24,
    count: Annotated[int, typer.Option("--random", help="Configurations, instead.")] = 0,
    seed: Seed = 0,
    json_file: Json = None,
) -> None:
    """Search, print a table, write the file."""
    if count:
        write_json(json_file, over_configurations(count, seed))
        return
    design, rows = Design(HardwareConfig.load(config_name)), {}
    with Engine() as engine:
        for layer in chosen(WORKLOADS, only) if only else LAYERS:
            rows[layer] = reached(layer, design, budget, seeds, engine)
            rows[layer] |= metaschedule(find(layer).op, design.config, trials) if trials else {}
            print(layer, rows[layer], flush=True)
    columns = {key: key for row in rows.values() for key in row}
    show(f"Cycles on {config_name} after {budget} evaluations", rows, columns, "layer")
    write_json(json_file, rows)
