"""Devices for the tests of simulators."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vtaops.runtime import Fsim
from vtaops.runtime.fsim import available_kernels
from vtaops.runtime.tsim import Tsim


@pytest.fixture(params=available_kernels())
def device(request: pytest.FixtureRequest) -> Iterator[Fsim]:
    with Fsim("pynq", kernel=request.param) as device:
        yield device


@pytest.fixture
def fsim() -> Iterator[Fsim]:
    with Fsim("pynq") as device:
        yield device


@pytest.fixture(scope="module")
def tiny():
    with Tsim("tiny") as device:
        yield device
