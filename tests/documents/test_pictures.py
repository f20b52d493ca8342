"""Every picture of the documents is drawn by something named, from data that lie beside it."""

import json
import re
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import pytest

import vtaops
from docs.pictures import RESULTS, SOURCES
from vtaops import HardwareConfig
from vtaops.explore import Design, Engine, Network, sweep
from vtaops.kernels.lessons import lessons
from vtaops.report import RooflinePoint
from vtaops.schedule.workloads import find

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURES = sorted(
    path.relative_to(DOCS).as_posix() for end in ("png", "svg") for path in DOCS.rglob(f"*.{end}")
)


def data(picture):
    """Return what a picture was drawn from."""
    return json.loads((RESULTS / SOURCES[picture][1]).read_text())


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_says_what_draws_it(picture):
    """If this fails for a new picture: enter it into SOURCES of docs/pictures.py."""
    found = [source for pattern, source in SOURCES.items() if fnmatch(picture, pattern)]
    assert len(found) == 1
    script, beside = found[0]
    assert (ROOT / script).is_file()
    assert beside is None or (RESULTS / beside).is_file()


@pytest.mark.parametrize("pattern", SOURCES)
def test_no_source_without_a_picture(pattern):
    assert any(fnmatch(picture, pattern) for picture in PICTURES)


@pytest.mark.parametrize("name", ["C4", "C11"])
def test_the_points_of_the_roofline(name):
    drawn = data("images/roofline.png")
    points = [dict(point) for point in drawn["points"]]
    times = [point.pop("occurrences") for point in points]
    points = [RooflinePoint(**point) for point in points]
    timeline = vtaops.compile(find(f"resnet18.{name}").op).timeline()
    assert RooflinePoint.of(name, timeline) in points
    together = RooflinePoint.total("together", list(zip(points, times, strict=True)))
    assert together == RooflinePoint(**drawn["total"])


def test_a_design_of_the_sweep():
    """The smallest of the front, all of whose figures are computed anew."""
    row = min(
        filter(lambda r: r["front"], json.loads((RESULTS / "sweep.json").read_text())),
        key=lambda r: r["lut"],
    )
    sizes = {key.lower(): value for key, value in row.items() if key.startswith("LOG_")}
    design = Design(replace(HardwareConfig.load("pynq"), **sizes))
    network = Network.named(["resnet18.C10", "mobilenet.D9"])
    with Engine() as engine:
        (point,) = sweep([design], network, engine)
    assert {**point.as_dict(), "front": True} == row


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_curves_of_the_lessons(target):
    """All stages at three sizes each; the page has those of the largest."""
    page = "kernels/lessons.md" if target == "cpu" else "kernels/lessons_cuda.md"
    drawn = data(f"kernels/images/lesson_{'cuda_' if target == 'cuda' else '[!c]'}*.svg")
    text = (DOCS / page).read_text()
    offered = lessons(target)
    assert list(drawn["lessons"]) == list(offered)
    for name, sizes in drawn["lessons"].items():
        largest = str(offered[name].size)
        section = text.split(f"## {name}, {largest} ")[1].split("## ")[0]
        for drawn_size in sizes.values():
            assert list(drawn_size["stages"]) == [stage.name for stage in offered[name].stages]
        assert len(sizes) == 3
        stages = sizes[largest]["stages"]
        for stage, figures in stages.items():
            if target == "cpu":
                shown = f"{next(iter(stages.values()))['seconds'] / figures['seconds']:.3g}"
            else:
                shown = f"{max(v for k, v in figures.items() if k.startswith('least')):.1f} us"
            (row,) = re.findall(rf"^\| {stage} \|.*", section, re.M)
            assert f"| {shown}" in row
