"""Hostile names in every format: a sample; ``trials/hostile_names.py`` tries twenty thousand."""

import random
import shutil

import pytest

from trials.hostile_names import READERS, WRITERS, browser, hostile, reads, writes

ANY = "pictures", "name of a folder"
"""What may have any name."""

ATTACKS = "*/ int ran = 1; /*", "} ; set ran 1 ; {", "<!--<script>", "\x1b[2J", "$\\frac{$"


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_of_a_name_leaves_its_place_in_what_is_written(writer):
    if writer == "C" and not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    if writer.endswith("Chromium") and not browser():
        pytest.skip("needs selenium, chromium and chromium-driver")
    for name in ATTACKS:
        assert writes(writer, name) == "written"
    chance = random.Random(7)
    for _ in range(3):
        assert writes(writer, hostile(chance)) == "written"


@pytest.mark.parametrize("kind", READERS)
def test_files_with_hostile_names_are_refused_or_show_nothing_that_terminals_obey(kind):
    chance = random.Random(8)
    said = {reads(kind, hostile(chance), chance) for _ in range(30)}
    assert said == ({"read"} if kind in ANY else {"read", "refused"})
