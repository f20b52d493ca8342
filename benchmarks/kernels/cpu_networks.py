"""Whole networks on the CPU: `vtaops.kernels.cpu.layers` beside PyTorch, eager and compiled.

    python -m benchmarks cpu_networks --json networks.json

The networks are seeded ones of `examples/networks.py`, batch 1, float32. PyTorch's best is
`torch.compile` with freezing (weights constant, packed once) and needs a C++ compiler; the models
go through `torch.fx` to layers here. Every result is compared with PyTorch's before it is timed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.options import ROOT, Json, Only, Row, alternating, chosen, show, write_json

NETWORKS = {"resnet18": 224, "resnet50": 224, "mobilenet_v1": 224, "mobilenet_v2": 224}
"""Names in `examples/networks.py`, and the rows and columns of their images."""

Step = Callable[[dict[str, Any]], Any]


class Chain:
    """A traced PyTorch model as layers, with normalisations, residuals and activations fused.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation mode: convolutions (of one group, or depthwise), poolings, sums, products.
    """

    def __init__(self, model: Any) -> None:
        import torch.fx

        graph = torch.fx.symbolic_trace(model)
        self._modules = dict(graph.named_modules())
        nodes = list(graph.graph.nodes)
        self._input = next(node.name for node in nodes if node.op == "placeholder")
        tails: dict[Any, list[Any]] = {}  # the last of the nodes that are fused: all of them
        taken: set[Any] = set()
        for node in nodes:
            if self._is(node, "Conv2d"):
                tail = self._tail(node, taken)
                taken.update(tail)
                tails[tail[-1]] = tail
        self._steps: list[tuple[str, Step, list[str]]] = []
        for node in nodes:
            if node in tails:
                self._add(node, self._convolution(tails[node]), tails[node])
            elif node.op == "output":
                self._result = node.args[0].name
            elif node.op != "placeholder" and node not in taken:
                self._add(node, self._other(node), [node])

    def __call__(self, image: Any) -> Any:
        """Return the network's result for an NCHW image."""
        values = {self._input: image}
        for name, step, done in self._steps:
            values[name] = step(values)
            for each in done:
                del values[each]
        return values[self._result]

    def _add(self, node: Any, step: Step, group: list[Any]) -> None:
        """Append a step that computes `group`; what nobody reads behind it is freed there."""
        read = {a for member in group for a in member.all_input_nodes} - set(group)
        order = {each: place for place, each in enumerate(node.graph.nodes)}
        done = [a.name for a in read if max(map(order.__getitem__, a.users)) <= order[node]]
        self._steps.append((node.name, step, done))

    def _is(self, node: Any, *kinds: str) -> bool:
        module = self._modules.get(node.target) if node.op == "call_module" else None
        return type(module).__name__ in kinds or (
            module is None and node.name.split("_")[0] in kinds
        )

    def _tail(self, node: Any, taken: set[Any]) -> list[Any]:
        """Return a convolution and the nodes behind it that its kernel can do as well."""
        tail = [node]
        for kinds in (("BatchNorm2d",), ("add",), ("ReLU", "ReLU6", "relu")):
            users = list(tail[-1].users)
            if len(users) == 1 and users[0] not in taken and self._is(users[0], *kinds):
                tail.append(users[0])
        return tail

    def _convolution(self, tail: list[Any]) -> Step:
        from vtaops.kernels.cpu import layers

        module, keywords = self._modules[tail[0].target], {}
        source, residual = tail[0].args[0].name, None
        for before, node in pairwise(tail):
            if self._is(node, "BatchNorm2d"):
                norm = self._modules[node.target]
                vectors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
                keywords["batch_norm"] = tuple(v.detach().numpy() for v in vectors)
                keywords["epsilon"] = norm.eps
            elif self._is(node, "add"):
                (residual,) = (a.name for a in node.args if a is not before)
            else:
                keywords["activation"] = "relu6" if self._is(node, "ReLU6") else "relu"
        if module.bias is not None:
            keywords["bias"] = module.bias.detach().numpy()
        layer = layers.PackedConv2d(
            module.weight.detach().numpy(),
            strides=module.stride,
            padding=module.padding,
            dilation=module.dilation,
            groups=module.groups,
            **keywords,
        )
        if residual is None:
            return lambda values: layer(values[source])
        return lambda values: layer(values[source], values[residual])

    def _other(self, node: Any) -> Step:
        from vtaops import cpu
        from vtaops.kernels.cpu import layers

        module = self._modules.get(node.target) if node.op == "call_module" else None
        sources = [a.name for a in node.args if hasattr(a, "name")]
        first = sources[0]
        if self._is(node, "MaxPool2d"):
            steps = {"strides": module.stride, "padding": module.padding}
            pool = layers.PackedMaxPool2d(module.kernel_size, **steps)
            return lambda values: pool(values[first])
        if self._is(node, "AdaptiveAvgPool2d"):
            mean = layers.PackedGlobalAvgPool2d()
            return lambda values: mean(values[first])
        if self._is(node, "Flatten"):
            return lambda values: values[first].numpy().reshape(1, -1)
        if self._is(node, "Linear"):
            weight, bias = module.weight.detach().numpy(), module.bias.detach().numpy()
            return lambda values: cpu.dense(values[first], weight, bias=bias)
        if self._is(node, "Identity"):
            return lambda values: values[first]
        if self._is(node, "add"):
            add = layers.PackedAdd()
            return lambda values: add(*(values[name] for name in sources))
        raise NotImplementedError(f"{node.op} {node.target} of {node.name}")


