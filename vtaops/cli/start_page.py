"""What ``vtaops start`` finds out about a network, and the page that tells it.

One file without scripts, for wide windows and telephones; names come from model files and are
quoted. See `start`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtaops.base.quoting import terminal_text
from vtaops.base.reasons import HINTS
from vtaops.cli.evaluate import sample_card

if TYPE_CHECKING:
    from vtaops.model import Model
    from vtaops.model.report import Layer, ModelReport
    from vtaops.network.plan import Plan
    from vtaops.quantization.costs import Cost
    from vtaops.quantization.evaluation import Accuracy
    from vtaops.quantization.pipeline import Quantization
    from vtaops.quantization.quality import Quality


@dataclass
class Findings:
    """What is known of a network; the steps fill it in."""

    file: Path
    config: str
    facts: dict[str, str]
    random: bool = False
    commands: list[str] = field(default_factory=list)
    plan: Plan = field(init=False)
    quantization: Quantization | None = None
    quality: Quality | None = None
    costs: Sequence[Cost] = ()
    model: Model = field(init=False)
    report: ModelReport = field(init=False)
    equal: bool = False
    host_seconds: float = 0.0
    run_seconds: float = 0.0
    accuracy: Accuracy | None = None

    @property
    def quantised(self) -> bool:
        """Whether the file is quantised already, as its plan says."""
        return all(row.code != "not_quantized" for row in self.plan.rows)

    @property
    def on_vta(self) -> str:
        """How many operators run on VTA."""
        rows = self.report.layers
        return f"{sum(row.where == 'vta' for row in rows)} of {len(rows)} operators on VTA"

    @property
    def slowest(self) -> Layer:
        """The layer that takes most cycles."""
        return max(self.report.layers, key=lambda layer: layer.cycles)

    @property
    def frames_per_second(self) -> float:
        """Frames a second with the host's part as on this computer."""
        seconds = 1e-3 * self.report.milliseconds + self.host_seconds
        return self.report.batch / seconds

    @property
    def answers(self) -> dict[str, float]:
        """The shares of samples that can be told: without labels only of scores for classes."""
        if self.accuracy is None or self.random:
            return {}
        first, *others = self.model.graph.outputs
        classes = int(np.prod(first.shape[1:], dtype=int))
        scores = not others and len(first.shape) <= 2 and classes > 1
        known = dict(self.accuracy.shares)
        return known if "accuracy" in known or scores else {}

    @property
    def summary(self) -> str:
        """The figures that matter, in a few lines."""
        report = self.report
        lines = [
            f"{self.on_vta}, {_launches(report)}; {_proven(report)}",
            f"{report.cycles:,} cycles: {report.milliseconds:.2f} ms at {report.clock_mhz} MHz; "
            f"the host's part takes {1e3 * self.host_seconds:.2f} ms on this computer: "
            f"{_rate(self.frames_per_second)} frames/s",
            f"most cycles: {_short(self.slowest.name)}, {self.slowest.share:.0%}",
        ]
        told = [f"{_ANSWERS[name]} {share:.1%}" for name, share in self.answers.items()]
        told += [f"{name} {db:.1f} dB" for name, db in self._noises()]
        if self.accuracy is not None and told:
            lines.append(f"on {self.accuracy.samples} samples: {', '.join(told)}")
        lines += [
            f"costs most accuracy: {_short(c.tensor)}, {c.gain_db:.1f} dB" for c in self.costs[:1]
        ]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return what is told, ready for JSON; an SQNR without noise is null."""
        relief = self.quantization.relief if self.quantization else None
        return {
            "facts": self.facts,
            "config": self.config,
            "random_data": self.random,
            "float_nodes": list(relief.nodes) if relief else [],
            "report": self.report.as_dict(),
            "equal": self.equal,
            "host_ms": round(1e3 * self.host_seconds, 3),
            "frames_per_second": round(self.frames_per_second, 3),
            "samples": self.accuracy.samples if self.accuracy else 0,
            **self.answers,
            "sqnr_db": {n: round(db, 2) if np.isfinite(db) else None for n, db in self._noises()},
            "costs_db": {cost.tensor: round(cost.gain_db, 2) for cost in self.costs},
            "commands": self.commands,
        }

    def _noises(self) -> Iterable[tuple[str, float]]:
        if self.accuracy is None or self.random:
            return []
        names = [tensor.name for tensor in self.model.graph.outputs]
        return zip(names, self.accuracy.sqnr_db, strict=False)


_ANSWERS = {
    "accuracy": "answers right",
    "float_accuracy": "right in float",
    "agreement": "answers as in float",
}
"""What the shares of an evaluation say."""

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1c2733;max-width:1080px;margin:0 auto;padding:1em;
overflow-wrap:anywhere}
h1{font-size:1.6em;margin:.4em 0 0;overflow-wrap:anywhere}h2{font-size:1.2em;margin:2em 0 .5em}
p{max-width:46em}.note,small{color:#5f6b7a}.warn{background:#fff4de;padding:.6em .8em}
.key{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:.7em;margin:1em 0}
.key div{background:#f2f5f8;padding:.6em .8em;border-radius:6px}
.key b{display:block;font-size:1.35em}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3em .7em .3em 0;
vertical-align:top;border-bottom:1px solid #e3e8ee;overflow-wrap:break-word}
td:first-child,th:first-child{min-width:5.5em}.wide{white-space:nowrap}
th{font-weight:600;color:#5f6b7a}.n{text-align:right;white-space:nowrap;overflow-wrap:normal}
.bar{width:22%}.bar i{display:block;height:.8em;margin-top:.35em;background:#4c9be8;min-width:1px}
pre{background:#f2f5f8;padding:.8em;white-space:pre-wrap;overflow-wrap:anywhere;border-radius:6px}
.facts td:first-child{white-space:nowrap;color:#5f6b7a}
figure{display:inline-block;width:160px;margin:8px 8px 8px 0;vertical-align:top;font-size:13px;
overflow-wrap:anywhere}figure img{width:160px;max-height:160px;object-fit:contain;
object-position:left;image-rendering:pixelated}
dt{float:left;margin-right:.5em;color:#5f6b7a}dd{margin:0}details summary{cursor:pointer}
@media(max-width:600px){.bar,.wide{display:none}body{font-size:14px;padding:.6em}
td,th{padding-right:.45em}figure,figure img{width:104px}figure img{max-height:104px}}
"""


