"""LanguageModel: a decoder on the accelerator, which writes a text token by token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ArgumentError, UnsupportedError
from vtaops.base.files import is_folder
from vtaops.base.names import checked_call, checked_init
from vtaops.base.shapes import Array
from vtaops.language.files import DecoderWeights, Tokenizer
from vtaops.language.floats import FloatModel, rounded, turns
from vtaops.language.huggingface import FolderTokenizer, read_folder
from vtaops.language.step import HIDDEN, token_step
from vtaops.machine.config import NETWORK_CONFIG, HardwareConfig
from vtaops.model.model import HasResidents
from vtaops.network import compile_model

if TYPE_CHECKING:
    from vtaops.model.export.bundle import Bundle

BITS = (1 << 64) - 1


@checked_init
class LanguageModel:
    """A decoder like Llama, in int8, whose keys and values stay on the device.

    Parameters
    ----------
    weights : DecoderWeights
        The float model (`DecoderWeights.read`).
    tokenizer : Tokenizer or FolderTokenizer
        Its tokenizer (`Tokenizer.read`).
    config : HardwareConfig, str or Path
        The hardware.
    length : int, optional
        Most tokens of a text, at most those of the model: the places of its cache.
    prove : bool
        As of `vtaops.compile_model`.
    weight_bits : int
        8, or 4: four bits cost some accuracy, and hardware with the
        extension ``nibbles`` then reads half as many bytes.

    Attributes
    ----------
    model : Model
        What computes a token.
    step : float
        One step of its scores.
    rows, turns : ndarray, list of two ndarray
        What it takes: the row of each token; the cosines and the sines of each place.

    Examples
    --------
    >>> teller = LanguageModel.load("stories.bin")
    >>> print("".join(teller.write("Once upon a time")))
    """

    def __init__(
        self,
        weights: DecoderWeights,
        tokenizer: Tokenizer | FolderTokenizer,
        config: HardwareConfig | str | Path = NETWORK_CONFIG,
        *,
        length: int | None = None,
        prove: bool = True,
        weight_bits: int = 8,
    ) -> None:
        if weight_bits not in (4, 8):
            raise ArgumentError(f"weight_bits is {weight_bits}; weights have 4 or 8 bits")
        if length is not None and not 1 <= length <= weights.length:
            raise ArgumentError(f"length is {length}; it must be 1..{weights.length}")
        self.weights = weights = replace(weights, length=length or weights.length)
        self.tokenizer = tokenizer
        folded = weights.folded()
        floats = FloatModel(folded)
        floats.write(np.random.default_rng(0), start=tokenizer.start)
        step = token_step(folded, floats.reach, bits=weight_bits)
        self.model = compile_model(step, config, prove=prove)
        self.step = self.model.graph.tensors["scores"].scale
        self.rows = rounded(weights.embedding / self.model.graph.tensors["token"].scale)
        keys = self.model.graph.tensors["cos"].shape[2]
        self.turns = [rounded(turn[:, :keys] * 127) for turn in turns(weights)]

    @staticmethod
    @checked_call
    def load(
        path: str | Path,
        tokenizer: str | Path | None = None,
        config: HardwareConfig | str | Path = NETWORK_CONFIG,
        *,
        length: int | None = None,
        prove: bool = True,
        weight_bits: int = 8,
    ) -> LanguageModel:
        """Read a model and a tokenizer of llama2.c, or a folder of Hugging Face; compile it.

        Parameters
        ----------
        path : str or Path
            A file of llama2.c of version 0, or a folder with ``config.json`` of a model like
            Llama, ``model.safetensors`` (or parts and their index) and ``tokenizer.json``.
        tokenizer : str or Path, optional
            By default ``tokenizer.bin`` beside the file, or ``tokenizer.json`` of the folder.
        config, length, prove, weight_bits
            As of `LanguageModel`. 512 tokens that the float model writes calibrate it.

        Raises
        ------
        ModelError
            If a file cannot be read, or is not what it should be.
        UnsupportedError
            If a folder's model has what is not computed here, or ``tokenizers`` is not installed.
        """
        tokens: Tokenizer | FolderTokenizer
        if is_folder(path):
            own = None if tokenizer is None else Path(tokenizer)
            weights, tokens = read_folder(Path(path), own)
        else:
            weights = DecoderWeights.read(path)
            beside = tokenizer or Path(path).with_name("tokenizer.bin")
            tokens = Tokenizer.read(beside, len(weights.embedding))
        how: dict[str, Any] = {"length": length, "prove": prove, "weight_bits": weight_bits}
        return LanguageModel(weights, tokens, config, **how)

    @checked_call
    def export_c(self, folder: str | Path, *, force: bool = False) -> Bundle:
        """Write the model as C99 with its tokenizer and its sampling: ``make && ./chat "Once"``.

        The program writes the texts of `write`, token for token; see the guide ``docs/c.md``.

        Parameters
        ----------
        folder, force
            As of `vtaops.Model.export_c`.

        Raises
        ------
        UnsupportedError
            If the tokenizer is that of a Hugging Face folder, which has no C code.
        ProgramError
            If a file cannot be written, or would replace one that something else wrote.
        """
        from vtaops.language.chat import export_chat

        if not isinstance(self.tokenizer, Tokenizer):
            raise UnsupportedError(
                "the tokenizer of a Hugging Face folder has no C code; `model.export_c` writes "
                "the network of a token, which takes its row and gives scores"
            )
        return export_chat(self, self.tokenizer, Path(folder), force=force)

    def inputs(self, token: int, place: int) -> dict[str, Array]:
        """Return what `model` takes for the token at a place of a text."""
        mask = self.model.graph.tensors["mask"].shape
        cos, sin = (turn[place].reshape(1, 1, -1) for turn in self.turns)
        hidden = np.zeros(mask[2], np.int8)
        hidden[place:-1] = HIDDEN
        return {
            "token": self.rows[token].reshape(1, 1, -1),
            "cos": cos,
            "sin": sin,
            "mask": np.broadcast_to(hidden, mask),
        }

    def scores(
        self, tokens: Iterable[int], session: HasResidents | None = None
    ) -> Iterator[npt.NDArray[np.float64]]:
        """Yield the scores of what may follow each token of a text, which may still grow."""
        return (row.astype(np.float64) * self.step for row in self._integers(tokens, session))

    def _integers(
        self, tokens: Iterable[int], session: HasResidents | None
    ) -> Iterator[npt.NDArray[np.int8]]:
        """Yield the scores as integers."""
        state = self.model.new_state(session)
        try:
            for place, token in zip(range(self.weights.length), tokens, strict=False):
                yield self.model.run(self.inputs(token, place), state=state).reshape(-1)
        finally:
            state.reset()

    @checked_call
    def write(
        self,
        prompt: str = "",
        *,
        tokens: int | None = None,
        temperature: float = 0.8,
        top_p: float = 0.9,
        seed: int = 0,
        session: HasResidents | None = None,
    ) -> Iterator[str]:
        """Yield a text, piece by piece as it comes: the prompt, and what follows.

        Parameters
        ----------
        prompt : str
            Its beginning.
        tokens : int, optional
            Most tokens of the whole text; by default as many as there are places. It ends earlier
            where the model begins another text.
        temperature : float
            0: always the likeliest token; 1: the model's probabilities; more is bolder.
        top_p : float
            Tokens are drawn of the best that together have this probability.
        seed : int
            Seed of the random numbers, below 2**64.
        session : Session, optional
            Where the model runs; by default fsim.

        Raises
        ------
        ArgumentError
            If the prompt has too many tokens, or a number is out of range.
        """
        most = self.weights.length if tokens is None else tokens
        encoded = self.tokenizer.encode(prompt)
        for name, value, low, high in (
            ("tokens", most, 1, self.weights.length),
            ("the tokens of the prompt", len(encoded), 1, most),
            ("temperature", temperature, 0, 100),
            ("top_p", top_p, 0, 1),
        ):
            if not low <= value <= high:
                raise ArgumentError(f"{name} is {value}; it must be in {low}..{high}")
        return self.tokenizer.decode(
            self._tokens(encoded, most, Sampling(self.step, temperature, top_p, seed), session)
        )

    def _tokens(
        self, given: list[int], most: int, sampling: Sampling, session: HasResidents | None
    ) -> Iterator[int]:
        """Yield the tokens of a prompt, and those that follow."""
        text = [*given]
        yield from given
        for place, scores in enumerate(islice(self._integers(text, session), most - 1), 1):
            if place == len(text):
                token = sampling.drawn(scores)
                if token in self.tokenizer.ends:
                    return
                text.append(token)  # which `scores` takes next
                yield token


class Sampling:
    """Draws tokens: of the best that together are `top_p` likely, at a temperature.

    All is integers, or floats whose every operation IEEE defines: ``chat.c`` draws the same.
    """

    def __init__(self, step: float, temperature: float, top_p: float, seed: int) -> None:
        if not 0 <= seed <= BITS:
            raise ArgumentError(f"seed is {seed}; it must be in 0..{BITS}")
        self._weights = _weights(step / temperature) if temperature else None
        self._top_p, self._state = top_p, seed

    def drawn(self, scores: npt.NDArray[np.int8]) -> int:
        """Return a token: the best ones come first, and among equals those of lower numbers."""
        if self._weights is None:
            return int(scores.argmax())
        distances = scores.max().astype(int) - scores
        best = np.argsort(distances, kind="stable")
        weights = self._weights[distances[best]]
        ends = weights.cumsum()
        before = ends - weights
        ends = ends[(before < self._top_p * float(ends[-1])) | (before == 0)]
        place = int(self._random() * float(ends[-1]))
        return int(best[np.searchsorted(ends, place, side="right")])

    def _random(self) -> float:
        """Return the next random number of 0..1, of which 1 is none: SplitMix64."""
        self._state = z = self._state + 0x9E3779B97F4A7C15 & BITS
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & BITS
        z = (z ^ z >> 27) * 0x94D049BB133111EB & BITS
        return ((z ^ z >> 31) >> 11) * 2.0**-53


def _weights(ratio: float) -> npt.NDArray[np.int64]:
    """Return exp(-distance * ratio) * 2**32 for distances of scores; their sums are below 2**53."""
    x = np.minimum(np.arange(256) * ratio, 40.0)
    y = x / 1024.0
    exponential = 1.0 - y * (1.0 - y / 2.0 * (1.0 - y / 3.0 * (1.0 - y / 4.0)))
    for _ in range(10):
        exponential = exponential * exponential
    whole: npt.NDArray[np.int64] = (exponential * 2.0**32 + 0.5).astype(np.int64)
    return whole
