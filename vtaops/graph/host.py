"""HostFunction: a part of a network that the host computes as a whole."""

from __future__ import annotations

from abc import ABC, abstractmethod

from vtaops.base.shapes import Array

NOT_QUANTIZED = "the model is not quantised: see vtaops.quantize and the command vtaops quantize"
"""The reason given for a function that computes a whole float model."""


class HostFunction(ABC):
    """A function on arrays.

    A model's file holds those that are ONNX models (`vtaops.graph.onnx_function`).
    """

    @abstractmethod
    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Call the function on arrays of the shapes and dtypes that it was made for."""
