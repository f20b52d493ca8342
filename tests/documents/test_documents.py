"""The documents: what they show runs, and what they print from tables is what the tables say.

Nothing is listed here: every Python block and every command of README and docs is found. A block
that cannot run has a comment above it, ``<!-- not run: the reason -->``, and is shown as skipped.
Commands are parsed; those below ``<!-- run -->`` are run too, in the same folder as the Python
blocks. The campaign ``python -m trials documents`` runs the others, each in the shell.
"""

import importlib
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tvm
from helpers.tsim_support import needs_tools
from typer.main import get_command
from typer.testing import CliRunner

import vtaops
from benchmarks.__main__ import application, titles
from docs import __main__ as docs_main
from trials import __main__ as trials_main
from trials.documents import DOCUMENTS, ROOT, difference, parts, shown, understood
from trials.documents import commands as lines_of
from vtaops import HardwareConfig
from vtaops.cli import app
from vtaops.cli.hardware import layout_table
from vtaops.machine.isa import Encoding

SHOWN = re.compile(r"print\(.*\)\s+# -> (.*)$")
BOARD = "192.168.2.99"
"""The address of a board in the documents; here a virtual one answers."""


PARTS = {document: list(parts(document)) for document in DOCUMENTS}
PYTHON = [part for document in DOCUMENTS for part in PARTS[document] if part.kind == "python"]
RUN = sorted({part.document for part in PYTHON if part.reason is None})
PRINTED = "@I.ir_module"
"""In blocks that a program of ours printed: they are read, not executed."""


@pytest.fixture
def board():
    """Return the address of a virtual board, in a process of its own; started on first use."""
    started = []

    def address():
        if not started:
            command = [sys.executable, "-m", "vtaops.board", "virtual", "pynq", "--programmed"]
            started.append(
                subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
            )
            started.append(started[0].stdout.readline().split()[-1].removeprefix("pynq://"))
        return started[1]

    yield address
    for process in started[:1]:
        process.terminate()
        process.communicate(timeout=20)


def followed(document):
    """Return the parts that tests follow: Python, and what stands below ``<!-- run -->``."""
    typed = [p.in_suite for p in PARTS[document] if p.kind in ("commands", "session")]
    kinds = {"file", "prepare"} if all(typed) else set()
    chosen = [p for p in PARTS[document] if p.in_suite or p.kind in {"python", *kinds}]
    return [part for part in chosen if not part.reason]


@pytest.mark.parametrize("document", RUN)
def test_the_blocks_run_and_print_what_is_said(document, capsys, tmp_path, monkeypatch, board):
    monkeypatch.chdir(tmp_path)
    names = {}
    for part in followed(document):
        if part.kind == "prepare":
            subprocess.run(["sh", "-c", part.text], check=True, timeout=20)
        elif part.kind == "file":
            Path(part.name).write_text(part.text)
        elif part.kind != "python":
            type_commands(part)
        elif PRINTED in part.text:
            tvm.script.from_source(part.text)
        elif "Tsim" not in part.text or not needs_tools.args[0]:
            code = part.text.replace(BOARD, board()) if BOARD in part.text else part.text
            exec(compile("\n" * (part.line - 1) + code, str(ROOT / document), "exec"), names)
            printed = capsys.readouterr().out.splitlines()
            shown = [match[1] for line in code.splitlines() if (match := SHOWN.search(line))]
            assert [line for line in shown if line not in printed] == [], str(part)


def type_commands(part):
    """Run the commands of a part, one a line; a session prints what it shows."""
    wanted = shown(part) if part.kind == "session" else {}
    for line in lines_of(part):
        name, *words = shlex.split(line, comments=True)
        assert name == "vtaops", str(part)
        done = CliRunner().invoke(app, words)
        if line in wanted:
            said = done.output or str(done.exception)
            assert difference(wanted[line], said) == "", f"{part}: {line}"
        else:
            assert done.exit_code == 0, f"{part}: {line}\n{done.output[-999:]}\n{done.exception!r}"


LEFT = [p for all_of in PARTS.values() for p in all_of if p.reason is not None]


@pytest.mark.parametrize("part", LEFT, ids=str)
def test_a_block_that_is_not_run_says_why(part):
    if part.kind == "python":
        compile(part.text, str(part), "exec")
    assert len(part.reason) > 10
    pytest.skip(f"{part}: {part.reason}")


def test_other_words_than_those_shown_would_be_found():
    said = "3 cycles; 0.07 s\n...\nthe end"
    assert difference(said, "3  cycles; 1.2 s\nmore\nthe\nend\n") == ""
    for printed in (
        "4 cycles; 1.2 s\nthe end",
        "3 cycles; 1.2 s\nthe end of it",
        "3 cycles; 1.2 s",
    ):
        assert difference(said, printed) == printed


# ---------------------------------------------------------------------------- commands


def commands():
    """Yield the document and the words of each command in a block."""
    for part in (part for all_of in PARTS.values() for part in all_of):
        if part.kind in ("commands", "session"):
            for line in lines_of(part):
                for piece in line.split("&&"):
                    if re.match(r"(\.venv/bin/)?(vtaops|python3?) ", piece.strip()):
                        command = re.split(r" [|>] ", piece.strip())[0]
                        words = shlex.split(command, comments=True)
                        yield (
                            part.document,
                            [Path(words[0]).name, *(w for w in words[1:] if w != "&")],
                        )


COMMANDS = [(d, words) for d, words in commands() if words[0] == "vtaops"]
SCRIPTS = [(d, words) for d, words in commands() if words[0] != "vtaops" and words[1:2] != ["-c"]]


