"""A taskset for the package ``verifiers``: models write kernels, and verdicts reward them.

Of a reply, the last fenced block counts: a stream, a tiling if it is marked as ``json``, or a
schedule if it is marked as ``python``. The reward is 0 unless the answer is accepted; then it is
the compiler's cycles divided by the answer's. Needs the extra ``verifiers``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import verifiers.v1 as vf

from vtaops.base.errors import VTAError
from vtaops.explore.judge.answers import Answer, Schedule, tiling_of
from vtaops.explore.judge.tasks import find_task, task_names
from vtaops.explore.judge.verdicts import Judge, Verdict

__all__ = ["KernelTaskset"]

PROMPT = """\
Write an instruction stream for the VTA accelerator that computes {name} on the configuration
{config} in as few cycles as you can: {about}. It is accepted only if it is proven right for every
input. The compiler's stream, which takes {cycles} cycles (no tiling takes fewer than {bound}), is

```
{listing}
```

Tokens (pop_prev, push_next, ...) order the load, compute and store units. Answer with your whole
stream, from the line "instructions" on, in one fenced block."""

_FENCED = re.compile(r"```(\w*)[^\n]*\n(.*?)```", re.DOTALL)
_judge = lru_cache(maxsize=8)(Judge)


class KernelData(vf.TaskData):  # type: ignore[misc]
    """A row: the name of the task of the judge."""

    kernel: str


class KernelRow(vf.Task[KernelData]):  # type: ignore[misc]
    """A task whose reward is a verdict."""

    @vf.reward  # type: ignore[untyped-decorator]
    async def speed(self, trace: vf.Trace) -> float:
        """Return the compiler's cycles divided by those of the answer; 0 if it is refused."""
        verdict = verdict_on(self.data.kernel, trace.last_reply)
        return verdict.compiler / verdict.cycles if verdict.accepted else 0.0

    @vf.metric  # type: ignore[untyped-decorator]
    async def accepted(self, trace: vf.Trace) -> float:
        """Return 1 if the answer is proven right, else 0."""
        return float(verdict_on(self.data.kernel, trace.last_reply).accepted)


class KernelConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Which tasks: those whose names begin like this."""

    names: str = "tiny/"


class KernelTaskset(vf.Taskset[KernelRow, KernelConfig]):  # type: ignore[misc]
    """The tasks of the judge as rows with prompts."""

    def load(self) -> Iterator[KernelRow]:
        """Yield a row for each task."""
        for name in task_names():
            if name.startswith(self.config.names):
                task = find_task(name)
                listing = task.compiled.disassemble()
                facts = {"config": task.config.name, "about": task.about, "cycles": task.cycles}
                prompt = PROMPT.format(name=name, bound=task.bound, listing=listing, **facts)
                yield KernelRow(KernelData(name=name, kernel=name, prompt=prompt), self.config.task)


def verdict_on(task: str, reply: str) -> Verdict:
    """Return the verdict on the last fenced block of a reply; without one, on all of it."""
    return _judge(task)(_answer(reply))


def _answer(reply: str) -> Answer:
    blocks: list[tuple[str, str]] = [("", reply), *_FENCED.findall(reply)]
    kind, text = blocks[-1]
    if kind == "python":
        return Schedule(text)
    if kind == "json":
        try:
            return tiling_of(text)
        except VTAError:
            return text
    return text
