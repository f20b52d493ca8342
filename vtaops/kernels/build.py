"""Compile te declarations: PrimFuncs for unaligned arrays, and TVM's compiler."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tvm
from tvm import script, te
from tvm.s_tir import Schedule, TensorIntrin
from tvm.script import tirx as dialect

_ENTRY = "main"


def create_function(tensors: list[Any], *, aligned: bool = False) -> Any:
    """Return the PrimFunc of one kernel with the arguments `tensors` (inputs, then output).

    The arguments need only the alignment of their dtype: TVM would assume 64 bytes and fault on a
    NumPy array, which has 16. With `aligned` (device memory) they must be 64-byte aligned.
    """
    function = te.create_prim_func(tensors).with_attr("global_symbol", _ENTRY)
    return function if aligned else _accept_any_alignment(function)


def create_schedule(tensors: list[Any]) -> Schedule:
    """Return an unscheduled kernel with the arguments `tensors`, as `create_function`."""
    return Schedule(tvm.IRModule({_ENTRY: create_function(tensors)}))


def block_names(s: Schedule) -> set[str]:
    """Return the block names of a schedule."""
    root = s.get_sblock("root")
    return {str(s.get(child).name_hint) for child in s.get_child_blocks(root)}


def register_intrinsic(name: str, meaning: str, implementation: str, **known: Any) -> str:
    """Register a tensor intrinsic for ``tensorize(loop, name)``, given as TVMScript.

    Parameters
    ----------
    name : str
        Name of the intrinsic; returned.
    meaning, implementation : str
        The loops to match, and their replacement.
    **known : object
        Names that the implementation uses.
    """
    functions = (
        script.from_source(meaning),
        script.from_source(implementation, {"T": dialect, **known}),
    )
    TensorIntrin.register(name, *functions)
    return name


def _accept_any_alignment(function: Any) -> Any:
    """Return the PrimFunc with its arguments' alignment reduced to their element size.

    Alignment is part of a buffer's type, which TVM cannot replace, so the serialized form is
    edited.
    """
    graph = json.loads(tvm.ir.save_json(function))
    nodes = graph["nodes"]
    (root,) = [node for node in nodes if node["type"] == "tirx.PrimFunc"]
    for index, parameter in zip(
        nodes[root["data"]["params"]]["data"], function.params, strict=True
    ):
        kind = nodes[nodes[index]["data"]["ty"]]
        kind["data"]["data_alignment"] = np.dtype(str(parameter.dtype)).itemsize
    return tvm.ir.load_json(json.dumps(graph))


def compile_schedule(schedule: Schedule, target: Any) -> Any:
    """Return the executable of a scheduled module for a ``tvm.target.Target``."""
    with target:
        return tvm.compile(schedule.mod, target=target)
