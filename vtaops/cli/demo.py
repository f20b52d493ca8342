"""The command ``vtaops demo``: from a trained float network to a page of its cycles.

Owns the order of the steps and their messages; see `vtaops.cli`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from typer import Option

from vtaops.base.data import data_directory
from vtaops.cli.chat import chat as write_story
from vtaops.cli.options import Config, Force, claim, step, to_write, write_arrays
from vtaops.machine.config import NETWORK_CONFIG
from vtaops.report.files import write_bytes


def demo(
    *,
    output: Annotated[Path, to_write("Output folder, created if necessary.")] = Path("vtaops-demo"),
    config: Config = NETWORK_CONFIG,
    chat: Annotated[
        bool, Option("--chat", help="Write a story instead, with a small language model.")
    ] = False,
    force: Force = False,
) -> None:
    """Quantise, compile, prove and run a small trained network; draw where its cycles go.

    The network reads characters of 34 classes; vtaops includes it, with 132 images. The inputs and
    outputs of each step stay in the folder, and the commands shown repeat each step.

    Example: vtaops demo -o demo

    Example: vtaops demo --chat
    """
    if chat:
        teller = data_directory("examples/stories") / "stories.bin"
        write_story(teller, "Once upon a time", config=config, tokens=100, no_prove=True)
        return
    from vtaops.cli import app
    from vtaops.quantization.pictures import Preparation

    carried = data_directory("examples/glyphs")
    with np.load(carried / "samples.npz") as file:
        samples = dict(file)
    calibration, images = (Preparation().apply(samples[name]) for name in ("calibration", "images"))
    made = "glyphs.q.onnx", "glyphs.vtam", "glyphs.html"
    names = "glyphs.onnx", "calibration.npz", "image.npy", "images.npz", *made
    network, inputs, image, labelled, quantized, compiled, page = map(output.joinpath, names)
    claim(output, names, force)
    write_bytes(network, (carried / "glyphs.onnx").read_bytes())
    write_arrays(inputs, np.savez_compressed, image=calibration)
    write_arrays(image, np.save, images[:1])
    write_arrays(labelled, np.savez_compressed, image=images, labels=samples["labels"])

    other = [] if config == NETWORK_CONFIG else ["--config", config]
    for words in (
        ("quantize", network, "--calibration", inputs, "-o", quantized, *other),
        ("compile", quantized, "-o", compiled, *other),
        ("run", compiled, "--input", image),
        ("evaluate", compiled, "--data", labelled, "--against", network),
        ("report", "profile", compiled, "-o", page),
    ):
        with step(*words):
            app([*map(str, words)], standalone_mode=False)
