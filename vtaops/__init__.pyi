"""What `vtaops` offers: the one table of its names, for people, type checkers and the import.

`vtaops/__init__.py` reads it and imports each name on first use.
"""

from vtaops import errors as errors
from vtaops import functional as functional
from vtaops import runtime as runtime
from vtaops import schedule as schedule
from vtaops.base.errors import VTAError as VTAError
from vtaops.base.proof import Proof as Proof
from vtaops.compiler import compile as compile
from vtaops.compiler.schedules import compile_schedule as compile_schedule
from vtaops.functional import add as add
from vtaops.functional import avg_pool2d as avg_pool2d
from vtaops.functional import batch_matmul as batch_matmul
from vtaops.functional import clip as clip
from vtaops.functional import conv2d as conv2d
from vtaops.functional import conv2d_transpose as conv2d_transpose
from vtaops.functional import depthwise_conv2d as depthwise_conv2d
from vtaops.functional import gemm as gemm
from vtaops.functional import global_avg_pool2d as global_avg_pool2d
from vtaops.functional import matmul as matmul
from vtaops.functional import max_pool2d as max_pool2d
from vtaops.functional import maximum as maximum
from vtaops.functional import minimum as minimum
from vtaops.functional import multiply as multiply
from vtaops.functional import relu as relu
from vtaops.functional import requantize as requantize
from vtaops.functional import sub as sub
from vtaops.graph import Graph as Graph
from vtaops.kernels import cpu as cpu
from vtaops.kernels import cuda as cuda
from vtaops.language import LanguageModel as LanguageModel
from vtaops.machine.config import HardwareConfig as HardwareConfig
from vtaops.model import Model as Model
from vtaops.model import load_model as load_model
from vtaops.network import compile_model as compile_model
from vtaops.ops import AvgPool2d as AvgPool2d
from vtaops.ops import BatchMatmul as BatchMatmul
from vtaops.ops import Conv2d as Conv2d
from vtaops.ops import Conv2dTranspose as Conv2dTranspose
from vtaops.ops import Elementwise as Elementwise
from vtaops.ops import Gemm as Gemm
from vtaops.ops import MaxPool2d as MaxPool2d
from vtaops.program import Program as Program
from vtaops.program import Statistics as Statistics
from vtaops.proof import prove as prove
from vtaops.quantization import quantize as quantize
from vtaops.schedule import Tiling as Tiling
from vtaops.session import Session as Session

__version__: str
