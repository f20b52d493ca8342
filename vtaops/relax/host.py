"""Parts of a network that TVM compiles for the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from vtaops.base.errors import ProgramError, UnsupportedError, raising
from vtaops.base.shapes import Array
from vtaops.base.temporary import LINK_HERE, TemporaryFolder
from vtaops.graph.host import HostFunction
from vtaops.relax.messages import last_line
from vtaops.relax.values import Value, bindings_of


class RelaxFunction(HostFunction):
    """A Relax function on the host, compiled on its first call.

    Parameters
    ----------
    mod
        A module whose function `main` takes tensors and returns a tuple of tensors.
    """

    kind = "relax"

    def __init__(self, mod: Any) -> None:
        self._mod = mod
        self._library: Any = None
        self._call: Any = None

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        if self._call is None:
            self._call = relax.VirtualMachine(self._compiled(), tvm.cpu())["main"]
        tensors = [tvm.runtime.tensor(np.asarray(array, order="C")) for array in arrays]
        return tuple(result.numpy() for result in self._call(*tensors))

    def to_bytes(self) -> bytes:
        """Return the compiled function as a shared library for this processor."""
        with TemporaryFolder() as folder:
            path = folder / "host.so"
            self._compiled().export_library(str(path), workspace_dir=str(folder), options=LINK_HERE)
            return path.read_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> RelaxFunction:
        """Load the function from a shared library, which runs its constructors.

        Raises
        ------
        ProgramError
            If the system or TVM cannot load it.
        """
        with TemporaryFolder() as folder:
            path = folder / "host.so"
            path.write_bytes(data)
            text = "a host function is not a library for this processor"
            with raising(ProgramError, text, Exception, told=last_line):  # TVM may raise anything
                library = tvm.runtime.load_module(str(path))
        found = cls(None)
        found._library = library
        return found

    def _compiled(self) -> Any:
        if self._library is None:
            text = "TVM cannot compile a part of the model for the host"
            with raising(UnsupportedError, text, Exception, told=last_line):
                self._library = tvm.compile(self._mod, target="llvm")
        return self._library


def host_module(
    mod: Any, inputs: Sequence[Value], bindings: Sequence[Value], outputs: Sequence[Value]
) -> Any:
    """Return a module whose `main` computes some bindings of a Relax module.

    Parameters
    ----------
    mod
        The module that the values were read from; its TIR functions are included.
    inputs
        Values that become parameters.
    bindings
        Bindings to compute, in order.
    outputs
        Values to return, as a tuple.
    """
    wanted = {value.var for value in bindings}
    (main,) = [f for f in mod.functions.values() if isinstance(f, relax.Function)]
    kept = [binding for binding in bindings_of(main) if binding.var in wanted]
    parameters, conversions = _parameters(inputs)
    results = [value.var for value in outputs]
    body = relax.SeqExpr([relax.BindingBlock([*conversions, *kept])], relax.Tuple(results))
    returned = relax.TupleType([result.ty for result in results])
    function = relax.Function(parameters, body, ret_ty=returned)
    functions = {v: f for v, f in mod.functions.items() if not isinstance(f, relax.Function)}
    made = tvm.IRModule({**functions, tvm.ir.GlobalVar("main"): function})
    made["main"] = function.with_attr("global_symbol", "main")
    return relax.transform.DeadCodeElimination()(relax.transform.ConvertToDataflow()(made))


def _parameters(inputs: Sequence[Value]) -> tuple[list[Any], list[Any]]:
    """Return parameters and conversions from the graph's int8 to uint8 where the model uses it."""
    parameters, conversions = [], []
    builder = relax.BlockBuilder()
    for value in inputs:
        if value.dtype != "uint8" or value.op == "input":
            parameters.append(value.var)
            continue
        last = relax.Var(f"{value.name}_int8", relax.TensorType(value.shape, "int8"))
        parameters.append(last)
        for convert in _TO_UINT8:
            call = builder.normalize(convert(last))
            end = convert is _TO_UINT8[-1]
            last = value.var if end else relax.Var(f"{value.name}_wide", call.ty)
            conversions.append(relax.VarBinding(last, call))
    return parameters, conversions


_TO_UINT8: tuple[Callable[[Any], Any], ...] = (
    lambda x: relax.op.astype(x, "int16"),
    lambda x: relax.op.add(x, relax.const(128, "int16")),
    lambda x: relax.op.astype(x, "uint8"),
)
