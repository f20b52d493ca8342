"""Wake words in a stream of sound: MLPerf Tiny's streaming network on VTA, a second at a time.

    vtaops fetch mlperf-tiny
    python examples/wake_words.py [sound.wav]

The published network looks at 30 frames of 40 mel bands, about a second, and its convolutions slide
over time without padding. So it is compiled for more frames than it looks at: one launch on a
second of sound gives 32 results, bit for bit those of 32 runs of the network, and each layer
computes a frame once. Between seconds stays a state: the samples of the next frame, and the
frames that later results look at. Without a file, sound is made here: vowels, hiss, silence.
"""

import sys
import wave
from pathlib import Path

import numpy as np

import vtaops
from vtaops.frontends import import_model
from vtaops.graph import Convolution, Dense, Graph
from vtaops.graph.fixed_softmax import softmax

RATE = 16_000
WINDOW, STRIDE = 1024, 512
"""Samples of a frame, and from one frame to the next: 64 and 32 ms."""
BANDS = 40
EMPHASIS = 1 - 2**-5
STEP = 32
"""Results of a launch: a second has 31 or 32 frames."""
MODEL = Path("mlperf-tiny/str_ww_ref_model.tflite")


# ---------------------------------------------------------------------- sound to features


def mel(hertz):
    """Return frequencies on the mel scale."""
    return 1127 * np.log1p(np.asarray(hertz) / 700)


def mel_weights(bands, bins, lowest, highest, rate=RATE):
    """Return triangles of equal width on the mel scale, (bins, bands), over the bins of an FFT."""
    edges = np.linspace(mel(lowest), mel(highest), bands + 2)
    at = mel(np.arange(bins) * rate / 2 / (bins - 1))[:, None]
    rising = (at - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - at) / (edges[2:] - edges[1:-1])
    weights = np.maximum(0, np.minimum(rising, falling))
    weights[0] = 0  # what is constant is no sound
    return weights


def framed(samples, length, stride):
    """Return the frames of a sound, (frames, length): those that it fills."""
    if len(samples) < length:
        return np.zeros((0, length))
    return np.lib.stride_tricks.sliding_window_view(samples, length)[::stride]


