"""The runner of benchmarks: it names all, and each explains its options; tests stay out of them."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.pictures import shows_something
from typer.testing import CliRunner

import vtaops
from benchmarks.__main__ import NOT_RUN, application, main, titles
from benchmarks.model_as_c import Recorded
from benchmarks.options import RESULTS, measured_apart
from trials.random_graphs import random_graph, random_inputs
from vtaops.kernels.cuda.gpu import device_present

ROOT = Path(__file__).parents[1]


def run(name, *options):
    """Run a benchmark as its command does."""
    return CliRunner().invoke(application(name), [*map(str, options)])


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
def test_each_explains_its_options_and_has_an_example(name):
    said = run(name, "--help")
    assert said.exit_code == 0, said.output
    assert titles()[name] in said.output
    assert re.search(rf"python -m benchmarks {name}\b", said.output)


def test_a_run_without_a_device_is_a_run_of_the_model():
    """`Recorded` stands for what keeps programs on a device, and takes what that takes."""
    graph = random_graph(0, free=True)
    model = vtaops.compile_model(graph, "pynq_ext", prove=False, verify=False)
    arrays = random_inputs(graph, 0)
    found, expected = (model.run(*arrays, **way) for way in ({"session": Recorded(model)}, {}))
    assert [*map(np.shape, found)] == [*map(np.shape, expected)]
    assert len(found) == len(graph.outputs) > 1


def test_wrong_choices_are_refused():
    said = run("fsim_speed", "--layers", "C12")
    assert said.exit_code == 2
    assert "'C12' is none of C2, C3" in said.output
    said = run("energy", "--only", "resnet17")
    assert said.exit_code == 2
    assert "no name begins with resnet17" in said.output


def test_layers_are_measured_written_and_shown(tmp_path):
    options = ["--only", "lenet5.C", "--check", "--compile", "1", "--json", tmp_path / "l.json"]
    said = run("layers", *options)
    assert said.exit_code == 0, said.output
    rows = json.loads((tmp_path / "l.json").read_text())
    assert [*rows] == ["lenet5.C1", "lenet5.C3", "lenet5.C5"]
    assert all(row["equal"] and f"{row['cycles']:,}" in said.output for row in rows.values())


def test_cases_go_on_where_they_stopped_and_say_what_failed(tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    (tmp_path / "benchmarks.py").write_text(
        "import sys\nprint('chatter')\nprint({'1': '{\"cycles\": 7}'}[sys.argv[3]])\n"
    )
    monkeypatch.chdir(tmp_path)
    rows, errors = measured_apart("networks", ["1", "2"], path, 1.0)
    assert rows["1"]["cycles"] == 7
    assert errors == {"2": {"error": "KeyError: '2'"}}
    assert json.loads(path.read_text()) == rows
    kept = {"1": {**rows["1"], "cycles": 1}}
    path.write_text(json.dumps(kept))
    assert measured_apart("networks", ["1"], path, 1.0) == (kept, {})
    assert measured_apart("networks", ["3"], path, 0.0) == (kept, {})


VARIANTS = "plain", "overwrite", "pool", "all"


def test_the_pool_on_each_extension(tmp_path):
    """The results of the documents, computed anew."""
    only = [word for name in VARIANTS for word in ("--only", name)]
    options = [*only, "--group", "ResNet-18, pool", "--json", tmp_path / "e.json"]
    assert run("extensions", *options).exit_code == 0
    found = json.loads((tmp_path / "e.json").read_text())
    rows = json.loads((RESULTS / "extensions.json").read_text())
    for name in VARIANTS:
        model, rtl = rows[name]["cycles"]["ResNet-18, pool"]
        assert found[name]["cycles"]["ResNet-18, pool"] == [model]
        assert abs(rtl - model) <= 0.001 * rtl


def test_the_pool_on_extensions_that_join_each_other(tmp_path):
    options = ["--together", "--only", "pool", "--group", "ResNet-18, pool"]
    assert run("extensions", *options, "--json", tmp_path / "e.json").exit_code == 0
    found = json.loads((tmp_path / "e.json").read_text())["pool"]["cycles"]
    kept = json.loads((RESULTS / "extensions_together.json").read_text())["pool"]["cycles"]
    assert found.items() <= kept.items()


@pytest.mark.skipif(device_present(), reason="for machines without a GPU")
def test_without_a_gpu_the_benchmark_says_what_it_can_do():
    said = run("cuda_operators")
    assert said.exit_code == 2
    assert "--export" in said.output


def test_results_of_a_gpu_become_a_page_and_a_plot(tmp_path):
    card = {"card": "A card", "capability": "9.0", "torch": "2", "cuda": "13"}
    card["copy_gigabytes_per_second"] = 1000
    good = {"operator": "add", "size": "8", "flops": 10**6, "bytes": 10**6, "failed": []}
    good |= {"warm": 1e-6, "cold": 2e-6, "torch_warm": 2e-6, "torch_cold": 3e-6}
    bad = {"operator": "mul", "size": "9", "failed": [{"tile": "t", "why": "ended the process"}]}
    results = {"date": "2026-01-01", "card": card, "rows": [good, bad], "notes": []}
    (tmp_path / "gpu.json").write_text(json.dumps(results))
    pages = ["--markdown", tmp_path / "page.md", "--plot", tmp_path / "plot.png"]
    assert run("cuda_operators", "--report", tmp_path / "gpu.json", *pages).exit_code == 0
    page = (tmp_path / "page.md").read_text()
    assert "| add | 8 | 1.0 | 2.0 | 2.0 | 0.50 | 1000 | 500 | 50% |" in page
    assert "failed: ended the process" in page
    assert shows_something(tmp_path / "plot.png")


@pytest.mark.parametrize("folder", ["benchmarks", "trials", "examples"])
def test_nothing_that_tests_use_imports_tests(folder):
    above = {"tests", "helpers", *(["benchmarks"] if folder != "benchmarks" else [])}
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module]
            assert not above & {name.partition(".")[0] for name in names}, path


def test_only_these_tests_import_benchmarks():
    """Tests of documents know the commands; what tests and benchmarks share is in trials."""
    for path in {*(ROOT / "tests").rglob("*.py")} - {Path(__file__)}:
        found = re.findall(r"^(?:from|import) (benchmarks[\w.]*)", path.read_text(), re.MULTILINE)
        assert {*found} <= {"benchmarks.__main__"}, path
