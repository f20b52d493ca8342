"""Reports: what they say, and that their files are whole and valid."""

import base64
import io
import json
import re
import struct
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from typer.testing import CliRunner

import vtaops
from trials.random_graphs import random_graph
from vtaops import Conv2d, Tiling, cli
from vtaops.base.errors import ShapeError, UnsupportedError, VTAError
from vtaops.model.tables import text as network_text
from vtaops.program.timing import KINDS, WAITS
from vtaops.program.timing.lanes import KIND_COLORS, LANES, TOKEN_COLORS, WAIT_COLORS
from vtaops.report import (
    RooflinePoint,
    chrome_trace,
    interactive,
    roofline,
    save_figure,
    spacetime,
    statistics_data,
    statistics_table,
    write_text,
)
from vtaops.report.network_pictures import network_page

SVG = "{http://www.w3.org/2000/svg}"
OP = Conv2d(in_channels=32, out_channels=32, height=6, width=6, kernel=3, padding=1)
ONE, TWO = Tiling(oc=16, ic=16, h=3, w=6), Tiling(oc=16, ic=16, h=3, w=6, oc_threads=2)
runner = CliRunner()


@pytest.fixture(scope="module")
def timeline():
    return vtaops.compile(OP, "pynq", TWO).timeline()


@pytest.fixture(scope="module")
def pair(timeline):
    return [vtaops.compile(OP, "pynq", ONE).timeline(), timeline]


def text_of(table):
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=200).print(table)
    return stream.getvalue()


# ----------------------------------------------------------------------------- statistics


def test_statistics_with_timing(timeline):
    program = timeline.program
    data = statistics_data(program, program.stats(), timeline)
    assert json.loads(json.dumps(data))["counters"] == program.stats().as_dict()
    assert data["timing"]["cycles"] == timeline.cycles
    assert data["instruction_nbytes"] == 16 * len(program)
    units = data["timing"]["units"]
    for unit in units.values():
        total = sum(unit["busy"].values()) + sum(unit["waiting"].values()) + unit["idle"]
        assert total == timeline.cycles
    text = text_of(statistics_table({"one": data}, "title"))
    assert f"{timeline.cycles:,}" in text
    assert "compute waits: load token" in text
    assert "multiply-adds for each byte" in text


def test_minimum_of_a_program():
    program = vtaops.compile(OP, "pynq", TWO)
    data = statistics_data(program, program.stats())
    outputs = 32 * 6 * 6
    exact = 32 * 6 * 6 + 32 * 32 * 9 + outputs + program.stats().uop_load_nbytes
    assert data["dram_nbytes_minimum"] == exact
    assert data["dram_nbytes_over_minimum"] == data["dram_nbytes"] / exact


def test_comparison_shows_ratios(pair):
    reports = {
        name: statistics_data(t.program, t.program.stats(), t)
        for name, t in zip(("one", "two"), pair, strict=True)
    }
    text = text_of(statistics_table(reports, "title"))
    ratio = pair[1].cycles / pair[0].cycles
    assert re.search(rf"cycles .*{pair[0].cycles:,} .*{pair[1].cycles:,} +{ratio:.2f}x", text)
    assert text.index("cycles") < text.index("gemm_utilization") < text.index("inp_load_nbytes")
    assert "compute waits: load token" in text


# ------------------------------------------------------------------------------- pictures


def test_every_kind_has_a_colour():
    assert set(KIND_COLORS) == {"fetch", *KINDS}
    assert set(WAIT_COLORS) == set(WAITS)


def svg_texts(path):
    return [node.text for node in ElementTree.parse(path).getroot().iter(f"{SVG}text")]


def test_spacetime_svg(pair, tmp_path):
    path = tmp_path / "two.svg"
    save_figure(spacetime(pair, ["one thread", "two threads"]), path)
    texts = svg_texts(path)
    for lane in LANES:
        assert texts.count(lane) >= 2
    assert any(text.startswith(f"one thread: {pair[0].cycles:,} cycles") for text in texts)
    assert {"gemm", "load inp", "waits: load token", "load → compute"} <= set(texts)
    again = tmp_path / "again.svg"
    save_figure(spacetime(pair, ["one thread", "two threads"]), again)
    assert path.read_bytes() == again.read_bytes()


