"""The bugs that benchmarks plant into the compiler: each has one place."""

from pathlib import Path

import pytest

import vtaops
from trials.planted_bugs import BUGS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_what_a_planted_bug_replaces_occurs_once(bug):
    source = (Path(vtaops.__file__).parent / bug.path).read_text(encoding="utf-8")
    assert source.count(bug.right) == 1
    compile(source.replace(bug.right, bug.wrong), bug.path, "exec")


def test_bugs_have_names_of_their_own():
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    assert all(bug.right != bug.wrong for bug in BUGS)
