"""The table: how each operator of ONNX becomes integer operators."""

from vtaops.frontends.activations import ACTIVATIONS
from vtaops.frontends.averages import AVERAGES
from vtaops.frontends.computing import COMPUTING
from vtaops.frontends.moving import MOVING
from vtaops.frontends.translate import RULES

__all__ = ["RULES"]

RULES.update(COMPUTING | AVERAGES | ACTIVATIONS | MOVING)
