"""Write or check parts of the documents: ``python -m docs NAME``, or list all: ``--list``."""

from __future__ import annotations

import importlib
import sys

import typer

from benchmarks.__main__ import of_main
from trials.commands import run_named

TOOLS = {
    "a3_report": "the report of course assignment A3: primitives on CPU and GPU, step by step",
    "depthwise_article": "the tables of Hu's article on depthwise convolution, counted",
    "figures": "the exact figures of the documents, compared with what commands measured",
    "lessons": "the stages of all lessons: tables and plots, timed or counted",
    "measured": "the tables of the documents, made from benchmarks/results",
    "pictures": "the pictures of the documents, by the commands above them",
    "records": "the records of the judge, and their table",
    "seed_pictures": "the pictures of how kernels and programs work",
    "supported": "the list of what is supported, measured",
}


def application(name: str) -> typer.Typer:
    """Return the command line of a tool."""
    return of_main(importlib.import_module(f"docs.{name}"))


def main(arguments: list[str]) -> None:
    """Run the tool that the first argument names, with the other arguments."""
    run_named("docs", "tool", __doc__, TOOLS, application, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
