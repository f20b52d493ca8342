"""What type checkers know of `__init__.py`; tests/kernels/test_stubs.py writes it."""

from vtaops.kernels.calls import OperatorCalls
from vtaops.kernels.cuda.gpu import device_present as device_present
from vtaops.kernels.cuda.kernel import CACHE as CACHE
from vtaops.kernels.cuda.kernel import CudaKernel as CudaKernel
from vtaops.kernels.cuda.kernel import kernel as kernel
from vtaops.kernels.cuda.resources import Resources as Resources
from vtaops.kernels.cuda.resources import occupancy as occupancy
from vtaops.kernels.cuda.resources import resources as resources

_calls: OperatorCalls

activation = _calls.activation
add = _calls.add
avg_pool2d = _calls.avg_pool2d
batch_norm = _calls.batch_norm
conv1d = _calls.conv1d
conv2d = _calls.conv2d
dense = _calls.dense
depthwise_conv2d = _calls.depthwise_conv2d
depthwise_separable_conv2d = _calls.depthwise_separable_conv2d
global_avg_pool2d = _calls.global_avg_pool2d
global_max_pool2d = _calls.global_max_pool2d
matmul = _calls.matmul
max_pool2d = _calls.max_pool2d
maximum = _calls.maximum
minimum = _calls.minimum
multiply = _calls.multiply
relu = _calls.relu
scale_shift = _calls.scale_shift
softmax = _calls.softmax
subtract = _calls.subtract
vector_add = _calls.vector_add
