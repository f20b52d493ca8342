"""Networks from files: each reader hands over operators of ONNX, which become an integer graph.

`import_model` is the entry point. `values.py` says what readers hand over, `translate.py` what
becomes of it; what stays on the host is run by ONNX Runtime.
"""

from vtaops.frontends.agreement import differences
from vtaops.frontends.floats import row_norms
from vtaops.frontends.importing import import_model, read_model
from vtaops.frontends.tflite import open_shapes

__all__ = ["differences", "import_model", "open_shapes", "read_model", "row_norms"]
