"""The command ``vtaops chat``: a language model that writes a text. See `vtaops.cli`."""

from __future__ import annotations

import shlex
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from vtaops.cli.options import Config, Device, Force, Seed, progress_bar, say
from vtaops.machine.config import NETWORK_CONFIG


def chat(
    model: Annotated[
        Path, Argument(help="A .bin of llama2.c, version 0, or a Hugging Face folder.")
    ],
    prompt: Annotated[str, Argument(help="How the text begins.")] = "",
    *,
    config: Config = NETWORK_CONFIG,
    device: Device = "fsim",
    length: Annotated[
        int | None, Option(help="Tokens that the cache holds. Default: the model's maximum.", min=1)
    ] = None,
    tokens: Annotated[
        int | None, Option(help="Maximum number of tokens. Default: as the cache.", min=1)
    ] = None,
    temperature: Annotated[
        float, Option(help="0: always the likeliest token. 1: the model's probabilities.", min=0)
    ] = 0.8,
    top_p: Annotated[
        float,
        Option(
            help="Draw from the likeliest tokens that have this probability together.", min=0, max=1
        ),
    ] = 0.9,
    seed: Seed = 0,
    weight_bits: Annotated[
        int, Option(help="8, or 4, which hardware with nibbles reads twice as fast.")
    ] = 8,
    no_prove: Annotated[bool, Option("--no-prove", help="Do not prove its program.")] = False,
    export: Annotated[
        Path | None,
        Option(help="Write the model as C to this folder instead: make && ./chat PROMPT."),
    ] = None,
    force: Force = False,
) -> None:
    """Write a text with a language model, which is quantised and runs on a device.

    Keys and values of all places stay in the memory of the device.

    Example: vtaops chat stories.bin "Once upon a time"
    Example: vtaops chat stories.bin --export story
    """
    from vtaops.language import LanguageModel
    from vtaops.session import Session

    with progress_bar(f"compile {model.resolve().name}"):
        teller = LanguageModel.load(
            model, config=config, length=length, prove=not no_prove, weight_bits=weight_bits
        )
    if export:
        bundle = teller.export_c(export, force=force)
        say(
            f"written to {export}: {bundle.blob_nbytes:,} bytes of constants; next: "
            f"make -C {export} && {export}/chat {shlex.quote(prompt or 'Once')}"
        )
        return
    made, begin = 0, time.perf_counter()
    with closing(Session(device, teller.model.config)) as session:
        for piece in teller.write(
            prompt, tokens=tokens, temperature=temperature, top_p=top_p, seed=seed, session=session
        ):
            made += 1
            typer.echo(piece, nl=False)
    seconds = time.perf_counter() - begin
    typer.echo()
    cycles, mhz = teller.model.cycles(), teller.model.config.board.clock_mhz
    say(
        f"{made} tokens. {teller.model!r}: {cycles:,} cycles a token by the timing model, "
        f"{mhz * 1e6 / cycles:,.0f} tokens/s at {mhz} MHz; {made / seconds:.1f} tokens/s on "
        f"{device} on this computer",
        err=True,
    )
