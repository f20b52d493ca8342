"""Mistakes of beginners in the schedules of the tutorials: each is told on a screen, or harmless.

Every step of a schedule is left out, done twice, done too early or late, or given another loop,
block, scope, intrinsic or factor. Judges: the program, if there is one, computes what the tutorial
says; else there is a `VTAError` of at most ten lines and 1,000 characters that names a block, a
loop, a buffer or an argument of the step.
"""

from __future__ import annotations

import ast
import copy
import io
import random
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from typing import Any

import vtaops
from trials.campaign import Campaign, Result, result
from vtaops.base.data import data_directory

TUTORIALS = ("matrix_multiply", "matrix_multiply_opt", "convolution_opt")
LINES, CHARACTERS = 10, 1000


@cache
def statements(tutorial: str) -> tuple[list[ast.stmt], list[ast.stmt], list[ast.stmt]]:
    """Return what a tutorial says before its schedule, the schedule, and what comes after it."""
    text = (data_directory("docs") / "tutorials" / f"{tutorial}.md").read_text()
    found = ast.parse("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))).body
    codes = [ast.unparse(each) for each in found]
    begin = max(n for n, code in enumerate(codes) if code.startswith("s = "))
    helpers = [n for n, each in enumerate(found) if isinstance(each, ast.Try)]  # a detour
    begin = max([begin, *(n for n in helpers if n < begin + 20)])
    built = next(n for n, code in enumerate(codes) if code.startswith("program = "))
    judged = next(n for n, code in enumerate(codes) if "np.array_equal" in code)
    steps = [n for n in range(begin + 1, built) if re.search(r"\bs\b", codes[n])]
    first = found[: steps[0]]
    between = range(steps[-1] + 1, built)
    return (
        [each for each in first if "print(" not in ast.unparse(each)],
        found[steps[0] : steps[-1] + 1],
        [found[n] for n in (*between, *range(built, judged + 1))],
    )


def mistakes(tutorial: str) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield the schedules of a tutorial with one mistake each, and what the mistake is."""
    _, steps, _ = statements(tutorial)
    for number, step in enumerate(steps):
        told = ast.unparse(step).splitlines()[0]
        before, after = steps[:number], steps[number + 1 :]
        yield f"twice: {told}", [*before, step, step, *after]
        if not isinstance(step, ast.Assign):
            yield f"left out: {told}", [*before, *after]
            yield f"last: {told}", [*before, *after, step]
        if after and not isinstance(step, ast.Assign):
            yield f"late: {told}", [*before, after[0], step, *after[1:]]
        for what, changed in _changes(step):
            yield f"{what}: {told}", [*before, changed, *after]


def _changes(step: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """Yield a step with another loop, order, scope, intrinsic, block or number."""
    for number, node in enumerate(ast.walk(step)):
        for what, change in _replacements(node):
            changed = copy.deepcopy(step)
            other = list(ast.walk(changed))[number]
            change(other)
            yield what, ast.fix_missing_locations(changed)


OTHERS = {
    "inp_scope": "wgt_scope", "wgt_scope": "acc_scope", "acc_scope": "inp_scope",
    "reset": "gemm", "gemm": "reset", "decompose_reduction": "get_loops", "dma_copy": "vthread",
    "compute_at": "reverse_compute_at",
}  # fmt: skip
"""What stands beside what, and is taken for it."""


def _replacements(node: ast.AST) -> Iterator[tuple[str, Any]]:
    if isinstance(node, ast.Attribute) and node.attr in OTHERS:
        yield "another name", lambda n: setattr(n, "attr", OTHERS[n.attr])
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield "misspelt", lambda n: setattr(n, "value", n.value[:-1])
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "one more", lambda n: setattr(n, "value", n.value + 1)
        yield "half", lambda n: setattr(n, "value", n.value // 2)
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "reorder":
        yield "the last two swapped", lambda n: n.args.insert(-1, n.args.pop())
        yield "the first two swapped", lambda n: n.args.insert(0, n.args.pop(1))
        yield "without the last", lambda n: n.args.pop()
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
        yield "the first left out", lambda n: n.iter.elts.pop(0)
        yield "the last left out", lambda n: n.iter.elts.pop()
        yield "in reverse", lambda n: n.iter.elts.reverse()


@cache
def _start(tutorial: str) -> Any:
    return compile(ast.Module(statements(tutorial)[0], []), tutorial, "exec")


def outcome(tutorial: str, steps: list[ast.stmt]) -> str:
    """Return "right" or "refused" for a schedule; else what is wrong with how it ends."""
    names: dict[str, Any] = {}
    *tail, judged = statements(tutorial)[2]
    with redirect_stdout(io.StringIO()):
        exec(_start(tutorial), names)
        try:
            exec(compile(ast.Module([*steps, *tail], []), tutorial, "exec"), names)
        except vtaops.VTAError as error:
            return told_well(str(error))
        except NameError:  # Python's own, of a step that a name is missing in
            return "refused"
        except Exception as error:
            return f"{type(error).__module__}.{type(error).__name__}: {str(error)[:600]}"
    assert isinstance(judged, ast.Expr)
    assert isinstance(judged.value, ast.Call)
    right = eval(compile(ast.Expression(judged.value.args[0]), tutorial, "eval"), names)
    return "right" if right else "a program that computes something else"


def told_well(message: str) -> str:
    """Return "refused" for a message of a screen that names something; else what it lacks."""
    if len(message.splitlines()) > LINES or len(message) > CHARACTERS:
        return f"{len(message.splitlines())} lines, {len(message)} characters: {message[:1500]}"
    named = re.search(
        r"block|loop|buffer|argument|scratchpad|scope|intrinsic|element|copy|ALU", message
    )
    return "refused" if named else f"names nothing: {message}"


@cache
def _all(tutorial: str) -> dict[str, list[ast.stmt]]:
    return {f"{n} {what}"[:120]: steps for n, (what, steps) in enumerate(mistakes(tutorial))}


def _cases(count: int) -> list[str]:
    known = [f"{tutorial}: {name}" for tutorial in TUTORIALS for name in _all(tutorial)]
    return known if count >= len(known) else random.Random(0).sample(known, count)


def _trial(case: str) -> Result:
    tutorial, _, name = case.partition(": ")
    found = outcome(tutorial, _all(tutorial)[name])
    known = found in ("right", "refused")
    return result(tutorial, "" if known else found, **{found if known else "wrong": 1})


CAMPAIGN = Campaign(_cases, _trial, 1000)
