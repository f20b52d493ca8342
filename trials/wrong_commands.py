"""Wrong command lines, drawn from the grammar of all commands: each ends at once and says why.

The grammar is the command line's own: its commands, arguments, options and their types, as Typer
has them. A line that would be right gets one mistake. Judges: no traceback; an exit code of 0 only
if something was printed or written, and never after a mistake that cannot be right; no message of
more than 600 characters.
"""

from __future__ import annotations

import io
import random
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from typer.main import get_command

import vtaops
from trials.campaign import Campaign, Result, result
from trials.onnx_models import images, small_network
from vtaops import cli

PORTION = 25
"""Lines of a case."""

LONGEST = 600
"""Most characters of a message, without the frame around it."""

SECONDS = 20
"""After which a line counts as one that works: it is interrupted."""

SERVERS = {"vtaops board serve", "vtaops board virtual"}
"""Commands that hand their words on to another program."""

NOWHERE = "127.0.0.1:9"


# ------------------------------------------------------------------------------- the grammar


def leaves(command: Any = None, words: tuple[str, ...] = ("vtaops",)) -> Iterator[Leaf]:
    """Yield all commands that do something, by their words."""
    command = command or get_command(cli.app)
    for name, child in command.commands.items():
        if hasattr(child, "commands"):
            yield from leaves(child, (*words, name))
        else:
            yield Leaf((*words, name), tuple(child.params))


@dataclass(frozen=True)
class Leaf:
    """A command: its words, and its parameters as click has them."""

    words: tuple[str, ...]
    params: tuple[Any, ...]

    @property
    def arguments(self) -> list[Any]:
        return [param for param in self.params if param.param_type_name == "argument"]

    @property
    def options(self) -> list[Any]:
        known = [param for param in self.params if param.param_type_name == "option"]
        return [param for param in known if "--help" not in param.opts]

    @property
    def valued(self) -> list[Any]:
        return [option for option in self.options if not option.is_flag]


@cache
def folder() -> Path:
    """Return a folder with a file of each kind that commands read."""
    place = Path(tempfile.mkdtemp(prefix="wrong_commands"))
    model = small_network()
    onnx.save(model, place / "float.onnx")
    onnx.save(vtaops.quantize(model, images(4)), place / "net.onnx")
    vtaops.compile_model(place / "net.onnx").save(place / "net.vtam")
    vtaops.compile(vtaops.Gemm(m=1, n=16, k=16), "pynq").save(place / "net.vta")
    np.savez(place / "data.npz", x=images(4))
    np.save(place / "x.npy", images(1))
    (place / "text.txt").write_text("nothing that a command reads\n")
    (place / "list.json").write_text("[1, 2]")
    (place / "pictures").mkdir()
    return place


FILES = "float.onnx", "net.onnx", "net.vtam", "net.vta", "data.npz", "x.npy"


def kind_of(param: Any) -> str:
    """Return what the values of a parameter are: "int", "float", "choice", "path" or "str"."""
    return str(param.type.name).partition(" ")[0]


def value(param: Any, chance: random.Random) -> str:
    """Return a value that a parameter could take, by its type and name."""
    kind, name = kind_of(param), param.name
    if kind == "choice":
        return str(chance.choice(param.type.choices))
    if kind in ("int", "float"):
        return str(max(getattr(param.type, "min", None) or 0, 1))
    if name in ("config", "against") and kind == "str":
        return "tiny"
    if name in ("board", "host", "address"):
        return NOWHERE
    if name in ("layer", "layers", "operator"):
        return "lenet5.S4"
    if name == "device":
        return "fsim"
    return _file(param, chance)


def _file(param: Any, chance: random.Random) -> str:
    if param.name == "output":
        return chance.choice(("made.html", "made.vtam", "made", "made.json", "made.png"))
    wanted = (param.help or "").lower() if hasattr(param, "help") else ""
    fitting = [name for name in FILES if Path(name).suffix in wanted]
    return chance.choice(fitting or [*FILES, "a"])


