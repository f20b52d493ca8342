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
from vtaops.cli.options import (
    Config,
    Force,
    NoOpen,
    claim,
    open_page,
    say,
    step,
    to_write,
    write_arrays,
)
from vtaops.machine.config import NETWORK_CONFIG
from vtaops.report.files import write_bytes, write_text


def demo(
    *,
    output: Annotated[Path, to_write("Output folder, created if necessary.")] = Path("vtaops-demo"),
    config: Config = NETWORK_CONFIG,
    chat: Annotated[
        bool, Option("--chat", help="Write a story instead, with a small language model.")
    ] = False,
    force: Force = False,
    no_open: NoOpen = False,
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
    from vtaops import compile_model, quantize
    from vtaops.quantization.devices import QuantizationTarget
    from vtaops.quantization.pictures import Preparation
    from vtaops.report.network_pictures import network_page

    carried = data_directory("examples/glyphs")
    with np.load(carried / "samples.npz") as file:
        samples = dict(file)
    calibration, images = (Preparation().apply(samples[name]) for name in ("calibration", "images"))
    names = "glyphs.onnx", "calibration.npz", "image.npy", "glyphs.q.onnx", "glyphs.vtam"
    network, inputs, image, quantized, compiled = (output / name for name in names)
    claim(output, (*names, "glyphs.html"), force)
    write_bytes(network, (carried / "glyphs.onnx").read_bytes())
    write_arrays(inputs, np.savez_compressed, image=calibration)
    write_arrays(image, np.save, images[:1])

    scales, default = QuantizationTarget(config).scales, config == NETWORK_CONFIG
    stated = [] if default else ["--scales", scales]
    with step("quantize", network, "--calibration", inputs, "-o", quantized, *stated):
        model = quantize(network, {"image": calibration}, scales=scales)
        write_bytes(quantized, model.SerializeToString())
    stated = [] if default else ["--config", config]
    with step("compile", quantized, "-o", compiled, *stated):
        model = compile_model(quantized, config)
        model.save(compiled)
    with step("run", compiled, "--input", image):
        scores = np.concatenate([model.run(single[None]) for single in images])
    page = output / "glyphs.html"
    write_text(page, network_page(model))

    classes = scores.argmax(1)
    cycles, clock = model.cycles(), model.config.board.clock_mhz
    say(
        f"\n{model!r}, proven for every input: vtaops verify {compiled} proves it again\n"
        f"{np.mean(classes == samples['labels']):.1%} of {len(images)} images are read correctly; "
        f"the first are {''.join(samples['characters'][classes[:20]])}\n"
        f"{cycles:,} cycles an image by the timing model: {1e-3 * cycles / clock:.3f} ms at "
        f"{clock} MHz, without the host's part\n"
        f"{page} shows what every unit does in each cycle"
    )
    open_page(page, no_open)
