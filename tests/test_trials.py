"""The runner of campaigns: it names all, goes on where it stopped, and reports what failed."""

import json

import pytest
from typer.testing import CliRunner

from trials import __main__ as runner
from trials.campaign import Campaign, result, resume, summed
from trials.rtl_mutations import MODELS
from vtaops.hardware.rtl import rtl_design


def test_all_are_listed_with_a_line_each(capsys):
    runner.main(["--list"])
    shown = capsys.readouterr().out
    assert len(runner.titles()) >= 20
    assert all(title and title in shown for title in runner.titles().values())


def test_an_unknown_one_is_refused():
    with pytest.raises(SystemExit, match="no campaign 'random_graph'"):
        runner.main(["random_graph"])


@pytest.mark.parametrize("name", runner.titles())
def test_each_explains_itself(name):
    said = CliRunner().invoke(runner.application(name), "--help")
    assert said.exit_code == 0, said.output
    assert runner.titles()[name] in said.output


@pytest.mark.parametrize(
    "name", ["prove", "far_scales", "all_sides", "record_mutants", "rtl_mutations"]
)
def test_names_of_cases_are_unique_and_a_longer_list_begins_alike(name):
    cases = __import__(f"trials.{name}", fromlist=["CAMPAIGN"]).CAMPAIGN.cases
    short, long = cases(20), cases(60)
    assert len({*long}) == len(long)
    assert {*short} <= {*long}


def test_every_model_of_rtl_mutants_is_hardware_that_there_is():
    for config, parameters, axi in MODELS.values():
        assert rtl_design(config, parameters, axi).files


def run(campaign, path, *options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trials.far_scales.CAMPAIGN", campaign)
        options = [*options, "--state", str(path / "s.jsonl"), "--json", str(path / "found.json")]
        done = CliRunner().invoke(runner.application("far_scales"), options)
    return done.exit_code, json.loads((path / "found.json").read_text())


def test_a_run_goes_on_where_it_stopped_and_says_what_failed(tmp_path):
    tried = []

    def trial(case):
        tried.append(case)
        if case == "2":
            raise ValueError("no such value")
        return result("odd" if int(case) % 2 else "even", "wrong" if case == "3" else "", cases=1)

    campaign = Campaign(lambda count: [str(n) for n in range(count)], trial, count=4)
    code, found = run(campaign, tmp_path, "--count", "2")
    assert (code, found["counts"]) == (0, {"even": {"cases": 1}, "odd": {"cases": 1}})
    code, found = run(campaign, tmp_path)
    assert code == 1
    assert tried == ["0", "1", "2", "3"]
    assert found["cases"] == 4
    assert found["counts"]["odd"] == {"cases": 2}
    assert found["failed"]["3"] == ["wrong"]
    assert "no such value" in found["failed"]["2"][0]
    assert run(campaign, tmp_path, "--only", "1")[0] == 0
    assert run(campaign, tmp_path, "--minutes", "-1", "--count", "6")[0] == 1


def test_nothing_begins_after_the_time(tmp_path):
    campaign = Campaign(lambda count: ["a"] * count, lambda case: result(case), count=1)
    assert run(campaign, tmp_path, "--minutes", "-1")[0] == 2


def test_cases_of_other_code_run_again(tmp_path):
    state = tmp_path / "state.jsonl"
    state.write_text(json.dumps({"case": "a", "counts": {}, "code": "old"}) + "\n{cut")
    first = resume(state, ["a"], lambda case: result("new", n=1), 1)
    assert summed(first) == {"counts": {}}
    again = resume(state, ["a"], lambda case: result("new", n=1), 1, again=True)
    assert summed(again) == {"counts": {"new": {"n": 1}}}
    assert resume(state, ["a"], lambda case: result("newer"), 1)["a"]["counts"] == {"new": {"n": 1}}
