"""Files of every format with wrong content: only documented errors, in bounds of time and memory.

A sample; ``benchmarks/hostile_files.py`` uses ten thousand of each.
"""

import pytest

from trials.hostile_files import FORMATS, fuzz


@pytest.mark.parametrize("name", FORMATS)
def test_wrong_files_end_in_documented_errors(name):
    fuzz(name, 60)