def test_spacetime_png_has_the_size_of_its_content(pair, tmp_path):
    heights = []
    for count in (1, 2):
        path = tmp_path / f"{count}.png"
        save_figure(spacetime(pair[:count]), path)
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        heights.append(struct.unpack(">II", content[16:24])[1])
    assert heights[1] > 1.5 * heights[0]


def test_spacetime_bars_are_the_segments(timeline):
    figure = spacetime(timeline, window=(0, 600))
    axes = figure.axes[0]
    assert axes.get_xlim() == (0, 600)
    drawn = sum(len(collection.get_paths()) for collection in axes.collections)
    shown = [
        s for unit in LANES for s in timeline.segments[unit] if s.start < 600 and s.kind != "idle"
    ]
    assert drawn == len(shown)


@pytest.mark.parametrize("window", [(5, 5), (-1, 10), (9, 2)])
def test_an_empty_window_is_refused(timeline, window):
    with pytest.raises(ShapeError, match="the window is"):
        spacetime(timeline, window=window)


class Page(HTMLParser):
    """Collects scripts and every attribute that could load something."""

    def __init__(self):
        super().__init__()
        self.scripts, self.references, self._inside = {}, [], None

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.references += [values[key] for key in ("src", "href") if key in values]
        if tag == "script":
            self._inside = values.get("id", "code")
            self.scripts[self._inside] = ""

    def handle_endtag(self, tag):
        if tag == "script":
            self._inside = None

    def handle_data(self, data):
        if self._inside:
            self.scripts[self._inside] += data


def test_interactive_page_is_self_contained(pair):
    html = interactive(pair, ["one </script> thread", "two"], window=(0, 500))
    page = Page()
    page.feed(html)
    assert page.references == []
    assert "http" not in html
    data = json.loads(page.scripts["data"])
    assert data["window"] == [0, 500]
    for shown, source in zip(data["timelines"], pair, strict=True):
        assert shown["cycles"] == source.cycles
        assert len(shown["events"]) == len(shown["text"]) == len(source.program)
        assert len(shown["tokens"]) == len(source.tokens)
        for lane in shown["segments"]:
            assert all(s[0] < s[1] and (s[2] in data["kinds"] or s[2] in WAITS) for s in lane)
        beats = sum(end - start for start, end, *_ in shown["segments"][4])
        assert beats == source.port.read_beats
    assert set(data["queues"]) == set(TOKEN_COLORS)
    assert "${" in page.scripts["code"]  # template placeholders of the script survive
    assert "$$" not in page.scripts["code"]


def test_chrome_trace(timeline):
    trace = json.loads(json.dumps(chrome_trace(timeline, "test")))
    records = trace["traceEvents"]
    names = [r["args"]["name"] for r in records if r.get("name") == "thread_name"]
    assert names == [*LANES, "port read", "port write"]
    gemm = sum(r["dur"] for r in records if r["ph"] == "X" and r["name"] == "gemm")
    assert gemm == timeline.program.stats().gemm_counter
    starts = {r["id"]: r for r in records if r["ph"] == "s"}
    ends = {r["id"]: r for r in records if r["ph"] == "f"}
    assert len(starts) == len(timeline.tokens)
    assert all(starts[n]["ts"] <= ends[n]["ts"] for n in starts)
    slices = [r for r in records if r["ph"] == "X"]
    for number, token in enumerate(timeline.tokens):
        for end, instruction in ((starts, token.sender), (ends, token.receiver)):
            at = end[number]
            around = [
                s["args"]["instruction"]
                for s in slices
                if s["tid"] == at["tid"] and s["ts"] <= at["ts"] < s["ts"] + s["dur"]
            ]
            assert around == [instruction]
    by_thread = {}
    for r in (r for r in records if r["ph"] == "X"):
        by_thread.setdefault(r["tid"], []).append((r["ts"], r["ts"] + r["dur"]))
    for spans in by_thread.values():  # a thread does one thing at a time
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))


# ------------------------------------------------------------------- -------- roofline


