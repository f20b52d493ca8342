"""Commands of the documents, as a reader types them: each document in a fresh clone, in its order.

Every fence of commands counts, and every command in running text that is complete. Around a fence
stand comments that readers do not see:

    <!-- run -->            the suite runs it too
    <!-- not run: ... -->   why it cannot be run here
    <!-- save: NAME -->     the fence is a file that the reader saves
    <!-- prepare: ... -->   what the reader has or does between the fences, as commands

A fence with lines ``$ command`` shows what each prints: its words are compared, with 1.5 s for any
time in seconds, and a line ``...`` for any words.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from typer.main import get_command

from trials.campaign import Campaign, Counts, Result, Results
from vtaops.cli import app

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
DOCUMENTS = {str(path.relative_to(ROOT)): path.read_text() for path in PAGES}

PROGRAM = r"(?:\.venv/bin/)?(?:vtaops|python3?|pip|make|jupytext|ssh|scp|sudo|ssh-keygen|pytest)"
PART = re.compile(
    r"^ *<!-- prepare: (?P<prepare>.*?) -->$"
    r"|(?:^ *<!-- (?P<mark>run|not run: (?P<reason>[^>]*?)|save: (?P<name>\S+)) -->\n\s*)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$"
    rf"|(?<!`)`(?P<span>{PROGRAM} [^`]+)`",
    re.MULTILINE | re.DOTALL,
)
TIMEOUT = 500
"""Seconds that the commands of a fence may take."""

PLACE = re.compile(r"[A-Z]{4,}")
"""A word that stands for the reader's own."""

OUTPUTS = {"-o", "--output", "--plot", "--save", "--start", "--journal", "--trace"}
"""Options with files that a command writes."""

REASONS = {
    r"192\.168\.|/dev/tty|\bHOST\b": "needs a board",
    r"\b(pip3?|venv|pre-commit|jupytext) ": "installs packages",
    r"vtaops fetch|--download|mlperf-tiny/": "needs the network",
    r"(hardware|board) (build|synth)|\bmake\b.* tsim": "minutes of Verilator, Yosys or nextpnr",
    r"-m (benchmarks|trials) ": "a measurement or campaign of its own",
    r"tasks\.py|tests/house\.py|\bpytest\b": "a task of developers, which CI runs",
    r"-m docs|tests/wheel": "a task of developers, which CI runs",
    r"cuda|vivado": "needs a GPU or Vivado",
    r"-m vtaops\.board serve|board virtual": "a server: it does not end",
    r"ulx3s://127": "needs the server of another terminal, which takes minutes to build",
    r"systemctl|pynq_venv|^sudo|^ssh |^scp ": "for another machine",
}
"""Why commands are not run, by what they hold."""


@dataclass(frozen=True)
class Part:
    """A fence of a document, a command in its text, or what a reader prepares."""

    document: str
    line: int
    kind: str
    """``python``, ``commands``, ``session`` (commands with what they print), ``file``, ``span``,
    ``prepare`` or ``text``."""
    text: str
    reason: str | None = None
    """Why it is not run."""
    in_suite: bool = False
    name: str = ""
    """Of a file to save."""

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def parts(document: str) -> Iterator[Part]:
    """Yield the parts of a document, in its order."""
    text = DOCUMENTS[document]
    for found in PART.finditer(text):
        kind, content = _kind(found)
        line = text.count("\n", 0, found.start("text") if found["text"] else found.start()) + 1
        yield Part(
            document, line, kind, content, found["reason"], found["mark"] == "run", found["name"]
        )


def _kind(found: re.Match[str]) -> tuple[str, str]:
    if found["prepare"]:
        return "prepare", found["prepare"]
    if found["span"]:
        return "span", " ".join(found["span"].split())
    content = textwrap.dedent(found["text"])
    first = content.lstrip().partition("\n")[0]
    if found["name"]:
        return "file", content
    if found["language"] == "python":
        return "python", content
    if first.startswith("$ "):
        return "session", content
    shell = found["language"] == "sh" or (not found["language"] and re.match(PROGRAM + " ", first))
    return ("commands" if shell else "text"), content


