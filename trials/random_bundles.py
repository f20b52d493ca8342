"""Random networks as C on this processor: equal to the executor, bit for bit.

Every third has state, and runs three times; the caller holds what a bundle does not keep itself.
"""

from __future__ import annotations

from trials import c_bundles
from trials.campaign import Campaign, Result, result
from trials.random_graphs import random_graph, random_inputs, with_state
from vtaops import compile_model
from vtaops.graph.executor import carried, evaluate_runs, zeros


def trial(case: str) -> Result:
    """Export one network, build it, run it, compare."""
    seed = int(case)
    config = "pynq_ext" if (free := seed % 2 == 1) else "pynq"
    graph = random_graph(seed, free=free)
    if seed % 3 == 0:
        graph = with_state(graph, seed)
    model = compile_model(graph, config)
    bundle, meant = c_bundles.load(model), model.graph
    runs = [random_inputs(graph, seed + run) for run in range(3 if graph.state else 1)]
    state, failed = zeros(meant.tensors[past] for past in meant.state), []
    for run, (arrays, expected) in enumerate(zip(runs, evaluate_runs(meant, runs), strict=True)):
        given = {t.name: array for t, array in zip(meant.arguments, arrays, strict=True)} | state
        status, found = bundle.run(*(given[tensor.name] for tensor in bundle.inputs))
        values = {t.name: array for t, array in zip(bundle.outputs, found, strict=True)}
        results = [values[tensor.name] for tensor in meant.results]
        if status != c_bundles.OK or not c_bundles.same(results, expected):
            failed.append(f"run {run}: status {status}, or other bytes")
        for past in state.keys() & {tensor.name for tensor in bundle.inputs}:
            state[past] = carried(meant, past, state[past], values, run * meant.new_rows)
    return result(config, failed, networks=1, runs=len(runs))


CAMPAIGN = Campaign(lambda count: [str(seed) for seed in range(count)], trial, count=200)
