"""TVM's "bring your own codegen" in four steps, with VTA as the accelerator.

    python examples/byoc.py

Partition a quantised network, generate code for its regions, build a virtual machine, run it; the
integers are those of `vtaops.graph.evaluate`, the definition of every operator.

    mod = partition_for_vta(mod)                            # regions with Codegen = "vta"
    mod = relax.transform.RunCodegen({"vta": {"config": "pynq"}})(mod)
    vm = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())

`partition_for_vta` marks chains of quantised operators; `RunCodegen` calls `relax.ext.vta` below,
which compiles each region with `vtaops.compile_model`. A compiled region is a function of this
process, so such a module cannot be exported; use `vtaops.compile_model` to save a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.relax.frontend.onnx import from_onnx

import vtaops
from vtaops.frontends import import_model
from vtaops.frontends.graphs import to_graph
from vtaops.frontends.relax import normalized, read_relax
from vtaops.graph import evaluate
from vtaops.machine.config import NETWORK_CONFIG

NAME = "vta"
"""Name of the backend: prefix of the patterns, and of `relax.ext.vta`."""


def get_patterns() -> list[tuple[str, Any]]:
    """Return names and dataflow patterns that VTA supports, longest first."""
    found: list[tuple[str, Any]] = []
    for name, inner in _inner_patterns():
        for suffix, activation in (("_relu", "relax.nn.relu"), ("_clip", "relax.clip"), ("", "")):
            result = _activated(inner, activation)
            found.append((f"{NAME}.{name}{suffix}", _quantized(result)))
    quantized = _quantized(is_op("relax.nn.relu")(_dequantized()))
    return [*found, (f"{NAME}.relu", quantized)]


def register() -> None:
    """Register the patterns and the code generator with TVM; calling it once is enough."""
    if not get_patterns_with_prefix(NAME):
        # The registry prefers the pattern registered last.
        register_patterns(list(reversed(get_patterns())))
        tvm.register_global_func(f"relax.ext.{NAME}", _codegen, override=True)


def partition_for_vta(mod: Any) -> Any:
    """Return a module whose quantised operators are in functions for VTA.

    Parameters
    ----------
    mod
        A Relax module with `relax.quantize` and `relax.dequantize`.

    Returns
    -------
    tvm.IRModule
        Adjacent operators share a function with the attribute ``Codegen = "vta"``; operators that
        match no pattern are unchanged.
    """
    register()
    return tvm.transform.Sequential(
        [
            relax.transform.ConvertToDataflow(),
            tvm.transform.module_pass(_own_dequantize, opt_level=0, name="OwnDequantize"),
            relax.transform.FuseOpsByPattern(
                get_patterns_with_prefix(NAME), bind_constants=True, annotate_codegen=False
            ),
            relax.transform.MergeCompositeFunctions(),
        ]
    )(normalized(mod))


# ------------------------------------------------------------------------ patterns


def _dequantized() -> Any:
    return is_op("relax.dequantize")(wildcard(), is_const(), is_const())


def _constant() -> Any:
    return is_op("relax.dequantize")(is_const(), is_const(), is_const())


def _quantized(inner: Any) -> Any:
    return is_op("relax.quantize")(inner, is_const(), is_const())


def _activated(inner: Any, activation: str) -> Any:
    if not activation:
        return inner
    bounds = (wildcard(), wildcard()) if activation == "relax.clip" else ()
    return is_op(activation)(inner, *bounds)


def _inner_patterns() -> Iterator[tuple[str, Any]]:
    """Yield patterns of the float operators between dequantize and quantize."""
    for kind in ("conv2d", "conv2d_transpose"):
        product = is_op(f"relax.nn.{kind}")(_dequantized(), _constant())
        bias = is_op("relax.reshape")(_constant(), wildcard())
        biased = is_op("relax.add")(product, bias)
        yield f"{kind}_bias_residual", is_op("relax.add")(biased, _dequantized())
        yield f"{kind}_residual_bias", is_op("relax.add")(_dequantized(), biased)
        yield f"{kind}_bias", biased
        yield kind, product
    weights = is_op("relax.permute_dims")(_constant())
    dense = is_op("relax.matmul")(_dequantized(), weights)
    yield "dense_bias", is_op("relax.add")(dense, _constant())
    yield "dense", dense
    for name in ("add", "subtract", "multiply"):
        yield name, is_op(f"relax.{name}")(_dequantized(), _dequantized())
    for name in ("nn.max_pool2d", "nn.avg_pool2d", "mean", "permute_dims"):
        yield name.removeprefix("nn."), is_op(f"relax.{name}")(_dequantized())
    yield "reshape", is_op("relax.reshape")(_dequantized(), wildcard())


def _own_dequantize(mod: Any, _: Any) -> Any:
    """Give each reader its own dequantize.

    A shared one would have to leave the function of its composite, and the match would be lost.
    """
    dequantize = tvm.ir.Op.get("relax.dequantize")

    @mutator
    class Copies(PyExprMutator):
        """Duplicate the dequantize of each argument."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if not isinstance(call.op, tvm.ir.Op):
                return call
            args = [self._own(argument) for argument in call.args]
            if all(new is old for new, old in zip(args, call.args, strict=True)):
                return call
            return tvm.ir.Call(call.op, args, call.attrs, call.ty_args, call.span, ret_ty=call.ty)

        def _own(self, argument: Any) -> Any:
            if not isinstance(argument, relax.Var):
                return argument
            found = self.lookup_binding(argument)
            if not isinstance(found, tvm.ir.Call) or found.op != dequantize:
                return argument
            attrs = found.attrs
            again = relax.op.dequantize(*found.args, axis=attrs.axis, out_dtype=attrs.out_dtype)
            return self.builder_.emit(again)

    copies = Copies(mod)
    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function):
            copies.builder_.update_func(variable, copies.visit_expr(function))
    return relax.transform.DeadCodeElimination()(copies.builder_.get())


