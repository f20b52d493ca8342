"""Fallback: VTA operators on the host, by CPU or GPU kernels that TVM compiles (`host.run`)."""

from typing import Literal

Host = Literal["cpu", "cuda"]
"""Where the fallback runs."""

__all__ = ["Host"]
