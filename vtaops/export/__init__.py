"""A model as C: one blob, which a fixed runtime in C99 interprets, and what builds it.

Owns what is specific to a model: the blob (`blob.py`, in the format of ``sim/c/vta_blob.h``), the
steps of its host (`steps.py`) and of its regions (`regions.py`), and the files of the bundle
(`bundle.py`). `stages.py` runs the steps in this process. All that runs is in ``sim/c``. Imports no
TVM, and `stages.py` nothing native: a board has neither.
"""
