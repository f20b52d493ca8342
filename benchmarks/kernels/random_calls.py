"""Random calls of `vtaops.cpu` against NumPy and SciPy in double precision.

    python -m benchmarks random_calls --count 2000

They run between pages that nobody may touch: a kernel that leaves its arrays ends the process, and
the last number shown is its seed.
"""

from __future__ import annotations

from typing import Annotated

import typer

from trials.guarded_memory import guarded_kernels
from trials.random_calls import FAMILIES, PROCESSORS, Draw, check
from vtaops.kernels import cache


def main(
    count: Annotated[int, typer.Option()] = 2000,
    first: Annotated[int, typer.Option()] = 0,
) -> int:
    """Run many calls; print those that fail."""
    cache._store = lambda executable, path: None  # type: ignore[assignment]
    guarded_kernels().start()
    failed = 0
    for seed in range(first, first + count):
        print(seed, end="\r", flush=True)
        try:
            check(seed)
        except Exception as error:
            failed += 1
            name = FAMILIES[seed % len(FAMILIES)].__name__
            target = Draw(seed).pick(*PROCESSORS).mcpu
            said = f"{type(error).__name__} {str(error)[:400]}"
            print(f"seed {seed} ({name}, {target}): {said}", flush=True)
        if seed % 100 == 99:
            print(f"{seed + 1 - first} calls, {failed} failed", flush=True)
    return int(failed > 0)
