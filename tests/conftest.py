"""Shared by all tests: hypothesis profiles with printed, reproducible examples, and the workers."""

import os

import pytest
from hypothesis import HealthCheck, settings

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
