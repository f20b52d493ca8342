"""The runner of benchmarks: it names all, and each explains its options; tests stay out of them."""

import ast
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import vtaops
from benchmarks.__main__ import NOT_RUN, application, main, titles
from benchmarks.model_as_c import Recorded
from trials.random_graphs import random_graph, random_inputs

ROOT = Path(__file__).parents[1]


def test_all_are_listed_with_a_line_each(capsys):
    main(["--list"])
    shown = capsys.readouterr().out
    files = {path.stem for path in (ROOT / "benchmarks").rglob("*.py")} - NOT_RUN
    assert {*titles()} == files
    assert all(title and title in shown for title in titles().values())


def test_an_unknown_one_is_refused():
    with pytest.raises(SystemExit, match="no benchmark 'fsim_sped'"):
        main(["fsim_sped"])


@pytest.mark.parametrize("name", titles())
def test_each_explains_its_options(name):
    said = CliRunner().invoke(application(name), "--help")
    assert said.exit_code == 0, said.output
    assert titles()[name] in said.output


def test_a_run_without_a_device_is_a_run_of_the_model():
    """`Recorded` stands for what keeps programs on a device, and takes what that takes."""
    graph = random_graph(0, free=True)
    model = vtaops.compile_model(graph, "pynq_ext", prove=False, verify=False)
    arrays = random_inputs(graph, 0)
    found, expected = (model.run(*arrays, **way) for way in ({"session": Recorded(model)}, {}))
    assert [*map(np.shape, found)] == [*map(np.shape, expected)]
    assert len(found) == len(graph.outputs) > 1


def test_wrong_choices_are_refused():
    fsim_speed = application("fsim_speed")
    said = CliRunner().invoke(fsim_speed, ["--layers", "C12"])
    assert said.exit_code == 2
    assert "'C12' is none of C2, C3" in said.output


@pytest.mark.parametrize("folder", ["benchmarks", "trials"])
def test_nothing_that_tests_use_imports_tests(folder):
    above = {"tests", "helpers", *(["benchmarks"] if folder == "trials" else [])}
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module]
            assert not above & {name.partition(".")[0] for name in names}, path


def test_only_tests_of_documents_and_of_benchmarks_import_benchmarks():
    """What tests and benchmarks share is in trials or tests/helpers."""
    for path in (ROOT / "tests").rglob("*.py"):
        own = "documents" in path.parts or path == Path(__file__) or "kernels" in path.parts
        text = path.read_text()
        assert own or ("from benchmarks" not in text and "import benchmarks" not in text), path
