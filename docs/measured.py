"""Make the tables of docs/measured.md (and of other pages) anew, from benchmarks/results.

    python -m docs measured --write

A table stands between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``; `TABLES` makes each from
the results that the command beside it wrote. The tests compare pages and results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import energy, extensions
from benchmarks.kernels import cpu_operators, cuda_operators
from benchmarks.language_models import PARTS
from benchmarks.networks import BANDWIDTHS, CASES
from benchmarks.options import RESULTS, ROOT

MARKED = re.compile(r"<!-- ([\w ]+): begin -->\n(.*?)\n<!-- \1: end -->", re.DOTALL)
MHZ = 100


def results(name: str) -> Any:
    """Return what a benchmark or a campaign wrote."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], texts: int = 1) -> str:
    """Return a table in Markdown: columns of text, then columns of figures."""
    rule = ["---"] * texts + ["--:"] * (len(heads) - texts)
    lines = [heads, rule, *rows]
    return "\n".join("| " + " | ".join(map(shown, line)) + " |" for line in lines)


def shown(value: Any) -> str:
    """Return a cell: whole numbers with commas."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def networks(source: str, way: str = "") -> dict[str, dict[str, Any]]:
    """Return the results of a source of networks, one way, by the name of the network."""
    found = results("networks")
    pattern = re.compile(rf"{source}/(.*)/{way or '.*'}")
    matched = {case: pattern.fullmatch(case) for case in CASES if case in found}
    return {match[1]: found[case] for case, match in matched.items() if match}


def decibels(row: dict[str, Any], key: str = "sqnr_db") -> str:
    """Return a ratio of signal to noise for people."""
    if key not in row:
        return ""
    return "equal" if row[key] is None else f"{row[key]:.1f}"


def milliseconds(cycles: int) -> str:
    """Return the time of cycles at the assumed clock."""
    return f"{cycles / MHZ / 1e3:,.1f}"


def measured_on(rows: Iterable[dict[str, Any]]) -> str:
    """Return on which commits rows were measured."""
    codes = dict.fromkeys(row["code"].removesuffix("-dirty") for row in rows)
    return f"\n\nMeasured on {', '.join(codes)}."


def classic() -> str:
    """Return the classic networks on plain and extended hardware."""
    rows = []
    plain, extended = networks("classic", "pynq"), networks("classic", "pynq_ext")
    for name, row in plain.items():
        more = extended[name]
        rows.append(
            [
                name,
                f"{row['on_vta']}/{row['operators']}",
                f"{row['macs'] / 1e6:,.0f}",
                row["cycles"],
                row["rtl_cycles"] or "",
                milliseconds(row["cycles"]),
                more["cycles"],
                more["rtl_cycles"] or "",
                milliseconds(more["cycles"]),
            ]
        )
    heads = ("network", "on VTA", "M MACs", "`pynq`, model", "RTL", "ms")
    heads = (*heads, "`pynq_ext`, model", "RTL", "ms")
    return table(heads, rows) + measured_on([*plain.values(), *extended.values()])


def forward() -> str:
    """Return the cycles without and with `forward` over the bandwidth of the DRAM."""
    rows = []
    both = networks("classic", "pynq_ext-forward"), networks("classic", "pynq_ext")
    for name in both[0]:
        for label, found in zip(("without", "with"), both, strict=True):
            row = found[name]
            cells = [*row["slow_cycles"], f"{row['dram_nbytes'] / 1e3:,.0f}"]
            rows.append([name if label == "without" else "", label, *cells])
    titles = [f"{b:.0f} bytes a cycle" if b else "the port's 8 + 8" for b in BANDWIDTHS]
    return table(("network", "`forward`", *titles, "DRAM kB"), rows, 2)


def curves() -> str:
    """Return networks with activation curves without and with `table`."""
    rows = []
    without, with_table = networks("curves", "pynq_ext-table"), networks("curves", "pynq_ext")
    for name, row in with_table.items():
        less = without[name]
        saved = f"{100 * (less['cycles'] - row['cycles']) / less['cycles']:.1f} %"
        hosts = [r["operators"] - r["on_vta"] for r in (less, row)]
        rows.append(
            [name, less["cycles"], row["cycles"], saved, less["launches"], row["launches"], *hosts]
        )
    heads = ("network", "cycles without", "with", "saved", "launches without", "with")
    return table((*heads, "operators on the host without", "with"), rows)


def light(way: str) -> Callable[[], str]:
    """Return what makes the table of the classic networks of the package onnx, one way."""

    def made() -> str:
        found = networks("light", way)
        rows = [
            [
                name,
                f"{row['on_vta']}/{row['operators']}",
                row["launches"],
                f"{row['macs'] / 1e6:,.0f}",
                row["cycles"],
                milliseconds(row["cycles"]),
                decibels(row),
                decibels(row, "scores_sqnr_db"),
            ]
            for name, row in sorted(found.items())
        ]
        heads = ("network", "on VTA", "launches", "M MACs", "cycles", "ms", "SQNR dB", "of scores")
        return table(heads, rows) + measured_on(found.values())

    return made


def architectures() -> str:
    """Return the networks of torchvision and timm."""
    found = networks("architecture", "free")
    rows = [
        [
            name,
            f"{row['on_vta']}/{row['operators']}",
            f"{row['products_on_vta']}/{row['products']}",
            row["launches"],
            f"{row['macs'] / 1e6:,.0f}",
            row["cycles"],
            milliseconds(row["cycles"]),
            decibels(row),
            f"{row['cpu_s']['compile']:.1f}",
        ]
        for name, row in found.items()
    ]
    heads = ("network", "on VTA", "products", "launches", "M MACs", "cycles", "ms", "SQNR dB")
    return table((*heads, "compile s"), rows) + measured_on(found.values())


def tiny_architectures() -> str:
    """Return the tiny architectures of transformers and timm."""
    found = results("architectures")
    rows = [
        [
            name,
            row["launches"],
            f"{100 * min(1.0, row['on_vta'] / max(1, row['multiply_adds'])):.1f} %",
            row["cycles"],
            row["db"],
            row["onnxruntime_db"],
        ]
        for name, row in found.items()
        if "launches" in row
    ]
    heads = ("network", "launches", "multiply-adds on VTA", "cycles", "dB", "dB, ONNX Runtime")
    return table(heads, rows) + measured_on(found.values())


def proofs() -> str:
    """Return what proofs cost."""
    rows, all_rows = [], results("networks")
    for case in CASES:
        row = all_rows.get(case, {})
        proof = row.get("proof")
        if not proof:
            continue
        spent = row.get("cpu_s", {})
        compiling = proof.get("compile_s") or spent["compile"] + spent["verify"]
        proving = proof.get("proof_s") or spent["proof"]
        name, _, way = case.rpartition("/")
        cells = [f"{proof['products'] / 1e6:,.0f}", f"{compiling:.1f}"]
        cells.append(f"{compiling + proving:.1f}")
        rows.append([name, way, *cells, proof["compile_mb"], proof["proof_mb"]])
    times = "without proof, s", "with proof, s"
    heads = ("network", "way", "M products", *times, "compile MB", "proof MB")
    return table(heads, rows, 2)


def bandwidth() -> str:
    """Return the cycles of ResNet-18's layers over the bandwidth of the DRAM."""
    from benchmarks.bandwidth import BOARD

    found, rows = results("bandwidth"), []
    for key, cycles in found["model"].items():
        if key in found["rtl"] or key == "3.0":
            title = "the port's, 8 in each direction" if key == "None" else f"{float(key):.0f}"
            rtl = found["rtl"].get(key, "")
            rows.append([title, cycles, rtl, milliseconds(cycles), f"{cycles / BOARD:.3f}"])
    return table(("bytes a cycle", "model", "RTL", "ms", "/ published board"), rows)


