"""Write or check parts of the documents: ``python -m docs NAME``, or list all: ``--list``."""

from __future__ import annotations

import importlib
import sys

from benchmarks.__main__ import command_line

TOOLS = {
    "figures": "the exact figures of the documents, compared with what commands measured",
    "measured": "the tables of the documents, made from benchmarks/results",
    "pictures": "the pictures of the documents, by the commands above them",
    "supported": "the list of what is supported, measured",
}


def main(arguments: list[str]) -> None:
    """Run the tool that the first argument names, with the other arguments."""
    name = arguments[0] if arguments else "--list"
    if name in ("--list", "--help"):
        print(__doc__, *(f"{n:12}{title}" for n, title in TOOLS.items()), sep="\n")
    elif name not in TOOLS:
        sys.exit(f"there is no tool {name!r}; those there are: {', '.join(TOOLS)}")
    else:
        tool = importlib.import_module(f"docs.{name}")
        command_line(tool)(arguments[1:], prog_name=f"python -m docs {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
