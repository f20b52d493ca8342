"""Language models: their files, their integers on VTA, and the texts that they write."""

import codecs
import importlib
import random
import re
import shutil
import struct
import subprocess

import numpy as np
import pytest
from typer.testing import CliRunner

import vtaops
from trials import c_bundles, random_language_models
from vtaops.base.data import data_directory
from vtaops.cli import app
from vtaops.errors import ArgumentError, ModelError
from vtaops.graph.executor import evaluate_runs
from vtaops.language import DecoderWeights, LanguageModel, Tokenizer
from vtaops.language.floats import FloatModel

WIDTH, HIDDEN, LAYERS, HEADS, SHARED, LENGTH = 32, 48, 2, 4, 2, 32
PIECES = [*" abcdeAB.", " a", "bc", " abc", "de", " de", "ab"]
VOCABULARY = 259 + len(PIECES)


def kinds(seed=0):
    """Random weights by kind, in the order of a file."""
    rng, keys = np.random.default_rng(seed), WIDTH // HEADS * SHARED
    shapes = {
        "na": (WIDTH,), "q": (WIDTH, WIDTH), "k": (keys, WIDTH), "v": (keys, WIDTH),
        "o": (WIDTH, WIDTH), "nf": (WIDTH,), "w1": (HIDDEN, WIDTH), "w2": (WIDTH, HIDDEN),
        "w3": (HIDDEN, WIDTH),
    }  # fmt: skip
    found = {"embedding": rng.normal(0, 0.3, (VOCABULARY, WIDTH))}
    for name, shape in shapes.items():
        scale = 1 / np.sqrt(shape[-1])
        drawn = rng.normal(0, scale, (LAYERS, *shape))
        found[name] = drawn if len(shape) > 1 else rng.uniform(0.5, 1.5, (LAYERS, *shape))
    return {**found, "norm": rng.uniform(0.5, 1.5, WIDTH)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model and a tokenizer in files of llama2.c."""
    path = tmp_path_factory.mktemp("llama")
    sizes = WIDTH, HIDDEN, LAYERS, HEADS, SHARED, VOCABULARY, LENGTH
    turns = np.zeros(LENGTH * WIDTH // HEADS)  # cosines and sines, which nobody reads
    arrays = [array.astype("<f4").tobytes() for array in (*kinds().values(), turns)]
    (path / "model.bin").write_bytes(struct.pack("<7i", *sizes) + b"".join(arrays))
    tokens = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{n:02X}>" for n in range(256)), *PIECES]
    with (path / "tokenizer.bin").open("wb") as file:
        file.write(struct.pack("<i", 6))
        for rank, token in enumerate(tokens):
            file.write(struct.pack("<fi", -rank, len(token.encode())) + token.encode())
    return path


@pytest.fixture(scope="module")
def teller(folder):
    return LanguageModel.load(folder / "model.bin")


def whole(tokens):
    """The scores behind each token of a text, all at once, with rotations of complex numbers."""
    w = kinds()
    x, width, count = w["embedding"][tokens], WIDTH // HEADS, len(tokens)
    rates = 1e4 ** (-np.arange(0, width, 2) / width)
    spin = np.exp(1j * np.outer(np.arange(count), rates))[:, None]

    def norm(x, weight):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight

    def rotated(x):
        pairs = x.reshape(count, -1, width)
        turned = (pairs[..., 0::2] + 1j * pairs[..., 1::2]) * spin
        return np.stack([turned.real, turned.imag], -1).reshape(count, -1, width)

    for n in range(LAYERS):
        y = norm(x, w["na"][n])
        q, k, v = (y @ w[name][n].T for name in "qkv")
        q, k, v = rotated(q), rotated(k), v.reshape(count, SHARED, width)
        k, v = (a.repeat(HEADS // SHARED, axis=1) for a in (k, v))
        dots = np.einsum("qhw,khw->hqk", q, k) / np.sqrt(width)
        dots[:, np.triu(np.ones((count, count), bool), 1)] = -np.inf
        parts = np.exp(dots - dots.max(-1, keepdims=True))
        parts /= parts.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khw->qhw", parts, v).reshape(count, WIDTH) @ w["o"][n].T
        y = norm(x, w["nf"][n])
        gate, up = (y @ w[name][n].T for name in ("w1", "w3"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w["w2"][n].T
    return norm(x, w["norm"]) @ w["embedding"].T


TEXT = np.random.default_rng(1).integers(3, VOCABULARY, LENGTH).tolist()


def test_float_models_compute_what_their_files_say(folder):
    model = FloatModel(DecoderWeights.read(folder / "model.bin"))
    found = np.array([model.step(token) for token in TEXT])
    assert np.allclose(found, whole(TEXT), atol=1e-3)


@pytest.mark.parametrize(("device", "count"), [("fsim", LENGTH), ("tsim", 3)])
def test_a_token_is_one_launch_equal_to_the_executor(teller, device, count):
    model = teller.model
    assert len(model.regions) == 1
    assert not model.prove().unproven
    with vtaops.Session(device, model.config) as session:
        state = model.new_state(session)
        assert len(state.on_device) == 2 * LAYERS
        given = [teller.inputs(token, place) for place, token in enumerate(TEXT[:count])]
        found = [model.run(one, state=state) for one in given]
    runs = [[one[t.name] for t in model.graph.arguments] for one in given]
    expected = [made for (made,) in evaluate_runs(model.graph, runs)]
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("case", ["pynq_ext/0", "ulx3s_ext/5", "pynq_512_nibbles/7"])
def test_models_of_any_sizes_are_proven_and_equal_to_the_executor(case):
    assert not random_language_models.trial(case)["failed"]


def test_exported_c_keeps_the_cache_on_its_device(teller):
    bundle, step = c_bundles.load(teller.model), teller.model.graph.tensors["scores"].scale
    assert [t.name for t in bundle.inputs] == ["token", "cos", "sin", "mask"]
    for text in (TEXT, TEXT[:6]):
        found = []
        for place, token in enumerate(text):
            status, (scores,) = bundle.run(*teller.inputs(token, place).values())
            assert status == c_bundles.OK
            found.append(scores.reshape(-1) * step)
        assert np.array_equal(found, [*teller.scores(text)])
        if text is TEXT:
            given = teller.inputs(text[0], 0).values()
            assert bundle.run(*given)[0] == c_bundles.NO_ROOM
        assert bundle.reset() == c_bundles.OK


LINKED = "-fsanitize=address,undefined"
SANITIZED = f"-O1 {LINKED} -fno-sanitize-recover=all"


def told(folder, *words):
    """What a program of a bundle prints."""
    done = subprocess.run([f"./{words[0]}", *words[1:]], cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr
    text = done.stdout.removesuffix(b"\n")
    return codecs.getincrementaldecoder("utf-8")("replace").decode(text)


@pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "g++", "make"))), reason="no compiler, or no make"
)
def test_a_bundle_writes_the_texts_of_its_model(teller, folder, tmp_path):
    path = str(tmp_path / "c")
    command = ["chat", str(folder / "model.bin"), "--no-prove", "--export", path]
    assert CliRunner().invoke(app, command).exit_code == 0
    simulator = str(c_bundles.simulator())
    flags = {"CFLAGS": SANITIZED, "CXXFLAGS": "-O0", "LDFLAGS": LINKED}
    c_bundles.make(tmp_path / "c", "chat", CC="gcc", FSIM=simulator, **flags)
    for prompt in ("", "abc de.", "Äpfel & Öl\n", "a  b", " abcd"):
        numbers = told(tmp_path / "c", "chat", "--tokens", "20", "--numbers", "1", prompt)
        wanted = teller.tokenizer.encode(prompt)
        assert [*map(int, numbers.split())][: len(wanted)] == wanted
    for seed, temperature, top_p in (0, 0.8, 0.9), (2**64 - 1, 5, 1), (3, 0, 0.5), (4, 0.1, 0):
        options = {"seed": seed, "temperature": temperature, "top_p": top_p}
        words = [w for n, v in options.items() for w in (f"--{n.replace('_', '-')}", str(v))]
        found = told(tmp_path / "c", "chat", *words, "abc")
        assert found == "".join(teller.write("abc", **options))
    for words, said in (
        (["a", "b"], "put quotes around all of it"),
        (["--tokens", "33"], "no such value"),
        (["--seed", "-1"], "no such value"),
        (["--top-p", "2"], "no such value"),
        (["--tokens", "2", "a b c"], "more tokens than the text may have"),
    ):
        done = subprocess.run(["./chat", *words], cwd=tmp_path / "c", capture_output=True)
        assert (done.returncode, said in done.stderr.decode()) == (1, True)
    c_bundles.make(tmp_path / "c", "linux", CC="gcc", CFLAGS=SANITIZED)
    with c_bundles.FileBoard(teller.model, tmp_path / "c", "rtl") as board:
        found = told(tmp_path / "c", "chat-linux", *board.options, "--tokens", "9", "abc")
    assert found == "".join(teller.write("abc", tokens=9))


def test_integers_are_near_floats(teller):
    found, wanted = np.array([*teller.scores(TEXT)]), whole(TEXT)
    noise = np.mean((found - wanted) ** 2) / np.mean(wanted**2)
    assert noise < 0.03
    # Places that are not there yet do not count: a text does not depend on what follows.
    assert np.array_equal(np.array([*teller.scores(TEXT[:9])]), found[:9])


@pytest.mark.parametrize(("bits", "most"), [(8, 1.02), (4, 1.06)])
def test_the_carried_model_is_hardly_worse_in_integers(bits, most, monkeypatch):
    """Perplexity of stories that nobody trained on, of the float model and in integers."""
    carried = data_directory("examples/stories")
    monkeypatch.syspath_prepend(str(carried))
    stories = importlib.import_module("stories")
    config = "pynq_512_nibbles"
    teller = LanguageModel.load(
        carried / "stories.bin", config=config, prove=False, weight_bits=bits
    )
    floats, losses = FloatModel(teller.weights.folded()), []
    for seed in range(2):
        tokens = teller.tokenizer.encode(stories.story(random.Random(f"held out {seed}")))
        floats.reset()
        exact = [floats.step(token) for token in tokens[:-1]]
        for scores in exact, [*teller.scores(tokens[:-1])]:
            parts = np.exp(scores - np.max(scores, axis=1, keepdims=True))
            parts /= parts.sum(axis=1, keepdims=True)
            losses.append(-np.log(parts[np.arange(len(parts)), tokens[1:]]).mean())
    found, wanted = np.exp(np.mean(losses[1::2])), np.exp(np.mean(losses[::2]))
    assert found < most * wanted
    (program,) = teller.model.programs
    narrow = sum(b.nbytes for b in program.buffers if b.layout.nibbles)
    assert (narrow > 100_000) == (bits == 4)


def test_weights_of_four_bits_compute_what_the_executor_says(folder):
    teller = LanguageModel.load(
        folder / "model.bin", config="pynq_512_nibbles", prove=True, weight_bits=4
    )
    model = teller.model
    assert not model.prove().unproven
    given = [teller.inputs(token, place) for place, token in enumerate(TEXT)]
    runs = [[one[t.name] for t in model.graph.arguments] for one in given]
    expected = [made.reshape(-1) * teller.step for (made,) in evaluate_runs(model.graph, runs)]
    assert np.array_equal([*teller.scores(TEXT)], expected)
    with pytest.raises(ArgumentError, match="weight_bits is 3; weights have 4 or 8 bits"):
        LanguageModel.load(folder / "model.bin", weight_bits=3)


def test_tokenizers_join_the_best_neighbours(folder):
    tokenizer = Tokenizer.read(folder / "tokenizer.bin", VOCABULARY)
    number = {piece: 259 + n for n, piece in enumerate(PIECES)}
    # " a" and "bc" come before "ab", and "de" before " de".
    assert tokenizer.encode("abc de.") == [1, number[" abc"], number[" de"], number["."]]
    assert tokenizer.encode("") == [1]
    assert tokenizer.encode("é") == [1, number[" "], 3 + 0xC3, 3 + 0xA9]
    for text in ("abc de.", "Äpfel & Öl\n", "a  b"):
        assert "".join(tokenizer.decode(tokenizer.encode(text))) == text


def test_texts_depend_on_their_seed_alone(teller, folder):
    def text(**options):
        return "".join(teller.write("abc", **options))

    first = text(seed=5)
    assert first == text(seed=5)
    assert first.startswith("abc")
    assert len({text(seed=seed, temperature=2.0, top_p=1.0) for seed in range(4)}) > 1
    assert text(seed=1, temperature=0) == text(seed=2, top_p=0) == text(seed=3, temperature=0)
    assert text(tokens=2) == "abc"
    said = CliRunner().invoke(
        app, ["chat", str(folder / "model.bin"), "abc", "--seed", "5", "--no-prove"]
    )
    assert first in said.output
    assert "cycles a token by the timing model" in said.output
    for options in ({"tokens": 1}, {"tokens": LENGTH + 1}, {"temperature": -1}, {"top_p": 2}):
        with pytest.raises(ArgumentError, match="it must be in"):
            text(**options)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-4], "bytes; a model of"),
        (lambda data: data[:8], "is no model of llama2.c"),
        (lambda data: b"24ka\x02\0\0\0" + data[8:], "is of version 2; export it as version 0"),
    ],
)
def test_files_that_are_no_models_are_refused(folder, tmp_path, change, said):
    path = tmp_path / "model.bin"
    path.write_bytes(change((folder / "model.bin").read_bytes()))
    with pytest.raises(ModelError, match=said):
        DecoderWeights.read(path)
    with pytest.raises(ModelError, match=r"cannot read .* of 999 tokens"):
        Tokenizer.read(folder / "tokenizer.bin", 999)
    with pytest.raises(ArgumentError, match=r"length is 33; it must be 1\.\.32"):
        LanguageModel.load(folder / "model.bin", length=LENGTH + 1)


def test_the_demo_writes_a_story_with_the_carried_model(monkeypatch):
    carried = data_directory("examples/stories")
    monkeypatch.syspath_prepend(str(carried))
    stories = importlib.import_module("stories")
    said = CliRunner().invoke(app, ["demo", "--chat"])
    assert said.exit_code == 0
    story = said.stdout.strip()
    assert story.startswith("Once upon a time, there was a")
    texts = [stories.story(random.Random(seed)) for seed in range(2000)]
    known = {word for text in texts for word in re.findall(r"\w+", text)}
    words = re.findall(r"\w+", story)
    assert len(words) > 60
    assert known.issuperset(words)
    assert sum(path.stat().st_size for path in carried.glob("*.bin")) < 1_000_000
