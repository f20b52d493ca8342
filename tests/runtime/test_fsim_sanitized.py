"""The functional simulator under address and undefined-behaviour sanitizers, with hostile words."""

from __future__ import annotations

from pathlib import Path

import pytest

from trials.sanitized import CONFIGS, NO_TOOLS, build, launch
from vtaops.runtime.fsim import available_kernels

PROGRAMS = 1000
"""As `python -m trials sanitized` launches by the hundred thousand."""


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory) -> Path:
    built = build(tmp_path_factory.mktemp("sanitized"))
    if built is None:
        pytest.skip(NO_TOOLS)
    return built


@pytest.mark.parametrize("name", CONFIGS)
def test_hostile_words_touch_no_memory_but_their_own(fuzzer, name):
    finished, kernels, found = launch(fuzzer, name, PROGRAMS, 18)
    assert not found
    assert 10 < finished < PROGRAMS - 10  # both kinds occur
    assert kernels.split() == ["checked", *available_kernels()]