@pytest.mark.parametrize(("document", "words"), COMMANDS, ids=lambda v: " ".join(v)[:60])
def test_the_commands_of_the_documents_are_understood(document, words, capsys):
    """Parsed by the command itself, which then does nothing: name, options and values are right."""
    known = understood(words[1:])
    assert known or "does not exist" in capsys.readouterr().err, document  # files that a reader has


@pytest.mark.parametrize(
    "wrong", ["hardware write --outputs vta", "hardware wirte pynq", "run conv2d --layer"]
)
def test_a_wrong_command_would_be_found(wrong):
    assert not understood(wrong.split())


@pytest.mark.parametrize(("document", "words"), SCRIPTS, ids=lambda v: " ".join(v)[:60])
def test_the_scripts_of_the_documents_have_their_options(document, words):
    if words[1] == "-m" and words[2] in ("venv", "pytest", "pip"):
        return
    if words[1:3] == ["-m", "benchmarks"]:
        command = get_command(application(words[3]))
        command.callback = None
        command.main(words[4:], standalone_mode=False)
        return
    if words[1:3] in (["-m", "trials"], ["-m", "docs"]):
        runner = trials_main if words[2] == "trials" else docs_main
        command = get_command(runner.application(words[3]))
        command.callback = None
        command.main(words[4:], standalone_mode=False)
        return
    if words[1] == "-m":
        source = inspect.getsource(importlib.import_module(_main_of(words[2])))
    elif (ROOT / words[1]).exists():
        source = (ROOT / words[1]).read_text()
    else:
        source = (ROOT / "examples" / "kernels" / Path(words[1]).name).read_text()  # exported
    options = {word.split("=")[0] for word in words if word.startswith("--")}
    missing = [o for o in options if o not in source and o[2:].replace("-", "_") not in source]
    assert missing == [], f"{document}: {words}"


def _main_of(module):
    spec = importlib.util.find_spec(module)
    return f"{module}.__main__" if spec.submodule_search_locations else module


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_named_in_the_text_exist(document):
    """In `code`: their first words."""
    for name in re.findall(r"python -m\s+benchmarks\s+([a-z]\w*)", DOCUMENTS[document]):
        assert name in titles(), f"{document}: python -m benchmarks {name}"
    campaigns = re.findall(r"python -m\s+trials\s+([a-z]\w*)([^`\n|]*)", DOCUMENTS[document])
    for name, options in campaigns:
        command = get_command(trials_main.application(name))
        command.callback = None
        command.main(shlex.split(options, comments=True), standalone_mode=False)
    known = get_command(app)
    for span in re.findall(r"`vtaops\s+([^`]*)`", DOCUMENTS[document]):
        command = known
        for word in span.split():
            if not hasattr(command, "commands") or not re.fullmatch(r"[a-z][a-z-]*", word):
                break
            assert word in command.commands, f"{document}: vtaops {span}"
            command = command.commands[word]


def test_every_extra_that_a_document_names_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {*project["optional-dependencies"]}
    for document, text in DOCUMENTS.items():
        named = re.findall(r"(?:vtaops|\.|\.whl)\[([a-z,]+)\]", text)
        named += re.findall(r"extras? `(\w+)`", text)
        assert {*",".join(named).split(",")} - {""} <= known, document


def test_no_document_installs_by_a_name_that_nobody_has_registered():
    """On PyPI there is no vtaops: whoever takes the name would run code on our users' machines."""
    for document, text in DOCUMENTS.items():
        assert not re.search(r"pip install (?:-\S+ )*['\"]?vtaops\b", text), document


@pytest.mark.parametrize("document", [name for name in RUN if "tutorials/" in name])
def test_the_tutorials_need_no_internal_import(document):
    """What a student types: the package, its rooms by name, layouts and buffers."""
    public = {
        "vtaops",
        "vtaops.machine.layout",
        "vtaops.lowering",
        "vtaops.compiler",
        "vtaops.program",
    }
    text = DOCUMENTS[document]
    used = re.findall(r"^(?:from|import) (vtaops[\w.]*)", text, re.MULTILINE)
    assert used
    assert set(used) <= public


def test_every_link_of_the_documents_leads_somewhere():
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            if not target.startswith(("http", "mailto")):
                assert (document.parent / target).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize("slots", Encoding.of(HardwareConfig.load("pynq")).slots.values())
def test_the_bits_in_the_manual_are_those_of_the_table(slots):
    manual = (ROOT / "docs" / "isa.md").read_text()
    assert [s for s in slots if f"| {s.span} | {s.name} | " not in manual] == []


@pytest.mark.parametrize("config", ["pynq", "tiny"])
def test_isa_command_prints_the_table(config):
    result = CliRunner().invoke(app, ["hardware", "isa", "--config", config])
    assert result.exit_code == 0
    assert result.output.rstrip() == layout_table(HardwareConfig.load(config)).rstrip()


def test_the_reference_has_every_public_name_and_an_example_of_it():
    """A heading and a use in a block that runs; of errors, their cause and what mends it."""
    reference = DOCUMENTS["docs/api.md"]
    headings = set(re.findall(r"`(\w+)`", "\n".join(re.findall("^### .*", reference, re.M))))
    explained = set(re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", reference, re.M))
    code = "\n".join(part.text for part in PYTHON if part.document == "docs/api.md")
    names = set(vtaops.__all__) - {"__version__"}
    errors = set(vtaops.errors.__all__)
    assert errors == explained
    assert names - errors <= headings
    assert {name for name in names - errors if f"vtaops.{name}" not in code} == set()
    raised = {name for name in errors if re.search(rf"# -> .*\b{name}\b", code)}
    assert len(raised) >= 11
