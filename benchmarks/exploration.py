"""ResNet-18 and MobileNet over 2,464 configurations: on one core, or on a Dask cluster.

    python -m benchmarks exploration --workers 1 --store one.db --json exploration.json
    python -m benchmarks exploration --workers 2 --store two.db --json exploration.json

Each run adds a row to the file: how long it took, how many records the store holds and how often
one was computed, and a digest of all results. Equal digests are equal results, also after a run
that was killed and goes on with its store (`python -m trials kills` kills many).
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import ExitStack
from typing import Annotated

import typer

from benchmarks.options import Json, Row, read_json, show, write_json
from vtaops import HardwareConfig
from vtaops.explore import (
    Design,
    Engine,
    Network,
    Point,
    ResultStore,
    Space,
    dask_executor,
    front,
    shares,
    sweep,
)

AXES = {
    "LOG_BLOCK": [4, 3],
    "LOG_INP_BUFF_SIZE": [15, 16, 14, 13],
    "LOG_WGT_BUFF_SIZE": [18, 17, 16, 15],
    "LOG_ACC_BUFF_SIZE": [17, 16, 15, 14],
    "EXTENSIONS": ["", "overwrite+post"],
    "PORT_BYTES": [8, 16],
    "DRAM_LATENCY": [32, 64],
    "BANDWIDTH": [0, 4],
    "CLOCK_MHZ": [100, 142],
}

NETWORKS = ("resnet18", "mobilenet")
FRONT = ("ms", "lut")


def chosen(count: int | None) -> list[Design]:
    """Return the first designs that can be, or all."""
    designs, _ = Space(Design(HardwareConfig.load("pynq")), AXES).designs()
    return designs[:count]


def digest(points: list[Point]) -> str:
    """Return a hash of all that was found."""
    found = [(p.design.name, p.as_dict(), p.layer_rows, p.failures) for p in points]
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def run(workers: int, designs: list[Design], store_file: str) -> tuple[Row, list[Point]]:
    """Sweep, and return a row of the result and the points."""
    network = Network.named(NETWORKS)
    with ResultStore(store_file) as store, ExitStack() as stack:
        known, executor = sum(store.count().values()), None
        if workers == 1:
            warm()
        else:
            from distributed import Client, LocalCluster

            options = {"threads_per_worker": 1, "dashboard_address": None}
            cluster = stack.enter_context(LocalCluster(workers, **options))
            client = stack.enter_context(Client(cluster))
            client.run(warm)
            executor = dask_executor(client)
        start = time.perf_counter()
        with Engine(store, executor) as engine:
            points = sweep(designs, network, engine)
        return {
            "designs": len(designs),
            "complete": sum(point.complete for point in points),
            "known before": known,
            "seconds": round(time.perf_counter() - start, 1),
            **store.count(),
            "digest": digest(points),
        }, points


def warm() -> None:
    """Do what a process does once: import, the first program."""
    from vtaops import Gemm, compile

    compile(Gemm(m=16, n=16, k=16))


def main(
    workers: Annotated[int, typer.Option(help="1: this process; more: a Dask cluster.")] = 1,
    count: Annotated[int | None, typer.Option("--designs", help="The first ones only.")] = None,
    store_file: Annotated[str, typer.Option("--store", help="Results, to go on.")] = ":memory:",
    part: Annotated[str, typer.Option(help="For which the fastest is told.")] = "xc7z020",
    json_file: Json = None,
) -> None:
    """Sweep, print a table, add a row to the file."""
    designs = chosen(count)
    row, points = run(workers, designs, store_file)
    rows = read_json(json_file, {}) | {f"{workers} workers, {time.strftime('%F %T')}": row}
    show(f"{' and '.join(NETWORKS)}", rows)
    fits = [p for p in points if p.complete and max(shares(p.area, part).values()) <= 1]
    if fits:
        best = min(fits, key=lambda p: (p.milliseconds, p.area.lut))
        print(f"fastest that fits {part}: {best.design.name}, {best.milliseconds:.2f} ms")
    print(f"front of {' and '.join(FRONT)}: {len(front(points, FRONT))} designs")
    write_json(json_file, rows)
