"""The example of the stream of sound: pieces give what the network gives, window by window."""

import wave

import numpy as np
import pytest

import vtaops
from examples import wake_words
from trials.tflite_models import Writer


def small_network():
    """A file of the published one's form: windows over time, a reshape, a classifier, a softmax."""
    writer = Writer(3)
    shape = (1, 30, 1, wake_words.BANDS)
    x = given = writer.tensor(shape, "int8", 0.0037, -128)
    for frames, filters in ((5, 0), (1, 24), (26, 0), (1, 8)):
        _, height, _, channels = writer.shapes[x]
        form = (filters, 1, 1, channels) if filters else (1, frames, 1, channels)
        data = writer.rng.integers(-127, 128, form).astype(np.int8)
        weight = writer.tensor(form, "int8", 0.01 / frames, data=data)
        count = filters or channels
        values = writer.rng.integers(-900, 900, count).astype(np.int32)
        bias = writer.tensor((count,), "int32", writer.grids[x][0] * 0.01 / frames, data=values)
        y = writer.tensor((1, height - frames + 1, 1, count), "int8", 0.02, 4)
        window = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
        kind = "CONV_2D" if filters else "DEPTHWISE_CONV_2D"
        more = {} if filters else {"DepthMultiplier": 1}
        writer.operator(
            kind, [x, weight, bias], [y], Padding=1, FusedActivationFunction=1, **window, **more
        )
        x = y
    flat = writer.tensor((1, 8), "int8", 0.02, 4)
    writer.operator("RESHAPE", [x, writer.constant([1, 8])], [flat])
    weights = writer.rng.integers(-127, 128, (3, 8)).astype(np.int8)
    weight = writer.tensor((3, 8), "int8", 0.03, data=weights)
    bias = writer.tensor((3,), "int32", 0.02 * 0.03, data=np.array([90, -400, 0], np.int32))
    scores, result = (
        writer.tensor((1, 3), "int8", 0.1, 5),
        writer.tensor((1, 3), "int8", 1 / 256, -128),
    )
    writer.operator("FULLY_CONNECTED", [flat, weight, bias], [scores], FusedActivationFunction=0)
    writer.operator("SOFTMAX", [scores], [result], Beta=1.0)
    return writer.finish([given], [result])


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "words.tflite"
    path.write_bytes(small_network())
    return path


def test_pieces_of_sound_give_what_windows_give(network):
    sound = wake_words.made_sound(2.3, seed=4)
    listener = wake_words.Listener(network)
    assert len(listener.model.regions) == 1
    pieces = np.split(sound, [1, 16_000, 16_300, 33_000])
    heard = [listener.hear(piece) for piece in pieces]
    assert [len(part) for part in heard][:2] == [0, 30]
    features = listener.quantized(wake_words.frame_features(np.concatenate([np.zeros(1), sound])))
    frames = np.concatenate([np.zeros((29, 40), np.int8), features])
    alone = vtaops.compile_model(network, "pynq_exact")
    wanted = [alone.run(frames[at : at + 30][None, :, None])[0] for at in range(len(features))]
    assert np.array_equal(np.concatenate(heard), wanted)
    assert np.unique(np.array(wanted)[:, 0]).size > 10
    assert listener.model.cycles() < wake_words.STEP * alone.cycles() / 4


def test_features_of_known_sounds():
    time = np.arange(4096) / wake_words.RATE
    loud, quiet = (wake_words.frame_features(a * np.sin(2000 * np.pi * time)) for a in (0.5, 0.005))
    assert loud.shape == (6, 40)
    band = int(loud[2].argmax())
    edges = np.expm1(np.linspace(0, wake_words.mel(8000), 42) / 1127) * 700
    assert edges[band] < 1000 < edges[band + 2]
    assert loud[2, band] - quiet[2, band] == pytest.approx(40 / 64, abs=1e-6)  # 40 dB
    assert not wake_words.frame_features(np.zeros(4096)).any()


def test_files_of_sound(tmp_path):
    path = tmp_path / "sound.wav"
    samples = np.arange(-100, 100, dtype="<i2")
    for channels, rate in ((1, 16_000), (2, 16_000), (1, 8_000)):
        with wave.open(str(path), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(np.repeat(samples, channels).tobytes())
        if rate != wake_words.RATE:
            with pytest.raises(SystemExit, match="it must have"):
                wake_words.read_sound(path)
        else:
            assert np.array_equal(wake_words.read_sound(path) * 32768, samples)
