"""Wrong command lines: a sample; ``trials/wrong_commands.py`` draws hundreds from all commands."""

import random

import pytest
from typer.testing import CliRunner

from trials.wrong_commands import LIKELY, SURE, all_leaves, draw, fault, leaves, right
from vtaops import HardwareConfig, cli
from vtaops.cli.hardware import layout_table


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_line_ends_at_once_and_says_why(seed):
    chance = random.Random(f"test {seed}")
    drawn = [draw(chance) for _ in range(6)]
    assert [(m, " ".join(words), f) for m, words in drawn if (f := fault(m, words))] == []


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        ("wrong_file", "board test ."),  # a name that cannot be encoded for the network
        ("wrong_text", f"flash {'x' * 3000}"),
        ("nothing_required", "list"),
        ("wrong_number", "report program --window 9:3"),
        ("wrong_number", f"sweep --json --jobs {'1' * 40}"),  # more than a semaphore counts
    ],
)
def test_lines_that_once_ended_otherwise(mistake, line):
    assert fault(mistake, line.split()) == ""


def test_every_command_and_every_mistake_is_drawn():
    chance = random.Random(0)
    drawn = [draw(chance) for _ in range(1500)]
    assert {mistake for mistake, _ in drawn} == {each.__name__ for each in (*SURE, *LIKELY)}
    for leaf in all_leaves():
        assert len(right(leaf, chance)) >= sum(param.required for param in leaf.params)
        begun = [words[: len(leaf.words) - 1] for _, words in drawn]
        assert list(leaf.words[1:]) in begun, leaf.words


MAKING = {
    "chat", "demo", "flash", "fetch", "hardware build", "hardware write",
    "board serve", "board virtual", "disasm",
}  # fmt: skip
"""Commands that make, send or serve something, or print a file."""


def test_every_command_that_lists_or_reports_does_so_as_json():
    options = {leaf.words[1:]: {n for o in leaf.options for n in o.opts} for leaf in leaves()}
    assert {" ".join(words) for words, names in options.items() if "--json" not in names} == MAKING


@pytest.mark.parametrize("given", ["--config tiny", "--config=tiny", ""])
def test_a_configuration_is_an_option(given):
    wanted = layout_table(HardwareConfig.load("tiny" if given else "pynq"))
    assert CliRunner().invoke(cli.app, ["hardware", "isa", *given.split()]).stdout == wanted
