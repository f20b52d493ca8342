"""What the documents point at is there: names and files."""

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POINTING = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = "vtaops|trials|tests|benchmarks|sim|docs|examples|bitstreams|hw_configs"
EXAMPLES = {"wide.json", "bug.vta", "vtaops.xor", "vtaops.devices"}
"""What a reader makes while following, and the name of entry points."""


@pytest.mark.parametrize("page", POINTING, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_points_at_is_there(page):
    spans = re.findall(r"(?<!`)`([^`\s]+)`(?!`)", page.read_text())
    for span in spans:
        if any(example in span for example in EXAMPLES):
            continue
        name = re.fullmatch(r"((?:vtaops|trials|benchmarks)(?:\.\w+)+)(?:\(.*\))?", span)
        if name:
            pkgutil.resolve_name(name[1])
        elif re.fullmatch(rf"({FOLDERS})/[\w./*]*", span):
            assert list(ROOT.glob(span.rstrip("/"))), span


def test_each_word_of_the_glossary_has_one_meaning():
    text = (ROOT / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    words = [word.strip() for row in rows for word in row.split(",")]
    words = [word for word in words if word != "word" and not word.startswith("-")]
    assert len(words) >= 60
    assert len({*words}) == len(words)