def commands(part: Part) -> list[str]:
    """Return the commands of a part, with continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", part.text)
    if part.kind == "session":
        return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def shown(part: Part) -> dict[str, str]:
    """Return what a session shows of each command."""
    pieces = re.split(r"^\$ (.*)\n", part.text, flags=re.MULTILINE)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def difference(said: str, printed: str) -> str:
    """Return what was printed, if it is not what a document says; empty if it is."""
    any_time = re.sub(r"\b\d+(?:\.\d+)? s\b", "0 s", said)
    pieces = [r"\s+".join(map(re.escape, each.split())) for each in any_time.split("\n...\n")]
    timeless = re.sub(r"\b\d+(?:\.\d+)? s\b", "0 s", printed)
    same = re.fullmatch(r"\s*" + r"\s.*".join(pieces) + r"\s*", timeless, re.DOTALL)
    return "" if same else printed


def why_not(command: str) -> str | None:
    """Return why a command is not run; None if it is."""
    return next((why for what, why in REASONS.items() if re.search(what, command)), None)


# ------------------------------------------------------------------------------- one document


class Reader:
    """Who follows a document in a fresh folder that looks like a clone of the repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, object] = {}
        self.counts: dict[str, float] = defaultdict(float)
        self.failed: list[str] = []
        self.reasons: list[str] = []
        self._typed: set[str] = set()
        self._servers: list[subprocess.Popen[bytes]] = []
        _clone(folder)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / ".cache"),
            "COLUMNS": "120",
            "BROWSER": "true",
        }
        self._environment = {**os.environ, **own, "PATH": path}

    def follow(self, part: Part) -> None:
        """Do what a part says."""
        if part.kind == "file":
            (self.folder / part.name).write_text(part.text)
        elif part.kind == "prepare":
            self._run(part, part.text)
        elif part.kind == "python":
            self._python(part)
        elif part.kind in ("commands", "session"):
            self._commands(part)
        elif part.kind == "span":
            self._span(part)

    def close(self) -> None:
        """End what still runs."""
        for server in self._servers:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()

    def _commands(self, part: Part) -> None:
        wanted = shown(part) if part.kind == "session" else {}
        for command in commands(part):
            why = part.reason or why_not(bare(command))
            if command.rstrip().endswith("&"):
                self._serve(command)
            elif why:
                self._leave(part, command, why)
            elif command in wanted:
                printed = self._run(part, command, any_code=True)
                if other := difference(wanted[command], printed):
                    self.failed.append(f"{part}: {command} prints\n{other}")
                self.counts["compared"] += 1
            else:
                self._run(part, command)

    def _span(self, part: Part) -> None:
        known = part.text in self._typed
        why = why_not(part.text) or self._mention(part.text)
        if not known and not why:
            self._run(part, part.text)
        elif not known:
            self._leave(part, part.text, str(why))

    def _mention(self, command: str) -> str | None:
        """Return why a command in the text is none to type; None if it is one."""
        words = shlex.split(command)
        name = all(re.fullmatch(r"[a-z-]+", word) for word in words)
        form = re.search(r"\||\.\.\.", command) or any(map(PLACE.fullmatch, words))
        with redirect_stderr(io.StringIO()):
            if name or form or words[0] != "vtaops" or not understood(words[1:]):
                return "names a command, without what it needs"
        given = {word for last, word in pairwise(words) if last not in OUTPUTS}
        files = {word for word in given if re.search(r"\.[a-z]{2,6}$", word)}
        if any(not (self.folder / word).exists() for word in files):
            return "reads a file that only its reader has"
        return None

    def _leave(self, part: Part, command: str, why: str) -> None:
        self.counts[f"not run: {why}"] += 1
        self.reasons.append(f"{part}: {command}: {why}")

    def _python(self, part: Part) -> None:
        """Run a block in one process a document, as its blocks continue each other."""
        code = "\n" * (part.line - 1) + part.text
        with chdir(self.folder), redirect_stdout(io.StringIO()):
            exec(compile(code, part.document, "exec"), self.names)

    def _run(self, part: Part, command: str, *, any_code: bool = False) -> str:
        """Run a command in the shell; return what it prints."""
        out = self.folder / ".printed"
        with out.open("wb") as file:
            process = self._start(command, file)
            try:
                code: int | str = process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                code = f"none within {TIMEOUT} s"
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        printed = out.read_text(errors="replace")
        self.counts["run"] += part.kind != "prepare"
        self._typed.add(bare(command))
        if (code and not any_code) or "Traceback (most recent" in printed:
            self.failed.append(f"{part}: {command}: exit code {code}\n{printed[-800:]}")
        return printed

    def _serve(self, command: str) -> None:
        """Start a command that goes on, and wait until it says where it listens."""
        out = self.folder / ".served"
        with out.open("wb") as file:
            self._servers.append(self._start(command.rstrip(" &"), file))
        end = time.monotonic() + 60
        while "://" not in out.read_text() and time.monotonic() < end:
            time.sleep(0.1)
        self.counts["run"] += 1

    def _start(self, command: str, out: BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["bash", "-c", command], cwd=self.folder, env=self._environment, stdout=out,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip


def bare(command: str) -> str:
    """Return a command without its comment."""
    return re.sub(r"\s+# .*", "", command).strip()


def understood(words: list[str]) -> bool:
    """Return whether `vtaops` takes these words; it does nothing."""
    try:
        with redirect_stdout(io.StringIO()):
            _idle().main(words, prog_name="vtaops")
    except SystemExit as done:
        return not done.code
    return True


@cache
def _idle() -> Any:
    """Return the command line without what its commands do."""
    command = get_command(app)
    _disarm(command)
    return command


def _disarm(command: Any) -> None:
    for each in getattr(command, "commands", {}).values():
        if hasattr(each, "commands"):
            _disarm(each)
        else:
            each.callback = None


def _clone(folder: Path) -> None:
    """Put the tracked files into a folder, and its environment."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copyfile(ROOT / name, target)
    (folder / ".venv").symlink_to(Path(sys.prefix))


# ------------------------------------------------------------------------------- the campaign


def _trial(document: str) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(Path(folder))
        try:
            found = list(parts(document))
            typed = any(part.kind in ("commands", "session") for part in found)
            left = any(
                part.kind == "python" and (part.reason or why_not(part.text)) for part in found
            )
            for part in found:
                if part.kind != "python" or (typed and not left):  # the suite runs all of these
                    reader.follow(part)
        finally:
            reader.close()
    unrun = {"not run": reader.reasons}
    counts: Counts = {document: dict(reader.counts)}
    return {"counts": counts, "failed": reader.failed, **unrun}


def _tables(results: Results) -> dict[str, Counts]:
    rows = {name: found["counts"].get(name, {}) for name, found in results.items()}
    total = Counter[str]()
    for row in rows.values():
        total.update({name: int(number) for name, number in row.items()})
    counted: Counts = {name: {"commands": number} for name, number in total.most_common()}
    return {"commands of the documents": counted}


CAMPAIGN = Campaign(
    lambda _: [d for d in DOCUMENTS if any(p.kind != "python" for p in parts(d))],
    _trial,
    len(DOCUMENTS),
    _tables,
)
