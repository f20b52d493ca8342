"""Make all pictures of the documents anew, and write down the cycles that docs/diagrams.md shows.

    python benchmarks/pictures.py                       # all; the sweep takes some minutes
    python benchmarks/pictures.py roofline access
    python benchmarks/pictures.py interactive           # a page, in headless Chromium
    python benchmarks/pictures.py seeds                 # those of seed_pictures.py

Runs the commands that the document prints above its pictures. What they report goes to
docs/images/figures.json, which tests/documents/test_figures.py computes again.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEEDS, PAGE = "seeds", "interactive"
FIGURES = ROOT / "docs" / "images" / "figures.json"


def commands() -> dict[str, list[str]]:
    """Return the words of each command that writes a picture, by the picture's name."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "docs" / "diagrams.md").read_text())
    found = re.findall(r"^(vtaops .* -o docs/images/(\w+)\.png.*)$", text, re.MULTILINE)
    return {name: shlex.split(line) for line, name in found}


def photograph_page() -> None:
    """Take a picture of the page of docs/diagrams.md, with an instruction clicked and explained."""
    from selenium import webdriver
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    text = re.sub(r"\\\n\s*", " ", (ROOT / "docs" / "diagrams.md").read_text())
    words = re.search(r"^vtaops (trace .*) -o threads\.html(.*)$", text, re.MULTILINE)
    options = webdriver.ChromeOptions()
    for argument in ("headless=new", "no-sandbox", "window-size=1300,1080", "hide-scrollbars"):
        options.add_argument(f"--{argument}")
    options.binary_location = shutil.which("chromium") or ""
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "threads.html"
        arguments = shlex.split(f"{words[1]} {words[2]} -o {page}")
        subprocess.run([sys.executable, "-m", "vtaops.cli", *arguments], cwd=ROOT, check=True)
        with webdriver.Chrome(options, service) as browser:
            browser.get(page.as_uri())
            plot = browser.find_element(By.ID, "plot")
            # The middle of the upper timeline's compute lane.
            place = ActionChains(browser).move_to_element_with_offset(
                plot, 0, 160 - plot.size["height"] // 2
            )
            place.click().move_by_offset(6, 0).perform()
            browser.save_screenshot(str(ROOT / "docs" / "images" / "interactive.png"))


def main() -> None:
    """Run the commands of the chosen pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "pictures", nargs="*", choices=[[], *commands(), PAGE, SEEDS], help="default: all"
    )
    chosen = parser.parse_args().pictures or [*commands(), PAGE, SEEDS]
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in chosen:
        if name == SEEDS:
            script = ROOT / "benchmarks" / "seed_pictures.py"
            subprocess.run([sys.executable, script], cwd=ROOT, check=True)
            continue
        if name == PAGE:
            photograph_page()
            continue
        arguments = [sys.executable, "-m", "vtaops.cli", *commands()[name][1:]]
        done = subprocess.run(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        print(done.stdout, end="")
        cycles = re.findall(r"([\d,]+) cycles", done.stdout)
        figures[name] = [int(number.replace(",", "")) for number in cycles]
    FIGURES.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
