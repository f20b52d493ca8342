"""What people see of an exploration: the commands, tables, pictures and the page."""

import csv
import json
import re

import pytest
from typer.testing import CliRunner

from vtaops import cli
from vtaops.base.errors import VTAError

RUNNER = CliRunner()
VARY = ("--vary", "LOG_ACC_BUFF_SIZE=15,22", "--vary", "EXTENSIONS=,overwrite")
SWEEP = ("sweep", "--layer", "resnet18.C10", "-j", "1")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def call(*arguments):
    return RUNNER.invoke(cli.app, list(map(str, arguments)))


def test_sweep_shows_keeps_and_resumes(tmp_path):
    outputs = [tmp_path / name for name in ("front.html", "points.csv")]
    arguments = [part for path in outputs for part in ("-o", path)]
    done = call(*SWEEP, *VARY, *arguments, "--json")
    assert done.exit_code == 0, done.output
    assert "omitted: pynq LOG_ACC_BUFF_SIZE=22" in done.stderr
    rows = json.loads(done.stdout)
    assert [row["EXTENSIONS"] for row in rows] == ["", "overwrite"]
    assert [row["front"] for row in rows] == [False, True]
    assert rows[1]["cycles"] < rows[0]["cycles"]
    with outputs[1].open() as file:
        assert [int(row["cycles"]) for row in csv.DictReader(file)] == [r["cycles"] for r in rows]

    page = outputs[0].read_text()
    data = json.loads(re.search(r"const D = (.*);\n", page).group(1))
    assert [row["cycles"] for row in data["rows"]] == [row["cycles"] for row in rows]
    assert data["layers"][0][0]["name"] == "resnet18.C10"
    assert not re.search(r"(src|href)=", page)

    again = call(*SWEEP, *VARY)
    assert again.exit_code == 0, again.output
    assert "1x16 15_15_18_15" in again.stdout
    assert len(call(*SWEEP, "--fits", "xc7z020", "--estimate", "--json").stdout) > 100


def test_designs_that_do_not_fit_are_named_with_what_they_need():
    done = call(*SWEEP[:-2], "--estimate", "--vary", "LOG_BLOCK=4,5", "--fits", "xc7z020")
    assert done.exit_code == 0, done.output
    assert re.search(r"omitted: 1x32_.* needs 2\d\d% of the DSP blocks", done.stderr)
    assert "1 of 2 designs fit the xc7z020" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sweep --vary LOG_BLOCK=a", "write LOG_BLOCK=3,4,5"),
        ("sweep --vary LOG_BLOCK", "write LOG_BLOCK=3,4,5"),
        ("sweep --vary LOG_BLOCK=1", "none of these designs"),
        ("sweep --vary COLOUR=1", "unknown axis 'COLOUR'"),
        ("sweep --objective speed", "no objective 'speed'"),
        ("sweep --fits xc7z9", "unknown part 'xc7z9'"),
        ("sweep --config 1x32_i8w8a32_15_15_20_17 --fits xc7z020", "none of these designs fits"),
        ("sweep -o front.png", "must end in .html"),
        ("sweep -o no/folder.csv", "There is no folder 'no'"),
        ("sweep --store text", "cannot open the store"),
    ],
)
def test_mistakes_have_a_message(arguments, message, tmp_path):
    (tmp_path / "text").write_text("this is no database, " * 20)
    done = call(*arguments.split())
    assert isinstance(done.exception, VTAError), done.output
    assert message in str(done.exception)
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["text"]