def seeded(name: str) -> Any:
    """Return a network of `examples/networks.py`."""
    from examples import networks

    return networks.seeded(name)[0]


def first_call(name: str, cache: str) -> float:
    """Return the seconds of building and first running a network, in a process of its own."""
    program = (
        "import sys, time, numpy as np\n"
        "from benchmarks.kernels import cpu_networks as c\n"
        "model, image = c.seeded(sys.argv[1]), np.zeros((1, 3, 224, 224), 'float32')\n"
        "import vtaops.kernels.cpu.layers\n"
        "start = time.perf_counter()\n"
        "c.Chain(model)(image)\n"
        "print(time.perf_counter() - start)\n"
    )
    environment = {**os.environ, "VTAOPS_KERNEL_CACHE": cache}
    command = [sys.executable, "-c", program, name]
    said = subprocess.check_output(command, cwd=ROOT, env=environment, text=True)
    return float(said.split()[-1])


def measure(name: str, turns: int, compiled: bool) -> Row:
    """Return the row of a network: seconds and ratios of alternating turns."""
    import torch

    model, size = seeded(name), NETWORKS[name]
    image = np.random.default_rng(0).standard_normal((1, 3, size, size)).astype(np.float32)
    tensor, chain = torch.from_numpy(image), Chain(model)
    last = model.to(memory_format=torch.channels_last)
    calls: dict[str, Callable[[], Any]] = {
        "vtaops": lambda: chain(image),
        "eager": lambda: last(tensor.to(memory_format=torch.channels_last)),
    }
    with torch.no_grad():
        expected = calls["eager"]().numpy()
        error = np.abs(calls["vtaops"]() - expected).max() / np.abs(expected).max()
        if error > 1e-3:
            raise SystemExit(f"{name}: vtaops differs from PyTorch by {error:.1e} of the largest")
        if compiled:
            import torch._inductor.config as inductor

            inductor.freezing = True
            fast = torch.compile(model)
            calls["compiled"] = lambda: fast(tensor)
        times = alternating(calls, turns)
    row: Row = {"error": float(error)}
    row |= {f"{what} ms": 1e3 * median(seconds) for what, seconds in times.items()}
    for what in list(calls)[1:]:
        ratios = (a / b for a, b in zip(times["vtaops"], times[what], strict=True))
        row[f"/ {what}"] = median(ratios)
    return row


def main(
    only: Only = [],  # noqa: B006
    turns: Annotated[int, typer.Option(min=1, help="Alternating turns.")] = 15,
    compiled: Annotated[bool, typer.Option(help="Compare with torch.compile as well.")] = True,
    first: Annotated[bool, typer.Option(help="Time the first call as well.")] = False,
    json_file: Json = None,
) -> None:
    """Time whole networks beside PyTorch: one thread, CPU time, batch 1."""
    os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    rows = {}
    for name in chosen(NETWORKS, only):
        rows[name] = measure(name, turns, compiled)
        if first:
            with tempfile.TemporaryDirectory() as folder:
                rows[name] |= {key: first_call(name, folder) for key in ("first s", "cached s")}
        print(name, rows[name], file=sys.stderr, flush=True)
    write_json(json_file, {"torch": torch.__version__, "threads": 1, "rows": rows})
    show("CPU time, one thread, batch 1", rows, of="network")
