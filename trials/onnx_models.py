"""Small float ONNX networks with seeded weights, as the tests of quantisation and import need."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """An ONNX graph that grows node by node; every method returns the name of its result."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []

    def input(self, shape, name="x", kind=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, value, name=None):
        name = name or f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind, *inputs, outputs=1, **attributes):
        names = [f"{kind.lower()}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def conv(self, x, channels, filters, kernel=3, *, group=1, bias=True, relu=False, **attributes):
        shape = (filters, channels // group, kernel, kernel)
        weight = self.rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        operands = [x, self.constant(weight.astype(np.float32))]
        if bias:
            operands.append(self.constant(self.rng.normal(0, 0.1, filters).astype(np.float32)))
        attributes.setdefault("pads", [kernel // 2] * 4)
        y = self.add("Conv", *operands, kernel_shape=[kernel] * 2, group=group, **attributes)
        return self.add("Relu", y) if relu else y

    def gemm(self, x, features, units):
        weight = self.rng.standard_normal((units, features)) / np.sqrt(features)
        bias = self.rng.normal(0, 0.1, units)
        constants = [self.constant(v.astype(np.float32)) for v in (weight, bias)]
        return self.add("Gemm", x, *constants, transB=1)

    def output(self, name):
        self.outputs.append(onnx.ValueInfoProto(name=name))

    def model(self, opset=17):
        graph = helper.make_graph(self.nodes, "test", self.inputs, self.outputs, self.constants)
        versions = {"": opset} | {node.domain: 1 for node in self.nodes if node.domain}
        opsets = [helper.make_opsetid(*version) for version in versions.items()]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 8
        return onnx.shape_inference.infer_shapes(model)


def small_network(seed=0, batch=1):
    """A residual block, both poolings, a concatenation and a classifier."""
    b = Builder(seed)
    x = b.input([batch, 3, 12, 12])
    stem = b.conv(x, 3, 16, relu=True)
    left = b.conv(stem, 16, 16, relu=True)
    left = b.conv(left, 16, 16)
    block = b.add("Relu", b.add("Add", left, stem))
    pooled = b.add("MaxPool", block, kernel_shape=[2, 2], strides=[2, 2])
    side = b.conv(pooled, 16, 8, kernel=1, relu=True)
    wide = b.conv(pooled, 16, 16, group=16, relu=True)
    joined = b.add("Concat", side, wide, axis=1)
    vector = b.add("Flatten", b.add("GlobalAveragePool", joined))
    b.output(b.gemm(vector, 24, 10))
    return b.model()


def images(count=4, shape=(3, 12, 12), seed=1):
    """Calibration data for an input of that shape."""
    return np.random.default_rng(seed).standard_normal((count, *shape)).astype(np.float32)
