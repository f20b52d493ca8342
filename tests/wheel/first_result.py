"""Run the first example of the README as the installed package carries it, and check its result.

    python -I tests/wheel/first_result.py

Where no compiler can be found: what a user of the wheel has. Needs nothing but the package.
"""

import re
import shutil
from importlib.metadata import metadata

import numpy as np

found = [name for name in ("cc", "c++", "gcc", "g++", "clang", "clang++") if shutil.which(name)]
readme = metadata("vtaops").get_payload()
example = re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1]
names = {}
exec(example, names)
x, w, y = (names[name] for name in "xwy")

padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
sums = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64), optimize=True)
np.testing.assert_array_equal(y, np.clip(sums >> 8, 0, 127).astype(np.int8))
print(f"{y.shape} equal to NumPy; compilers in reach: {', '.join(found) or 'none'}")
