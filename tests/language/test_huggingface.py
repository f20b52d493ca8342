"""Folders of Hugging Face: their weights, their tokenizers, and what is refused."""

import json
import struct

import numpy as np
import pytest
from typer.testing import CliRunner

from vtaops.cli import app
from vtaops.errors import ModelError, UnsupportedError
from vtaops.language import LanguageModel
from vtaops.language.floats import FloatModel
from vtaops.language.huggingface import read_folder

WIDTH, HIDDEN, LAYERS, HEADS, SHARED, VOCABULARY = 32, 48, 2, 4, 2, 24
EACH = WIDTH // HEADS
CONFIG = {
    "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": SHARED,
    "vocab_size": VOCABULARY, "max_position_embeddings": 24, "rms_norm_eps": 1e-3,
    "rope_theta": 500.0, "hidden_act": "silu", "tie_word_embeddings": False, "rope_scaling": None,
    "bos_token_id": 1, "eos_token_id": [2, 3],
}  # fmt: skip
PIECES = ["<unk>", "<s>", "</s>", "<end>", "▁", *"abcdeé", "▁a", "bc", "▁abc", "de", "▁de"]
MERGES = ["▁ a", "b c", "▁a bc", "d e", "▁ de"]
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [
        {
            "id": n, "content": PIECES[n], "special": True, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False,
        }
        for n in range(4)
    ],
    "normalizer": None,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    },
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "model": {
        "type": "BPE", "vocab": {piece: n for n, piece in enumerate(PIECES)}, "merges": MERGES,
        "unk_token": "<unk>",
    },
}  # fmt: skip
TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.float32}


def drawn(kind="F32", seed=0):
    """Random tensors by their names, of values that a type has."""
    rng, keys = np.random.default_rng(seed), EACH * SHARED
    layer = {
        "input_layernorm": (WIDTH,), "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.k_proj": (keys, WIDTH), "self_attn.v_proj": (keys, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH), "post_attention_layernorm": (WIDTH,),
        "mlp.gate_proj": (HIDDEN, WIDTH), "mlp.up_proj": (HIDDEN, WIDTH),
        "mlp.down_proj": (WIDTH, HIDDEN),
    }  # fmt: skip
    shapes = {
        "model.embed_tokens": (VOCABULARY, WIDTH), "model.norm": (WIDTH,),
        "lm_head": (VOCABULARY, WIDTH),
        **{f"model.layers.{n}.{name}": s for n in range(LAYERS) for name, s in layer.items()},
    }  # fmt: skip
    found = {}
    for name, shape in shapes.items():
        values = rng.normal(0, 2 / np.sqrt(WIDTH), shape) + (len(shape) == 1)
        values = values.astype(TYPES[kind]).astype(np.float32)
        if kind == "BF16":
            values = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
        found[f"{name}.weight"] = values
    return found


