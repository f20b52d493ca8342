"""What is installed where: a board gets NumPy alone, and workflows build what is promised."""

import re
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

import tasks

ROOT = Path(__file__).parents[1]


def required(machine, python="3.10"):
    """Names of what `pip install vtaops` asks for on a machine."""
    environment = default_environment() | {"platform_machine": machine, "python_version": python}
    found = map(Requirement, requires("vtaops"))
    return {
        r.name for r in found if r.marker is None or r.marker.evaluate(environment | {"extra": ""})
    }


def test_a_board_needs_numpy_alone():
    """An install on armv7l pulls no TVM; tests/board/armv7/run.sh does it without a network."""
    assert required("armv7l") == {"numpy"}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_everybody_else_gets_everything(machine):
    everything = {"numpy", "apache-tvm", "apache-tvm-ffi", "nanobind-backend", "rich", "typer"}
    assert required(machine) == everything | {"tomli"}
    assert required(machine, "3.12") == everything


def test_continuous_integration_runs_the_tasks_of_a_developer():
    text = (ROOT / ".ci" / "run").read_text()
    called = " ".join(re.findall(r"tasks\.py ([a-z ]+)", text)).split()
    assert {"lint", "types", "docs", "wheel"} <= {*called} <= tasks.TASKS.keys()


def test_an_unknown_task_is_told(capsys):
    assert tasks.main(["lnt"]) == 2
    shown = capsys.readouterr().out
    assert all(name in shown for name in tasks.TASKS)


def workflow(name):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())


def test_the_workflows():
    steps = workflow("ci.yml")["jobs"]["ci"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    jobs = workflow("wheels.yml")["jobs"]
    assert set(jobs["wheels"]["strategy"]["matrix"]["runner"]) == {
        "ubuntu-24.04",
        "ubuntu-24.04-arm",
    }
    for job in [*jobs.values(), workflow("ci.yml")["jobs"]["ci"]]:
        assert all("@v" in step["uses"] for step in job["steps"] if "uses" in step)
