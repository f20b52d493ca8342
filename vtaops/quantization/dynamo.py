"""``torch.compile(module, backend="vtaops")``: a module that quantises itself and runs on VTA.

The first calls run in floating point and are the calibration data, unless data are given. Then each
graph that PyTorch traces is quantised, compiled and run on a device; a graph that vtaops does not
take stays in floating point, with a warning that says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from vtaops.base.errors import ArgumentError, PlacementWarning, VTAError
from vtaops.base.shapes import Array
from vtaops.network import compile_model
from vtaops.network.compile import target_of
from vtaops.quantization.pipeline import quantize

CALLS = 8
"""How many calls calibrate a graph if nobody says."""


def backend(
    graph: Any, examples: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Return what PyTorch calls in place of a traced graph.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        The graph; its weights are arguments.
    examples
        Its arguments, as traced.
    options
        `config` (default "pynq_ext"), `calls` (default 8): how many calls calibrate;
        `calibration`: data for `vtaops.quantize` in their place; `session`: a `vtaops.Session` to
        run in, by default fsim; and any other option of `vtaops.quantize`.

    Raises
    ------
    ArgumentError
        If `calls` is not positive.
    """
    settings = dict(options or {})
    calls = settings.pop("calls", CALLS)
    if not isinstance(calls, int) or calls < 1:
        raise ArgumentError(f"calls is {calls!r}; it must be a positive number of calls")
    module, places = _frozen(graph, examples)
    return _Compiled(module, places, calls, settings)


def _frozen(graph: Any, examples: Sequence[Any]) -> tuple[Any, list[int]]:
    """Return a graph whose weights are its own, and the places of the arguments that are left."""
    module = torch.fx.GraphModule(graph, graph.graph.__deepcopy__({}))
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    places = []
    for place, (node, example) in enumerate(zip(inputs, examples, strict=True)):
        if not isinstance(example, torch.nn.Parameter) and "_buffers_" not in node.name:
            places.append(place)
            continue
        module.register_buffer(node.name, example.detach())
        with module.graph.inserting_before(node):
            node.replace_all_uses_with(module.graph.get_attr(node.name))
        module.graph.erase_node(node)
    module.recompile()
    return module.eval(), places


def _array(argument: Any) -> Array:
    values: Array = argument.detach().cpu().numpy()
    return values


class _Compiled:
    """A graph: at first in floating point, then a model on a device."""

    def __init__(self, module: Any, places: list[int], calls: int, options: dict[str, Any]) -> None:
        self._module, self._places, self._calls = module, places, calls
        self._names = [node.target for node in module.graph.nodes if node.op == "placeholder"]
        self._config = options.pop("config", None)
        self._session = options.pop("session", None)
        self._data = options.pop("calibration", None)
        self._options = options
        self._seen: list[dict[str, Array]] = []
        self._run: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Return the results for the arguments of the graph, as a tuple of tensors."""
        inputs = [arguments[place] for place in self._places]
        if self._run is None:
            self._prepare(inputs)
        return (self._run or self._module)(*inputs)

    def _prepare(self, given: Sequence[Any]) -> None:
        """Keep a call for calibration, or compile if there are enough."""
        if self._data is None and len(self._seen) < self._calls:
            self._seen.append(dict(zip(self._names, map(_array, given), strict=True)))
            return
        try:
            self._run = self._compiled()
        except VTAError as error:
            self._run = self._module
            text = f"a part of the module stays in floating point: {error}"
            warnings.warn(text, PlacementWarning, stacklevel=2)
        self._seen.clear()

    def _compiled(self) -> Callable[..., Any]:
        data = self._seen if self._data is None else self._data
        target = target_of(self._config, None)
        scales = "free" if target.scales else "pow2"
        model = quantize(self._module, data, **{"scales": scales, **self._options})
        compiled: Any = compile_model(model, target.config)

        def run(*inputs: Any) -> Any:
            outputs = compiled.run(*map(_array, inputs), session=self._session)
            results = outputs if isinstance(outputs, tuple) else (outputs,)
            return tuple(map(torch.from_numpy, results))

        return run
