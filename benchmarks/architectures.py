"""Networks of torchvision and timm: quantised, imported, compiled, run and compared.

    python -m benchmarks architectures --minutes 60 --write      # again until nothing is left

Needs torch, torchvision and timm, of which only the code is used (`pip install --no-deps` is
enough, also where torchvision's own operators do not load). Weights are random with seeds; batch
norms have the statistics of random images, so ranges are those of real networks. Each network is
quantised with the defaults of `vtaops.quantize` on four images, and then runs a fifth one: on VTA,
on the integer executor, which has to give the same bits, and in float, which gives the noise. A
network that vtaops refuses stands in the table with the reason. Times are CPU time. Exit code: 1
if a result differs or an error is not vtaops' own, 2 if some networks are left.
"""

from __future__ import annotations

import traceback
import warnings
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.light_networks import CONFIGS, Clock, as_tuple, host_part, macs, sqnr
from benchmarks.options import (
    RESULTS,
    ROOT,
    Again,
    Json,
    Minutes,
    State,
    choice,
    write_between,
    write_json,
)
from trials.campaign import by_code, resume

TORCHVISION = (
    "alexnet",
    "squeezenet1_1",
    "vgg11",
    "resnet18",
    "googlenet",
    "inception_v3",
    "regnet_y_400mf",
    "regnet_x_400mf",
    "shufflenet_v2_x1_0",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mnasnet1_0",
    "efficientnet_b0",
    "convnext_tiny",
    "densenet121",
)
TIMM = (
    "lcnet_050",
    "tinynet_e",
    "repvgg_a0",
    "gernet_s",
    "dla34",
    "selecsls42b",
    "resnet14t",
    "cs3darknet_s",
    "resmlp_12_224",
    "deit_tiny_patch16_224",
    "levit_128s",
    "poolformer_s12",
    "mobilenetv4_conv_small",
    "ghostnet_100",
    "hardcorenas_a",
    "starnet_s1",
    "mobileone_s0",
    "edgenext_xx_small",
    "mobilevit_xxs",
    "ese_vovnet19b_dw",
)
SCALES = ("free", "pow2")
NAMES = (*(f"torchvision/{name}" for name in TORCHVISION), *(f"timm/{name}" for name in TIMM))


@cache
def _declare_operators() -> None:
    """Declare what torchvision cannot be imported without, though nothing here calls it."""
    import torch

    for missing in ("nms", "qnms"):
        torch.library.define(f"torchvision::{missing}", "(Tensor x) -> Tensor")


def built(name: str) -> tuple[Any, Any]:
    """Return a network with random weights, and five images of the size that it was made for."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    source, _, model = name.partition("/")
    _declare_operators()
    if source == "torchvision":
        from torchvision.models import get_model

        shape, module = (3, 224, 224), get_model(model, weights=None)
    else:
        import timm

        module = timm.create_model(model)
        shape = module.default_cfg["input_size"]
    images = np.random.default_rng(0).normal(0, 1, (5, *shape)).astype(np.float32)
    module.eval()
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.momentum = None  # replaces what is there, instead of mixing with it
            part.train()
    with torch.no_grad():
        module(torch.from_numpy(images))
    return module.eval(), images


def measure(name: str, scales: str) -> dict[str, Any]:
    """Quantise, import, compile, run and compare one network."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from vtaops import quantize
    from vtaops.frontends import import_model
    from vtaops.graph import evaluate
    from vtaops.model.placement import placement
    from vtaops.network import compile_model

    clock = Clock()
    module, images = built(name)
    *_, height, width = images.shape
    last = torch.from_numpy(images[4:])
    with torch.no_grad(), FlopCounterMode(display=False) as flops:
        exact = module(last).numpy()
    clock("float")
    quantized = quantize(module, images[:4], scales=scales)  # type: ignore[arg-type]
    clock("quantize")
    graph = import_model(quantized)
    clock("import")
    compiled = compile_model(graph, CONFIGS[scales])
    clock("compile")
    (found,) = as_tuple(compiled.run(images[4:]))
    clock("run")
    (expected,) = as_tuple(evaluate(graph, images[4:]))
    clock("reference")
    report = compiled.report()
    rows = list(zip(compiled.graph.nodes, compiled.plan, strict=True))
    products = placement(compiled.graph, compiled.plan)
    return {
        "size": f"{height}x{width}",
        "operators": len(rows),
        "on_vta": sum(row.where == "vta" for _, row in rows),
        "products": products.products,
        "products_on_vta": products.on_vta,
        "macs": flops.get_total_flops() // 2,
        "macs_on_vta": sum(macs(node) for node, row in rows if row.where == "vta"),
        "launches": report.launches,
        "cycles": report.cycles,
        "milliseconds": report.milliseconds,
        "sqnr_db": sqnr(exact, found),
        "equal": bool(np.array_equal(found, expected)),
        "host": host_part(compiled.plan),
        "cpu_s": clock.spent,
    }


