"""Quantisation of float models to QDQ models, on calibration data."""

from vtaops.quantization.pipeline import Quantization, quantize, run_quantization
from vtaops.quantization.quality import compare

__all__ = ["Quantization", "compare", "quantize", "run_quantization"]
