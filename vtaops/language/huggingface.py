"""Language models like Llama in folders of Hugging Face: config, safetensors and tokenizer.

A file of safetensors is the length of its header in 8 bytes, the header in JSON (type, shape and
place of each tensor), and the data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.base.files import DOCUMENT, NETWORK, exists, read_file
from vtaops.base.optional import optional
from vtaops.language.files import DecoderWeights, Floats, layer_shapes

KINDS = ("llama", "mistral", "qwen2")
FIXED = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "quantization_config": None,
}
"""What else changes a model's results: the one value here, which is also the default."""
ROTARY = {"rope_type": "default", "type": "default", "partial_rotary_factor": 1}
"""The same for what tells how positions turn."""
FORMATS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
LAYER = {
    "na": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "nf": "post_attention_layernorm",
    "w1": "mlp.gate_proj",
    "w2": "mlp.down_proj",
    "w3": "mlp.up_proj",
}
"""The tensors of a layer by their names in `DecoderWeights`."""
MOST = 1 << 20
"""No size is larger."""
VOCABULARY = 64 << 20
"""Maximum size of a tokenizer, in bytes."""


class FolderTokenizer:
    """The tokenizer of a folder, by the package ``tokenizers``.

    Attributes
    ----------
    start : int
        The token before a text.
    ends : frozenset of int
        Tokens behind a text.
    """

    def __init__(self, path: Path, coder: Any, start: int, ends: frozenset[int]) -> None:
        self._path, self._coder, self.start, self.ends = path, coder, start, ends

    @staticmethod
    def read(path: Path, vocabulary: int, start: int, ends: frozenset[int]) -> FolderTokenizer:
        """Read a ``tokenizer.json``; raises ModelError if it cannot be read, or does not fit."""
        package = optional("tokenizers", "tokenizers", "a Hugging Face folder needs", "huggingface")
        with _tokenizing(path):
            coder = package.Tokenizer.from_str(read_file(path, VOCABULARY).decode())
            coder.no_truncation()
            coder.no_padding()
            last = max(coder.get_vocab().values(), default=0)
        if last >= vocabulary:
            raise ModelError(f"{path} has token {last}; the model has 0..{vocabulary - 1}")
        return FolderTokenizer(path, coder, start, ends)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, of which there is at least one."""
        with _tokenizing(self._path):
            return self._coder.encode(text).ids or [self.start]

    def decode(self, tokens: Iterable[int]) -> Iterator[str]:
        """Yield the text of each token as it comes; what begins a letter waits for its end."""
        known, shown = [], 0
        for token in tokens:
            known.append(token)
            with _tokenizing(self._path):
                text = self._coder.decode(known)
            ready = shown if text.endswith("\N{REPLACEMENT CHARACTER}") else len(text)
            yield text[shown:ready]
            shown = ready


@contextmanager
def _tokenizing(path: Path) -> Iterator[None]:
    """Convert what the package raises: any exception, and panics of Rust, which are none."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ModelError(f"cannot read {path} as a tokenizer: {error}") from error
        raise


def read_folder(
    folder: Path, tokenizer: Path | None = None
) -> tuple[DecoderWeights, FolderTokenizer]:
    """Read a model and its tokenizer, by default ``tokenizer.json``.

    Raises
    ------
    ModelError
        If a file cannot be read, or is not what it should be.
    UnsupportedError
        If the model has what no graph here computes, or a package is not installed.
    """
    config = _Config(folder / "config.json")
    weights = _read_weights(folder, config)
    vocabulary = len(weights.embedding)
    start, *ends = config.tokens("bos_token_id", vocabulary)
    ends += config.tokens("eos_token_id", vocabulary)
    path = tokenizer or folder / "tokenizer.json"
    return weights, FolderTokenizer.read(path, vocabulary, start, frozenset((start, *ends)))


def _read_weights(folder: Path, config: _Config) -> DecoderWeights:
    config.require_fixed()
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    shared = config.size("num_key_value_heads", heads)
    if width % (2 * heads) or heads % shared:
        raise ModelError(
            f"{config.path}: hidden_size, num_attention_heads and num_key_value_heads are {width}, "
            f"{heads} and {shared}; the first must be a multiple of twice the second, and the "
            "second of the third"
        )
    each = width // heads
    config.require("head_dim", config.size("head_dim", each), each)
    shapes = layer_shapes(width, config.size("intermediate_size"), each * shared)
    embedded = config.size("vocab_size"), width
    tied = config.values.get("tie_word_embeddings", False)
    stored = {n: each for path in _parts(folder) for n, each in _read_safetensors(path).items()}
    take = partial(_taken, folder, stored)

    def layer(number: int) -> dict[str, Floats]:
        names = {name: f"model.layers.{number}.{own}.weight" for name, own in LAYER.items()}
        loaded = {name: take(names[name], shape) for name, shape in shapes.items()}
        own = {"q": _neighbours(loaded["q"], heads), "k": _neighbours(loaded["k"], shared)}
        return loaded | own

    embedding = take("model.embed_tokens.weight", embedded)
    weights = DecoderWeights(
        heads,
        shared,
        config.length(),
        embedding,
        embedding if tied else take("lm_head.weight", embedded),
        take("model.norm.weight", (width,)),
        tuple(layer(number) for number in range(config.size("num_hidden_layers"))),
        config.number("rms_norm_eps", 1e-6),
        config.theta(),
    )
    _require_all_taken(stored.keys() - ({"lm_head.weight"} if tied else set()))
    return weights


def _require_all_taken(left: Iterable[str]) -> None:
    """Refuse tensors that the model would need to give its results."""
    for name in left:
        if not name.endswith("rotary_emb.inv_freq"):  # computed here
            raise UnsupportedError(
                f"vtaops does not compute with a tensor {name}; a model like Llama has none"
            )


