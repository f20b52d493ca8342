"""ResNet-18 and MobileNet over 2,464 configurations: on one core, on a Dask cluster, after kills.

    python -m benchmarks exploration --workers 1 --store one.db --json exploration.json
    python -m benchmarks exploration --workers 2 --store two.db --json exploration.json \
        --kill-worker 20 --kill-driver 40      # and once more, without the two, to go on

Each run appends a row to the file: how long it took, how many records the store holds and how often
one was computed, and a digest of all results. Equal digests are equal results. `--workers 1`
computes in this process; more are those of a local Dask cluster, one thread each. ``--kill-worker``
kills one of them after so many seconds, ``--kill-driver`` this process, as if the power failed.
``--designs`` takes the first configurations only.
``--speedup`` runs both on empty stores, one after the other, and tells the ratio.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import Json, read_json, write_json
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
    share,
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


def run(
    workers: int,
    designs: list[Design],
    store_file: str,
    kill_worker: float | None = None,
    kill_driver: float | None = None,
) -> tuple[dict[str, Any], list[Point]]:
    """Sweep, and return a row of the result and the points."""
    network = Network.named(NETWORKS)
    later(kill_driver, os.getpid())
    with ResultStore(store_file) as store:
        known = sum(store.count().values())
        if workers == 1:
            warm()
            start = time.perf_counter()
            with Engine(store) as engine:
                points = sweep(designs, network, engine)
            seconds = time.perf_counter() - start
        else:
            from distributed import Client, LocalCluster

            with (
                LocalCluster(workers, threads_per_worker=1, dashboard_address=None) as cluster,
                Client(cluster) as client,
            ):
                pids = client.run(warm)
                later(kill_worker, next(iter(pids.values())))
                start = time.perf_counter()
                with Engine(store, dask_executor(client)) as engine:
                    points = sweep(designs, network, engine)
                seconds = time.perf_counter() - start
        count = store.count()
    row = {
        "workers": workers,
        "designs": len(designs),
        "complete": sum(point.complete for point in points),
        "known before": known,
        "seconds": round(seconds, 1),
        **count,
        "digest": digest(points),
    }
    return row, points


def warm() -> int:
    """Do what a process does once (import, the first program), and return its number."""
    from vtaops import Gemm, compile

    compile(Gemm(m=16, n=16, k=16))
    return os.getpid()


def later(seconds: float | None, pid: int) -> None:
    """Kill a process after some time."""
    if seconds is not None:
        timer = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
        timer.daemon = True
        timer.start()


def best_for(points: list[Point], part: str) -> Point | None:
    """Return the fastest design that a part holds by the model of area."""
    fits = [p for p in points if p.complete and share(p.area, part) <= 1]
    return min(fits, key=lambda p: (p.milliseconds, p.area.lut), default=None)


def main(
    workers: Annotated[int, typer.Option()] = 1,
    count: Annotated[int | None, typer.Option("--designs")] = None,
    store_file: Annotated[str, typer.Option("--store")] = ":memory:",
    kill_worker: Annotated[float | None, typer.Option()] = None,
    kill_driver: Annotated[float | None, typer.Option()] = None,
    speedup: Annotated[bool, typer.Option("--speedup")] = False,
    part: Annotated[str, typer.Option()] = "xc7z020",
    json_file: Json = None,
) -> None:
    """Run, print a table, append to the file."""
    designs = chosen(count)
    if speedup:
        found = [run(n, designs, ":memory:") for n in (1, max(2, workers))]
        rows, points = [row for row, _ in found], found[-1][1]
        print(f"speed-up: {rows[0]['seconds'] / rows[1]['seconds']:.2f}")
        assert rows[0]["digest"] == rows[1]["digest"]
    else:
        row, points = run(workers, designs, store_file, kill_worker, kill_driver)
        rows = [row]
    table = Table(title=f"{' and '.join(NETWORKS)} on {len(designs)} configurations")
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=160).print(table)
    best = best_for(points, part)
    if best is not None:
        print(f"fastest that fits {part}: {best.design.name}, {best.milliseconds:.2f} ms")
    print(f"front of {' and '.join(FRONT)}: {len(front(points, FRONT))} designs")
    write_json(json_file, read_json(json_file, []) + rows)
