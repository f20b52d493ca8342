"""What ``vtaops start`` finds out about a network; ``templates/start.html`` tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtaops.base.reasons import HINTS
from vtaops.cli.options import step
from vtaops.cli.pages import render

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
    plan: Plan
    random: bool = False
    commands: list[str] = field(default_factory=list)
    quantization: Quantization | None = None
    quality: Quality | None = None
    costs: Sequence[Cost] = ()
    model: Model = field(init=False)
    report: ModelReport = field(init=False)
    equal: bool = False
    host_seconds: float = 0.0
    run_seconds: float = 0.0
    accuracy: Accuracy | None = None

    @contextmanager
    def step(self, *words: object) -> Iterator[None]:
        """Print a command, and keep it for the page."""
        with step(*words) as command:
            self.commands.append(command)
            yield

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs."""
        return {tensor.name: tensor.shape for tensor in self.plan.graph.inputs}

    @property
    def quantised(self) -> bool:
        """Whether the file is quantised already, as its plan says."""
        return all(row.code != "not_quantized" for row in self.plan.rows)

    @property
    def frames_per_second(self) -> float:
        """Frames a second with the host's part as on this computer."""
        seconds = 1e-3 * self.report.milliseconds + self.host_seconds
        return self.report.batch / seconds

    @property
    def answers(self) -> dict[str, float]:
        """The shares of samples that can be told: without labels only of scores for classes."""
        if self.accuracy is None:
            return {}
        first, *others = self.model.graph.outputs
        scores = not others and len(first.shape) == 2 and first.shape[1] > 1
        known = dict(self.accuracy.shares)
        return known if "accuracy" in known or scores else {}

    @property
    def summary(self) -> str:
        """The figures that matter, in a few lines."""
        from vtaops.model.tables import summary

        told = [f"{_ANSWERS[name]} {share:.1%}" for name, share in self.answers.items()]
        told += [f"{name} {db:.1f} dB" for name, db in self.noises]
        samples = f"on {self.accuracy.samples} samples: " if self.accuracy and told else ""
        return f"{summary(self.report)}\n{samples}{', '.join(told)}".rstrip()

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
            "sqnr_db": {n: round(db, 2) if np.isfinite(db) else None for n, db in self.noises},
            "costs_db": {cost.tensor: round(cost.gain_db, 2) for cost in self.costs},
            "commands": self.commands,
        }

    @property
    def noises(self) -> list[tuple[str, float]]:
        """The SQNR of each output."""
        if self.accuracy is None:
            return []
        names = [tensor.name for tensor in self.model.graph.outputs]
        return [*zip(names, self.accuracy.sqnr_db, strict=False)]

    @property
    def on_host(self) -> list[tuple[str, str, str]]:
        """What runs on the host by kind of operator, why the first does, and what helps."""
        reasons: dict[tuple[str, str], list[str]] = {}
        for row in self.report.layers:
            if row.where != "vta":
                reasons.setdefault((row.operator, row.code), []).append(row.reason)
        return [
            (f"{len(texts)} {kind}", texts[0], HINTS[code])
            for (kind, code), texts in reasons.items()
        ]

    def waits(self, layer: Layer) -> str:
        """Return what the compute unit does in a layer."""
        from vtaops.model.report import compute_time
        from vtaops.program.timing import WAITS

        times = compute_time(self.model.programs, layer.name)
        shares = [(kind, cycles / times.total()) for kind, cycles in times.most_common(4)]
        return ", ".join(
            f"{part:.0%} {WAITS.get(kind, kind)}" for kind, part in shares if part > 0.005
        )


_ANSWERS = {
    "accuracy": "answers right",
    "float_accuracy": "right in float",
    "agreement": "answers as in float",
}
"""What the shares of an evaluation say."""


def page(found: Findings, compiled: str) -> str:
    """Return the page of a network, whose compiled file has a name quoted for the shell."""
    from vtaops.model.tables import evidence

    known = evidence(found.report)
    return render("start.html", found=found, compiled=compiled, answers=_ANSWERS, evidence=known)
