"""Export a model as C: a blob, the fixed C99 runtime that interprets it, and their build.

This room owns what is specific to a model: the blob (`blob.py`, in the format of
``sim/c/vta_blob.h``), the steps of its host (`steps.py`) and of its regions (`regions.py`), and the
files of the bundle (`bundle.py`). `stages.py` runs the steps in this process. The runtime is in
``sim/c``. Because boards have neither, this room does not import TVM, and
`stages.py` imports no native code.
"""