def chisel() -> str:
    """Return ResNet-18's offloaded part beside upstream's simulated hardware."""
    from benchmarks.bandwidth import CHISEL

    found = results("bandwidth")["layers"]
    rows = [["upstream, pipelined Chisel, simulated", CHISEL, "1.000", ""]]
    titles = {"skip": "ours, products with padding left out", "multiply": "ours, every product"}
    for padding, title in titles.items():
        both, alone = (found[f"{w} additions, padding {padding}"] for w in ("with", "without"))
        rows.append([title, both, f"{both / CHISEL:.3f}", alone])
    return table(("C2 to C11, weighted", "with additions", "/ Chisel", "without"), rows)


def energies() -> str:
    """Return the estimated energy of a run by memory."""
    return energy.markdown(results("energy"))


def timing() -> str:
    """Return the timing model beside the RTL on random operators and slow DRAM."""
    found = results("timing_cases")
    columns = ("cases", "mean |%|", "lowest %", "highest %", "sum %")
    rows = [[f"{k} bytes a cycle", *map(row.get, columns)]
            for k, row in found["bytes a cycle"].items() if " to " not in k]  # fmt: skip
    rows += [[f"latency {name}", *map(row.get, columns)] for name, row in found["latency"].items()]
    rows += [["all", *map(row.get, columns)] for row in found["all"].values()]
    return table(("", *columns), rows)


