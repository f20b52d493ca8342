"""Fallback: VTA operators on the host, by CPU or GPU kernels that TVM compiles."""

from vtaops.fallback.host import Host, host_op, kernel, run

__all__ = ["Host", "host_op", "kernel", "run"]