def right(leaf: Leaf, chance: random.Random) -> list[str]:
    """Return words that a command could take: what it requires, and some options."""
    words = [value(param, chance) for param in leaf.arguments if param.required]
    chosen = [o for o in leaf.options if o.required]
    others = [o for o in leaf.options if not o.required and o.opts[0] != "--force"]
    for option in [*chosen, *chance.sample(others, min(len(others), chance.randint(0, 2)))]:
        words += [option.opts[0], *([] if option.is_flag else [value(option, chance)])]
    return words


# ------------------------------------------------------------------------------- the mistakes

Mistake = Callable[[Leaf, list[str], random.Random], list[str] | None]


def misspelt_command(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    at = chance.randrange(1, len(leaf.words))
    name = leaf.words[at]
    place = chance.randrange(len(name))
    wrong = chance.choice((name[:place] + name[place + 1 :], name + "s", name.upper(), name + name))
    return [*leaf.words[1:at], wrong, *leaf.words[at + 1 :], *words]


def _after(leaf: Leaf, words: Sequence[str]) -> list[str]:
    return [*leaf.words[1:], *words]


def unknown_option(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    names = [o.opts[0] for o in leaf.options] or ["--json"]
    name = chance.choice(names)
    return _after(leaf, [*words, chance.choice((name + "x", "-q", "--frobnicate", name.upper()))])


def option_of_another(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    own = {name for o in leaf.options for name in (*o.opts, *o.secondary_opts)}
    others = {n for other in all_leaves() for o in other.options for n in o.opts} - own
    longest = [n for n in others if not any(mine.startswith(n) for mine in own)]
    return _after(leaf, [*words, chance.choice(sorted(longest))])


def no_value(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    return _after(leaf, [*words, chance.choice(leaf.valued).opts[0]]) if leaf.valued else None


def value_of_a_flag(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    flags = [option for option in leaf.options if option.is_flag]
    return _after(leaf, [*words, f"{chance.choice(flags).opts[0]}=perhaps"]) if flags else None


def wrong_type(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    typed = [o for o in leaf.valued if kind_of(o) not in ("str", "path")]
    if not typed:
        return None
    return _after(leaf, [*words, chance.choice(typed).opts[0], chance.choice(("seven", "", "1,2"))])


def nothing_required(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    required = [param for param in leaf.params if param.required]
    return _after(leaf, []) if required else None


def one_too_many(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    if any(param.nargs == -1 for param in leaf.arguments):
        return None
    return _after(leaf, [*words, *["surplus"] * (1 + len(leaf.arguments))])


def _another(leaf: Leaf, words: list[str], chance: random.Random, texts: Sequence[str]) -> Any:
    """Return the line with another value for one of its parameters."""
    places = [*leaf.valued, *leaf.arguments]
    if not places:
        return None
    param, text = chance.choice(places), chance.choice(texts)
    if param in leaf.arguments:
        own = [text if each is param else value(each, chance) for each in leaf.arguments]
        return _after(leaf, [*own, *[w for w in words if w.startswith("--")][:0]])
    return _after(leaf, [*words, param.opts[0], text])


def missing_file(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    texts = ["absent.onnx", "no/such/folder/x.vta", "absent.vtam", "absent.json", "absent"]
    return _another(leaf, words, chance, texts)


def wrong_file(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    texts = ["text.txt", "list.json", "pictures", ".", "/dev/null", *FILES]
    return _another(leaf, words, chance, texts)


def wrong_number(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    texts = ["-1", "0", "1" * 40, "nan", "inf", "1e99", "0.5", "-0"]
    return _another(leaf, words, chance, texts)


def wrong_text(leaf: Leaf, words: list[str], chance: random.Random) -> list[str] | None:
    texts = ["", " ", "x" * 3000, "a\nb", "é", "=", "1=2", ",", "a,b", "--", "%s{0}", "[bold]x"]
    return _another(leaf, words, chance, texts)


SURE: tuple[Mistake, ...] = (
    misspelt_command, unknown_option, option_of_another, no_value, value_of_a_flag, wrong_type,
    nothing_required, one_too_many,
)  # fmt: skip
"""Mistakes after which no line is right."""

LIKELY: tuple[Mistake, ...] = (missing_file, wrong_file, wrong_number, wrong_text)
"""Mistakes that some parameters take for a value."""


@cache
def all_leaves() -> tuple[Leaf, ...]:
    """Return all commands but those that hand their words on."""
    return tuple(leaf for leaf in leaves() if " ".join(leaf.words) not in SERVERS)


def draw(chance: random.Random) -> tuple[str, list[str]]:
    """Return the name of a mistake, and a line with it."""
    while True:
        leaf, mistake = chance.choice(all_leaves()), chance.choice((*SURE, *LIKELY))
        words = mistake(leaf, right(leaf, chance), chance)
        if words is not None:
            return mistake.__name__, words


# ------------------------------------------------------------------------------- the judge


class Endless(Exception):
    """A line that works on."""


def run(words: Sequence[str], place: Path) -> tuple[object, str, str]:
    """Run a line in a folder: its exit code, and what it printed to each output."""
    out, err = io.StringIO(), io.StringIO()
    plain = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "XDG_CACHE_HOME": str(place / "c")}

    def stop(*_: object) -> None:
        raise Endless

    code: object = 0
    with ExitStack() as around:
        around.enter_context(chdir(place))
        around.enter_context(patch.object(sys, "argv", ["vtaops", *words]))
        around.enter_context(patch.dict("os.environ", plain))
        around.enter_context(patch("urllib.request.urlopen", side_effect=OSError("no network")))
        around.enter_context(redirect_stdout(out))
        around.enter_context(redirect_stderr(err))
        around.enter_context(warnings.catch_warnings())
        before = signal.signal(signal.SIGALRM, stop)
        signal.alarm(SECONDS)
        try:
            cli.main()
        except SystemExit as done:
            code = done.code
        except Endless:
            code = "works on"
        except Exception:
            code = "raised: " + traceback.format_exc()[-1500:]
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
    return code, out.getvalue(), err.getvalue()


def fault(mistake: str, words: Sequence[str]) -> str:
    """Return what is wrong with how a line ends; empty if nothing is."""
    source = folder()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for path in source.iterdir():
            (place / path.name).symlink_to(path)
        known = {path.name for path in place.iterdir()}
        code, out, err = run(words, place)
        made = {path.name for path in place.iterdir()} - known - {"c"}
    sure = mistake in {each.__name__ for each in SURE}
    if str(code).startswith("raised") or "Traceback" in err:
        return f"traceback: {code} {err[-300:]}"
    if code == "works on":
        return "works on, though it is wrong" if sure else ""
    if code in (None, 0):
        if sure:
            return f"exit 0, though it is wrong: {out[:300]}"
        return "" if out.strip() or made else "exit 0, and nothing was done"
    message = err + out if code == 2 else err
    if code not in (1, 2):
        return f"exit {code}: {message[:300]}"
    if not message.strip() and not out.strip():
        return f"exit {code} without a word"
    plain = " ".join(re.sub(r"[─│╭╮╰╯]", " ", message).split())
    return f"{len(plain)} characters: {plain[:700]}" if len(plain) > LONGEST else ""


# ------------------------------------------------------------------------------- the campaign


def _cases(count: int) -> list[str]:
    return [f"lines {number}" for number in range(-(-count // PORTION))]


def _trial(case: str) -> Result:
    chance = random.Random(case)
    counts: dict[str, float] = {"lines": 0}
    failed = []
    for _ in range(PORTION):
        mistake, words = draw(chance)
        counts["lines"] += 1
        counts[mistake] = counts.get(mistake, 0) + 1
        if wrong := fault(mistake, words):
            failed.append(f"{mistake}: vtaops {' '.join(word[:80] for word in words)}\n{wrong}")
    return result("wrong lines", failed, **counts)


CAMPAIGN = Campaign(_cases, _trial, 500)
