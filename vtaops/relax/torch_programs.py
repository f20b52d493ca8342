"""Read programs of `torch.export`, float or quantised by torchao's PT2E flow.

TVM's front end lacks the operators that PT2E inserts; a conversion here adds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.relax.messages import last_line

RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(1 << 31), (1 << 31) - 1)}


def from_torch(program: Any) -> Any:
    """Return the Relax module of an exported program, with its weights as constants.

    A dynamic batch becomes 1.

    Raises
    ------
    ModelError
        If the program was not exported by torch.
    UnsupportedError
        If TVM's front end does not support an operator; the message names it.
    """
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    if not isinstance(program, torch.export.ExportedProgram):
        raise ModelError(
            f"{type(program).__name__} is not an exported program: "
            "torch.export.export(module.eval(), (example,)) makes one"
        )
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    quantized = any("quantize_per" in name for name in names)
    text = "TVM's front end cannot read this program"
    with raising(UnsupportedError, text, Exception, told=last_line):
        module = from_exported_program(
            program,
            unwrap_unit_return_tuple=True,
            custom_convert_map=_CONVERSIONS if quantized else None,
            run_ep_decomposition=not quantized,
        )
    return _for_one_image(module)


def _for_one_image(module: Any) -> Any:
    """Return a module with batch 1 in place of a dynamic batch."""
    shapes = (parameter.ty.shape for parameter in module["main"].params)
    batches = {shape[0].name: 1 for shape in shapes if shape and isinstance(shape[0], tirx.Var)}
    return relax.transform.BindSymbolicVars(batches, "main")(module) if batches else module


def _convert(node: Any, importer: Any) -> Any:
    """Convert a quantize or dequantize, per tensor or per channel.

    Its arguments are x, scale, zero point, [axis], least and greatest integer, dtype.
    """
    name, emit = str(node.target), importer.block_builder.emit
    per_channel, dequantizes = "per_channel" in name, "dequantize" in name
    x, scale, zero, *axes, low, high, kind = importer.retrieve_args(node)[: 6 + per_channel]
    dtype = str(kind).removeprefix("torch.")
    if per_channel:
        (axis,) = axes
        grid = emit(relax.op.astype(scale, "float32")), emit(relax.op.astype(zero, dtype))
    else:
        axis = 0
        if not dequantizes and (low, high) != RANGES[dtype]:
            x = emit(relax.op.clip(x, (low - zero) * scale, (high - zero) * scale))
        grid = (
            relax.const(np.array(scale, "float32"), "float32"),
            relax.const(np.array(zero, dtype), dtype),
        )
    if dequantizes:
        return emit(relax.op.dequantize(x, *grid, axis=axis, out_dtype="float32"))
    return emit(relax.op.quantize(x, *grid, axis=axis, out_dtype=dtype))


_CONVERSIONS = {
    f"{direction}_per_{part}.default": _convert
    for direction in ("quantize", "dequantize")
    for part in ("tensor", "channel")
}
"""The operators of `quantized_decomposed`, in the form of TVM's conversions."""
