"""The collector of garbage pauses while models are made, and only then."""

import gc

import pytest

import vtaops
from trials.onnx_models import Builder
from trials.random_graphs import random_graph
from vtaops.base.heap import collection_paused
from vtaops.frontends.values import Value


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


def test_a_file_that_is_read_needs_no_collection():
    b = Builder(0)
    b.output(b.add("LogSoftmax", b.gemm(b.input([1, 8]), 8, 6)))
    gc.collect()
    try:
        gc.disable()
        vtaops.frontends.import_model(b.model())
        assert not any(isinstance(each, Value) for each in gc.get_objects())
    finally:
        gc.enable()
