"""Random language models on four configurations: each proven, its texts beside the executor's.

On the one that expands weights of four bits they have such.
"""

from __future__ import annotations

import random

import numpy as np

from trials.campaign import Campaign, Result, result
from trials.random_transformers import CONFIGS
from vtaops.graph.executor import evaluate_runs
from vtaops.language import DecoderWeights, LanguageModel, Tokenizer
from vtaops.machine.config import Extension, HardwareConfig

NARROW = "pynq_512_nibbles"


def drawn_weights(seed: int) -> DecoderWeights:
    """Return a decoder of any sizes: heads and channels that fill tiles, and that do not."""
    rng, normal = random.Random(seed), np.random.default_rng(seed).normal
    heads = rng.choice([1, 2, 3, 4, 6])
    shared = rng.choice([n for n in range(1, heads + 1) if heads % n == 0])
    each = rng.choice([2, 4, 8, 16, 32, 2 * rng.randint(1, 12)])
    width, keys, hidden = heads * each, shared * each, rng.choice([1, 16, rng.randint(2, 70)])
    shapes = {
        "q": (width, width), "k": (keys, width), "v": (keys, width), "o": (width, width),
        "w1": (hidden, width), "w2": (width, hidden), "w3": (hidden, width),
    }  # fmt: skip

    def drawn(*shape: int) -> np.ndarray:
        return normal(0, rng.choice([0.5, 1, 2]) / np.sqrt(shape[-1]), shape).astype(np.float32)

    def norm() -> np.ndarray:
        return normal(1, 0.3, width).astype(np.float32)

    layers = tuple(
        {name: drawn(*shape) for name, shape in shapes.items()} | {"na": norm(), "nf": norm()}
        for _ in range(rng.choice([1, 1, 2]))
    )
    length, tokens = rng.choice([1, 16, rng.randint(2, 40)]), rng.choice([16, rng.randint(2, 90)])
    tables = drawn(tokens, width), drawn(tokens, width)
    rest = rng.choice([1e-6, 1e-5]), rng.choice([1e3, 1e4, 1e6])
    return DecoderWeights(heads, shared, length, *tables, norm(), layers, *rest)


def check(seed: int, config: str, most: int = 6) -> list[str]:
    """Return what is wrong with a model: its launches, its proof, its state, its scores."""
    weights = drawn_weights(seed)
    pieces = [b"%d" % number for number in range(len(weights.embedding))]
    bits = 4 if HardwareConfig.load(config).has(Extension.NIBBLES) else 8
    tokenizer = Tokenizer(pieces, [0.0] * len(pieces))
    teller = LanguageModel(weights, tokenizer, config, prove=False, weight_bits=bits)
    model, faults = teller.model, []
    if len(model.stages) != 1 and model.config.has(Extension.TABLE):
        faults.append(f"{len(model.stages)} stages")
    if model.prove().unproven:
        faults.append("unproven")
    count = min(weights.length, most)
    text = np.random.default_rng(seed).integers(0, len(pieces), count).tolist()
    given = [teller.inputs(token, place) for place, token in enumerate(text)]
    state = model.new_state()
    if len(state.on_device) != 2 * len(weights.layers):
        faults.append(f"only {state.on_device} on the device")
    found = [model.run(one, state=state) for one in given]
    runs = [[one[tensor.name] for tensor in model.graph.arguments] for one in given]
    if not np.array_equal(found, [made for (made,) in evaluate_runs(model.graph, runs)]):
        faults.append("other scores than the executor's")
    return faults


def trial(case: str) -> Result:
    """Check one model on one configuration: ``pynq_ext/7``."""
    config, seed = case.split("/")
    faults = check(int(seed), config)
    return result(config, faults, models=1, right=not faults)


CAMPAIGN = Campaign(
    lambda count: [f"{config}/{seed}" for seed in range(count) for config in (*CONFIGS, NARROW)],
    trial,
    count=100,
)
