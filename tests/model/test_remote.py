"""Networks on a board in another process: what travels, and what a dead server costs."""

import sys
from contextlib import contextmanager

import numpy as np
import pytest
from helpers.processes import spawned

import vtaops
from vtaops.graph import AveragePool, Convolution, Dense, Graph, MaxPool, Requantization, Reshape

VIRTUAL = (sys.executable, "-m", "vtaops.board", "virtual", "pynq", "--programmed", "--port")


@contextmanager
def board(port=0):
    """A virtual board in a process of its own; yields it and its address."""
    with spawned([*VIRTUAL, str(port)]) as process:
        line = process.stdout.readline()
        yield process, line.split()[-1]


def network():
    rng = np.random.default_rng(4)
    graph = Graph("remote")
    x = graph.input("x", (1, 16, 16, 16))
    for channels in (64, 64):
        weight = rng.integers(-128, 128, (channels, x.shape[1], 3, 3)).astype(np.int8)
        x = graph.add(Convolution(weight, None, Requantization(1, 10), padding=(1, 1, 1, 1)), x)
        x = graph.add(MaxPool((2, 2), (2, 2)), x)
    x = graph.add(AveragePool.from_ratio(1.0, 16, shifts_only=True), x)
    weight = rng.integers(-128, 128, (10, 64)).astype(np.int8)
    graph.output(
        graph.add(Dense(weight, None, Requantization(1, 6)), graph.add(Reshape((1, 64)), x))
    )
    return graph


def test_weights_travel_once_and_a_dead_server_costs_one_run():
    model = vtaops.compile_model(network(), "pynq")
    (program,) = model.programs
    rng = np.random.default_rng(5)
    images = [rng.integers(-128, 128, (1, 16, 16, 16)).astype(np.int8) for _ in range(3)]
    expected = [model.reference(image) for image in images]
    with board() as (process, address):
        session = vtaops.Session(address, timeout=30)
        device = session.device
        assert np.array_equal(model.run(images[0], session=session), expected[0])
        weights = sum(image.nbytes for image in model.regions[0].parameters.values())
        assert device.sent_bytes > weights
        sent, received = device.sent_bytes, device.received_bytes
        assert np.array_equal(model.run(images[1], session=session), expected[1])
        # The packed image and the packed scores, and nothing else.
        assert device.sent_bytes - sent == images[1].nbytes
        assert device.received_bytes - received == program.outputs[0].nbytes
        # Other weights in the same arrays are other weights.
        parameters = model.regions[0].parameters
        kept = {name: image.copy() for name, image in parameters.items()}
        for image in parameters.values():
            image[...] = 0
        assert not model.run(images[1], session=session).any()
        for name, image in parameters.items():
            image[...] = kept[name]
        assert np.array_equal(model.run(images[1], session=session), expected[1])
        process.kill()
        process.wait()
        with pytest.raises(vtaops.errors.DeviceError):
            model.run(images[2], session=session)
        port = int(address.rsplit(":", 1)[1])
        with board(port) as (_, again):
            assert again == address
            assert np.array_equal(model.run(images[2], session=session), expected[2])
            session.close()
