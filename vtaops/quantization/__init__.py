"""Quantisation of float models to QDQ models, on calibration data."""

from vtaops.quantization.pipeline import Quantization, quantize, run_quantization
from vtaops.quantization.quality import LayerQuality, OutputQuality, Quality, compare
from vtaops.quantization.samples import load_samples

__all__ = [
    "LayerQuality",
    "OutputQuality",
    "Quality",
    "Quantization",
    "compare",
    "load_samples",
    "quantize",
    "run_quantization",
]
