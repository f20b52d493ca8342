"""The kernels of these tests run between pages that nobody may touch.

One that leaves its arrays ends the process: `pytest -v` shows in which test.
"""

import pytest

from trials.guarded_memory import guarded_kernels


@pytest.fixture(scope="module", autouse=True)
def nothing_outside_arrays():
    with guarded_kernels():
        yield
