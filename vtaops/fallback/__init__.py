"""Fallback: operators of the VTA on the host, by CPU or GPU kernels that TVM schedules."""

from vtaops.fallback.host import Host, host_op, kernel, run

__all__ = ["Host", "host_op", "kernel", "run"]
