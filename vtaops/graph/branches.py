"""Inputs that are fixed, such as a sample rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.names import suggestion
from vtaops.base.shapes import as_array
from vtaops.graph.onnx_files import (
    ModelProto,
    graph_inputs,
    input_dtypes,
    input_shapes,
    refill,
    replace_initializer,
)


def fix_inputs(model: ModelProto, values: Mapping[str, Any]) -> None:
    """Make constants of inputs in place; ONNX Runtime then takes the branches that they decide.

    Raises
    ------
    ModelError
        If an input is unknown, or a value does not have its shape or type.
    """
    shapes, types = input_shapes(model), input_dtypes(model)
    for name, value in values.items():
        if name not in shapes:
            inputs = f"inputs are {', '.join(shapes)}{suggestion(name, shapes)}"
            raise ModelError(f"no input {name!r} can be fixed; the model's {inputs}")
        shape, array = shapes[name], as_array(f"the value of {name!r}", value, ModelError)
        exact = array.astype(types[name])
        if array.size != math.prod(shape) or not np.array_equal(exact, array):
            raise ModelError(
                f"{name!r} is fixed at {value!r}; the input is {exact.dtype} of shape {shape}"
            )
        replace_initializer(model, name, exact.reshape(shape))
    refill(model.graph.input, graph_inputs(model))
