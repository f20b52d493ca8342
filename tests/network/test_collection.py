"""The collector of garbage pauses while models are made, and only then."""

import gc

import pytest

import vtaops
from trials.random_graphs import random_graph
from vtaops.network.compile import collection_paused


@collection_paused()
def fails():
    with collection_paused():
        assert not gc.isenabled()
    assert not gc.isenabled()
    raise KeyError


@pytest.mark.parametrize("running", [True, False])
def test_the_collector_is_afterwards_as_it_was(running):
    try:
        (gc.enable if running else gc.disable)()
        with pytest.raises(KeyError):
            fails()
        assert gc.isenabled() == running
        vtaops.compile_model(random_graph(3), "tiny")
        assert gc.isenabled() == running
    finally:
        gc.enable()
