"""Three judges of what a compiler makes of a fixed set of small operators and networks.

Each program is compiled without the verifier, and put before judges that do not know of each other:
the verifier, the proof, and random inputs on fsim. The campaign does so with each bug of
`trials.planted_bugs`, which changes one place of lowering, linking, mapping or packing. A bug
*shows* on a subject if random inputs differ on fsim, the verifier refuses the program, or its proof
fails; what compiles no more is counted as seen by the compiler. The proof presumes the verifier,
which finds races and tiles that nobody wrote: what matters is subjects that differ, and that both
let pass.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import vtaops
from trials.campaign import Campaign, Result, result
from trials.random_graphs import random_graph, random_inputs, shuffled
from vtaops import Program
from vtaops.graph import Convolution, Graph, MaxPool, Requantization
from vtaops.graph.executor import evaluate as evaluate_graph
from vtaops.model import Model
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate, random_arguments

INPUTS = 20
"""Random inputs of each program."""


@dataclass(frozen=True)
class Subject:
    """An operator or a network, and its hardware."""

    name: str
    declared: Operator | Graph
    config: str

    def compiled(self) -> Any:
        """Return the program or model, neither verified nor proven."""
        if isinstance(self.declared, Graph):
            return vtaops.compile_model(self.declared, self.config, verify=False, prove=False)
        return vtaops.compile(self.declared, self.config, verify=False)

    def differs(self, made: Any) -> bool:
        """Whether one of some random inputs shows another result on fsim."""
        if isinstance(self.declared, Graph):
            return any(self._network_differs(made, seed) for seed in range(INPUTS))
        rng = np.random.default_rng(0)
        with vtaops.runtime.open_device("fsim", made.config) as device:
            given = [random_arguments(self.declared, rng) for _ in range(INPUTS)]
            pairs = ((made.run(device, *g), evaluate(self.declared, g)) for g in given)
            return not all(np.array_equal(found, wanted) for found, wanted in pairs)

    def _network_differs(self, made: Any, seed: int) -> bool:
        assert isinstance(self.declared, Graph)
        arrays = random_inputs(self.declared, seed)
        found, wanted = made.run(*arrays), evaluate_graph(self.declared, *arrays)
        found = found if isinstance(found, tuple) else (found,)
        return not all(map(np.array_equal, found, wanted))


EPILOGUE: dict[str, Any] = {"bias": True, "shift": 8, "rounding": "half_up", "clip": (-100, 90)}

OPERATORS: dict[str, Operator] = {
    "Conv2d": vtaops.Conv2d(
        in_channels=32, out_channels=48, height=9, width=11, kernel=3, padding=1, **EPILOGUE
    ),
    "Conv2d in groups": vtaops.Conv2d(
        in_channels=24,
        out_channels=24,
        height=8,
        width=8,
        kernel=5,
        strides=2,
        padding=(1, 2, 2, 1),
        groups=6,
        **EPILOGUE,
    ),
    "Conv2dTranspose": vtaops.Conv2dTranspose(
        in_channels=16,
        out_channels=16,
        height=5,
        width=6,
        kernel=3,
        strides=2,
        shift=7,
        clip=(-128, 127),
    ),
    "MaxPool2d": vtaops.MaxPool2d(channels=16, height=9, width=9, kernel=3, strides=2, padding=1),
    "Conv2d without a bias": vtaops.Conv2d(
        in_channels=20,
        out_channels=20,
        height=6,
        width=7,
        kernel=1,
        strides=2,
        shift=6,
        rounding="half_up",
        clip=(-128, 127),
    ),
    # With default tilings, the one whose first product overwrites with some of its micro-ops only.
    "Conv2d with gaps": vtaops.Conv2d(
        in_channels=20,
        out_channels=16,
        height=8,
        width=7,
        kernel=(2, 3),
        padding=(2, 0, 3, 0),
        dilation=(2, 1),
        **EPILOGUE,
    ),
    "Conv2d with folded columns": vtaops.Conv2d(
        in_channels=3,
        out_channels=16,
        height=8,
        width=9,
        kernel=3,
        padding=(1, 2, 0, 1),
        fold_columns=True,
        **EPILOGUE,
    ),
    "Gemm": vtaops.Gemm(m=20, n=80, k=300, **EPILOGUE),
}

GRAPHS = (
    *((seed, "tiny") for seed in (1, 2, 7, 10, 12, 15, 17, 46, 47)),
    *((seed, "pynq") for seed in (3, 8)),
    *((seed, "pynq_ext") for seed in (5, 7, 9)),
)
"""Seeds of random networks, and their hardware."""


def shuffled_network() -> Graph:
    """Return a network with a result whose channels are in other lanes, which VTA reads too."""
    graph = Graph("shuffled")
    weights = np.random.default_rng(0).integers(-128, 128, (24, 24, 1, 1)).astype(np.int8)
    x = graph.input("x", (1, 24, 4, 5))
    x = graph.add(Convolution(weights, requantization=Requantization(1, 9)), x)
    result = shuffled(graph, x, 3)
    graph.output(result, graph.add(MaxPool((2, 2), (1, 1)), result))
    return graph


def subjects() -> Iterator[Subject]:
    """Yield what is compiled."""
    for config in ("pynq", "pynq_ext"):
        for name, op in OPERATORS.items():
            yield Subject(f"{name} on {config}", op, config)
    yield Subject("shuffled network", shuffled_network(), "tiny")
    for seed, config in GRAPHS:
        graph = random_graph(seed, free=config == "pynq_ext")
        yield Subject(f"network {seed} on {config}", graph, config)


@contextmanager
def unverified() -> Iterator[None]:
    """Let nothing be verified: what comes next judges alone."""
    with (
        mock.patch.object(Program, "verify", return_value=None),
        mock.patch.object(Model, "verify", return_value=None),
    ):
        yield


def examine() -> dict[str, dict[str, str]]:
    """Return for each subject what each judge says: ``""`` if it has nothing to say against it."""
    return {subject.name: verdicts(subject) for subject in subjects()}


def verdicts(subject: Subject) -> dict[str, str]:
    """Return what each judge says of a subject; the compiler's word alone if it refuses it."""
    made: list[Any] = []
    refused = said(lambda: made.append(subject.compiled()))
    if refused:
        return {"compiler": refused}
    (program,) = made
    found = {"verifier": said(program.verify)}
    with unverified():
        found["proof"] = said(lambda: "; ".join(vtaops.prove(program).unproven))
        found["fsim"] = said(lambda: "differs" if subject.differs(program) else "")
    return found


