"""Shared by all tests: hypothesis profiles with printed, reproducible examples, and the workers."""

import gc
import logging
import os
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

if sys.dont_write_bytecode:
    # Some containers forbid it. The tests start hundreds of processes, each of which would compile
    # every module that it imports; so they keep bytecode, out of the way.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / "build" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("default")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Spread the whole suite over the cores; named files run here, where a debugger works."""
    return 0 if config.option.file_or_dir else min(os.cpu_count() or 1, 8)


LONG = (
    "tests/runtime/tsim/test_build.py",
    "tests/runtime/tsim/test_proofs.py",
    "tests/documents/test_site.py",
    "tests/language/test_language.py",
    "tests/board/test_network.py",
    "tests/documents/test_c_snippets.py",
    "tests/board/test_netlist.py",
)
"""Files with single tests of several seconds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with long tests: one at the end would leave the other cores idle."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_collection_finish() -> None:
    """Take what collection leaves (modules, thousands of tests) out of all later collections.

    Programs of operators are not proven by default here: tests compare them with NumPy, and proofs
    would take a sixth of the time. `schedule/test_proven.py` has the default of users. Models of
    the RTL are compiled with -O1, in 3.9 seconds of CPU instead of 5.6; most run for less. Typer
    would make all commands anew for each call, which takes 65 ms.
    """
    if driver := sys.modules.get("vtaops.compiler.driver"):
        driver.PROVEN = 0  # type: ignore[attr-defined]
    if build := sys.modules.get("vtaops.hardware.build"):
        build._LARGE_MODEL = 0  # type: ignore[attr-defined]
    if testing := sys.modules.get("typer.testing"):
        testing._get_command = cache(testing._get_command)  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown() -> None:
    """Let TVM's tuner tell its records to the loggers above again.

    `tune_tir` ends that, so pytest would attach its own handler to the tuner's logger, and the next
    `tune_tir` of this process would ask that handler for a name, which it lacks.
    """
    logging.getLogger("tvm.s_tir.meta_schedule").propagate = True
