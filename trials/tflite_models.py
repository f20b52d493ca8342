"""A small int8 TFLite file, written node by node: images NHWC, as converters write them."""

import flatbuffers
import numpy as np
import tflite

KINDS = {
    **{"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6},
    **{"int16": 7, "int8": 9, "int4": 17},
}


class Writer:
    """A model with one subgraph; tensors and operators are named by their numbers."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.builder = flatbuffers.Builder(1 << 16)
        self.buffers, self.tensors, self.operators, self.codes = [b""], [], [], []
        self.shapes, self.grids = [], []

    # ------------------------------------------------------------------------- tensors

    def tensor(self, shape, kind="int8", scale=None, zero=0, data=None, axis=0, sparsity=None):
        """Add a tensor; `scale` is a number, or an array along `axis`."""
        b = self.builder
        buffer = 0
        if data is not None:
            buffer = len(self.buffers)
            self.buffers.append(np.ascontiguousarray(data).tobytes())
        quantization = None
        if scale is not None:
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            zeros = np.broadcast_to(np.asarray(zero, np.int64), scales.shape)
            vectors = b.CreateNumpyVector(scales), b.CreateNumpyVector(np.array(zeros))
            tflite.QuantizationParametersStart(b)
            tflite.QuantizationParametersAddScale(b, vectors[0])
            tflite.QuantizationParametersAddZeroPoint(b, vectors[1])
            tflite.QuantizationParametersAddQuantizedDimension(b, axis)
            quantization = tflite.QuantizationParametersEnd(b)
        dims = b.CreateNumpyVector(np.asarray(shape, np.int32))
        name = b.CreateString(f"t{len(self.tensors)}")
        tflite.TensorStart(b)
        tflite.TensorAddShape(b, dims)
        tflite.TensorAddType(b, KINDS[kind])
        tflite.TensorAddBuffer(b, buffer)
        tflite.TensorAddName(b, name)
        if quantization is not None:
            tflite.TensorAddQuantization(b, quantization)
        if sparsity is not None:
            tflite.TensorAddSparsity(b, sparsity)
        self.tensors.append(tflite.TensorEnd(b))
        self.shapes.append(tuple(shape))
        self.grids.append((scale, zero))
        return len(self.tensors) - 1

    def compressed_rows(self, data, kind, *grid):
        """Add a constant matrix as compressed sparse rows."""
        b = self.builder
        rows, columns = np.nonzero(data)
        segments = np.searchsorted(rows, range(len(data) + 1))
        vectors = []
        for numbers in (segments, columns):
            values = b.CreateNumpyVector(np.asarray(numbers, np.int32))
            tflite.Int32VectorStart(b)
            tflite.Int32VectorAddValues(b, values)
            vectors.append(tflite.Int32VectorEnd(b))
        tflite.DimensionMetadataStart(b)
        tflite.DimensionMetadataAddDenseSize(b, len(data))
        levels = [tflite.DimensionMetadataEnd(b)]
        tflite.DimensionMetadataStart(b)
        tflite.DimensionMetadataAddFormat(b, tflite.DimensionType.SPARSE_CSR)
        tflite.DimensionMetadataAddArraySegmentsType(b, tflite.SparseIndexVector.Int32Vector)
        tflite.DimensionMetadataAddArraySegments(b, vectors[0])
        tflite.DimensionMetadataAddArrayIndicesType(b, tflite.SparseIndexVector.Int32Vector)
        tflite.DimensionMetadataAddArrayIndices(b, vectors[1])
        levels.append(tflite.DimensionMetadataEnd(b))
        tflite.SparsityParametersStartDimMetadataVector(b, len(levels))
        for level in reversed(levels):
            b.PrependUOffsetTRelative(level)
        levels = b.EndVector()
        order = b.CreateNumpyVector(np.arange(data.ndim, dtype=np.int32))
        tflite.SparsityParametersStart(b)
        tflite.SparsityParametersAddTraversalOrder(b, order)
        tflite.SparsityParametersAddDimMetadata(b, levels)
        sparsity = tflite.SparsityParametersEnd(b)
        return self.tensor(data.shape, kind, *grid, data=data[rows, columns], sparsity=sparsity)

    def constant(self, data):
        """Add int32 numbers, such as axes."""
        data = np.asarray(data, np.int32)
        return self.tensor(data.shape, "int32", data=data)

    def operator(self, name, inputs, outputs, **options):
        """Add an operator; `options` are those of its own table, by name."""
        b, code = self.builder, getattr(tflite.BuiltinOperator, name)
        if code not in self.codes:
            self.codes.append(code)
        table = options_of(name)
        made = None
        if table is not None:
            getattr(tflite, f"{table}Start")(b)
            for key, value in options.items():
                getattr(tflite, f"{table}Add{key}")(b, value)
            made = getattr(tflite, f"{table}End")(b)
        vectors = [b.CreateNumpyVector(np.asarray(v, np.int32)) for v in (inputs, outputs)]
        tflite.OperatorStart(b)
        tflite.OperatorAddOpcodeIndex(b, self.codes.index(code))
        tflite.OperatorAddInputs(b, vectors[0])
        tflite.OperatorAddOutputs(b, vectors[1])
        if made is not None:
            tflite.OperatorAddBuiltinOptionsType(b, getattr(tflite.BuiltinOptions, table))
            tflite.OperatorAddBuiltinOptions(b, made)
        self.operators.append(tflite.OperatorEnd(b))

    # ----------------------------------------------------------------------- operators

    def convolution(self, x, filters, kernel, scale, zero, *, stride=1, relu=0, depthwise=False):
        """A convolution with SAME padding, a scale for each channel, and a fused activation."""
        n, h, w, c = self.shapes[x]
        shape = (1, kernel, kernel, c) if depthwise else (filters, kernel, kernel, c)
        axis = 3 if depthwise else 0
        outputs = shape[axis]
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        scales = self.rng.uniform(0.5, 1.5, outputs) / (127 * np.sqrt(data[0].size / 4))
        weight = self.tensor(shape, "int8", scales, data=data, axis=axis)
        sums = (self.grids[x][0] * scales).astype(np.float32)
        values = np.rint(self.rng.normal(0, 0.3, outputs) / sums).astype(np.int32)
        bias = self.tensor((outputs,), "int32", sums, data=values)
        size = [-(-extent // stride) for extent in (h, w)]
        y = self.tensor((n, *size, outputs), "int8", scale, zero)
        kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
        more = {"DepthMultiplier": 1} if depthwise else {}
        self.operator(
            kind, [x, weight, bias], [y], Padding=tflite.Padding.SAME, StrideH=stride,
            StrideW=stride, DilationHFactor=1, DilationWFactor=1, FusedActivationFunction=relu,
            **more,
        )  # fmt: skip
        return y

    def finish(self, inputs, outputs):
        """Return the bytes of the file."""
        b = self.builder

        def vector(start, offsets):
            start(b, len(offsets))
            for offset in reversed(offsets):
                b.PrependUOffsetTRelative(offset)
            return b.EndVector()

        parts = [
            vector(tflite.SubGraphStartTensorsVector, self.tensors),
            b.CreateNumpyVector(np.asarray(inputs, np.int32)),
            b.CreateNumpyVector(np.asarray(outputs, np.int32)),
            vector(tflite.SubGraphStartOperatorsVector, self.operators),
        ]
        tflite.SubGraphStart(b)
        for part, name in zip(parts, ("Tensors", "Inputs", "Outputs", "Operators"), strict=True):
            getattr(tflite, f"SubGraphAdd{name}")(b, part)
        graph = tflite.SubGraphEnd(b)
        buffers = []
        for content in self.buffers:
            data = b.CreateByteVector(content) if content else None
            tflite.BufferStart(b)
            if data is not None:
                tflite.BufferAddData(b, data)
            buffers.append(tflite.BufferEnd(b))
        codes = []
        for code in self.codes:
            tflite.OperatorCodeStart(b)
            tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(code, 127))
            tflite.OperatorCodeAddBuiltinCode(b, code)
            tflite.OperatorCodeAddVersion(b, 1)
            codes.append(tflite.OperatorCodeEnd(b))
        vectors = [
            vector(tflite.ModelStartOperatorCodesVector, codes),
            vector(tflite.ModelStartSubgraphsVector, [graph]),
            vector(tflite.ModelStartBuffersVector, buffers),
        ]
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, 3)
        for part, name in zip(vectors, ("OperatorCodes", "Subgraphs", "Buffers"), strict=True):
            getattr(tflite, f"ModelAdd{name}")(b, part)
        b.Finish(tflite.ModelEnd(b), b"TFL3")
        return bytes(b.Output())


def options_of(name):
    """Return the name of the table of an operator's options; None if it has none."""
    words = "".join(word.capitalize() for word in name.split("_"))
    return next((t for t in (OPTIONS.get(name, ""), f"{words}Options") if hasattr(tflite, t)), None)


OPTIONS = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "TOPK_V2": "TopKV2Options",
    "PADV2": "PadV2Options",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"), "Pool2DOptions"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    **dict.fromkeys(("SPACE_TO_BATCH_ND",), "SpaceToBatchNDOptions"),
    **dict.fromkeys(("BATCH_TO_SPACE_ND",), "BatchToSpaceNDOptions"),
    **dict.fromkeys(
        ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY"), "ReducerOptions"
    ),
}
"""Tables of options whose names are not those of their operators."""


