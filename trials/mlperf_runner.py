"""MLPerf Tiny's own runner, as mlcommons publishes it, drives a model at the end of a serial line.

    python -m trials.mlperf_runner FOLDER PORT --mode p ...     # main.py of FOLDER, unmodified

The runner looks for boards by their USB numbers, which a pseudo-terminal has not: it is told that
the reference board is at PORT. Modules of other instruments and of accuracy (``usb``,
``sklearn.metrics``, ``joulescope``) are left out where they are not installed; performance needs
none of them.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import numpy as np

from vtaops.board.download import download
from vtaops.board.mlperf import TASKS, Task

ADDRESS = "https://github.com/mlcommons/tiny/raw/1afd2c9/benchmark/runner/"
FILES = {
    "main.py": "6e38df8e1260d606c7f1a97e07d313cdf8391fdee0b7c5bb518b1b39b6faff94",
    "datasets.py": "a09de931c4a858e3080846a4e715698bad5f6539b04f29eb32b68f0676234ab6",
    "device_manager.py": "3029294ef82f5dbc3d50840c5f94ab88f248c666fc262b3bbfc3fd4212dbaccc",
    "device_under_test.py": "4a83c8d330ef1858693986c677445db4b410714445e623718d518cf1c358ae8e",
    "interface_device.py": "69057dbecc26db44ab7ee47a79fc4cae68d4d12a14d1030e72deebe52e1f46bb",
    "io_manager.py": "a80dcf8f6358587fc4fc431dd2b6a89c545127bf619ad9ae576bfbe0bbb74a34",
    "io_manager_enhanced.py": "11316a0d7f3a64d97569bd5c3918c76b033a8f994dbeff22f75b8cd86111bf9a",
    "power_manager/power_manager.py": (
        "5b86e0ade4322da2341e61a0091c4dd4f8eab53ec956f6dae97f483df3812ed4"
    ),
    "runner_utils.py": "d55d4fecf21e7ea7239931337fcd0277db0e9ea9d8033f1a98577d045e809268",
    "script.py": "dbb9059f167ee8a37d505edf4d5dadbd73dc620916d5677edd0a9dd0046de1bc",
    "serial_device.py": "dac40f7647389abc59f3e6221a60ab21e14f7be4406f69da78f51bfff93ce03c",
    "streaming_ww_utils.py": "3757b52b4a198724d24ba862064db805cb357402937dfdf70c250f943c56c420",
}
"""SHA-256 of each file that a run in performance mode reads."""

VENDOR, PRODUCT = 0x0483, 0x374B
"""USB numbers of the reference board."""

DEVICES = f"""
- name: l4r5zi
  type: dut
  baud: 115200
  usb:
    {VENDOR:#x}: {PRODUCT:#x}
"""
TESTS = """
{task}:
  name: {task}
  model: {task}
  truth_file: y_labels.csv
  script:
    - loop 5:
      - download
      - infer {count} {unmeasured}
"""


def fetch(folder: Path) -> None:
    """Download the runner; each file must have its known checksum."""
    for name, sha256 in FILES.items():
        if not (folder / name).is_file():
            download(ADDRESS + name, folder / name, sha256=sha256, max_bytes=1 << 20, timeout=60)


def missing(folder: Path) -> str:
    """Return why the runner cannot run here; empty if it can."""
    lost = [name for name in FILES if not (folder / name).is_file()]
    if lost:
        return f"{folder} has no {lost[0]}: python -m benchmarks mlperf_runner --fetch"
    needed = {"serial": "pyserial", "yaml": "pyyaml", "matplotlib": "matplotlib"}
    absent = [package for module, package in needed.items() if find_spec(module) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def write_data(folder: Path, task: Task, count: int = 5, seed: int = 0) -> list[bytes]:
    """Write a data set of noise as the runner reads it, and return the inputs."""
    rng = np.random.default_rng(seed)
    made = folder / task.name
    made.mkdir(parents=True, exist_ok=True)
    rows, inputs = [], []
    for number in range(count):
        if task.holds == "float32":
            content = rng.normal(-30, 15, task.elements).astype("<f4").tobytes()
        else:
            content = rng.bytes(task.nbytes)
        (made / f"{number}.bin").write_bytes(content)
        rows.append(f"{number}.bin,2,{number % 2},{task.nbytes},512\n")
        inputs.append(content)
    (made / "y_labels.csv").write_text("".join(rows))
    return inputs


def drive(runner: Path, port: str, task: Task, folder: Path, count: int, unmeasured: int) -> str:
    """Measure a device in performance mode; return all that the runner says."""
    (folder / "devices.yaml").write_text(DEVICES)
    script = TESTS.format(task=task.name, count=count, unmeasured=unmeasured)
    (folder / "tests.yaml").write_text(script)
    write_data(folder / "data", task)
    options = ("-d", "devices.yaml", "-t", "tests.yaml", "-s", "data", "-m", "p")
    command = [sys.executable, str(Path(__file__).resolve()), str(runner.resolve()), port, *options]
    found = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    if found.returncode:
        raise AssertionError(f"the runner failed: {(found.stdout + found.stderr)[-2000:]}")
    return found.stdout


def task_named(name: str) -> Task:
    """Return a benchmark by its name."""
    return next(task for task in TASKS if task.name == name)


def run_unmodified(folder: str, port: str, arguments: list[str]) -> None:
    """Run main.py of a folder in this process."""
    from serial.tools import list_ports

    board = SimpleNamespace(device=port, vid=VENDOR, pid=PRODUCT, description="vtaops")
    list_ports.comports = lambda *_: [board]
    for name in ("usb", "usb.core", "sklearn", "sklearn.metrics"):
        sys.modules[name] = MagicMock(spec=ModuleType) if "." not in name else MagicMock()
    sys.modules["usb"].core = sys.modules["usb.core"]
    sys.modules["usb.core"].find.return_value = []
    sys.path[0] = folder
    sys.argv = ["main.py", *arguments]
    runpy.run_path(f"{folder}/main.py", run_name="__main__")


if __name__ == "__main__":
    run_unmodified(sys.argv[1], sys.argv[2], sys.argv[3:])
