"""Wrong command lines: a sample; ``trials/wrong_commands.py`` draws hundreds from all commands."""

import random

import pytest

from trials.wrong_commands import LIKELY, SURE, all_leaves, draw, fault, right


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_line_ends_at_once_and_says_why(seed):
    chance = random.Random(f"test {seed}")
    drawn = [draw(chance) for _ in range(6)]
    assert [(m, " ".join(words), f) for m, words in drawn if (f := fault(m, words))] == []


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        ("wrong_file", "board calibrate ."),  # a name that cannot be encoded for the network
        ("wrong_text", f"bitstream add data.npz --id {'x' * 3000} --config tiny"),
        ("nothing_required", "list"),
        ("wrong_number", "report trace --window 9:3"),
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