def page(found: Findings) -> str:
    """Return the page of a network."""
    title = escape(f"{found.file.name} on {found.config}")
    parts = (_key, _file, _places, _rounding, _answers, _cycles, _layers, _commands)
    body = "".join(part(found) for part in parts)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>{body}"
        "</body></html>\n"
    )


def _key(found: Findings) -> str:
    """Return the figures that matter."""
    report = found.report
    figures = [
        (found.on_vta.partition(" operators")[0], "operators on VTA"),
        (f"{report.cycles:,}", f"cycles, {report.milliseconds:.2f} ms at {report.clock_mhz} MHz"),
        (_rate(found.frames_per_second), "frames/s, with this computer as host"),
        *((f"{share:.1%}", _ANSWERS[name]) for name, share in found.answers.items()),
        *((f"{db:.1f} dB", f"SQNR of {name}") for name, db in [*found._noises()][:3]),
    ]
    cells = "".join(f"<div><b>{_text(n)}</b>{_text(what)}</div>" for n, what in figures)
    random = (
        "The inputs are random, so ranges are guessed and accuracy is unknown. Repeat it with "
        "--data when you have real inputs."
    )
    return f'<div class="key">{cells}</div>' + f'<p class="warn">{_text(random)}</p>' * found.random


def _file(found: Findings) -> str:
    return f'<h2>The file</h2><div class="facts">{_table((), found.facts.items())}</div>'


