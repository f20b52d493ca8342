"""Ctrl-C at random lines of a call: the next call is right.

A trace raises KeyboardInterrupt, as Ctrl-C does, before a line of a call: of an operator or of a
network, on the simulator or on a virtual board. Few arrays take turns, in memory of the caller that
is written again, so that what a device keeps is used again. The state of a network is then that of
before the interrupted run, or of after it, or an error says that it must be reset.
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import vtaops
from trials.boards import serving
from trials.campaign import Campaign, Result
from trials.networks import cache, growing, window
from vtaops import HardwareConfig
from vtaops.errors import DeviceError
from vtaops.graph import Convolution, Graph, Requantization
from vtaops.graph.executor import evaluate_runs
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime.arguments import as_tuple

PACKAGE = str(Path(vtaops.__file__).parent)

WHOLE = ("__enter__", "__exit__")
"""Functions without lines to interrupt: a lock that is written in Python is not taken in one."""

Lines = Counter[str]
"""Lines that were executed, by file."""


class Interruption:
    """Counts the lines of the package that are executed, and interrupts before one of them."""

    def __init__(self, file: str = "", line: int = 0) -> None:
        self.lines, self._at = Lines(), (file, line)
        self.happened = False
        self._before = sys.gettrace()  # a debugger's

    def __enter__(self) -> Interruption:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        traced = code.co_filename.startswith(PACKAGE) and code.co_name not in WHOLE
        return self._line if traced else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            file = frame.f_code.co_filename
            self.lines[file] += 1
            if (file, self.lines[file]) == self._at:
                self.happened = True
                raise KeyboardInterrupt
        return self._line


Call = Callable[[], bool]
"""Calls something with other arguments; returns whether its result is right."""


@contextmanager
def operators(device: str, config: str, rng: random.Random) -> Iterator[Call]:
    """Operators whose arguments are some of few."""
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    described = (
        vtaops.Gemm(m=4, n=32, k=32, shift=3, clip=(0, 127)),
        vtaops.Gemm(m=1, n=40, k=70, bias=True, shift=2),
        vtaops.Conv2d(
            in_channels=16, out_channels=20, height=7, width=5, kernel=3, padding=1, shift=4
        ),
    )
    choices = {op: [random_arguments(op, numbers) for _ in range(2)] for op in described}
    own = {op: random_arguments(op, numbers) for op in described}
    with vtaops.Session(device, config) as session:

        def call() -> bool:
            op = rng.choice(described)
            for array, *values in zip(own[op], *choices[op], strict=True):
                array[:] = rng.choice(values)
            return np.array_equal(session.run(op, *own[op]), evaluate(op, own[op]))

        yield call


def two_parts() -> Graph:
    """Two launches, with a function between them that the host computes."""
    numbers = np.random.default_rng(0)
    graph = Graph("two_parts")
    x = graph.input("x", (1, 16, 6, 6))
    for _ in range(2):
        weight = numbers.integers(-9, 9, (16, 16, 3, 3)).astype(np.int8)
        x = graph.add(Convolution(weight, None, Requantization(1, 6), padding=(1, 1, 1, 1)), x)
        x = graph.add(vtaops.graph.operators.FixedSoftmax(), x)
    graph.output(x)
    return graph


@contextmanager
def network(
    device: str, config: str, rng: random.Random, build: Callable[[], Graph]
) -> Iterator[Call]:
    """A network, whose results must be those of the completed runs since its state began.

    An interrupted run may be one of them, if it was at its end.
    """
    model = vtaops.compile_model(build(), config, prove=False)
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    choices = [
        [numbers.integers(-90, 90, t.shape).astype(np.int8) for t in model.graph.arguments]
        for _ in range(3)
    ]
    histories: list[list[list[Any]]] = [[]]
    with vtaops.Session(device, model.config) as session:
        state = model.new_state(session)

        def begin() -> None:
            histories.append([])  # one of them, if this is interrupted
            state.reset()
            histories[:] = [[]]

        def call() -> bool:
            if not model.graph.state or not histories or len(histories[-1]) >= 9:
                begin()
            given = rng.choice(choices)
            runs = [[*history, given] for history in histories]
            histories.extend(runs)
            try:
                found = as_tuple(
                    model.run(*given, state=state)
                    if model.graph.state
                    else model.run(*given, session=session)
                )
            except DeviceError as error:
                if not str(error).endswith("reset it"):
                    raise
                begin()
                return True
            histories[:] = [run for run in runs if _equal(found, model.graph, run)]
            return bool(histories)

        yield call


def _equal(found: tuple[Any, ...], graph: Graph, runs: list[list[Any]]) -> bool:
    *_, expected = evaluate_runs(graph, runs)
    return all(map(np.array_equal, found, expected))


GRAPHS = {build.__name__: build for build in (two_parts, cache, window, growing)}
SUBJECTS = [
    f"{what} on {device}" for device in ("fsim", "board") for what in ("operators", *GRAPHS)
]


@contextmanager
def opened(subject: str, rng: random.Random) -> Iterator[Call]:
    """Return the calls of a subject."""
    what, _, device = subject.partition(" on ")
    config = rng.choice(("pynq", "pynq_ext"))
    with ExitStack() as stack:
        if device == "board":
            device = stack.enter_context(serving(config=HardwareConfig.load(config))).address
        graph = GRAPHS.get(what)
        calls = network(device, config, rng, graph) if graph else operators(device, config, rng)
        yield stack.enter_context(calls)


PORTION = 40
"""Interruptions of a case, in one session."""


def trial(case: str) -> Result:
    """Interrupt calls of a subject: ``operators on fsim/7``."""
    logging.getLogger("vtaops.board").setLevel(logging.CRITICAL)  # lost connections are expected
    subject = case.rpartition("/")[0]
    rng, counts, failed = random.Random(case), Counter[str](), []
    first = Lines()
    with opened(subject, rng) as call:
        for index in range(PORTION):
            with Interruption() as whole:
                if not call():
                    failed.append(f"{index}: WRONG")
            first |= whole.lines
            lines = first if rng.random() < 0.2 else whole.lines  # those of compilers are many
            file = rng.choice([*lines])
            with Interruption(file, rng.randint(1, lines[file])) as cut:
                try:
                    right = call()
                    counts["not reached"] += not cut.happened
                except KeyboardInterrupt:
                    right = True
                    counts["interrupted"] += 1
            name = Path(file).relative_to(PACKAGE)
            if not right or not all(call() for _ in range(2)):
                failed.append(f"{index}: WRONG after an interruption in {name}")
    return {"counts": {subject: {"calls": 4 * PORTION, **counts}}, "failed": failed}


CAMPAIGN = Campaign(
    lambda count: [f"{SUBJECTS[n % len(SUBJECTS)]}/{n // len(SUBJECTS)}" for n in range(count)],
    trial,
    count=200,
)