def test_roofline_points_lie_below_the_roof(pair):
    points = [RooflinePoint.of(name, t) for name, t in zip(("one", "two"), pair, strict=True)]
    for point in points:
        assert point.macs_per_cycle <= min(256, 8 * point.intensity)
        assert point.macs_per_cycle <= point.ceiling <= 256
    together = RooflinePoint.total("all", [(points[0], 3), (points[1], 1)])
    assert together.cycles == 3 * pair[0].cycles + pair[1].cycles
    assert together.macs == 4 * points[0].macs
    figure = roofline(points, 256, 8, together, "title")
    labels = {text.get_text().split("  ")[0] for text in figure.legends[0].get_texts()}
    assert {"one", "two", "all"} <= labels
    with pytest.raises(ShapeError, match="at least one"):
        roofline([], 256, 8)


# ---------------------------------------------------------------------------------- files


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "report.txt"
    write_text(path, "first")
    write_text(path, "second")
    assert path.read_text() == "second"
    with pytest.raises(AttributeError):
        write_text(path, None)
    assert path.read_text() == "second"
    assert [p.name for p in tmp_path.iterdir()] == ["report.txt"]
    with pytest.raises(VTAError, match=r"cannot write .*There is no folder .*no_such_folder"):
        write_text(tmp_path / "no_such_folder" / "x.txt", "text")


