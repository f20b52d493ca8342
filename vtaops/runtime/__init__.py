"""Devices and the execution of programs on them."""

from vtaops.runtime.device import Device, DeviceBuffer
from vtaops.runtime.executor import LoadedProgram

__all__ = ["Device", "DeviceBuffer", "LoadedProgram"]
