"""tsim: our RTL of VTA, simulated cycle by cycle (``sim/tsim`` holds the RTL)."""

from vtaops.runtime.performance import TsimPerformance
from vtaops.runtime.tsim.device import Tsim, TsimBuffer
from vtaops.runtime.tsim.rtl import RtlParameters, systemverilog_package

__all__ = ["RtlParameters", "Tsim", "TsimBuffer", "TsimPerformance", "systemverilog_package"]