def test_an_unknown_format_is_refused(timeline, tmp_path):
    with pytest.raises(UnsupportedError, match=r"'\.bmp'; use \.png"):
        save_figure(spacetime(timeline), tmp_path / "x.bmp")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_message_says_what_to_install(timeline, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'matplotlib>=3\.8'"):
        spacetime(timeline)
    assert "cycles" in interactive(timeline)  # needs no matplotlib


# -------------------------------------------------------------------------------- Jupyter


def test_html_for_notebooks(timeline):
    program = timeline.program
    html = program._repr_html_()
    for text in ("kernel", "OIHW16o16i", f"{len(program):,} instructions", "LOAD UOP"):
        assert text in html
    assert "&lt;" not in html.replace("&lt;details", "")
    counters = program.stats()._repr_html_()
    assert f"{program.stats().gemm_counter:,}" in counters
    image = re.fullmatch(
        r'<img src="data:image/png;base64,([^"]+)"[^>]*>', spacetime(timeline)._repr_html_()
    )
    assert base64.b64decode(image[1]).startswith(b"\x89PNG")
    frame = timeline._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert frame.count('"') == 6  # the page inside is escaped


# --------------------------------------------------------------------------- command line


def call(*arguments):
    return runner.invoke(cli.app, list(map(str, arguments)))


LAYER = ("--layer", "resnet18.C10")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "small.vta"
    vtaops.compile(OP, "pynq", TWO).save(path)
    return path


@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_trace_writes_what_the_suffix_says(file, tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    result = call("report", "program", file, "-o", path, "--window", "0:1000")
    assert result.exit_code == 0, result.output
    assert f"written to {path}" in result.stderr
    content = path.read_bytes()
    if suffix == "png":
        assert content.startswith(b"\x89PNG")
    elif suffix == "svg":
        ElementTree.fromstring(content)
    else:
        assert content.startswith(b"<!DOCTYPE html>")


def test_files_of_one_name_are_told_apart(file, tmp_path):
    other = tmp_path / "small.vta"
    vtaops.compile(OP, "pynq", ONE).save(other)
    reports = json.loads(call("report", "program", file, other, "--json").output)
    assert list(reports) == [str(file), str(other)]
    assert isinstance(call("report", "program", file, file).exception, ShapeError)


def test_compare_prints_all_forms():
    how = ("--tiling", "oc=64,ic=64,h=7,w=7", "--tiling", "oc=64,ic=64,h=7,w=7,oc_threads=2")
    reports = json.loads(call("report", "program", *LAYER, *how, "--json").output)
    assert list(reports) == [how[1], how[3]]
    table = call("report", "program", *LAYER, *how).output
    assert all(f"{report['timing']['cycles']:,}" in table for report in reports.values())


def test_compare_configurations():
    result = call("report", "program", *LAYER, "--config", "pynq", "--config", "tiny", "--json")
    assert result.exit_code == 0, result.output
    reports = json.loads(result.output)
    assert set(reports) == {"pynq", "tiny"}
    assert reports["tiny"]["timing"]["cycles"] > 3 * reports["pynq"]["timing"]["cycles"]


def test_one_program():
    (report,) = json.loads(call("report", "program", *LAYER, "--json").output).values()
    assert report["timing"]["cycles"] > report["counters"]["gemm_counter"]
    shown = call("report", "program", *LAYER).output
    assert "gemm_utilization" in shown
    assert "compute waits: load token" in shown


def test_roofline(tmp_path):
    path = tmp_path / "roofline.svg"
    result = call("report", "roofline", *LAYER, "--layer", "resnet18.C4", "-o", path)
    assert result.exit_code == 0, result.output
    assert any(text.startswith("C10") for text in svg_texts(path))
    result = call("report", "roofline", "--layer", "resnet18.C4", "-o", path, "--json")
    drawn = json.loads(result.stdout)
    assert [point["name"] for point in drawn["points"]] == ["C4"]
    assert drawn["total"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("report program -o x.png", "give a program file, or a named layer"),
        ("report program --layer resnet18.C10 -o x.gif", "must end in .png"),
        ("report program --layer resnet18.C10 --window now -o x.png", "write two cycles"),
        ("report program --layer resnet18.C10 --window 9:3 -o x.html", "the smaller one first"),
    ],
)
def test_mistakes_have_a_message(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(*arguments.split())
    assert isinstance(result.exception, VTAError)
    assert message in str(result.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def network():
    """A compiled network of several layers, with a concatenation on the way."""
    return vtaops.compile_model(random_graph(5), "pynq")


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_of_a_network_is_legible(network, width):
    """Nothing is cut or wrapped, every layer has its line, every reason is told."""
    report = network.report()
    lines = network_text(report, width).splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    for layer in report.layers:
        (line,) = [line for line in lines if line.startswith(f" {layer.name} ")]
        if layer.cycles:
            assert f"  {layer.cycles:,} " in line
        if layer.where != "vta":
            number = re.search(r"host (\d+)", line)[1]
            assert f"host {number}: {layer.reason}" in {line.strip() for line in lines}


def test_the_use_of_the_array_is_that_of_the_timeline(network):
    """Tile products by cycles: of layers, which add up, and of launches."""
    report = network.report()
    products = sum(layer.utilization * layer.cycles for layer in report.layers)
    timelines = [program.timeline() for program in network.programs]
    assert products == pytest.approx(sum(t.gemm_utilization * t.cycles for t in timelines))
    assert products == pytest.approx(report.counters.gemm_counter)


@pytest.mark.parametrize("width", [80, 120])
def test_long_names_leave_the_numbers_their_place(network, width):
    """Names as PyTorch's exporter writes them are folded."""
    report = network.report()
    ends = [f"block.{n}/conv/{layer.operator}_output_0" for n, layer in enumerate(report.layers)]
    layers = [replace(x, name=f"/model/{end}") for x, end in zip(report.layers, ends, strict=True)]
    report = replace(report, layers=tuple(layers))
    lines = network_text(report, width).splitlines()
    assert max(map(len, lines)) <= width
    column = next(line for line in lines if " where " in line).index("where")
    names = "".join(line[:column].strip() for line in lines)
    for layer in layers:
        assert layer.name in names
        (line,) = [x for x in lines if x.startswith(f" {layer.name[:14]}")]
        assert line[column:].startswith(layer.where)
        assert not layer.cycles or f" {layer.cycles:,} " in line


def test_the_page_of_a_network_has_a_lane_of_layers(network):
    page = Page()
    page.feed(network_page(network))
    shown = json.loads(page.scripts["data"])["timelines"]
    taken = {layer.name: layer.cycles for layer in network.report().layers if layer.cycles}
    found: dict[str, int] = {}
    for timeline in shown:
        layers = timeline["layers"]
        assert layers[0][0] == 0
        assert layers[-1][1] == timeline["cycles"]
        assert all(a[1] == b[0] for a, b in pairwise(layers))
        for start, end, _, name in layers:
            found[name] = found.get(name, 0) + end - start
    assert {name: cycles for name, cycles in found.items() if cycles} == taken
