"""Text from outside as data: names that are checked where they are read, and quoted where written.

One function for each language that vtaops writes text into. HTML and shells have theirs in the
standard library (`html.escape`, `shlex.quote`), JSON its own encoder.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_NAME_CHARACTERS = 4096
"""Most characters of a name: TFLite joins the names of all that it fused."""

NAME_RULE = f"a name has 1..{MAX_NAME_CHARACTERS} characters, all of which can be printed"

_PLAIN_NAME = re.compile(r"\w[\w .,+=@()-]{0,199}")
_TCL_SPECIAL = re.compile(r"[^\w./:+-]", re.ASCII)


def is_name(value: object) -> bool:
    """Whether a value is a name: text that can be printed, of 1 to `MAX_NAME_CHARACTERS`."""
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= MAX_NAME_CHARACTERS


def is_plain_name(value: object) -> bool:
    """Whether a value is a name without punctuation that a language could take for its own."""
    return is_name(value) and _PLAIN_NAME.fullmatch(str(value)) is not None


def check_texts(data: Any) -> None:
    """Check that all text in data from JSON can be printed.

    Raises
    ------
    ValueError
        If not; the message shows the text.
    """
    if isinstance(data, str):
        if not data.isprintable():
            raise ValueError(f"the text {repr(data)[:80]} has characters that cannot be printed")
    elif isinstance(data, dict):
        for key, value in data.items():
            check_texts(key)
            check_texts(value)
    elif isinstance(data, list):
        for value in data:
            check_texts(value)


def c_text(text: str) -> str:
    """Return text that can stand in a comment and in a string of C: what could end them is ``_``.

    Question marks begin trigraphs.
    """
    return re.sub(r'[^ -~]|["*/?\\]', "_", text)


def c_string(text: str) -> str:
    """Return a string of C."""
    return f'"{c_text(text)}"'


def tcl_word(value: object) -> str:
    """Return a value as one word of Tcl, in which nothing is substituted."""
    return _TCL_SPECIAL.sub(_tcl_escape, str(value)) or "{}"


def _tcl_escape(character: re.Match[str]) -> str:
    code = ord(character[0])
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def script_json(data: Any) -> str:
    """Return data as JSON that can stand in a ``<script>`` of HTML, which ``<`` could end."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def terminal_text(text: str) -> str:
    """Return text of which a terminal obeys nothing but ends of lines and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def figure_text(text: str) -> str:
    """Return text in which matplotlib finds no formula, and XML no character that it forbids."""
    return terminal_text(text).replace("$", "\\$")
