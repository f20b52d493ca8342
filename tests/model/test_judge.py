"""The judge behind the compiler: nothing leaves `compile_model` that it has not proven or tried."""

from dataclasses import replace
from functools import singledispatch

import numpy as np
import pytest

import vtaops
from trials.random_graphs import random_graph
from vtaops.model.tables import summary
from vtaops.network import compile as network_compiler
from vtaops.proof import networks, rechecked
from vtaops.proof.counterexamples import TRIES
from vtaops.proof.operators import Unknown

SEED = 35


@pytest.fixture
def unknown(monkeypatch):
    """A proof that knows no operator."""

    @singledispatch
    def meaning(op, given):
        raise Unknown(f"no meaning of {op.kind} is known here")

    monkeypatch.setattr(networks, "_meaning", meaning)


@pytest.fixture
def one_weight_off(monkeypatch):
    """A compiler that packs one weight of each launch wrongly."""
    right = network_compiler.compile_region

    def wrong(*arguments):
        region = right(*arguments)
        name, image = next(iter(region.parameters.items()))
        changed = np.array(image)
        changed.reshape(-1)[0] ^= 32  # of 40 inputs, some tell
        return replace(region, parameters={**region.parameters, name: changed})

    monkeypatch.setattr(network_compiler, "compile_region", wrong)


def test_a_model_states_its_proof():
    model = vtaops.compile_model(random_graph(SEED), "tiny")
    assert model.report().proven == len(model.regions) > 0
    assert "proven equal to its graph for every input" in summary(model.report())


def test_a_model_without_a_proof_says_so():
    model = vtaops.compile_model(random_graph(SEED), "tiny", prove=False)
    assert model.report().proven == 0
    assert f"0 of {len(model.regions)} launches are proven" in summary(model.report())


def test_a_wrong_launch_does_not_leave_the_compiler(one_weight_off):
    with pytest.raises(vtaops.errors.NotEquivalent):
        vtaops.compile_model(random_graph(SEED), "tiny")


def test_what_cannot_be_proven_is_tried(unknown, tmp_path):
    model = vtaops.compile_model(random_graph(SEED), "tiny")
    model.save(tmp_path / "tried.vtam")
    report = vtaops.load_model(tmp_path / "tried.vtam").report()
    assert report.proven == 0
    assert len(report.tried) == report.launches > 0
    assert all(f"is known here; equal on {TRIES} inputs" in tried for tried in report.tried)
    assert "not proven, but tried: " in summary(report)
    assert rechecked(model) is None


def test_a_trial_sees_a_wrong_launch(unknown, one_weight_off):
    with pytest.raises(vtaops.errors.NotEquivalent, match="fsim shows it") as caught:
        vtaops.compile_model(random_graph(SEED), "tiny")
    assert caught.value.counterexample
