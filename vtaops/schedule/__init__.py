"""Schedules: how operators run. Tilings here; one room for each kind of device below."""

from vtaops.schedule.blocked import blocked_shape, check_tiling
from vtaops.schedule.default import default_tiling
from vtaops.schedule.tiling import Tiling

__all__ = ["Tiling", "blocked_shape", "check_tiling", "default_tiling"]