def small_tflite(kind="int8", seed=0, *, pad=False):
    """A residual block of MobileNet, both poolings, a concatenation, a classifier."""
    w = Writer(seed)
    x = first = w.tensor((1, 12, 10, 3), kind, *((0.02, 3) if kind == "int8" else ()))
    if kind != "int8":
        x = w.tensor((1, 12, 10, 3), "int8", 0.02, 3)
        w.operator("QUANTIZE", [first], [x])
    stem = w.convolution(x, 16, 3, 0.02, -128, stride=2, relu=3)
    wide = w.convolution(stem, 16, 3, 0.03, -128, relu=1, depthwise=True)
    narrow = w.convolution(wide, 16, 1, 0.05, 7)
    block = w.tensor((1, 6, 5, 16), "int8", 0.06, -20)
    w.operator("ADD", [stem, narrow], [block], FusedActivationFunction=0)
    side = w.convolution(block, 8, 1, 0.06, -20)
    joined = w.tensor((1, 6, 5, 24), "int8", 0.06, -20)
    w.operator("CONCATENATION", [block, side], [joined], Axis=3, FusedActivationFunction=0)
    pooled = w.tensor((1, 3, 2, 24), "int8", 0.06, -20)
    window = {"Padding": tflite.Padding.VALID, "FusedActivationFunction": 0}
    window |= {"StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    w.operator("MAX_POOL_2D", [joined], [pooled], **window)
    averaged, both = (w.tensor((1, 3, 2, 24), "int8", 0.06, -20) for _ in range(2))
    w.operator("AVERAGE_POOL_2D", [joined], [averaged], **window)
    w.operator("ADD", [pooled, averaged], [both], FusedActivationFunction=1)
    if pad:
        padded = w.tensor((1, 5, 2, 24), "int8", 0.06, -20)
        w.operator("PAD", [both, w.constant([[0, 0], [1, 1], [0, 0], [0, 0]])], [padded])
        both = padded
    mean = w.tensor((1, 24), "int8", 0.05, -10)
    w.operator("MEAN", [both, w.constant([1, 2])], [mean], KeepDims=False)
    weights = w.rng.integers(-127, 128, (10, 24)).astype(np.int8)
    weight = w.tensor((10, 24), "int8", 0.004, data=weights)
    bias = w.tensor((10,), "int32", 0.05 * 0.004, data=w.rng.integers(-900, 900, 10, np.int32))
    scores = w.tensor((1, 10), "int8", 0.02, 5)
    w.operator("FULLY_CONNECTED", [mean, weight, bias], [scores], FusedActivationFunction=0)
    return w.finish([first], [scores])


def float_tflite(seed=0):
    """A float block of MobileNet as Keras exports it: padded strides, a resize, a classifier."""
    w = Writer(seed)

    def floats(*shape):
        data = w.rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)
        return w.tensor(shape, "float32", data=data)

    def convolve(x, shape, size, stride=1, relu=0, padding=tflite.Padding.VALID):
        depthwise = shape[0] == 1
        y = w.tensor((1, *size, shape[3] if depthwise else shape[0]), "float32")
        kind, more = "CONV_2D", {}
        if depthwise:
            kind, more = "DEPTHWISE_CONV_2D", {"DepthMultiplier": 1}
        filters = floats(*shape), floats(shape[3] if depthwise else shape[0])
        w.operator(
            kind, [x, *filters], [y], Padding=padding, StrideH=stride, StrideW=stride,
            DilationHFactor=1, DilationWFactor=1, FusedActivationFunction=relu, **more,
        )  # fmt: skip
        return y

    def pad(x, size, channels):
        y = w.tensor((1, *size, channels), "float32")
        w.operator("PAD", [x, w.constant([[0, 0], [0, 1], [0, 1], [0, 0]])], [y])
        return y

    image = w.tensor((1, 12, 10, 3), "float32")
    stem = convolve(pad(image, (13, 11), 3), (16, 3, 3, 3), (6, 5), stride=2, relu=3)
    same = tflite.Padding.SAME
    wide = convolve(stem, (1, 3, 3, 16), (6, 5), relu=1, padding=same)
    narrow, block = convolve(wide, (16, 1, 1, 16), (6, 5)), w.tensor((1, 6, 5, 16), "float32")
    w.operator("ADD", [stem, narrow], [block], FusedActivationFunction=0)
    small = convolve(pad(block, (7, 6), 16), (1, 3, 3, 16), (3, 2), stride=2)
    large, joined = w.tensor((1, 6, 4, 16), "float32"), w.tensor((1, 6, 4, 32), "float32")
    w.operator("RESIZE_NEAREST_NEIGHBOR", [small, w.constant([6, 4])], [large])
    other = convolve(block, (16, 1, 2, 16), (6, 4))
    w.operator("CONCATENATION", [large, other], [joined], Axis=3, FusedActivationFunction=0)
    mean, scores = w.tensor((1, 32), "float32"), w.tensor((1, 10), "float32")
    w.operator("MEAN", [joined, w.constant([1, 2])], [mean], KeepDims=False)
    weights = floats(10, 32), floats(10)
    w.operator("FULLY_CONNECTED", [mean, *weights], [scores], FusedActivationFunction=0)
    result = w.tensor((1, 10), "float32")
    w.operator("SOFTMAX", [scores], [result], Beta=1.0)
    return w.finish([image], [result])
