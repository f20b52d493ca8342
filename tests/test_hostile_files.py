"""Files of every format with wrong content: only documented errors, in bounds of time and memory.

A sample; ``trials/hostile_inputs.py`` uses ten thousand of each.
"""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from trials.bounds import bounded
from trials.hostile_boards import fuzz_answers
from trials.hostile_files import FORMATS, fuzz


@pytest.mark.parametrize("name", FORMATS)
def test_wrong_files_end_in_documented_errors(name):
    fuzz(name, 40)


def test_the_bounds_of_a_file_hold():
    with pytest.raises(MemoryError, match="of memory; 500,"), bounded(10):
        np.ones(600_000_000, np.uint8)
    with bounded(1000):
        np.ones(400_000_000, np.uint8)
    with pytest.raises(PermissionError, match="/etc/passwd"), bounded(10):
        Path("/etc/passwd").read_bytes()
    with pytest.raises(PermissionError, match=r"subprocess\.Popen"), bounded(10):
        subprocess.run(["true"], check=True)


def test_boards_that_answer_wrongly_are_errors_of_vtaops():
    fuzz_answers(40)