def trial(case: str) -> dict[str, Any]:
    """Measure one network; an error of vtaops is a refusal, any other one is a bug."""
    from vtaops import VTAError

    scales, _, name = case.partition("/")
    warnings.simplefilter("ignore")
    try:
        return {"refused": "", "error": "", **measure(name, scales)}
    except VTAError as error:
        return {"refused": f"{type(error).__name__}: {error}", "error": ""}
    except Exception:
        return {"refused": "", "error": traceback.format_exc()[-2000:]}


# ------------------------------------------------------------------------------ the table


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the figures as Markdown, a table for each way to quantise."""
    parts = []
    for scales in SCALES:
        start, config = f"{scales}/", CONFIGS[scales]
        chosen = {c.removeprefix(start): r for c, r in results.items() if c.startswith(start)}
        if not chosen:
            continue
        lines = [_line(name, result) for name, result in chosen.items()]
        parts.append(
            f"Scales `{scales}`, compiled for `{config}`:\n\n"
            "| network | image | on VTA | products | of the MACs | launches | M MACs | cycles | ms "
            "| SQNR dB | quantize s | compile s | equal |\n"
            "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n" + "\n".join(lines)
        )
    return "\n\n".join([*parts, f"Measured: {by_code(results)}."])


def _line(name: str, row: dict[str, Any]) -> str:
    if row["refused"] or row["error"]:
        return f"| {name} | refused: {row['refused'] or 'NOT by vtaops'}" + " |" * 12
    share = 100 * min(1, row["macs_on_vta"] / max(1, row["macs"]))
    noise = "equal" if row["sqnr_db"] is None else f"{row['sqnr_db']:.1f}"
    return (
        f"| {name} | {row['size']} | {row['on_vta']}/{row['operators']} "
        f"| {row['products_on_vta']}/{row['products']} | {share:.1f} % | {row['launches']} "
        f"| {row['macs'] / 1e6:,.0f} | {row['cycles']:,} | {row['milliseconds']:,.1f} | {noise} "
        f"| {row['cpu_s']['quantize']:.1f} | {row['cpu_s']['compile']:.1f} "
        f"| {'yes' if row['equal'] else 'NO'} |"
    )


def main(
    only: Annotated[list[str], typer.Option(help="Names of networks.")] = [],  # noqa: B006
    scales: Annotated[str, typer.Option(**choice(SCALES))] = "free",
    minutes: Minutes = 9.0,
    again: Again = False,
    state_file: State = Path("architectures.jsonl"),
    json_file: Json = RESULTS / "architectures.json",
    write_page: Annotated[
        bool, typer.Option("--write", help="Put the table into docs/networks_measured.md.")
    ] = False,
) -> int:
    """Run from the command line."""
    if unknown := {*only} - {*NAMES}:
        raise typer.BadParameter(f"{sorted(unknown)} are none of {NAMES}")
    cases = [f"{scales}/{name}" for name in only or NAMES]
    results = resume(state_file, cases, trial, minutes, "networks", again=again)
    print(table(results))
    write_json(json_file, results)
    if write_page:
        write_between(ROOT / "docs" / "networks_measured.md", "architectures", table(results))
    for case, result in results.items():
        if result["error"]:
            print(case, result["error"], sep="\n")
    wrong = any(r["error"] or not (r["refused"] or r["equal"]) for r in results.values())
    return 1 if wrong else 0 if len(results) == len(cases) else 2
