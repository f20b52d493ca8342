"""Mutation test of the verifier: what it accepts must run, and to one result, on the simulator.

Mutates compiled programs (`trials.mutations`), and puts every mutant before the verifier and, where
that accepts it, before simulators with many seeds.

In addition every token of every program is removed once (its push and its pop together); since the
compiler inserts no token without need, all of these must be rejected.

With ``--extensions`` the programs are others: for each extension of the hardware those that use it
alone (with what it needs), compiled ones and random ones, and the counts are by extension. Tokens
of random programs are not all needed, so a random program without one is a mutant like any other.
With ``--networks`` they are those of whole networks on ``pynq_ext``: ``--networks 40 --count 100``.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

import vtaops
from benchmarks.options import Json, Seed, figure_table, write_json
from trials.mutations import (
    FAILED,
    KINDS,
    VERDICTS,
    Mutant,
    compiled_programs,
    judge_extension,
    judge_random,
    linked_programs,
    network_programs,
    without_each_token,
)
from vtaops.machine.config import Extension
from vtaops.program import Program


def main(
    count: Annotated[int, typer.Option(help="Mutants of each program.")] = 1000,
    seeds: Annotated[int, typer.Option(help="Interleavings of each accepted one.")] = 8,
    seed: Seed = 0,
    only: Annotated[str, typer.Option(help="Only programs whose name contains this.")] = "",
    json_file: Json = None,
    keep: Annotated[Path | None, typer.Option(help="Save failing mutants there.")] = None,
    extensions: Annotated[
        int | None, typer.Option(help="Judge N random programs of each extension.")
    ] = None,
    networks: Annotated[int, typer.Option(help="Judge N random networks on pynq_ext.")] = 0,
) -> int:
    """Judge all, show and write the counts; return the exit code."""
    if extensions is not None:
        return _judge_extensions(extensions, count, seeds, seed, only, json_file, keep)
    console = Console()
    tally: Counter[tuple[str, str]] = Counter()
    tokens: dict[str, tuple[int, int]] = {}
    failures = []
    begin = time.process_time()
    programs = network_programs(networks) if networks else compiled_programs() | linked_programs()
    for number, (name, program) in enumerate(programs.items()):
        if only not in name:
            continue
        rng = np.random.default_rng([seed, number])
        for mutant, verdict, reason in judge_random(program, count, seeds, rng):
            tally[mutant.kind, verdict] += 1
            if verdict == FAILED:
                failures.append((name, mutant, reason))
        verdicts = [_is_rejected(mutant.program) for mutant in without_each_token(program)]
        tokens[name] = (len(verdicts), sum(verdicts))
        console.print(f"{name}: {len(program)} instructions, {len(verdicts)} tokens", style="dim")
    seconds = time.process_time() - begin
    console.print(_verdict_table(tally, seeds), _token_table(tokens))
    console.print(f"{sum(tally.values())} mutants in {seconds:.1f} s of CPU time")
    _show_failures(failures, keep, seed)
    options = {"count": count, "seeds": seeds, "seed": seed, "only": only}
    counts = {kind: {v: tally[kind, v] for v in VERDICTS} for kind in KINDS}
    content = {"options": options, "mutants": counts, "tokens": tokens, "cpu_s": seconds}
    write_json(json_file, content)
    accepted = sum(total - rejected for total, rejected in tokens.values())
    return 1 if failures or accepted else 0


def _judge_extensions(
    programs: int,
    count: int,
    seeds: int,
    seed: int,
    only: str,
    json_file: Path | None,
    keep: Path | None,
) -> int:
    """Judge programs of each extension, show and write the counts; return the exit code."""
    begin = time.process_time()
    tally: dict[str, Counter[str]] = {extension: Counter() for extension in Extension}
    failures = []
    for extension in track(Extension, "extensions", console=Console(stderr=True)):
        if only not in extension:
            continue
        for name, mutant, verdict, reason in judge_extension(
            extension, programs, count, seeds, seed
        ):
            tally[extension][verdict] += 1
            tally[extension]["tokens removed"] += mutant.kind == "token"
            if verdict == FAILED:
                failures.append((f"{extension}, {name}", mutant, reason))
    table = figure_table(
        f"programs with one extension; accepted mutants: {seeds} seeds",
        ["extension"],
        ("mutants", *VERDICTS, "tokens removed"),
    )
    for extension, counts in tally.items():
        total = sum(counts[verdict] for verdict in VERDICTS)
        numbers = (total, *(counts[title] for title in (*VERDICTS, "tokens removed")))
        table.add_row(extension, *(f"{number:,}" for number in numbers))
    Console().print(table, f"{time.process_time() - begin:.1f} s of CPU time")
    _show_failures(failures, keep, seed)
    options = {"extensions": programs, "count": count, "seeds": seeds, "seed": seed, "only": only}
    write_json(json_file, {"options": options, "extensions": tally})
    return int(bool(failures))


def _show_failures(failures: list[tuple[str, Mutant, str]], keep: Path | None, seed: int) -> None:
    """Print what failed, and save it if it is wished."""
    for number, (name, mutant, reason) in enumerate(failures):
        Console().print(f"[red]FAILED[/red] {name}: {mutant.kind}: {mutant.change}: {reason}")
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            mutant.program.save(keep / f"mutant-{seed}-{number}.vta")


def _is_rejected(program: Program) -> bool:
    try:
        program.verify()
    except vtaops.errors.VerificationError:
        return True
    return False


def _verdict_table(tally: Counter[tuple[str, str]], seeds: int) -> Table:
    table = Table(title=f"single mutations; those accepted ran under {seeds} seeds")
    table.add_column("kind", no_wrap=True)
    for title in ("mutants", *VERDICTS):
        table.add_column(title, justify="right")
    rows = [(kind, [tally[kind, verdict] for verdict in VERDICTS]) for kind in KINDS]
    totals = [sum(counts) for counts in zip(*(counts for _, counts in rows), strict=True)]
    for kind, counts in (*rows, ("all", totals)):
        if kind == "all":
            table.add_section()
        table.add_row(kind, *(str(n) for n in (sum(counts), *counts)))
    return table


def _token_table(tokens: dict[str, tuple[int, int]]) -> Table:
    table = figure_table(
        "one token removed, push and pop together", ["program"], ("tokens", "rejected")
    )
    for name, counts in tokens.items():
        table.add_row(name, *map(str, counts))
    return table
