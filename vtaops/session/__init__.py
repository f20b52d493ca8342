"""Session: operators on arrays; owns a device and its resident programs."""

from vtaops.session.operators import OperatorMethods
from vtaops.session.session import Placement, Session

__all__ = ["OperatorMethods", "Placement", "Session"]
