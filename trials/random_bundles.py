"""Random networks as C on this processor: equal to what `Model.run` gives, bit for bit."""

from __future__ import annotations

from trials import c_bundles
from trials.campaign import Campaign, Result, result
from trials.random_graphs import random_graph, random_inputs
from vtaops import compile_model


def trial(case: str) -> Result:
    """Export one network, build it, run it, compare."""
    seed = int(case)
    config = "pynq_ext" if (free := seed % 2 == 1) else "pynq"
    graph = random_graph(seed, free=free)
    model, arrays = compile_model(graph, config), random_inputs(graph, seed)
    status, found = c_bundles.load(model).run(*arrays)
    right = status == 0 and c_bundles.same(found, model.reference(*arrays))
    return result(config, "" if right else f"status {status}, or other bytes", networks=1)


CAMPAIGN = Campaign(lambda count: [str(seed) for seed in range(count)], trial, count=200)
