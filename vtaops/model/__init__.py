"""Models: compiled networks, their files and reports."""

from vtaops.model.artefact import load as load_model
from vtaops.model.model import Model
from vtaops.program.region import Argument, HostStage, NodePlacement, Region, Stage

__all__ = ["Argument", "HostStage", "Model", "NodePlacement", "Region", "Stage", "load_model"]
