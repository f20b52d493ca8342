"""Boards that answer their clients with anything: errors of vtaops, or the right result."""

from __future__ import annotations

import json
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from trials.boards import ARRAYS, EXPECTED, OP, serving
from trials.bounds import bounded_memory
from trials.fuzz import INTEGERS, mutated
from vtaops import Session, VTAError
from vtaops.base import errors
from vtaops.hardware.registers import RegisterMap
from vtaops.runtime import remote

KINDS = [name for name in vars(errors) if name[0].isupper()]
"""Names of errors, and other names of their module."""

ERROR = st.fixed_dictionaries(
    {"kind": st.sampled_from([*KINDS, "KeyError", ""]), "message": st.just("no") | INTEGERS}
)
GRAMMAR = {"error": ERROR, "kind": st.sampled_from(KINDS), "address": INTEGERS, "buffer": INTEGERS}
CALLS = 22
"""Answers of a session, about."""


class _Liar(remote.Connection):
    """The client's end of a connection whose other end lies once: in its `lie`-th answer."""

    lie = 0
    draw: st.DrawFn
    answers = 0

    def receive(self, **limits):
        header, payload = super().receive(**limits)
        _Liar.answers += 1
        if _Liar.answers != self.lie:
            return header, payload
        match self.draw(st.integers(0, 5)):
            case 0:
                header = {"id": header.get("id", 0), "error": self.draw(ERROR)}
            case 1:
                payload = payload[: self.draw(st.integers(0, len(payload)))]
            case 2:
                payload += self.draw(st.binary(min_size=1, max_size=99))
            case _:
                header = self.draw(mutated(header, GRAMMAR))
        json.dumps(header)
        return header, payload


@st.composite
def _liars(draw: st.DrawFn) -> type[_Liar]:
    _Liar.answers = 0
    return type("Liar", (_Liar,), {"draw": staticmethod(draw), "lie": draw(st.integers(1, CALLS))})


def fuzz_answers(count: int, number: int = 0) -> None:
    """Use `count` boards, each of which sends one wrong answer; `number` selects which.

    Raises
    ------
    BaseException
        What a client raised that is no error of vtaops, or too much memory.
    """
    quiet = settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=(Phase.generate,),
    )
    with serving(design=RegisterMap.RTL) as server:

        @seed(number)
        @quiet
        @given(_liars())
        def each_ends_in_an_error(liar: type[_Liar]) -> None:
            with bounded_memory(1 << 20), mock.patch.object(remote, "Connection", liar):
                try:
                    _use(server.address)
                except VTAError:
                    return

        each_ends_in_an_error()
        with Session(remote.RemoteDevice(server.address)) as session:
            assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)


def _use(address: str) -> None:
    """Do with a board what people do."""
    with remote.RemoteDevice(address, timeout=2.0) as device:
        device.info()
        device.reset_stats()
        device.stats()
        device.performance()
        with Session(device) as session:
            found = session.run(OP, *ARRAYS)
    assert (found.shape, found.dtype) == (EXPECTED.shape, EXPECTED.dtype)
