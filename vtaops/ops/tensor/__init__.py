"""What the CPU and GPU operators compute: descriptions with static shapes and te declarations.

Says nothing about how: `vtaops.schedule.cpu` and `vtaops.schedule.cuda` do. These operators take
tensors of any layout and dtype; the operators of the VTA itself are in `vtaops.ops`.
"""

from vtaops.ops.tensor.common import TensorOp, TensorSpec, Window
from vtaops.ops.tensor.convolution import Conv1dOp, Conv2dOp, DepthwiseOp, PackedConv2dOp
from vtaops.ops.tensor.elementwise import BroadcastOp, NormalizeOp, UnaryOp
from vtaops.ops.tensor.epilogue import Epilogue
from vtaops.ops.tensor.matmul import MatmulOp
from vtaops.ops.tensor.pooling import GlobalPoolOp, PoolOp
from vtaops.ops.tensor.separable import SeparableOp
from vtaops.ops.tensor.softmax import SoftmaxOp

__all__ = [
    "BroadcastOp",
    "Conv1dOp",
    "Conv2dOp",
    "DepthwiseOp",
    "Epilogue",
    "GlobalPoolOp",
    "MatmulOp",
    "NormalizeOp",
    "PackedConv2dOp",
    "PoolOp",
    "SeparableOp",
    "SoftmaxOp",
    "TensorOp",
    "TensorSpec",
    "UnaryOp",
    "Window",
]