def _places(found: Findings) -> str:
    """Return what runs where, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in found.report.layers:
        if row.where != "vta":
            reasons.setdefault((row.operator, row.code), []).append(row.reason)
    rows = [
        (_times(kind, len(texts)), _first(texts), HINTS[code])
        for (kind, code), texts in reasons.items()
    ]
    table = _table(("on the host", "why", "what helps"), rows) if rows else ""
    return (
        f"<h2>What runs where</h2><p>{_text(found.on_vta)}, in {_launches(found.report)} of the "
        f"accelerator; {_text(_proven(found.report))}. The first sample ran on the simulator: "
        f"{'equal to' if found.equal else 'DIFFERENT FROM'} the integer reference, bit for bit.</p>"
        f"<p>The network {_text(found.report.file)}.</p>{table}"
    )


def _rounding(found: Findings) -> str:
    """Return how it was quantised, and which tensors cost accuracy."""
    done = found.quantization
    if done is None:
        return "<h2>Quantised</h2><p>The file is quantised already, and taken as it is.</p>"
    costs = _table(
        ("tensor", "by", "costs dB", "what would help"),
        [(c.tensor, c.operator, f"{c.gain_db:.1f}", c.advice) for c in found.costs],
        numbers=(2,),
    )
    told = [str(done.relief)] if done.relief else []
    told += found.quality.warnings if found.quality else ()
    warned = "".join(f'<p class="warn">{_text(text)}</p>' for text in told)
    worst = (
        f"<p>The rounding of these tensors costs the outputs most; the gain if only that one were "
        f"float:</p>{costs}"
        if found.costs
        else "<p>No single tensor costs the outputs more than a twentieth of a dB.</p>"
    )
    return f"<h2>Quantised for {_text(found.config)}</h2>{_recipes(done)}{warned}{worst}"


def _recipes(done: Quantization) -> str:
    """Return which recipes were tried, if more than the defaults."""
    if not done.trials:
        return f"<p>By the defaults, on {len(done.samples)} samples.</p>"
    tried = [
        (t.recipe, f"{t.sqnr_db:.1f}", f"{t.figures.cycles:,}", t.figures.launches)
        for t in done.trials
    ]
    table = _table(("recipe", "SQNR dB", "cycles", "launches"), tried, numbers=(1, 2, 3))
    return (
        f"<p>{len(tried)} recipes were tried on {len(done.samples)} samples and judged on others; "
        f"the best: {_text(done.trials[0].recipe)}.</p>{table}"
    )


def _answers(found: Findings) -> str:
    """Return how the answers agree, with the worst samples."""
    accuracy = found.accuracy
    if accuracy is None:
        return (
            "<h2>Accuracy</h2><p>Not measured: there are no data. Give them with --data, best with "
            "labels.</p>"
        )
    rows = [(_ANSWERS[name], f"{share:.1%}") for name, share in found.answers.items()]
    rows += [(f"SQNR of {name}", f"{db:.1f} dB") for name, db in found._noises()]
    shown = [one if found.answers else replace(one, texts={}) for one in accuracy.worst]
    cards = "".join(map(sample_card, shown))
    labels = "" if "accuracy" in accuracy.shares else " There are no labels."
    head = f"<h2>Accuracy</h2><p>{accuracy.samples} samples.{labels}{_wrong_in_float(accuracy)}"
    if not rows:
        why = "The inputs are random" if found.random else "There is no float model either"
        return f"{head} {why}, so nothing was compared.</p>"
    return (
        f"{head}</p>{_table((), rows, numbers=(1,))}"
        f"<details open><summary>The worst {len(accuracy.worst)} samples</summary>{cards}</details>"
    )


def _wrong_in_float(accuracy: Accuracy) -> str:
    wrong = accuracy.float_wrong
    asked = " Are the inputs scaled as in its training, and the labels its own?"
    return (f" The float model itself is wrong on {wrong}." if wrong else "") + asked * (
        2 * wrong > accuracy.samples
    )


def _cycles(found: Findings) -> str:
    """Return the time of a frame, and why the slowest layer takes its share."""
    from vtaops.model.report import compute_time
    from vtaops.program.timing.timeline import WAITS

    report, layer = found.report, found.slowest
    host = 1e3 * found.host_seconds
    rows = [
        ("the accelerator", f"{report.milliseconds:.2f} ms", _share(report.milliseconds, host)),
        ("the host, on this computer", f"{host:.2f} ms", _share(host, report.milliseconds)),
    ]
    if not layer.cycles:
        return ""
    times = compute_time(found.model.programs, layer.name)
    shares = [(kind, cycles / times.total()) for kind, cycles in times.most_common(4)]
    why = ", ".join(f"{part:.0%} {WAITS.get(kind, kind)}" for kind, part in shares if part > 0.005)
    return (
        f"<h2>Time of a frame</h2>{_table((), rows, numbers=(1, 2))}"
        f"<p class='note'>Cycles by the timing model, without the time to start a launch. The "
        f"processor of a board is slower than this computer.</p>"
        f"<p>Most cycles go to <b>{_text(_short(layer.name))}</b> ({_text(layer.operator)}): "
        f"{layer.cycles:,}, {layer.share:.0%} of all, with {layer.utilization:.0%} of the array in "
        f"use. What its compute unit does: {_text(why)}.</p>"
    )


def _layers(found: Findings) -> str:
    """Return the cycles of each layer on the accelerator."""
    most = max(1, found.slowest.cycles)
    judged = any(layer.sqnr is not None for layer in found.report.layers)
    head = "layer", "operator", "cycles", "", "array", "SQNR dB" * judged
    rows = "".join(
        f"<tr><td>{_cell(_short(layer.name))}</td><td class='wide'>{_text(layer.operator)}</td>"
        f"<td class='n'>{layer.cycles:,}</td>"
        f"<td class='bar'><i style='width:{100 * layer.cycles / most:.1f}%'></i></td>"
        f"<td class='n'>{layer.utilization:.0%}</td>"
        f"<td class='n'>{'' if layer.sqnr is None else f'{layer.sqnr:.1f}'}</td></tr>"
        for layer in found.report.layers
        if layer.cycles
    )
    classes = "", "wide", "n", "bar", "n", "n"
    heads = "".join(f"<th class='{c}'>{h}</th>" for c, h in zip(classes, head, strict=True))
    return f"<h2>Layers on the accelerator</h2><table><tr>{heads}</tr>{rows}</table>"


def _commands(found: Findings) -> str:
    compiled = next(c for c in found.commands if c.startswith("vtaops run")).split(" --input")[0]
    compiled = compiled.removeprefix("vtaops run ")
    further = (
        "# every cycle of every unit",
        f"vtaops report profile {compiled} -o cycles.html",
        "# on a board",
        f"vtaops run {compiled} --device pynq://HOST",
        "# as C, without Python",
        f"vtaops export {compiled} -o c",
    )
    return (
        f"<h2>By hand</h2><p>The commands that made this page:</p>"
        f"<pre>{_text(chr(10).join(found.commands))}</pre><p>And to go on:</p>"
        f"<pre>{_text(chr(10).join(further))}</pre>"
    )


# ------------------------------------------------------------------------------------ details


def _text(value: object) -> str:
    """Return a value as text of HTML, without characters that change its direction.

    Options of commands are not broken behind a hyphen.
    """
    return re.sub(
        r"(?<!\S)--?[a-z][a-z-]*", r"<nobr>\g<0></nobr>", escape(terminal_text(str(value)))
    )


def _cell(value: object) -> str:
    """Return a value as text of a table: in a narrow one long names break, words do not."""
    places = r"[/;:._](?=[A-Za-z_])|[A-Za-z0-9]{12}(?=\w{3})"
    text = escape(re.sub(places, "\\g<0>\0", terminal_text(str(value)))).replace("\0", "<wbr>")
    return re.sub("`([^`]+)`", r"<code>\1</code>", text)


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[int] = ()) -> str:
    def row(cells: Sequence[Any], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if i in numbers else ''}>{_cell(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        )

    lines = [f"<tr>{row(head, 'th')}</tr>"] * bool(head)
    lines += [f"<tr>{row(cells, 'td')}</tr>" for cells in rows]
    return f"<table>{''.join(lines)}</table>"


def _short(name: str) -> str:
    """Return a name of a line: some exporters join those of all that they fused; the first one."""
    name = name.partition(";")[0]
    return name if len(name) <= 60 else f"{name[:28]}…{name[-28:]}"


def _times(kind: str, count: int) -> str:
    return f"{count} {kind}" if count > 1 else kind


def _first(reasons: Sequence[str]) -> str:
    """Return the first of the reasons for one kind of operator."""
    others = len({*reasons}) - 1
    return reasons[0] + f"; {others} like it" * (others > 0)


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _launches(report: ModelReport) -> str:
    return f"{report.launches} launch{'es' * (report.launches != 1)}"


def _proven(report: ModelReport) -> str:
    from vtaops.model.tables import evidence

    return evidence(report).replace("\n", "; ")


def _share(one: float, other: float) -> str:
    return f"{one / max(one + other, 1e-12):.0%}"
