"""Make all pictures of the documents anew, and write down the cycles that they show.

    python -m docs pictures                       # all
    python -m docs pictures roofline virtual_threads
    python -m docs pictures interactive network   # two pages, in headless Chromium
    python -m docs pictures seeds                 # those of seed_pictures.py

Runs the commands that the document prints above its pictures. Cycles that they report go to
benchmarks/results/pictures.json, which tests/documents/test_figures.py computes again. `SOURCES`
says of every picture of the documents what draws it, and where its data lie.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.options import RESULTS, ROOT, read_json
from docs import seed_pictures

SEEDS, PAGE, NETWORK = "seeds", "interactive", "network"
FIGURES = RESULTS / "pictures.json"


EXACT, SEED_SCRIPT = "pictures.json", "docs/seed_pictures.py"
LESSONS = "docs/lessons.py"
CLI_REPORTS = "vtaops/cli/reports.py"
SOURCES = {
    "images/virtual_threads.png": (CLI_REPORTS, EXACT),
    "images/before_after.png": (CLI_REPORTS, EXACT),
    "images/roofline.png": (CLI_REPORTS, "roofline.json"),
    "images/bandwidth.png": ("benchmarks/bandwidth.py", "bandwidth.json"),
    "images/area.png": ("benchmarks/area_model.py", "area_runs.json"),
    "images/interactive.png": ("docs/pictures.py", EXACT),  # the page of the same trace
    "images/network.png": ("docs/pictures.py", EXACT),  # the page of vtaops demo
    "images/text_boxes.png": ("examples/text_detector.py", "text_boxes.json"),
    "kernels/images/throughput.png": (SEED_SCRIPT, "throughput.json"),
    "kernels/images/lesson_cuda_*.svg": (LESSONS, "lessons_cuda.json"),
    "kernels/images/lesson_[!c]*.svg": (LESSONS, "lessons.json"),
    "kernels/images/lesson_conv2d*.svg": (LESSONS, "lessons.json"),
    # Read from kernels and programs as they are compiled:
    "kernels/images/cuda_speed_h100.png": (
        "benchmarks/kernels/cuda_operators.py",
        "kernels_speed_h100.json",
    ),
    "kernels/images/a3_*.png": ("docs/a3_report.py", None),
    "kernels/images/cuda_window.png": (SEED_SCRIPT, None),
    "kernels/images/cuda_order.png": (SEED_SCRIPT, None),
    "kernels/images/cuda_banks.png": (SEED_SCRIPT, None),
    "kernels/images/cpu_loops.png": (SEED_SCRIPT, None),
    "kernels/images/reuse.png": (SEED_SCRIPT, None),
    "kernels/images/memory_levels.png": (SEED_SCRIPT, None),
    "kernels/images/fusion.png": (SEED_SCRIPT, None),
    "kernels/images/tiles.png": (SEED_SCRIPT, None),
    "tutorials/images/*.png": ("docs/tutorials/draw.py", None),
}
"""By pictures below docs/: what draws them, and the file of `RESULTS` with their data, if any."""


def commands() -> dict[str, list[str]]:
    """Return the words of each command that writes a picture, by the picture's name."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "docs" / "diagrams.md").read_text())
    found = re.findall(r"^(vtaops .* -o docs/images/(\w+)\.png.*)$", text, re.MULTILINE)
    return {name: shlex.split(line) for line, name in found}


def photograph_page() -> list[int]:
    """Take a picture of the page of docs/diagrams.md, with an instruction clicked and explained."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "docs" / "diagrams.md").read_text())
    words = re.search(r"^vtaops (report program .*) -o threads\.html(.*)$", text, re.MULTILINE)
    # The middle of the upper timeline's compute lane.
    return photograph(
        shlex.split(f"{words[1]} {words[2]} -o threads.html"), "threads.html", 160, PAGE, 1080
    )


def photograph_network() -> list[int]:
    """Take a picture of the page of the network of `vtaops demo`, with an instruction clicked."""
    return photograph(["demo", "-o", "."], "glyphs.html", 260, NETWORK, 675)


def photograph(words: list[str], page: str, height: int, name: str, window: int) -> list[int]:
    """Take a picture of a page that a command writes, clicked in the middle at a height.

    Return the cycles that the command tells.
    """
    from selenium import webdriver
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    options = webdriver.ChromeOptions()
    for argument in ("headless=new", "no-sandbox", f"window-size=1300,{window}", "hide-scrollbars"):
        options.add_argument(f"--{argument}")
    options.binary_location = shutil.which("chromium") or ""
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with tempfile.TemporaryDirectory() as folder:
        printed = run(words, Path(folder))
        with webdriver.Chrome(options, service) as browser:
            browser.get((Path(folder) / page).as_uri())
            plot = browser.find_element(By.ID, "plot")
            place = ActionChains(browser).move_to_element_with_offset(
                plot, 0, height - plot.size["height"] // 2
            )
            place.click().move_by_offset(6, 0).perform()
            browser.save_screenshot(str(ROOT / "docs" / "images" / f"{name}.png"))
    return cycles(printed)


def run(words: list[str], folder: Path) -> str:
    """Run a command of `vtaops` in a folder; return what it prints."""
    command = [sys.executable, "-m", "vtaops", *words]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def cycles(printed: str) -> list[int]:
    """Return the cycles that a command told, each once."""
    found = re.findall(r"([\d,]+) cycles", printed)
    return list(dict.fromkeys(int(number.replace(",", "")) for number in found))


def main(
    names: Annotated[list[str], typer.Argument(help="Of pictures; default: all.")] = [],  # noqa: B006
) -> None:
    """Run the commands of the chosen pictures."""
    known = [*commands(), PAGE, NETWORK, SEEDS]
    if unknown := {*names} - {*known}:
        raise typer.BadParameter(f"{sorted(unknown)} are none of {known}")
    figures = read_json(FIGURES, {})
    for name in names or known:
        if name == SEEDS:
            seed_pictures.main()
            continue
        if name in (PAGE, NETWORK):
            figures[name] = {PAGE: photograph_page, NETWORK: photograph_network}[name]()
            continue
        words, data = commands()[name], None
        if words[-2] == ">":
            *words, _, data = words
        printed = run(words[1:], ROOT)
        if data:
            (ROOT / data).write_text(printed)
        else:
            print(printed, end="")
        if words[1:3] == ["report", "trace"]:
            figures[name] = cycles(printed)
    FIGURES.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
