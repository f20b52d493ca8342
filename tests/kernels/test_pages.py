"""The pages of kernels show what was measured."""

import json
from pathlib import Path

from benchmarks.kernels import cpu_operators, cuda_operators

ROOT = Path(__file__).parents[2]
RESULTS, PAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "kernels"


def test_speed_on_cpus():
    states = [
        json.loads((RESULTS / f"kernels_speed{name}.json").read_text()) for name in ("_zen4", "")
    ]
    assert cpu_operators.operator_table(states) in (PAGES / "speed.md").read_text()


def test_speed_on_a_gpu():
    results = json.loads((RESULTS / "kernels_speed_h100.json").read_text())
    assert cuda_operators.markdown(results) == (PAGES / "cuda_speed.md").read_text()