def frame_features(samples):
    """Return the features of sound that follows one sample: (frames, 40), 0..1.

    Log energies of mel bands as the network was trained on: pre-emphasis, Hamming window, power.
    """
    emphasised = samples[1:] - EMPHASIS * samples[:-1]
    frames = framed(emphasised, WINDOW, STRIDE) * np.hamming(WINDOW)
    power = np.abs(np.fft.rfft(frames)) ** 2 / WINDOW
    energies = power @ mel_weights(BANDS, WINDOW // 2 + 1, 0, RATE / 2)
    return np.clip((10 * np.log10(np.maximum(energies, 1e-30)) + 52) / 64, 0, 1)


# ---------------------------------------------------------------------------- the network


def over_time(graph, results):
    """Return the network for `results` results in a row: scores, before the softmax.

    The last layers, a reshape and a product with a matrix, become a convolution of one pixel.
    """
    (given,) = graph.inputs
    frames = given.shape[1] + results - 1
    wide = Graph(graph.name)
    x = wide.input(
        given.name, (1, frames, 1, BANDS), scale=given.scale, zero_point=given.zero_point
    )
    for node in graph.nodes:
        op, scale = node.op, node.outputs[0].scale
        if op.kind.startswith("softmax"):
            break
        if isinstance(op, Dense):
            op = Convolution(op.weight[:, :, None, None], op.bias, op.requantization)
        if op.kind != "reshape":
            x = wide.add(op, x, scale=scale)
    wide.output(x)
    return wide


class Listener:
    """Hears sound piece by piece: every 32 ms a result for the last second.

    Parameters
    ----------
    path : Path
        The published TFLite file.
    config : str
        For which hardware it is compiled.
    session : Session, optional
        Where it runs; by default fsim.
    """

    def __init__(self, path=MODEL, config="pynq_exact", session=None):
        graph = import_model(path)
        (given,) = graph.inputs
        self.model = vtaops.compile_model(over_time(graph, STEP), config)
        self.session = session
        self._given, self._scores = given, self.model.graph.outputs[0]
        self._samples = np.zeros(1)  # one before the next frame, and what there is of it
        self._frames = np.zeros((given.shape[1] + STEP - 1, BANDS), np.int8)

    def hear(self, samples):
        """Return results for the frames that end in some samples (-1..1): (frames, 3), int8.

        Samples are heard as they come: seconds, or pieces of any length.
        """
        self._samples = np.concatenate([self._samples, samples])
        new = self.quantized(frame_features(self._samples))
        self._samples = self._samples[len(new) * STRIDE :]
        parts = [new[at : at + STEP] for at in range(0, len(new), STEP)]
        return np.concatenate([np.zeros((0, 3), np.int8), *map(self._look, parts)])

    def quantized(self, features):
        """Return features on the grid of the network's input."""
        steps = np.rint(features / self._given.scale) + self._given.zero_point
        return np.clip(steps, -128, 127).astype(np.int8)

    def _look(self, new):
        """Return the results for at most 32 new frames."""
        self._frames = np.concatenate([self._frames, new])[len(new) :]
        scores = self.model.run(self._frames[None, :, None], session=self.session)
        (columns,) = scores.reshape(1, scores.shape[1], -1)
        return softmax(columns.T[-len(new) :], self._scores.scale)


# -------------------------------------------------------------------------------- sound


def made_sound(seconds, seed=0):
    """Return sound like speech: vowels of gliding pitch, hisses, pauses."""
    rng = np.random.default_rng(seed)
    parts, missing = [], int(seconds * RATE)
    while missing > 0:
        length = int(rng.integers(1000, 6000))
        time, kind = np.arange(length) / RATE, rng.integers(4)
        envelope = np.hanning(length) * rng.uniform(0.05, 0.9)
        if kind == 0:
            sound = np.zeros(length)
        elif kind == 1:  # a hiss: noise, its lower half taken away
            sound = np.diff(rng.normal(0, 0.3, length + 1))
        else:
            pitch = rng.uniform(90, 250) * (1 + rng.uniform(-0.3, 0.3) * time)
            phase = 2 * np.pi * np.cumsum(pitch) / RATE
            formants = rng.uniform([300, 900, 2200], [900, 2300, 3200])
            sound = np.zeros(length)
            for n in range(1, 30):
                strength = np.exp(-(((n * pitch.mean() - formants) / 250) ** 2)).sum() + 0.02
                sound += strength * np.sin(n * phase) / 3
        parts.append(np.clip(sound * envelope + rng.normal(0, 1e-3, length), -1, 1))
        missing -= length
    return np.concatenate(parts)[: int(seconds * RATE)]


def read_sound(path):
    """Return the samples of a .wav file, 16 kHz, 16 bits: its first channel."""
    with wave.open(str(path)) as file:
        form = file.getframerate(), file.getsampwidth()
        if form != (RATE, 2):
            raise SystemExit(f"{path} has (rate, bytes) {form}; it must have ({RATE}, 2)")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return samples[:: file.getnchannels()] / 32768


def main():
    """Listen to a file, or to sound that is made, second by second."""
    if not MODEL.is_file():
        raise SystemExit(f"there is no {MODEL}: vtaops fetch mlperf-tiny")
    sound = read_sound(sys.argv[1]) if len(sys.argv) > 1 else made_sound(5)
    listener = Listener()
    one = vtaops.compile_model(MODEL, listener.model.config)
    print(f"{one.cycles():,} cycles a result alone, {listener.model.cycles():,} for {STEP} at once")
    for number in range(0, len(sound), RATE):
        found = listener.hear(sound[number : number + RATE])
        if len(found):
            wake, silence, unknown = (found.max(axis=0).astype(int) + 128) / 256
            print(f"second {number // RATE}: {len(found)} results; at most wake word {wake:.2f}, "
                  f"other speech {unknown:.2f}, silence {silence:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
