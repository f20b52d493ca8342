"""Session: operators on arrays; owns a device and its resident programs."""

from vtaops.session.operators import OperatorMethods
from vtaops.session.session import LOADED_PROGRAMS, Placement, Session

__all__ = ["LOADED_PROGRAMS", "OperatorMethods", "Placement", "Session"]
