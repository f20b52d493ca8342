"""TVM's "bring your own codegen" in four steps, with VTA as the accelerator.

    python examples/byoc.py

Partition a quantised network, generate code for its regions, build a virtual machine, run it; the
integers are those of `vtaops.graph.evaluate`, the definition of every operator.
"""

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

import vtaops
from vtaops.frontends import import_model
from vtaops.graph import evaluate
from vtaops.network.partition import partition_for_vta


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