def safetensors(tensors, kind="F32", **header):
    """The bytes of a file."""
    parts, at = [], 0
    said = {"__metadata__": {"format": "pt"}}
    for name, values in tensors.items():
        data = values.astype(TYPES[kind])
        if kind == "BF16":
            data = (data.view(np.uint32) >> 16).astype(np.uint16)
        parts.append(data.tobytes())
        offsets = [at, at + data.nbytes]
        said[name] = {"dtype": kind, "shape": [*values.shape], "data_offsets": offsets}
        at += data.nbytes
    text = json.dumps(said | header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def write(folder, tensors, kind="F32", parts=1, **config):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    names = [*tensors]
    if parts == 1:
        (folder / "model.safetensors").write_bytes(safetensors(tensors, kind))
        return folder
    files = {}
    for part in range(parts):
        own = {name: tensors[name] for name in names[part::parts]}
        file = f"model-{part + 1:05}-of-{parts:05}.safetensors"
        (folder / file).write_bytes(safetensors(own, kind))
        files |= dict.fromkeys(own, file)
    index = {"metadata": {}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def whole(w, tokens, *, theta=500.0, epsilon=1e-3, head="lm_head"):
    """The scores behind each token, as `transformers` defines them: halves of heads turn."""
    count = len(tokens)
    x = w["model.embed_tokens.weight"][tokens].astype(float)
    rates = 1 / theta ** (np.arange(0, EACH, 2) / EACH)
    angles = np.outer(np.arange(count), np.concatenate([rates, rates]))
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def norm(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * w[f"{name}.weight"]

    def rotate_half(x):
        return np.concatenate([-x[..., EACH // 2 :], x[..., : EACH // 2]], -1)

    for n in range(LAYERS):
        own = f"model.layers.{n}"
        y = norm(x, f"{own}.input_layernorm")
        q, k, v = (
            (y @ w[f"{own}.self_attn.{name}_proj.weight"].T).reshape(count, -1, EACH)
            for name in "qkv"
        )
        q, k = (a * cos + rotate_half(a) * sin for a in (q, k))
        k, v = (a.repeat(HEADS // SHARED, axis=1) for a in (k, v))
        dots = np.einsum("qhw,khw->hqk", q, k) / np.sqrt(EACH)
        dots[:, np.triu(np.ones((count, count), bool), 1)] = -np.inf
        parts = np.exp(dots - dots.max(-1, keepdims=True))
        parts /= parts.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khw->qhw", parts, v).reshape(count, WIDTH)
        x = x + mixed @ w[f"{own}.self_attn.o_proj.weight"].T
        y = norm(x, f"{own}.post_attention_layernorm")
        gate, up = (y @ w[f"{own}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{own}.mlp.down_proj.weight"].T
    return norm(x, "model.norm") @ w[f"{head}.weight"].T


TEXT = np.random.default_rng(1).integers(0, VOCABULARY, 20).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("whole"), drawn())


@pytest.mark.parametrize(
    ("kind", "parts", "change", "reference"),
    [
        ("F32", 1, {}, {}),
        ("F16", 2, {"model_type": "mistral", "sliding_window": None, "head_dim": EACH}, {}),
        ("BF16", 3, {"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": False}, {}),
        ("F32", 1, {"tie_word_embeddings": True}, {"head": "model.embed_tokens"}),
        (
            "F32",
            1,
            {"rope_theta": 1e4, "rms_norm_eps": 1e-5},
            {"theta": 1e4, "epsilon": 1e-5},
        ),
        (
            "F32",
            1,
            {"rope_theta": 7e4, "rope_parameters": {"rope_type": "default", "rope_theta": 7e4}},
            {"theta": 7e4},
        ),
    ],
)
def test_float_models_compute_what_transformers_defines(tmp_path, kind, parts, change, reference):
    tensors = drawn(kind)
    weights, _ = read_folder(write(tmp_path, tensors, kind, parts, **change))
    model = FloatModel(weights)
    found = np.array([model.step(token) for token in TEXT])
    assert np.allclose(found, whole(tensors, TEXT, **reference), atol=1e-4)


def test_settings_that_are_missing_have_the_defaults_of_transformers(folder, tmp_path):
    write(tmp_path, drawn())
    few = {k: v for k, v in CONFIG.items() if k not in {"rms_norm_eps", "rope_theta", "hidden_act"}}
    (tmp_path / "config.json").write_text(json.dumps(few))
    weights, _ = read_folder(tmp_path)
    assert (weights.epsilon, weights.theta) == (1e-6, 1e4)


def test_texts_are_as_long_as_a_sliding_window(tmp_path):
    weights, _ = read_folder(write(tmp_path, drawn(), model_type="mistral", sliding_window=16))
    assert weights.length == 16


def test_a_folder_writes_texts(folder):
    teller = LanguageModel.load(folder, length=16)
    found, wanted = np.array([*teller.scores(TEXT[:16])]), whole(drawn(), TEXT[:16])
    assert np.mean((found - wanted) ** 2) / np.mean(wanted**2) < 0.03
    text = "".join(teller.write("abc de", seed=1))
    assert text.startswith("abc de")
    told = CliRunner().invoke(
        app, ["chat", str(folder), "abc de", "--seed", "1", "--length", "16", "--no-prove"]
    )
    assert text in told.output
    assert not told.exit_code


def test_texts_end_at_the_tokens_of_the_folder(folder):
    teller = LanguageModel.load(folder, length=16, prove=False)
    assert teller.tokenizer.start == 1
    assert teller.tokenizer.ends == {1, 2, 3}
    with pytest.raises(UnsupportedError, match=r"Hugging Face folder has no C code; `model\.ex"):
        teller.export_c(folder / "c")


def test_tokenizers_are_those_of_their_file(folder):
    _, tokenizer = read_folder(folder)
    numbers = {piece: n for n, piece in enumerate(PIECES)}
    assert tokenizer.encode("abc de") == [1, numbers["▁abc"], numbers["▁de"]]
    assert tokenizer.encode("") == [1]
    for text in ("abc de", "a  bé"):
        assert "".join(tokenizer.decode(tokenizer.encode(text))) == text


def test_letters_of_several_tokens_come_whole(folder, tmp_path):
    pieces = ["<s>", *(f"<0x{n:02X}>" for n in "é€".encode()), "a"]
    model = {
        "type": "BPE", "vocab": {piece: n for n, piece in enumerate(pieces)}, "merges": [],
        "byte_fallback": True,
    }  # fmt: skip
    told = {"version": "1.0", "added_tokens": [], "model": model}
    told["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    path = tmp_path / "other.json"
    path.write_text(json.dumps(told))
    _, tokenizer = read_folder(folder, path)
    assert tokenizer.encode("aé€") == [6, 1, 2, 3, 4, 5]
    assert [*tokenizer.decode([6, 1, 2, 3, 4, 5])] == ["a", "", "é", "", "", "€"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "gemma"}, "model_type is 'gemma'; vtaops computes 'llama or mistral"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; vtaops computes 'silu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "type of rope_scaling is 'linear'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_type of rope_scaling is 'llama3'"),
        ({"rope_scaling": "yarn"}, "rope_type of rope_scaling is 'yarn'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"head_dim": 16}, "head_dim is 16; vtaops computes 8"),
    ],
)
def test_what_graphs_do_not_compute_is_refused(tmp_path, change, said):
    write(tmp_path, {}, **change)
    with pytest.raises(UnsupportedError, match=said):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.q_proj.bias", "model.layers.2.input_layernorm.weight"]
)
def test_tensors_that_are_not_computed_are_refused(tmp_path, name):
    write(tmp_path, drawn() | {name: np.ones(WIDTH)})
    with pytest.raises(UnsupportedError, match=f"does not compute with a tensor {name}"):
        read_folder(tmp_path)


def test_tables_of_angles_are_not_needed(tmp_path):
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4)}
    assert read_folder(write(tmp_path, drawn() | extra))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "hidden_size is None; it must be in 1"),
        ({"hidden_size": 36}, "are 36, 4 and 2; the first must be a multiple"),
        ({"num_key_value_heads": 3}, "the second of the third"),
        ({"vocab_size": 1 << 40}, "vocab_size is 1099511627776"),
        ({"vocab_size": "24"}, "vocab_size is '24'"),
        ({"vocab_size": 25}, r"embed_tokens.weight has the shape \[24, 32\]; by config.json it is"),
        ({"num_hidden_layers": 3}, "has no tensor model.layers.2.input_layernorm.weight"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
        ({"bos_token_id": None}, r"bos_token_id is None; it must be tokens of 0..23"),
        ({"eos_token_id": [2, 24]}, r"eos_token_id is \[2, 24\]; it must be tokens of 0..23"),
    ],
)
def test_wrong_settings_are_named(folder, tmp_path, change, said):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(ModelError, match=said):
        read_folder(tmp_path)


NORM = "model.norm.weight"


def entry(**change):
    """A header's entry of the last norm."""
    return {NORM: {"dtype": "F32", "shape": [WIDTH], "data_offsets": [0, 4 * WIDTH]} | change}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "holds no JSON"),
        (lambda data: data[:5], "holds no JSON"),
        (lambda data: data[:-4], "is no tensor of"),
        (lambda data: struct.pack("<Q", 1 << 62) + data[8:], "holds no JSON"),
        (lambda data: struct.pack("<Q", 2) + b"[]", "holds a list in JSON; it must be an object"),
        (lambda data: struct.pack("<Q", 60000) + b"[" * 60000, "holds no JSON"),
        (lambda data: struct.pack("<Q", 4) + b"\xff{}{", "holds no JSON"),
        (entry(dtype="I8"), "is no tensor of .* in F32, F16, BF16"),
        (entry(dtype=["F32"]), "is no tensor"),
        (entry(shape=[2, 16]), r"has the shape \[2, 16\]; by config.json it is \[32\]"),
        (entry(shape=WIDTH), "has the shape 32"),
        (entry(data_offsets=[0, 4]), "is no tensor"),
        (entry(data_offsets=[-128, 0]), "is no tensor"),
        (entry(data_offsets=[1 << 40, (1 << 40) + 128]), "is no tensor"),
        (entry(data_offsets=[0]), "is no tensor"),
        (entry(data_offsets=[0, float("inf")]), "is no tensor"),
        ({NORM: 5}, "is no tensor"),
        ({NORM: {}}, "is no tensor"),
    ],
)
def test_files_that_are_no_safetensors_are_refused(folder, tmp_path, change, said):
    (tmp_path / "config.json").symlink_to(folder / "config.json")
    if callable(change):
        data = change((folder / "model.safetensors").read_bytes())
    else:
        data = safetensors(drawn(), **change)
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelError, match=said) as caught:
        read_folder(tmp_path)
    assert str(tmp_path / "model.safetensors") in str(caught.value)


