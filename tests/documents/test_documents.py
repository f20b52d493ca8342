"""The documents: what they show runs, and what they print from tables is what the tables say."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vtaops import HardwareConfig
from vtaops.cli import app
from vtaops.isa import layout_table

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"print\(.*\)\s+# -> (.*)$")


RUN = [
    "learn.md",
    "import.md",
    *sorted(f"tutorials/{path.name}" for path in (ROOT / "docs" / "tutorials").glob("*.md")),
]


@pytest.mark.parametrize("document", RUN)
def test_the_blocks_run_and_print_what_is_said(document, capsys):
    text = (ROOT / "docs" / document).read_text()
    names = {}
    for block in BLOCK.findall(text):
        exec(compile(block, f"docs/{document}", "exec"), names)
        printed = capsys.readouterr().out.splitlines()
        shown = [match[1] for line in block.splitlines() if (match := SHOWN.search(line))]
        assert [line for line in shown if line not in printed] == []


@pytest.mark.parametrize("document", [name for name in RUN if "/" in name])
def test_the_tutorials_need_no_internal_import(document):
    """What a student types: the package, its rooms by name, layouts and buffers."""
    public = {"vtaops", "vtaops.layout", "vtaops.lowering", "vtaops.program", "vtaops.rpc"}
    text = (ROOT / "docs" / document).read_text()
    used = re.findall(r"^(?:from|import) (vtaops[\w.]*)", text, re.MULTILINE)
    assert used
    assert set(used) <= public


def test_every_link_of_the_documents_leads_somewhere():
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            if not target.startswith(("http", "mailto")):
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_bits_in_the_manual_are_those_of_the_table():
    manual = (ROOT / "docs" / "isa.md").read_text()
    assert layout_table(HardwareConfig.load("pynq")).rstrip() in manual


@pytest.mark.parametrize("config", ["pynq", "tiny"])
def test_isa_command_prints_the_table(config):
    result = CliRunner().invoke(app, ["isa", config])
    assert result.exit_code == 0
    assert result.output.rstrip() == layout_table(HardwareConfig.load(config)).rstrip()


def test_isa_command_decodes_an_instruction():
    word = "0000900200000862001c00400820022a"
    result = CliRunner().invoke(app, ["isa", "pynq", "--decode", word])
    assert result.exit_code == 0
    assert "GEMM      uop 2..65 loops 8x14 dst +98,+1" in " ".join(result.output.split("\n"))
    assert re.search(r"8\.\.20\s+uop_begin\s+2\b", result.output)


@pytest.mark.parametrize("word", ["zz", "1" * 33, "-1", "5"])
def test_isa_command_refuses_what_is_no_instruction(word):
    result = CliRunner().invoke(app, ["isa", "--decode", word])
    assert result.exit_code == 1
