"""Language models and tokenizers in the files of llama2.c."""

from __future__ import annotations

import codecs
import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ModelError, raising
from vtaops.base.files import NETWORK, read_file

Floats = npt.NDArray[np.float32]
START = 1
"""The token before a text, and behind it."""
BYTES = 3
"""The token of byte 0."""
VERSIONED = 0x616B3432
"""Where a file of version 1 or 2 begins."""


def layer_shapes(width: int, hidden: int, keys: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer's weights, in the order of a file."""
    return {
        "na": (width,),
        "q": (width, width),
        "k": (keys, width),
        "v": (keys, width),
        "o": (width, width),
        "nf": (width,),
        "w1": (hidden, width),
        "w2": (width, hidden),
        "w3": (hidden, width),
    }


@dataclass(frozen=True)
class DecoderWeights:
    """A decoder: RMS norms, rotary positions, grouped heads, and a gate with SiLU.

    Attributes
    ----------
    heads, shared : int
        Heads, and how many of them have keys and values of their own.
    length : int
        Most tokens of a text.
    embedding, scores : ndarray, shape (vocabulary, width)
        From tokens, and to their scores.
    norm : ndarray, shape (width,)
        The last norm.
    layers : tuple of dict of str to ndarray
        ``q k v o`` of attention, ``w1 w2 w3`` of the gate, and the norms before, ``na`` and ``nf``.
    epsilon : float
        What norms add to the mean of squares.
    theta : float
        The base of the angles by which positions turn.
    """

    heads: int
    shared: int
    length: int
    embedding: Floats
    scores: Floats
    norm: Floats
    layers: tuple[dict[str, Floats], ...]
    epsilon: float = 1e-5
    theta: float = 1e4

    def folded(self) -> DecoderWeights:
        """Return the same model with the weights of norms in those of the products behind them."""
        readers = {"na": "qkv", "nf": ("w1", "w3")}
        layers = []
        for layer in self.layers:
            own = dict(layer)
            for norm, names in readers.items():
                own |= {name: layer[name] * layer[norm] for name in names}
                own[norm] = np.ones_like(layer[norm])
            layers.append(own)
        ones, scores = np.ones_like(self.norm), self.scores * self.norm
        return replace(self, scores=scores, norm=ones, layers=tuple(layers))

    @staticmethod
    def read(path: str | Path) -> DecoderWeights:
        """Read a model file of version 0: sizes, then float32 by kind and layer.

        Raises
        ------
        ModelError
            If it cannot be read, or is none.
        """
        with raising(ModelError, f"cannot read {path}", OSError):
            data = read_file(path, NETWORK)
        head = _sizes(path, data)
        width, hidden, count, heads, shared, vocabulary, length = head
        tokens, keys = abs(vocabulary), width // heads * shared
        shapes = {n: (count, *shape) for n, shape in layer_shapes(width, hidden, keys).items()}
        shape_of = {"embedding": (tokens, width), **shapes, "norm": (width,)}
        shape_of["turns"] = (length, width // heads)  # of positions, which are computed here
        if vocabulary < 0:
            shape_of["scores"] = (tokens, width)
        ends = np.cumsum([math.prod(shape) for shape in shape_of.values()])
        if len(data) != 28 + 4 * ends[-1]:
            wanted = 28 + 4 * ends[-1]
            raise ModelError(f"{path} has {len(data)} bytes; a model of {head} has {wanted}")
        parts = np.split(np.frombuffer(data, "<f4", offset=28), ends[:-1])
        own = {n: v.reshape(s) for (n, s), v in zip(shape_of.items(), parts, strict=True)}
        layers = tuple({name: own[name][n] for name in shapes} for n in range(count))
        scores = own.get("scores", own["embedding"])
        return DecoderWeights(heads, shared, length, own["embedding"], scores, own["norm"], layers)


def _sizes(path: str | Path, data: bytes) -> tuple[int, ...]:
    """Return the numbers with which a model file begins, if they are the sizes of a model."""
    head = struct.unpack_from("<7i", data.ljust(28, b"\0"))
    width, _, _, heads, shared, _, length = head
    if width == VERSIONED:
        raise ModelError(f"{path} is of version {head[1]}; export it as version 0")
    if 0 in head or min((*head[:5], length)) < 1 or width % (2 * heads) or heads % shared:
        raise ModelError(f"{path} is no model of llama2.c: its sizes are {head}")
    return head


class Tokenizer:
    """Texts to tokens and back: pieces, of which the best neighbours are joined first.

    Parameters
    ----------
    pieces : sequence of bytes
        The text of each token.
    scores : sequence of float
        Of pieces: the greater is the better.

    Attributes
    ----------
    ranks : dict of bytes to (float, int)
        Pieces by what is the least for the best, and their tokens.
    start : int
        The token before a text.
    ends : frozenset of int
        Tokens behind a text.
    """

    start = START
    ends = frozenset({START})

    def __init__(self, pieces: list[bytes], scores: list[float]) -> None:
        self.pieces = pieces
        self.ranks = {piece: (-scores[n], n) for n, piece in reversed([*enumerate(pieces)])}

    @staticmethod
    def read(path: str | Path, vocabulary: int) -> Tokenizer:
        """Read a tokenizer file; raises ModelError if it cannot be read, or is none."""
        pieces, scores, at = [], [], 4
        wrong = OSError, struct.error
        with raising(ModelError, f"cannot read {path} of {vocabulary} tokens", *wrong):
            data = read_file(path)
            for _ in range(vocabulary):
                score, size = struct.unpack_from("<fi", data, at)
                at += 8 + size
                pieces.append(struct.unpack_from(f"{max(0, size)}s", data, at - size)[0])
                scores.append(score)
        return Tokenizer(pieces, scores)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, the first of which is `START`."""
        parts = [letter.encode() for letter in " " + text] if text else []
        while True:
            joined = [
                (self.ranks[a + b][0], at)
                for at, (a, b) in enumerate(pairwise(parts))
                if a + b in self.ranks
            ]
            if not joined:
                break
            _, at = min(joined)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [START, *(token for part in parts for token in self._tokens(part))]

    def _tokens(self, part: bytes) -> Iterable[int]:
        """Return the token of a piece, or those of the bytes of a letter that is none."""
        rank = self.ranks.get(part)
        return [rank[1]] if rank else [byte + BYTES for byte in part]

    def decode(self, tokens: Iterable[int]) -> Iterator[str]:
        """Yield the text of each token as it comes; what begins a letter waits for its end."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        first = True
        for token in tokens:
            if token == START:
                first = True
                continue
            piece = self.pieces[token]
            if BYTES <= token < BYTES + 256:
                piece = bytes([token - BYTES])
            yield decoder.decode(piece.removeprefix(b" ") if first else piece)
            first = False
