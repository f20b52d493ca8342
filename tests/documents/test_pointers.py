"""What the documents point at is there: names and files."""

import pkgutil
import re
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POINTING = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = "vtaops|trials|tests|benchmarks|sim|docs|examples|bitstreams|hw_configs"
EXAMPLES = {"wide.json", "bug.vta", "vtaops.xor", "vtaops.devices"}
"""What a reader makes while following, and the name of entry points."""
SOURCES = (
    "py",
    "pyi",
    "sv",
    "svh",
    "v",
    "cpp",
    "hpp",
    "h",
    "c",
    "json",
    "toml",
    "tcl",
    "sh",
    "xdc",
)
OF_OTHERS = {"HAS_INVERT", "StorageRewrite", "Z_x", "x_init", "x_update"}
"""Names in code that no source has: of a reader's own extension, of TVM's, of a formula."""


@cache
def words():
    """Return every word of the sources, and the names of the files."""
    files = [
        path
        for folder in FOLDERS.split("|")
        for path in (ROOT / folder).rglob("*")
        if path.suffix[1:] in SOURCES and "results" not in path.parts
    ]
    texts = (re.findall(r"\w+", path.read_text(errors="replace")) for path in files)
    return {*chain.from_iterable(texts)} | {path.stem for path in files}


def dead_names(text):
    """Return names in code that no source has, and those that are not in the file beside them."""
    single = re.findall(r"(?<!`)`(\w*(?:_|[a-z][A-Z])\w*)(?:\(\))?`(?!`)", text)
    dead = [name for name in single if name not in words() | OF_OTHERS]
    for name, file in re.findall(r"`(\w+)` (?:of|in) `((?:\w+/)+\w+\.\w+)`", text):
        if (ROOT / file).exists() and name not in re.findall(r"\w+", (ROOT / file).read_text()):
            dead.append(f"{name} in {file}")
    return dead


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


@pytest.mark.parametrize("page", POINTING, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_in_code_are_those_of_the_sources(page):
    """Of the page for those who come from elsewhere, only what stands in the column of vtaops."""
    text = page.read_text()
    if page.name == "migration.md":
        text = re.sub(r"^\| [^|]* \|", "|", text, flags=re.MULTILINE)
    assert dead_names(text) == []


def test_a_name_that_is_gone_would_be_found():
    gone, file = "_".join(["", "GONE"]), "vtaops/frontends/functions.py"
    text = f"a row of `{gone}`, or of `ELEMENTWISE` in `{file}`"
    assert dead_names(text) == [gone, f"ELEMENTWISE in {file}"]


def test_each_word_of_the_glossary_has_one_meaning():
    text = (ROOT / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    words = [word.strip() for row in rows for word in row.split(",")]
    words = [word for word in words if word != "word" and not word.startswith("-")]
    assert len(words) >= 60
    assert len({*words}) == len(words)
