"""What is installed where: a board gets NumPy alone, and workflows build what is promised."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tasks
from vtaops.base.optional import install_command

ROOT = Path(__file__).parents[1]


def required(machine, python="3.11"):
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
    everything = {
        "numpy",
        "apache-tvm",
        "apache-tvm-ffi",
        "jinja2",
        "nanobind-backend",
        "rich",
        "threadpoolctl",
        "typer",
    }
    models = {"onnx", "onnxruntime", "tflite", "pillow"}
    assert required(machine) == everything | models
    assert required(machine, "3.12") == everything | models


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_installed_by_its_packages(extra):
    """Each has its own name: an index may call anything vtaops, and has nothing of ours."""
    if f'extra == "{extra}"' not in str(requires("vtaops")):
        pytest.skip(
            f"this clone was installed before there was an extra {extra!r}: install it anew"
        )
    command = install_command(extra)
    here = [r for r in map(Requirement, EXTRAS[extra]) if r.marker is None or r.marker.evaluate()]
    wanted = [*map(Requirement, shlex.split(command)[2:])]
    assert {(r.name, r.specifier) for r in wanted} == {(r.name, r.specifier) for r in here}
    assert len(command) < 400


def test_what_is_no_extra_is_a_package():
    assert install_command("torch") == "pip install torch"


def test_nothing_asks_an_index_for_a_package_called_vtaops():
    """In no error, comment, document, workflow or example; extras of extras are resolved here."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    texts = [ROOT / n for n in listed.stdout.split() if n.endswith(TEXTS)] or [ROOT / "README.md"]
    by_name = r"pip install (?:[^\n`&;]* )?['\"]?vtaops(?![\w./*-])"
    asked = re.compile(by_name + r"|(?<![\w.])vtaops\[[a-z]")
    for path in {*texts} - {Path(__file__), ROOT / "CHANGELOG.md", ROOT / "pyproject.toml"}:
        found = asked.search(path.read_text())
        assert found is None, (path, found)


TEXTS = (".py", ".md", ".sh", ".yml", ".toml", ".txt", ".json", "run")


def test_continuous_integration_runs_the_tasks_of_a_developer():
    text = (ROOT / ".ci" / "run").read_text()
    called = " ".join(re.findall(r"tasks\.py ([a-z ]+)", text)).split()
    assert {"lint", "types", "docs", "wheel", "pythons"} <= {*called} <= tasks.TASKS.keys()


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
    jobs = workflow("release.yml")["jobs"]
    assert jobs["build"]["uses"] == "./.github/workflows/wheels.yml"
    assert (jobs["attest"]["needs"], jobs["publish"]["needs"]) == ("build", "attest")
    assert jobs["publish"]["permissions"] == {"id-token": "write"}  # no secret, no token of PyPI


def locked(name):
    """Return the versions of a file of hashes by package, each line with its hashes."""
    text = (ROOT / ".ci" / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert all("--hash=sha256:" in line for line in lines)
    found = {}
    for line in lines:
        package, version = line.split()[0].split("==")
        found.setdefault(canonicalize_name(package), []).append(version)
    return found


def test_the_environment_of_continuous_integration_is_known_by_its_hashes():
    """Renewed by `python tasks.py lock`; a new requirement without it fails here."""
    known = locked("requirements.txt")
    wanted = [Requirement(text) for text in requires("vtaops")]
    for extra in ("test", "lint", "docs"):
        chosen = default_environment() | {"extra": extra}
        for r in wanted:
            if r.name != "vtaops" and (r.marker is None or r.marker.evaluate(chosen)):
                assert any(map(r.specifier.contains, known[canonicalize_name(r.name)])), r
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    built = locked("build.txt")
    for r in map(Requirement, project["build-system"]["requires"]):
        assert any(map(r.specifier.contains, built[canonicalize_name(r.name)])), r
    assert {*locked("uv.txt")} == {"uv"}
    for name in ("newest.txt", *(f"lowest-{version}.txt" for version in tasks.PYTHONS)):
        known = locked(name)
        for r in wanted:
            if r.marker is None or r.marker.evaluate(default_environment() | {"extra": ""}):
                assert any(map(r.specifier.contains, known[canonicalize_name(r.name)])), (name, r)


INSTALLING = (
    *(".ci/run", "tests/wheel/run.sh", "tests/wheel/pythons.py", "tests/board/armv7/run.sh"),
    *(".github/workflows/ci.yml", ".github/workflows/wheels.yml", ".github/workflows/release.yml"),
)
"""What continuous integration and releases run that installs packages."""


@pytest.mark.parametrize("name", INSTALLING)
def test_all_that_is_installed_is_known_by_its_hashes(name):
    """Or is a wheel made here, without its dependencies, or comes from no index."""
    text = (
        (ROOT / name)
        .read_text()
        .replace("\\\n", " ")
        .replace('", "', " ")
        .replace("\n        *", "")
    )
    commands = [
        line for line in text.splitlines() if re.search(r"\b(pip install|uv build|build --)", line)
    ]
    ways = r"--require-hashes|--no-deps|--no-index|\*hashes|\*numpy"
    assert all(re.search(ways, command) for command in commands), commands
    assert not re.search(r"pipx|uvx|pip wheel|uv tool|npx|curl |wget ", text)


def test_each_list_of_hashes_is_written_by_the_lock():
    written = {word for step in tasks.TASKS["lock"][1] for word in step if word.endswith(".txt")}
    assert written == {f".ci/{path.name}" for path in (ROOT / ".ci").glob("*.txt")}


@pytest.mark.parametrize("name", ["ci.yml", "wheels.yml", "release.yml"])
def test_actions_are_pinned_by_their_commits(name):
    text = (ROOT / ".github" / "workflows" / name).read_text()
    used = re.findall(r"uses: (?!\./)(\S+)(.*)", text)
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action)
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment)


def test_the_wheel_says_what_it_carries(tmp_path):
    """`tests/wheel/run.sh` looks for it in the wheel itself."""
    path = tmp_path / "vtaops.cdx.json"
    script = ROOT / "sim" / "sbom.py"
    code = (
        "import sys, runpy, importlib.metadata as m; m.version = lambda name: '3.1.0'; "
        f"sys.argv = ['sbom.py', '1.2.3', {str(path)!r}]; "
        f"runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    found = json.loads(path.read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    parts = [found["metadata"]["component"], *found["components"]]
    beside = {p["name"]: p["properties"] for p in parts if "properties" in p}
    stated = [requirement["value"] for each in beside.values() for requirement in each]
    assert {Requirement(text).name for text in stated} == {*beside}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(stated) == sorted(project["dependencies"])
    facts = {
        p["name"]: (p["version"], p["licenses"][0]["license"]["id"])
        for p in parts
        if "properties" not in p
    }
    assert facts == {"vtaops": ("1.2.3", "Apache-2.0"), "nanobind": ("3.1.0", "BSD-3-Clause")}
    refs = {part["bom-ref"] for part in parts}
    (dependency,) = found["dependencies"]
    assert {dependency["ref"], *dependency["dependsOn"]} == refs
    linked = re.findall(r"find_package\((\w+)", (ROOT / "CMakeLists.txt").read_text())
    assert {*linked} == {"Python", "nanobind"}  # who adds one adds it to the script
