"""Trains the small language model that the package carries, on the stories of `stories.py`.

    pip install torch==2.13.0
    python examples/stories/train.py --out examples/stories

Writes `stories.bin` and `tokenizer.bin` in the formats of llama2.c. About 240,000 parameters and
ten minutes on one core; the same seed gives the same files on the same machine.
"""

import argparse
import math
import random
import re
import struct
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from stories import story
from torch import nn
from torch.nn import functional

DIM, HIDDEN, LAYERS, HEADS, VOCABULARY, LENGTH = 64, 144, 4, 4, 1024, 256
WIDTH = DIM // HEADS
BOS = 1


# ---------------------------------------------------------------------------- tokenizer


def pieces(counts: Counter[str]) -> list[str]:
    """Return the pieces of a byte pair encoding of counted words, most useful first."""
    words = [(list(word), count) for word, count in counts.items()]
    found = sorted({letter for word, _ in words for letter in word})
    while len(found) < VOCABULARY - 259:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words:
            for pair in pairwise(word):
                pairs[pair] += count
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        found.append("".join(best))
        for word, _ in words:
            for at in range(len(word) - 2, -1, -1):
                if tuple(word[at : at + 2]) == best:
                    word[at : at + 2] = ["".join(best)]
    return found


def encode(word: str, ranks: dict[str, int]) -> list[int]:
    """Return a word's tokens as llama2.c finds them: the best pair is joined first."""
    parts = list(word)
    while True:
        joined = [(ranks.get(a + b, 1 << 30), at) for at, (a, b) in enumerate(pairwise(parts))]
        best, at = min(joined, default=(1 << 30, 0))
        if best == 1 << 30:
            return [ranks[part] for part in parts]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def write_tokenizer(found: list[str], path: Path) -> None:
    """Write a tokenizer file: after three marks and the 256 bytes come the pieces."""
    tokens = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256)), *found]
    tokens += ["<unk>"] * (VOCABULARY - len(tokens))
    with path.open("wb") as file:
        file.write(struct.pack("<i", max(len(token.encode()) for token in tokens)))
        for rank, token in enumerate(tokens):
            data = token.encode()
            file.write(struct.pack("<fi", -float(max(rank - 259, 0)), len(data)) + data)


# -------------------------------------------------------------------------------- model


class Norm(nn.Module):
    """An RMS norm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight


class Layer(nn.Module):
    """Attention and a gate, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.norm_ffn = Norm(), Norm()
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.w1, self.w3 = (nn.Linear(DIM, HIDDEN, bias=False) for _ in range(2))
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        y = self.norm_attention(x)
        q, k, v = (
            layer(y).view(batch, length, HEADS, WIDTH).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = functional.scaled_dot_product_attention(
            turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True
        )
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, DIM))
        y = self.norm_ffn(x)
        return x + self.w2(functional.silu(self.w1(y)) * self.w3(y))


def turned(x, cos, sin):
    """Return neighbours of the last axis as points that turn with their position."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


class Teller(nn.Module):
    """The model: from tokens to the scores of what follows each."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                last = name.endswith(("o.weight", "w2.weight"))
                nn.init.normal_(weight, std=0.06 / (math.sqrt(2 * LAYERS) if last else 1))
        turns = 1e4 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        angles = torch.outer(torch.arange(LENGTH), turns)
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, tokens):
        x = self.embedding(tokens)
        length = tokens.shape[1]
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        return self.norm(x) @ self.embedding.weight.T


def write_model(model: Teller, path: Path) -> None:
    """Write a model file of llama2.c, version 0: sizes, then float32 by kind and layer."""
    layers = list(model.layers)
    kinds = [
        *([layer.norm_attention.weight for layer in layers],),
        *([getattr(layer, name).weight for layer in layers] for name in "qkvo"),
        *([layer.norm_ffn.weight for layer in layers],),
        *([getattr(layer, name).weight for layer in layers] for name in ("w1", "w2", "w3")),
    ]
    weights = [model.embedding.weight, *(w for kind in kinds for w in kind), model.norm.weight]
    with path.open("wb") as file:
        file.write(struct.pack("<7i", DIM, HIDDEN, LAYERS, HEADS, HEADS, VOCABULARY, LENGTH))
        for weight in [*weights, model.cos, model.sin]:
            file.write(weight.detach().numpy().astype("<f4").tobytes())


# ----------------------------------------------------------------------------- training


def main() -> None:
    """Train, and write both files every 50 steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = random.Random(0)
    split = re.compile(r" \w+|\w+| ?[^\w\s]")
    counts = Counter(w for _ in range(5000) for w in split.findall(" " + story(rng)))
    found = pieces(counts)
    write_tokenizer(found, options.out / "tokenizer.bin")
    ranks = {piece: 259 + rank for rank, piece in enumerate(found)}
    known = {word: encode(word, ranks) for word in counts}
    print(len(counts), "words,", sum(map(len, known.values())) / len(known), "tokens each")

    def tokens() -> list[int]:
        """Return the tokens of stories, one after the other, each behind a mark."""
        row: list[int] = []
        while len(row) <= LENGTH:
            words = split.findall(" " + story(rng))
            row += [BOS, *(t for word in words for t in known.get(word) or encode(word, ranks))]
        return row[: LENGTH + 1]

    model = Teller()
    print(sum(p.numel() for p in model.parameters()), "parameters")
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.05)
    for step in range(options.steps):
        share = step / options.steps
        rate = 4e-3 * min(1, (step + 1) / 100) * (0.02 + 0.98 * (1 + math.cos(math.pi * share)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = torch.from_numpy(np.array([tokens() for _ in range(options.batch)]))
        scores = model(batch[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == options.steps - 1:
            print(step, round(loss.item(), 4), flush=True)
            write_model(model, options.out / "stories.bin")


if __name__ == "__main__":
    main()
