"""Mutation test of the RTL: the single changes that no trial and no proof sees.

Every expression of the sources that decides something has mutants (`trials.rtl_mutants`):
conditions turned round, dropped or constant; bounds off by one; other operators and constants;
casts that lose a bit; one side of a multiplexer always; registers that hold; resets to another
value, or none; others are thought of by hand (`trials.rtl_own_mutants`). Seven models hold all of
them: with all extensions behind the bare port, and with a port of 64 bytes; with multipliers from
LUTs beside those in DSP blocks; plain behind AXI, with one port and with a divided one; with all
extensions and two rows to a tile behind AXI; and with all extensions writing waveforms, in which
the accesses of memories are counted. A mutant runs the trials of `trials.rtl_trials` one after the
other, in a process of its own, until one of them shows something else than the right RTL: a
result, a fault, a counter, a cycle, an access. What survives goes to the proof of its block, if
there is one (``trials/proofs``). A survivor is a failure, unless ``rtl_equivalent.json`` says why
nothing can tell it from the right RTL.

The mutants come in an order that mixes all files and does not depend on places, so that those of a
run that is cut short are a fair sample. ``--only compute.sv`` takes those of one file.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from trials import proofs
from trials.campaign import Campaign, Counts, Result, Results, result, summed
from trials.rtl_mutants import DRIVER, PACKAGE, Mutant, applied, find_mutants, instrumented
from trials.rtl_own_mutants import own_mutants
from trials.rtl_trials import (
    EXTENDED,
    MIXED,
    PARAMETERS,
    PLAIN,
    SHORT,
    SMALL,
    SPLIT,
    TWO_ROWS,
    LimitedTsim,
    Opened,
    memory_accesses,
    trials,
)
from vtaops.base.errors import DeviceError
from vtaops.hardware import build, rtl
from vtaops.machine.config import Extension, HardwareConfig
from vtaops.runtime.tsim import RtlParameters
from vtaops.runtime.tsim import device as device_module

WIDE = replace(EXTENDED, extensions=tuple({*Extension} - {Extension.NIBBLES}))
"""Its weight tiles are one word of a port of 64 bytes, which weights of four bits must not be."""

MODELS: dict[str, tuple[HardwareConfig, RtlParameters, bool]] = {
    "extensions": (EXTENDED, PARAMETERS, False),
    "wide port": (WIDE, replace(PARAMETERS, port_bytes=64), False),
    "other multipliers": (SMALL, MIXED, False),
    "divided port, AXI": (SPLIT, replace(SHORT, port_bytes=16), True),
    "AXI": (PLAIN, PARAMETERS, True),
    "two rows, AXI": (TWO_ROWS, PARAMETERS, True),
    "waveforms": (EXTENDED, PARAMETERS, False),
}
"""Name -> configuration, parameters, and whether behind the AXI shell."""

SECONDS = 120
"""Of CPU time that a mutant may take on a model before it counts as one that never ends."""

SEEN, PROOF, CRASH, HANG, EQUIVALENT, SURVIVES = (
    "trial", "proof", "simulator stops", "never ends", "equivalent", "survives",
)  # fmt: skip
VERDICTS = (SEEN, PROOF, CRASH, HANG, EQUIVALENT, SURVIVES)

ROOT = Path(__file__).parents[1]
ARGUMENTS = ROOT / "benchmarks" / "results" / "rtl_equivalent.json"


def order(mutant: Mutant) -> bytes:
    """Return by what mutants are sorted: as good as random, and the same if only its line moves."""
    return hashlib.sha256(without_place(mutant.name).encode()).digest()


def without_place(name: str, line: str = "") -> str:
    """Return the name of a mutant without line and offset, or with `line` in their place."""
    return re.sub(r":(\d+)\+\d+ ", line or " ", name, count=1)


def all_mutants() -> list[Mutant]:
    """Return all mutants of all files, in order."""
    files = [path for path in [*rtl.sources(), *rtl.axi_sources()] if path.suffix == ".sv"]
    return [
        mutant
        for path in files
        for find in (find_mutants, own_mutants)
        for mutant in find(path.name, path.read_text())
    ]


def build_library(model: str, mutants: list[Mutant]) -> Path:
    """Return the library of a model that holds all mutants; those that do not compile left out."""
    config, parameters, axi = MODELS[model]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {"sources": [folder / "mutants_pkg.sv"], "axi_sources": []}
        paths["sources"][0].write_text(PACKAGE)
        for kind, found in (("sources", rtl.sources()), ("axi_sources", rtl.axi_sources())):
            for path in found:
                numbered = [(k, m) for k, m in enumerate(mutants, 1) if m.file == path.name]
                (folder / path.name).write_text(instrumented(path.read_text(), numbered))
                paths[kind].append(folder / path.name)
        driver, *headers = build.harness(axi)
        (folder / driver.name).write_text(driver.read_text() + DRIVER)
        with (
            mock.patch.object(rtl, "sources", return_value=paths["sources"]),
            mock.patch.object(rtl, "axi_sources", return_value=paths["axi_sources"]),
            mock.patch.object(build, "harness", return_value=[folder / driver.name, *headers]),
            mock.patch.object(build, "_LARGE_MODEL", 0),  # compiled in half the time
        ):
            trace = model == "waveforms"
            return build.build_model(config, parameters, axi=axi, trace=trace)


@contextmanager
def opening(model: str, library: Path | None) -> Iterator[Callable[..., LimitedTsim]]:
    """Give what opens devices of a model: of this library, or of the right RTL."""
    config, parameters, axi = MODELS[model]
    interface = "axi" if axi else "port"

    def opened(**options: Any) -> LimitedTsim:
        return LimitedTsim(config, parameters=parameters, interface=interface, **options)

    if library is None:
        yield opened
        return
    with mock.patch.object(device_module, "_build", return_value=library):
        yield opened


def plainly(seen: Any) -> Any:
    """Return what a trial saw as it is after JSON."""
    return json.loads(json.dumps(seen))


def trials_of(model: str) -> dict[str, Callable[[Opened], Any]]:
    """Return the trials of a model by name, those that see most first."""
    config, _, axi = MODELS[model]
    if model == "waveforms":
        return {"accesses": lambda opened: memory_accesses(opened, config)}
    return trials(config, axi)


def expectations(model: str) -> dict[str, Any]:
    """Return what the trials see of the right RTL."""
    with opening(model, None) as opened:
        return {name: plainly(run(opened)) for name, run in trials_of(model).items()}


def checked_expectations(libraries: dict[str, Path], folder: Path) -> dict[str, Any]:
    """Return what the trials see of the right RTL; a copy with no mutant chosen shows the same.

    Kept in a file that is named by all that it depends on: a slice of a long run begins at once.
    """
    root = Path(__file__).parents[1]
    sources = [*root.glob("vtaops/**/*.py"), *root.glob("trials/**/*.py"), Path(__file__)]
    digest = hashlib.sha256(str(libraries).encode())
    for path in sorted(sources):
        digest.update(path.read_bytes())
    kept = folder / f"rtl_expectations-{digest.hexdigest()[:16]}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    expected = {model: expectations(model) for model in MODELS}
    for model, library in libraries.items():
        verdict, detail = first_difference(model, library, 0, expected[model])
        if verdict != SURVIVES:
            raise SystemExit(f"the copy with no mutant chosen differs: {verdict}, {detail}")
    folder.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(expected))
    return expected


def first_difference(
    model: str, library: Path, number: int, expected: dict[str, Any]
) -> tuple[str, str]:
    """Return the verdict of a mutant on a model, and the trial; runs in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # of a model that stops
            os.dup2(2, 1)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, resource.RLIM_INFINITY))
            ctypes.CDLL(str(library)).choose_mutant(number)
            found = (SURVIVES, "")
            with opening(model, library) as opened:
                for name, run in trials_of(model).items():
                    try:
                        seen = plainly(run(opened))
                    except Exception as error:  # whatever it is, the right RTL does not raise it
                        found = (SEEN, f"{name}: {type(error).__name__}")
                        break
                    if seen != expected[name]:
                        found = (SEEN, name)
                        break
            os.write(writer, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writer)
    answer = os.read(reader, 1 << 16)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if answer:
        verdict, detail = json.loads(answer)
        return verdict, f"{model}, {detail}"
    stopped = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    return (HANG if stopped else CRASH), model


