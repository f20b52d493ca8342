"""What `vtaops` offers: the one table of its names, for people, type checkers and the import.

`vtaops/__init__.py` reads it and imports each name on first use.
"""

from vtaops import cpu as cpu
from vtaops import cuda as cuda
from vtaops import lessons as lessons
from vtaops import lowering as lowering
from vtaops import runtime as runtime
from vtaops import schedule as schedule
from vtaops.base.errors import AccuracyWarning as AccuracyWarning
from vtaops.base.errors import ArgumentError as ArgumentError
from vtaops.base.errors import ConfigError as ConfigError
from vtaops.base.errors import DeadlockError as DeadlockError
from vtaops.base.errors import DeviceError as DeviceError
from vtaops.base.errors import DeviceTimeout as DeviceTimeout
from vtaops.base.errors import EncodingError as EncodingError
from vtaops.base.errors import ModelError as ModelError
from vtaops.base.errors import NotEquivalent as NotEquivalent
from vtaops.base.errors import PlacementWarning as PlacementWarning
from vtaops.base.errors import ProgramError as ProgramError
from vtaops.base.errors import ScheduleError as ScheduleError
from vtaops.base.errors import ShapeError as ShapeError
from vtaops.base.errors import UnsupportedError as UnsupportedError
from vtaops.base.errors import VerificationError as VerificationError
from vtaops.base.errors import VTAError as VTAError
from vtaops.base.proof import Proof as Proof
from vtaops.compiler import build as build
from vtaops.compiler import compile as compile
from vtaops.compiler import metaschedule as metaschedule
from vtaops.graph import Graph as Graph
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
from vtaops.session import add as add
from vtaops.session import avg_pool2d as avg_pool2d
from vtaops.session import batch_matmul as batch_matmul
from vtaops.session import clip as clip
from vtaops.session import conv2d as conv2d
from vtaops.session import conv2d_transpose as conv2d_transpose
from vtaops.session import dense as dense
from vtaops.session import depthwise_conv2d as depthwise_conv2d
from vtaops.session import gemm as gemm
from vtaops.session import global_avg_pool2d as global_avg_pool2d
from vtaops.session import matmul as matmul
from vtaops.session import max_pool2d as max_pool2d
from vtaops.session import maximum as maximum
from vtaops.session import minimum as minimum
from vtaops.session import multiply as multiply
from vtaops.session import relu as relu
from vtaops.session import requantize as requantize
from vtaops.session import shift_left as shift_left
from vtaops.session import shift_right as shift_right
from vtaops.session import sub as sub
from vtaops.session import subtract as subtract

__version__: str