def said(judge: Callable[[], Any]) -> str:
    """Return what a judge says, or raises: a broken compiler may lead to any exception."""
    try:
        answer = judge()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return answer if isinstance(answer, str) else ""


JUDGES = ("compiler", "verifier", "proof", "fsim")


def examined(name: str) -> dict[str, dict[str, str]]:
    """Return what judges say of each subject, compiled with the bug of a name, in a process."""
    done = subprocess.run(
        [sys.executable, "-m", "trials.planted_bugs", name],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:  # not even the package can be imported
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"the package": {"compiler": last[:200]}}
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def sees(judge: str, verdicts: dict[str, str]) -> bool:
    """Whether a judge sees a bug: the proof by a refutation, not by a program it cannot read."""
    answer = verdicts.get(judge, "")
    return answer.startswith("NotEquivalent") if judge == "proof" else bool(answer)


def trial(name: str) -> Result:
    """Count the subjects on which each judge sees a bug.

    It fails if fsim alone sees it on one, or if no subject shows it.
    """
    found = examined(name)
    counts = {j: sum(sees(j, verdicts) for verdicts in found.values()) for j in JUDGES}
    unseen = [
        subject
        for subject, verdicts in found.items()
        if sees("fsim", verdicts) and not (sees("verifier", verdicts) or sees("proof", verdicts))
    ]
    failed = [f"unseen on {subject}" for subject in unseen]
    failed += ["no subject shows it"] * (name != "none" and not any(counts.values()))
    return result(name, failed, of=len(found), **counts)


def bugs(count: int) -> list[str]:
    """Return the names of the bugs, after that of the right compiler."""
    from trials.planted_bugs import BUGS

    return ["none", *(bug.name for bug in BUGS)][:count]


CAMPAIGN = Campaign(bugs, trial, count=1000)
