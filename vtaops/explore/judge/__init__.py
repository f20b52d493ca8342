"""A judge that cannot be gamed: kernels by search, by students and by models, decided by proof.

`task_names` and `find_task` are what there is to compute, a `Judge` gives a `Verdict` on each
answer, and `vtaops judge` is the same on the command line ([the guide](judge.md)).
"""

from vtaops.explore.judge.answers import Answer, Schedule, read_answer, tiling_of
from vtaops.explore.judge.tasks import KernelTask, find_task, task_names
from vtaops.explore.judge.verdicts import Judge, Verdict

__all__ = [
    "Answer",
    "Judge",
    "KernelTask",
    "Schedule",
    "Verdict",
    "find_task",
    "read_answer",
    "task_names",
    "tiling_of",
]
