"""The kernels of these tests run between pages that nobody may touch.

One that leaves its arrays ends the process: `pytest -v` shows in which test.
"""

import pytest

from trials.guarded_memory import guarded_kernels
from vtaops.kernels import cache


@pytest.fixture(scope="module", autouse=True)
def nothing_outside_arrays():
    with guarded_kernels():
        yield


@pytest.fixture(scope="module")
def no_files():
    """Keep kernels in memory: linking hundreds of them would take its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "_store", lambda executable, path: None)
        patch.setattr(cache, "_load", lambda path: None)
        yield
