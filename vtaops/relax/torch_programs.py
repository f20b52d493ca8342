"""Programs of `torch.export`, float or quantised by torchao's PT2E flow.

TVM's front end does not know the operators that PT2E inserts; four small conversions teach it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError

RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(1 << 31), (1 << 31) - 1)}


def from_torch(program: Any) -> Any:
    """Return the Relax module of an exported program, its weights as constants.

    Raises
    ------
    ModelError
        If it is no exported program.
    UnsupportedError
        If TVM's front end does not know an operator, which its message names.
    """
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    if not isinstance(program, torch.export.ExportedProgram):
        raise ModelError(
            f"{type(program).__name__} is no exported program: "
            "torch.export.export(module.eval(), (example,)) makes one"
        )
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    quantized = any("quantize_per" in name for name in names)
    try:
        return from_exported_program(
            program,
            unwrap_unit_return_tuple=True,
            custom_convert_map=_CONVERSIONS if quantized else None,
            run_ep_decomposition=not quantized,
        )
    except Exception as error:  # TVM's errors share no base class but Exception
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise UnsupportedError(f"TVM's front end cannot read this program: {reason}") from error


def _quantize(node: Any, importer: Any) -> Any:
    """x, scale, zero point, least and greatest integer, dtype."""
    from tvm import relax

    x, scale, zero, low, high, kind = importer.retrieve_args(node)[:6]
    dtype = str(kind).removeprefix("torch.")
    emit = importer.block_builder.emit
    if (low, high) != RANGES[dtype]:
        x = emit(relax.op.clip(x, (low - zero) * scale, (high - zero) * scale))
    arguments = _parameter(scale, "float32"), _parameter(zero, dtype)
    return emit(relax.op.quantize(x, *arguments, axis=0, out_dtype=dtype))


def _dequantize(node: Any, importer: Any) -> Any:
    from tvm import relax

    x, scale, zero, *_, kind = importer.retrieve_args(node)[:6]
    arguments = _parameter(scale, "float32"), _parameter(zero, str(kind).removeprefix("torch."))
    return importer.block_builder.emit(
        relax.op.dequantize(x, *arguments, axis=0, out_dtype="float32")
    )


def _quantize_channels(node: Any, importer: Any) -> Any:
    """x, scales, zero points, axis, least and greatest integer, dtype."""
    from tvm import relax

    x, scales, zeros, axis, _, _, kind = importer.retrieve_args(node)[:7]
    dtype = str(kind).removeprefix("torch.")
    parameters = _tensors(importer, scales, zeros, dtype)
    return importer.block_builder.emit(
        relax.op.quantize(x, *parameters, axis=axis, out_dtype=dtype)
    )


def _dequantize_channels(node: Any, importer: Any) -> Any:
    from tvm import relax

    x, scales, zeros, axis, _, _, kind = importer.retrieve_args(node)[:7]
    parameters = _tensors(importer, scales, zeros, str(kind).removeprefix("torch."))
    return importer.block_builder.emit(
        relax.op.dequantize(x, *parameters, axis=axis, out_dtype="float32")
    )


def _parameter(value: Any, dtype: str) -> Any:
    from tvm import relax

    return relax.const(np.array(value, dtype), dtype)


def _tensors(importer: Any, scales: Any, zeros: Any, dtype: str) -> tuple[Any, Any]:
    from tvm import relax

    emit = importer.block_builder.emit
    return emit(relax.op.astype(scales, "float32")), emit(relax.op.astype(zeros, dtype))


_CONVERSIONS = {
    "quantize_per_tensor.default": _quantize,
    "dequantize_per_tensor.default": _dequantize,
    "quantize_per_channel.default": _quantize_channels,
    "dequantize_per_channel.default": _dequantize_channels,
}
"""The operators of `quantized_decomposed`, as TVM's front end takes conversions."""