def sides() -> str:
    """Return the random cases of every side, by extension."""
    rows = [
        [
            f"`{name}`" if name != "all" else "all cases",
            *(row[f"{kind}s"] for kind in ("program", "stream", "operator")),
            row["instructions"],
            row["differ"],
            f"{row['mean %']:.4f}",
            f"{row['sum %']:.4f}",
        ]
        for name, row in results("all_sides")["cases that use"].items()
    ]
    heads = ("extension", "programs", "streams", "operators", "instructions", "differ")
    return table((*heads, "model, mean %", "sum %"), rows)


def mutations() -> str:
    """Return the mutants of the RTL by operator."""
    found = results("rtl_mutations")["operator"]
    columns = [*next(iter(found.values()))]
    return table(("operator", *columns), [[n, *row.values()] for n, row in found.items()])


def proven_mutants() -> str:
    """Return what became of mutants of proven programs."""
    found = results("prove")["subjects and their mutants"]
    columns = [name for name in next(iter(found.values())) if name != "without a tile"]
    return table(("of", *columns), [[n, *(row[c] for c in columns)] for n, row in found.items()])


def proof_costs() -> str:
    """Return the CPU time of single proofs."""
    found, rows = results("prove")["cost"], []
    for name, row in found.items():
        subject, _, config = name.rpartition(", ")
        if config == "pynq":
            extended = found[f"{subject}, pynq_ext"]["seconds"]
            cells = [f"{row['products'] / 1e6:,.0f}", f"{row['seconds']:.2f}", f"{extended:.2f}"]
            rows.append([subject, *cells])
    return table(("subject", "M products", "`pynq`, s", "`pynq_ext`, s"), rows)


def tiny() -> str:
    """Return MLPerf Tiny's models on exact hardware: equality, cycles, parts of the time."""
    rows = [
        [
            row["task"],
            f"{row['equal']} of {row['operators']}",
            f"{row['differ']} of {row['values']:,}",
            row["alone"]["board"],
            row["rtl_cycles"] or row["cycles"]["board"],
            *(f"{row[key]:,.1f}" for key in ("vta_us", "arm_us", "launch_us", "whole_us")),
            row["a_second"],
            f"{row['vta_uj']:.1f}",
        ]
        for row in results("mlperf_tiny")["models"]
        if row["config"] == "pynq_512"
    ]
    heads = ("task", "operators equal", "values that differ", "cycles, all loaded", "pinned, RTL")
    heads += ("VTA us", "host us", "launch us", "whole us", "a second", "VTA uJ")
    return table(heads, rows)


DRAMS = {"board": "14 bytes a cycle", "peak": "21 bytes", "ideal": "latency 32, no limit"}


def drams() -> str:
    """Return the cycles of MLPerf Tiny's models behind three DRAMs."""
    heads = ["task", *(f"{name}{way}" for name in DRAMS.values() for way in ("", ", pinned"))]
    rows = [
        [row["task"], *(row[kind][name] for name in DRAMS for kind in ("alone", "cycles"))]
        for row in results("mlperf_tiny")["models"]
        if row["config"] == "pynq_512"
    ]
    return table(heads, rows)


def inexact() -> str:
    """Return how often MLPerf Tiny's models differ from LiteRT without `exact`."""
    rows = [
        [
            row["task"],
            f"{row['differ']:,} of {row['values']:,}",
            row["most"],
            f"{row['same_class']} of {row['inputs']:,}",
        ]
        for row in results("mlperf_tiny")["models"]
        if row["config"] == "pynq_ext"
    ]
    return table(("task", "values that differ", "largest difference", "same class"), rows)


def accuracy() -> str:
    """Return the accuracy of trained networks."""
    rows = []
    for name, found in results("accuracy").items():
        for row in found["rows"]:
            shares = [f"{100 * row[key]:.2f} %" for key in ("accuracy", "agreement")]
            rows.append([name, row["computed"], *shares, row.get("cycles", "")])
    return table(("network", "computed", "accuracy", "agreement", "cycles"), rows, 2)