def fails_its_proof(mutant: Mutant) -> bool:
    """Return whether a mutant fails a proof of its block."""
    block = mutant.file.removesuffix(".sv")
    text = applied(proofs.BLOCKS[block], mutant)
    return any(
        _fails(block, text, parameters) for name, parameters in proofs.PROVEN if name == block
    )


def _fails(block: str, text: str, parameters: dict[str, int]) -> bool:
    """Return whether a proof finds a text wrong; one that is too hard for it is not."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            proofs.prove(block, text, Path(folder), cycles=3, **parameters)
        except DeviceError as error:
            return bool(re.search("proof did fail|proof failed", str(error)))
    return False


@cache
def numbers() -> dict[str, tuple[int, Mutant]]:
    """Return all mutants by name, each with its number in the models."""
    return {mutant.name: (number, mutant) for number, mutant in enumerate(all_mutants(), 1)}


@cache
def built() -> tuple[dict[str, Path], dict[str, Any]]:
    """Return the libraries that hold all mutants, and what the trials see of the right RTL."""
    libraries = {model: build_library(model, all_mutants()) for model in MODELS}
    return libraries, checked_expectations(libraries, ROOT / "build")


def judged(mutant: Mutant, number: int) -> tuple[str, str]:
    """Return the verdict on a mutant, and which trial or proof gave it, or why nothing can."""
    libraries, expected = built()
    path = next(p for p in [*rtl.sources(), *rtl.axi_sources()] if p.name == mutant.file)
    behind_axi = path.parent.name == "axi"
    for name in (name for name, (_, _, axi) in MODELS.items() if axi or not behind_axi):
        verdict, detail = first_difference(name, libraries[name], number, expected[name])
        if verdict != SURVIVES:
            return verdict, detail
    if fails_its_proof(mutant):
        return PROOF, ""
    known = argument(mutant.name)
    return (EQUIVALENT, known) if known else (SURVIVES, "")


def trial(name: str) -> Result:
    """Judge one mutant."""
    number, mutant = numbers()[name]
    verdict, detail = judged(mutant, number)
    row = {"mutants": 1, **{v: v == verdict for v in VERDICTS}}
    found = result(mutant.operator, verdict if verdict == SURVIVES else "", **row)
    found["counts"] |= {"all": row, mutant.file: row}
    return {**found, "detail": detail}


def tables(results: Results) -> dict[str, Counts]:
    """Return the verdicts by operator, and by file."""
    rows = summed(results)["counts"]
    return {
        "operator": {row: rows[row] for row in sorted(rows) if not row.endswith(".sv")},
        "file": {row: rows[row] for row in sorted(rows) if row.endswith(".sv")},
    }


def argument(name: str) -> str:
    """Return why nothing can tell a mutant from the right RTL; '' if that is not known."""
    # Without the place, which moves; by the line where a file has several such places.
    keys = without_place(name), without_place(name, r":\1 ")
    return next((known_arguments()[key] for key in keys if key in known_arguments()), "")


@cache
def known_arguments() -> dict[str, str]:
    """Return the arguments by the names of mutants."""
    return dict(json.loads(ARGUMENTS.read_text()))


CAMPAIGN = Campaign(
    lambda count: [m.name for m in sorted(all_mutants(), key=order)[:count]],
    trial,
    count=100_000,
    tables=tables,
)
