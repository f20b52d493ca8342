"""Schedules for VTA: tilings; blocking, virtual threads, scratchpads, tensorization."""

from vtaops.schedule.blocked import blocked_shape, check_tiling
from vtaops.schedule.candidates import default_tiling
from vtaops.schedule.dispatch import schedule
from vtaops.schedule.tiling import Tiling

__all__ = ["Tiling", "blocked_shape", "check_tiling", "default_tiling", "schedule"]
