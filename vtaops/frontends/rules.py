"""The table: how each operator of ONNX becomes integer operators."""

from vtaops.frontends.activations import ACTIVATIONS, TFLITE
from vtaops.frontends.averages import AVERAGES
from vtaops.frontends.computing import COMPUTING
from vtaops.frontends.moving import MOVING
from vtaops.frontends.translate import RULES, TFLITE_RULES

__all__ = ["RULES", "TFLITE_RULES"]

RULES.update(COMPUTING | AVERAGES | ACTIVATIONS | MOVING)
TFLITE_RULES.update(RULES | TFLITE)
