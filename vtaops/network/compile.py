"""compile_model: from a network to a verified `Model`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vtaops.base.agreement import Agreement
from vtaops.base.errors import ModelError, PlacementWarning, ShapeError
from vtaops.base.heap import collection_paused, return_memory
from vtaops.base.names import checked_call
from vtaops.base.reasons import HINTS
from vtaops.base.shapes import Array
from vtaops.frontends import import_model
from vtaops.frontends.agreement import Compiled, agreement
from vtaops.graph import Graph
from vtaops.machine.capabilities import Capabilities, of_target
from vtaops.machine.config import NETWORK_CONFIG, HardwareConfig
from vtaops.model import HostStage, Model, Stage
from vtaops.model.judge import judged
from vtaops.model.placement import placement
from vtaops.network.fragments import Fragments
from vtaops.network.legalize import legalize
from vtaops.network.plan import Plan, plan
from vtaops.network.regions import compile_region
from vtaops.network.state import with_state
from vtaops.network.target import Target


@checked_call
def compile_model(
    source: Any,
    config: HardwareConfig | str | Path = NETWORK_CONFIG,
    *,
    capabilities: Capabilities | str | None = None,
    verify: bool = True,
    host: bool = False,
    prove: bool = True,
    check: bool | Sequence[Mapping[str, Array]] = True,
    shapes: Mapping[str, Sequence[int]] | None = None,
    pin_weights: bool = False,
    state: Mapping[str, str] | None = None,
) -> Model:
    """Compile a network for a hardware configuration.

    Parameters
    ----------
    source : str, Path, onnx.ModelProto, torch.export.ExportedProgram, tvm.IRModule or Graph
        A model file, a model, or a graph built by hand.
    config : HardwareConfig, str or Path
        The configuration, its name, or a JSON file. Default: "pynq_ext", with all extensions that
        networks use. A network for "pynq", the published VTA, needs powers of two as scales.
    capabilities : Capabilities or str, optional
        Capabilities of the device; by default those of the configuration's target.
    verify : bool
        Whether to prove that every program is free of races, deadlocks and accesses out of bounds;
        `prove` includes it.
    host : bool
        Also compile a model that is not quantised; all of it then runs on the host.
    prove : bool
        Whether to prove that every launch computes its nodes for every input (`vtaops.prove`). The
        model contains the certificates. A launch that cannot be proven runs on fsim with random and
        extreme inputs instead, and the model's report names the reason.
    check : bool or sequence of mapping of str to ndarray
        Whether to compare the graph with its file, tensor by tensor: ONNX in ONNX Runtime, TFLite
        in LiteRT where it is installed. On these inputs (one array for each input, by name), or
        on two that are drawn over the range of each input.
    shapes : mapping of str to sequence of int, optional
        Shapes of inputs whose dimensions the model file leaves open.
    pin_weights : bool
        Whether weights stay in the scratchpad between runs, as many as fit and save cycles. The
        first run, and one after a run of another program, takes longer: it loads them all before
        it computes. The simulators and Pynq boards keep them, also over a network; a ULX3S and
        exported C load them in every run.
    state : mapping of str to str, optional
        Inputs that a run takes from the run before (caches, windows of a stream), each by the name
        of the output that it was there: ``{"past": "present"}``. `Model.run` neither takes nor
        returns them. A graph built by hand declares its own with `Graph.carry`.

    Returns
    -------
    Model
        Ready to run, or to save.

    Raises
    ------
    ConfigError
        If the configuration does not exist.
    ShapeError
        If the source is not a network, or an invalid one, or has no such state.
    ModelError
        If the model is not quantised and `host` is false, or if the graph says something else than
        the file, which is a bug in vtaops.
    UnsupportedError
        If an importer does not support an operator.
    NotEquivalent
        If a launch computes something else, which is a bug in vtaops.
    ProgramError
        If a proof fails for another reason.
    VerificationError
        If the compiler produced a wrong program, which is a bug in vtaops.

    Warns
    -----
    PlacementWarning
        If fewer than half of the convolutions and matrix products run on VTA.
    """
    target = target_of(config, capabilities)
    imported = as_graph(source, shapes)
    return_memory()
    legal = stated = legalize(imported, target)
    if state:
        stated = replace(legal, graph=with_state(legal.graph, state))
    decided = plan(stated, target)
    graph = decided.graph
    if not host:
        _judge(source, graph, decided)
    model = compile_plan(graph, decided, Fragments(target, pin_weights))
    if check is not False:
        found = Agreement(reason="it does not come from a file")
        if not isinstance(source, Graph):
            compiled = Compiled(imported, legal.graph, legal.steps)
            found = agreement(source, compiled, () if check is True else check, shapes)
        model = replace(model, agreement=found)
        return_memory()
    # A quarter of the time of MobileNet-v1 on pynq_ext: 8.9 s instead of 6.6, 2026-11-28.
    with collection_paused():
        if prove:
            return judged(model)
        if verify:
            model.verify()
    return model


@collection_paused()
def compile_plan(graph: Graph, decided: Plan, fragments: Fragments) -> Model:
    """Return the unverified model of a graph for the hardware of its plan."""
    target = fragments.target
    if sum(partition.lowered is not None for partition in decided.partitions) > 1:
        fragments = replace(fragments, pin_weights=False)  # each launch overwrites the other's
    stages: list[Stage] = []
    for partition in decided.partitions:
        if partition.lowered is None:
            stages.append(HostStage(tuple(node.name for node in partition.nodes)))
        else:
            stages.append(compile_region(partition.lowered, fragments))
    return Model(graph, target.config, target.capabilities, decided.rows, tuple(stages))


def _judge(source: Any, graph: Graph, decided: Plan) -> None:
    """Reject a float model, and warn about one that hardly uses the accelerator."""
    placed = placement(graph, decided.rows)
    if not placed.on_vta and any(row.code == "not_quantized" for row in decided.rows):
        name = str(source) if isinstance(source, str | Path) else "MODEL.onnx"
        raise ModelError(
            f"{graph.name} is not quantised, and VTA computes on int8. Quantise it with "
            f"representative inputs: vtaops quantize {name} --calibration IMAGES.npz -o "
            f"{Path(name).with_suffix('.q.onnx')}, or vtaops.quantize. With --host, or "
            f"compile_model(..., host=True), all of it runs on the host"
        )
    if placed.little:
        way = f"; {HINTS['scale']}" if placed.code == "scale" else ""
        text = f"{graph.name}: {placed}{way}. vtaops plan lists every reason"
        warnings.warn(text, PlacementWarning, stacklevel=4)


def plan_model(
    source: Any,
    config: HardwareConfig | str | Path = NETWORK_CONFIG,
    *,
    capabilities: Capabilities | str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Plan:
    """Return the plan of a network without compiling it; parameters as for `compile_model`."""
    target = target_of(config, capabilities)
    return plan(legalize(as_graph(source, shapes), target), target)


def target_of(
    config: HardwareConfig | str | Path | None, capabilities: Capabilities | str | None
) -> Target:
    """Return the hardware described by configuration and capabilities, by default of networks.

    Raises
    ------
    ConfigError
        If the configuration or the capabilities do not exist.
    """
    hardware = HardwareConfig.of(NETWORK_CONFIG if config is None else config)
    return Target(hardware, of_target(hardware, capabilities))


def as_graph(source: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
    """Return a network as a graph; everything but a graph is imported by `vtaops.frontends`.

    Raises
    ------
    ShapeError
        If the graph computes nothing.
    """
    if not isinstance(source, Graph):
        source = import_model(source, shapes=shapes)
    assert isinstance(source, Graph)
    if not source.outputs:
        raise ShapeError(f"the network {source.name!r} has no output; see Graph.output")
    return source
