"""tsim: our RTL of VTA, simulated cycle by cycle (``sim/tsim`` holds the RTL)."""

from vtaops.hardware.rtl import RtlParameters, systemverilog_package
from vtaops.runtime.tsim.device import Tsim

__all__ = ["RtlParameters", "Tsim", "systemverilog_package"]