# ------------------------------------------------------------------ code generation


def _codegen(functions: Sequence[Any], options: Mapping[str, Any], _: Any) -> list[Any]:
    """Compile each region and register its runner under the region's name."""
    config = str((options or {}).get("config", NETWORK_CONFIG))
    for function in functions:
        symbol = str(function.attrs["global_symbol"])
        model = vtaops.compile_model(to_graph(read_relax(_flat(function)), symbol), config)
        tvm.register_global_func(symbol, _Runner(model), override=True)
    return []


class _Runner:
    """Call a model like a TVM function: inputs first, then tensors for the results."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, *tensors: Any) -> None:
        inputs = len(self._model.graph.inputs)
        results = self._model.run(*(tensor.numpy() for tensor in tensors[:inputs]))
        results = results if isinstance(results, tuple) else (results,)
        for tensor, result in zip(tensors[inputs:], results, strict=True):
            tensor.copyfrom(result)


def _flat(function: Any) -> Any:
    """Return a region as a module with one function, its composites inlined."""
    plain = function.without_attr("Codegen").with_attr("global_symbol", "main")
    inlined = tvm.transform.Sequential(
        [
            relax.transform.LambdaLift(),
            tvm.transform.module_pass(_without_marks, opt_level=0, name="WithoutMarks"),
            relax.transform.InlinePrivateFunctions(),
        ]
    )(tvm.IRModule({"main": plain}))
    return inlined


def _without_marks(mod: Any, _: Any) -> Any:
    """Remove the attributes that prevent composites from being inlined."""
    for variable, function in mod.functions_items():
        for mark in ("Composite", "Primitive", "Codegen"):
            if function.attrs and mark in function.attrs:
                function = function.without_attr(mark)
        mod[variable] = function
    return mod


# ------------------------------------------------------------------ the four steps


def small_network(rng):
    """Return a float ONNX model: two convolutions with a residual, pooling, a softmax."""
    constants, nodes = [], []

    def constant(name, *shape):
        value = rng.standard_normal(shape) * np.sqrt(2 / max(1, np.prod(shape[1:])))
        constants.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def node(kind, inputs, output, **attributes):
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))

    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    node("Conv", ["x", constant("w1", 16, 3, 3, 3), constant("b1", 16)], "c1", **window)
    node("Relu", ["c1"], "r1")
    node("Conv", ["r1", constant("w2", 16, 16, 3, 3), constant("b2", 16)], "c2", **window)
    node("Add", ["c2", "r1"], "sum")
    node("Relu", ["sum"], "r2")
    node("MaxPool", ["r2"], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    node("GlobalAveragePool", ["pooled"], "mean")
    node("Flatten", ["mean"], "vector")
    node("Gemm", ["vector", constant("w3", 10, 16), constant("b3", 10)], "scores", transB=1)
    node("Softmax", ["scores"], "y")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, "small", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    """Run the four steps and compare."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((8, 3, 16, 16)).astype(np.float32)
    model = small_network(rng)
    onnx.checker.check_model(model)
    quantized = vtaops.quantize(model, images)
    mod = from_onnx(quantized)

    # 1. Partition: chains of quantised operators become functions for VTA.
    mod = partition_for_vta(mod)
    regions = [v.name_hint for v, f in mod.functions_items() if "Codegen" in (f.attrs or {})]
    print(f"regions for VTA: {len(regions)}")

    # 2. Code generation: each region becomes one verified Program.
    mod = relax.transform.RunCodegen({"vta": {"config": "pynq"}})(mod)

    # 3. Build: the rest of the network is compiled for the processor.
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())

    # 4. Run.
    image = images[:1]
    result = machine["main"](tvm.runtime.tensor(image)).numpy()
    (expected,) = evaluate(import_model(quantized), image)
    print(f"greatest difference to the integer executor: {np.abs(result - expected).max():.1e}")
    return result, expected


if __name__ == "__main__":
    main()