def packaged_models() -> str:
    """Return what the files that packages carry keep in int8."""
    rows = []
    for name, row in results("packaged_models").items():
        theirs = row["onnxruntime"]
        texts = [name, row.get("task", row.get("refused")), theirs.get("task", "an error")]
        share = f"{row['on_vta']} of {row['operators']}" if "on_vta" in row else ""
        figures = [row.get(key, "") for key in ("launches", "cycles", "db")]
        rows.append([*texts, share, *figures, theirs.get("db", "")])
    heads = ("file", "task", "task, ONNX Runtime's int8", "on VTA", "launches", "cycles", "dB")
    return table((*heads, "dB, ONNX Runtime"), rows, 3)


def language_models() -> str:
    """Return where the cycles of a token go."""
    rows = []
    for case, row in results("language_models").items():
        speeds = [f"{row[key]:.1f}" for key in ("tokens_s", "tokens_s_gb")]
        parts = [row["parts"][part] for part in PARTS]
        name, config = case.split("/")
        rows.append([name, config, row["cycles"], *speeds, *parts, row["parts"]["rest"]])
    heads = ("model", "configuration", "cycles", "tokens/s", "for each GB/s", *PARTS, "rest")
    return table(heads, rows, 2)


def models_as_c() -> str:
    """Return what models exported as C take."""
    rows = []
    for name, row in results("model_as_c").items():
        sizes = [f"{row[k] / 1e3:,.1f}" for k in ("blob_nbytes", "arena_nbytes", "device_nbytes")]
        times = [f"{row['host_numpy_ms']:.2f}", f"{row['host_c_ms']:.3f}"]
        rows.append([name, *sizes, row["launches"], *times])
    heads = ("model, configuration", "blob kB", "arena kB", "device kB", "launches")
    return table((*heads, "host in NumPy, ms", "in C"), rows)


def cpu_kernels() -> str:
    """Return the table of docs/kernels/speed.md: operators on two processors."""
    return cpu_operators.operator_table([results(f"kernels_speed{n}") for n in ("_zen4", "")])


def gpu_kernels() -> str:
    """Return docs/kernels/cuda_speed.md: operators on an H100."""
    return cuda_operators.markdown(results("kernels_speed_h100"))


def joined_extensions() -> str:
    """Return the extensions that join each other."""
    return extensions.table_together(results("extensions_together"))


def extension_savings() -> str:
    """Return what each extension alone adds and saves."""
    found, rows = results("extensions"), []
    for name in found:
        if name != "plain":
            saved = [extensions.saved(found, name, group) for group in extensions.GROUPS]
            label = name if name == "all" else f"`{name}`"
            rows.append([label, round(extensions.added(found, name, "lut")), *saved])
    heads = ("", "LUT added", *(f"cycles saved, {group}" for group in extensions.GROUPS))
    return table(heads, rows)


TABLES: dict[str, Callable[[], str]] = {
    "classic networks": classic,
    "forward": forward,
    "curves": curves,
    "light pow2": light("pow2"),
    "light free": light("free"),
    "light ort": light("ort"),
    "architectures": architectures,
    "tiny architectures": tiny_architectures,
    "proofs": proofs,
    "chisel": chisel,
    "bandwidth": bandwidth,
    "energy": energies,
    "timing": timing,
    "all sides": sides,
    "rtl mutations": mutations,
    "proven mutants": proven_mutants,
    "proof costs": proof_costs,
    "mlperf tiny": tiny,
    "mlperf tiny drams": drams,
    "inexact": inexact,
    "accuracy": accuracy,
    "packaged models": packaged_models,
    "language models": language_models,
    "models as C": models_as_c,
    "joined extensions": joined_extensions,
    "extension savings": extension_savings,
}
"""By the name in the marks of a page."""


def pages() -> list[Path]:
    """Return the pages with marks."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [path for path in found if MARKED.search(path.read_text())]


def renewed(text: str) -> str:
    """Return the text of a page with today's tables."""

    def place(match: re.Match[str]) -> str:
        name = match[1]
        if name not in TABLES:
            return match[0]
        return f"<!-- {name}: begin -->\n\n{TABLES[name]()}\n\n<!-- {name}: end -->"

    return MARKED.sub(place, text)


def main(
    write: Annotated[bool, typer.Option("--write", help="Write the pages.")] = False,
) -> int:
    """Compare or write; the exit code says whether a page was not what the results say."""
    old = [path for path in pages() if renewed(path.read_text()) != path.read_text()]
    for path in old:
        print(f"{path.relative_to(ROOT)} {'is written' if write else 'is not what results say'}")
        if write:
            path.write_text(renewed(path.read_text()))
    return int(bool(old) and not write)