def _neighbours(rows: Floats, heads: int) -> Floats:
    """Return the rows of heads whose halves turn in an order in which neighbours turn."""
    halves = rows.reshape(heads, 2, -1, rows.shape[1])
    paired: Floats = halves.swapaxes(1, 2).reshape(rows.shape)
    return paired


class _Config:
    """A ``config.json``, each of whose values is checked when it is taken."""

    def __init__(self, path: Path) -> None:
        with raising(ModelError, f"cannot read {path}", OSError):
            self.values = _object(read_file(path), path)
        self.path = path
        turns = self.values.get("rope_parameters") or self.values.get("rope_scaling") or {}
        self._turns = turns if isinstance(turns, dict) else {"rope_type": turns}

    def require_fixed(self) -> None:
        """Refuse what changes results and is not computed here."""
        if self.values.get("model_type") not in KINDS:
            self.require("model_type", self.values.get("model_type"), " or ".join(KINDS))
        for name, right in FIXED.items():
            self.require(name, self.values.get(name, right), right)
        self.require("partial_rotary_factor", self.values.get("partial_rotary_factor", 1), 1)
        for name, right in ROTARY.items():
            self.require(f"{name} of rope_scaling", self._turns.get(name, right), right)

    def require(self, name: str, value: object, right: object) -> None:
        """Refuse a value other than the one that is computed here."""
        if value != right:
            raise UnsupportedError(f"{self.path}: {name} is {value!r}; vtaops computes {right!r}")

    def size(self, name: str, default: int | None = None) -> int:
        """Return a size; one that is missing or null is the default."""
        value = self.values.get(name)
        value = default if value is None else value
        if type(value) is not int or not 1 <= value <= MOST:
            raise ModelError(f"{self.path}: {name} is {value!r}; it must be in 1..{MOST}")
        return value

    def number(self, name: str, default: object) -> float:
        """Return a number."""
        value: Any = self.values.get(name, default)
        with raising(ModelError, f"{self.path}: {name} is {value!r}", TypeError, ValueError):
            return float(value)

    def theta(self) -> float:
        """Return the base of the angles."""
        return self.number("rope_theta", self._turns.get("rope_theta", 1e4))

    def length(self) -> int:
        """Return the most tokens of a text: within a sliding window, all see all before them."""
        length = self.size("max_position_embeddings")
        slides = self.values.get("use_sliding_window", True)
        return min(length, self.size("sliding_window", length)) if slides else length

    def tokens(self, name: str, vocabulary: int) -> list[int]:
        """Return the tokens of a name: one, or a list."""
        value = self.values.get(name)
        numbers: list[Any] = value if isinstance(value, list) else [value]
        if not numbers or not all(type(n) is int and 0 <= n < vocabulary for n in numbers):
            right = f"tokens of 0..{vocabulary - 1}"
            raise ModelError(f"{self.path}: {name} is {value!r}; it must be {right}")
        return numbers


_Stored = tuple[Path, Any, memoryview]
"""A tensor in a file: what the header says, and the data of all."""


def _taken(folder: Path, stored: dict[str, _Stored], name: str, shape: tuple[int, ...]) -> Floats:
    """Return a tensor, which must have this shape and is taken once."""
    if name not in stored:
        right = f"one of {[*shape]} belongs to the model of its config.json"
        raise ModelError(f"{folder} has no tensor {name}; {right}")
    path, said, data = stored.pop(name)
    what, wrong = f"{path}: {name}", (KeyError, TypeError, ValueError, OverflowError)
    no_tensor = f"{what} is no tensor of {[*shape]} in {', '.join(FORMATS)}"
    with raising(ModelError, no_tensor, *wrong):
        kind = said["dtype"]
        if said["shape"] != [*shape]:
            raise ModelError(
                f"{what} has the shape {said['shape']}; by config.json it is {[*shape]}"
            )
        begin, end = map(int, said["data_offsets"])
        values = np.frombuffer(data[begin:end], FORMATS[kind]).reshape(shape)
    if kind == "BF16":  # the upper halves of float32
        values = (values.astype(np.uint32) << 16).view(np.float32)
    if not np.isfinite(values).all():
        raise ModelError(f"{what} has values that are not finite")
    return values.astype(np.float32)


def _parts(folder: Path) -> list[Path]:
    """Return the files of tensors."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if exists(whole):
        return [whole]
    if not exists(index):
        raise ModelError(f"{folder} has no {whole.name} and no {index.name}; it must have one")
    with raising(ModelError, f"cannot read {index}", OSError):
        weight_map = _object(read_file(index), index).get("weight_map")
    names: list[Any] = [*weight_map.values()] if isinstance(weight_map, dict) else [weight_map]
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(f"{index} names {name!r}; weight_map must name files beside it")
    return [folder / name for name in sorted({*names})]


def _read_safetensors(path: Path) -> dict[str, _Stored]:
    with raising(ModelError, f"cannot read {path}", OSError):
        data = memoryview(read_file(path, NETWORK))
    size = min(int.from_bytes(data[:8], "little"), DOCUMENT)
    header = _object(bytes(data[8 : 8 + size]), path)
    header.pop("__metadata__", None)
    return {name: (path, said, data[8 + size :]) for name, said in header.items()}


def _object(text: bytes, path: Path) -> dict[str, Any]:
    """Return an object in JSON."""
    with raising(ModelError, f"{path} holds no JSON", ValueError, RecursionError):
        value = json.loads(text.decode())
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a {type(value).__name__} in JSON; it must be an object")
    return value
