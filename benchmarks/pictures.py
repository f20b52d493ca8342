"""Make all pictures of the documents anew, and write down the cycles that docs/diagrams.md shows.

    python benchmarks/pictures.py                       # all; the sweep takes some minutes
    python benchmarks/pictures.py roofline access
    python benchmarks/pictures.py seeds                 # those of seed_pictures.py

Runs the commands that the document prints above its pictures. What they report goes to
docs/images/figures.json, which tests/documents/test_figures.py computes again.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEEDS = "seeds"
FIGURES = ROOT / "docs" / "images" / "figures.json"


def commands() -> dict[str, list[str]]:
    """Return the words of each command that writes a picture, by the picture's name."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "docs" / "diagrams.md").read_text())
    found = re.findall(r"^(vtaops .* -o docs/images/(\w+)\.png.*)$", text, re.MULTILINE)
    return {name: shlex.split(line) for line, name in found}


def main() -> None:
    """Run the commands of the chosen pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "pictures", nargs="*", choices=[[], *commands(), SEEDS], help="default: all"
    )
    chosen = parser.parse_args().pictures or [*commands(), SEEDS]
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in chosen:
        if name == SEEDS:
            script = ROOT / "benchmarks" / "seed_pictures.py"
            subprocess.run([sys.executable, script], cwd=ROOT, check=True)
            continue
        arguments = [sys.executable, "-m", "vtaops.cli", *commands()[name][1:]]
        done = subprocess.run(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        print(done.stdout, end="")
        cycles = re.findall(r"([\d,]+) cycles", done.stdout)
        figures[name] = [int(number.replace(",", "")) for number in cycles]
    FIGURES.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