def test_weights_are_finite(tmp_path):
    tensors = drawn()
    tensors[NORM][3] = np.nan
    with pytest.raises(ModelError, match=f"{NORM} has values that are not finite"):
        read_folder(write(tmp_path, tensors))


@pytest.mark.parametrize("told", [["a"], None, {"x": "../model.safetensors"}, {"x": 3}])
def test_an_index_names_files_beside_it(tmp_path, told):
    write(tmp_path, drawn(), parts=2)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": told}))
    with pytest.raises(ModelError, match=r"index.json names .* must name files beside it"):
        read_folder(tmp_path)


def test_files_that_are_missing_are_named(tmp_path):
    for wanted in ("config.json", "safetensors.index.json; it must have one"):
        with pytest.raises(ModelError, match=wanted):
            LanguageModel.load(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    write(tmp_path, drawn(), parts=2)
    for name in ("tokenizer.json", "model-00002-of-00002.safetensors"):
        (tmp_path / name).unlink()
        with pytest.raises(ModelError, match=f"cannot read .*{name}"):
            LanguageModel.load(tmp_path)


def test_tokenizers_that_do_not_fit_are_refused(folder, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    whole = json.dumps(TOKENIZER, ensure_ascii=False)
    other, no_merge = whole.replace('"BPE"', '"Other"'), whole.replace('"▁a bc"', '"▁a ▁a"')
    panic = whole.replace('"▁abc"', '"x"')  # of the package, which is no Exception
    for text in ("", "{}", "[" * 9999, other, no_merge, panic):
        path.write_text(text)
        with pytest.raises(ModelError, match=r"cannot read .*tokenizer\.json"):
            read_folder(folder, path)
    model = TOKENIZER["model"] | {"vocab": TOKENIZER["model"]["vocab"] | {"z": VOCABULARY}}
    path.write_text(json.dumps(TOKENIZER | {"model": model}))
    with pytest.raises(ModelError, match=r"has token 24; the model has 0\.\.23"):
        read_folder(folder, path)
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(UnsupportedError, match="a Hugging Face folder needs tokenizers"):
        read_folder(folder)
