"""The pages that the project writes, in headless Chromium: clicked, zoomed, dragged, and read.

Driven by Selenium (extra `browser`) with the distribution's `chromium` and `chromium-driver`. Where
cycles lie on the screen is computed here from the timeline, not asked of the page.
"""

import re
import shutil

import pytest
from helpers.program_builder import TINY, double_buffered

import vtaops
from trials.random_graphs import random_graph
from vtaops import Conv2d, Tiling
from vtaops.program.timing.lanes import KIND_COLORS
from vtaops.report import interactive
from vtaops.report.exploration import exploration_page
from vtaops.report.network_pictures import network_page

OP = Conv2d(in_channels=32, out_channels=32, height=6, width=6, kernel=3, padding=1)
TILING = Tiling(oc=16, ic=16, h=3, w=6, oc_threads=2)
DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

LEFT, RIGHT = 84, 70  # pixels beside the lanes
TITLE, LAYERS, THIN, LANE, GAP = 24, 26, 20, 46, 20  # and above and between them
COMPUTE = THIN + GAP + LANE + GAP + LANE / 2  # the middle of that lane, below fetch and load


@pytest.fixture(scope="module")
def chromium():
    """A browser without a window; what goes wrong in a page fails the test that showed it."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="the extra `browser`")
    if DRIVER is None or CHROMIUM is None:
        pytest.skip("needs chromium and chromium-driver of the distribution")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "headless=new",
        "no-sandbox",
        "disable-dev-shm-usage",
        "window-size=1300,1300",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


class Shown:
    """A page in the browser: what a person does with it, and what it then says."""

    def __init__(self, driver, html, tmp_path):
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.by import By

        path = tmp_path / "page.html"
        path.write_text(html)
        driver.get(path.as_uri())
        self.driver, self.by = driver, By
        self.actions = lambda: ActionChains(driver, duration=0)
        self.canvas = driver.find_element(By.ID, "plot")
        self.size = self.canvas.size
        self.corner = self.canvas.location

    def text(self, selector):
        return self.driver.find_element(self.by.CSS_SELECTOR, selector).text

    def range(self):
        """The cycles that are shown, as the page says."""
        said = re.fullmatch(r"cycles ([\d,]+) to ([\d,]+) of ([\d,]+)", self.text("#range"))
        return tuple(int(number.replace(",", "")) for number in said.groups())

    def move(self, x, y, element=None):
        """The pointer to a place of the canvas, in pixels from its upper left corner."""
        element = element or self.canvas
        width, height = element.size["width"], element.size["height"]
        return self.actions().move_to_element_with_offset(
            element, round(x - width / 2), round(y - height / 2)
        )

    def scroll(self, x, y, delta):
        """The wheel, with the pointer at a place of the canvas."""
        from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

        place = round(self.corner["x"] + x), round(self.corner["y"] + y)
        origin = ScrollOrigin.from_viewport(*place)
        self.actions().scroll_from_origin(origin, 0, delta).perform()

    def pixels(self, x, y, width=1):
        """The colours of pixels of the canvas, as in CSS."""
        script = "return [...arguments[0].getContext('2d').getImageData(...arguments[1]).data]"
        area = [round(x), round(y), width, 1]
        values = self.driver.execute_script(script, self.canvas, area)
        return ["#" + bytes(values[at : at + 3]).hex() for at in range(0, 4 * width, 4)]

    def at(self, cycle):
        """Where a cycle lies now."""
        first, last, _ = self.range()
        return LEFT + (cycle - first) / (last - first) * (self.size["width"] - LEFT - RIGHT)


@pytest.fixture
def show(chromium, tmp_path):
    yield lambda html: Shown(chromium, html, tmp_path)
    log = chromium.get_log("browser")
    assert [entry["message"] for entry in log if entry["level"] == "SEVERE"] == []


@pytest.fixture(scope="module")
def timeline():
    return vtaops.compile(OP, "pynq", TILING).timeline()


def middle(segment):
    return (segment.start + segment.end) / 2


def works(timeline, kind):
    """The segments of the compute unit of one kind of work, the longest first."""
    found = [s for s in timeline.segments["compute"] if s.kind == kind]
    return sorted(found, key=lambda s: s.start - s.end)


def test_a_timeline_shows_what_is_under_the_pointer(show, timeline):
    page = show(interactive(timeline, ["two threads"]))
    assert page.text("h1") == "two threads"
    assert page.range() == (0, timeline.cycles, timeline.cycles)
    assert set(KIND_COLORS) < set(page.text("#legend").splitlines())
    for kind in ("gemm", "reset", "alu"):
        segment = works(timeline, kind)[0]
        x, y = page.at(middle(segment)), TITLE + COMPUTE
        page.move(x, y).perform()
        said = page.text("#tip")
        length = segment.end - segment.start
        assert said.startswith(f"{kind}, {length:,} cycles ({segment.start:,} to {segment.end:,})")
        assert f"#{segment.instruction} " in said
        assert page.pixels(x, y - LANE / 2 + 5) == [KIND_COLORS[kind]]
    page.move(2, 2).perform()
    assert page.text("#tip") == ""


def test_a_timeline_zooms_and_moves(show, timeline):
    page = show(interactive(timeline))
    whole = page.range()
    x = page.at(timeline.cycles / 4)
    from selenium.webdriver.common.keys import Keys

    page.scroll(x, TITLE + COMPUTE, -600)
    first, last, _ = page.range()
    assert last - first == pytest.approx(timeline.cycles * 2.718281828**-0.9, rel=0.02)
    assert page.at(timeline.cycles / 4) == pytest.approx(x, abs=3)  # stays under the pointer

    move = page.move(400, TITLE + COMPUTE).click_and_hold().move_by_offset(-100, 0)
    move.release().perform()
    moved = (last - first) * 100 / (page.size["width"] - LEFT - RIGHT)
    assert page.range()[0] == pytest.approx(first + moved, abs=3)
    assert page.range()[1] - page.range()[0] == pytest.approx(last - first, abs=2)

    page.actions().send_keys(Keys.ARROW_LEFT).perform()
    assert page.range()[0] < first + moved
    before = page.range()
    page.actions().send_keys("-").perform()
    assert page.range()[1] - page.range()[0] > before[1] - before[0]
    page.driver.find_element(page.by.ID, "all").click()
    assert page.range() == whole


def test_a_click_marks_an_instruction_and_tokens_can_be_hidden(show, timeline):
    page = show(interactive(timeline))
    gemm = works(timeline, "gemm")[0]
    edge = page.at(gemm.start) - 2, TITLE + COMPUTE - 4, 5
    assert "#000000" not in page.pixels(*edge)
    page.move(page.at(middle(gemm)), TITLE + COMPUTE).click().perform()
    assert "#000000" in page.pixels(*edge)  # a black frame where a white one was
    page.move(2, 2).perform()
    between = page.canvas.screenshot_as_png
    page.driver.find_element(page.by.ID, "tokens").click()
    assert page.text("#tokens") == "show tokens"
    assert page.canvas.screenshot_as_png != between
    page.driver.find_element(page.by.ID, "tokens").click()
    assert page.text("#tokens") == "hide tokens"
    page.move(2, 2).perform()
    assert page.canvas.screenshot_as_png == between


def test_a_layer_of_a_network_is_shown_alone(show):
    model = vtaops.compile_model(random_graph(5), "pynq")
    page = show(network_page(model))
    cycles = {layer.name: layer.cycles for layer in model.report().layers if layer.cycles}
    name, length = next(iter(cycles.items()))  # the first begins with the first launch
    page.move(page.at(length / 2), TITLE + 9).perform()
    said = page.text("#tip").splitlines()
    assert said == [f"{name}, {length:,} cycles (0 to {length:,})", "click: show it alone"]
    page.move(page.at(length / 2), TITLE + 9).click().perform()
    assert page.range()[:2] == (0, length)


def test_layers_are_chosen_one_after_the_other(show):
    """Those of a network, and of the same network on other hardware below it."""
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    after, before = (vtaops.compile_model(random_graph(2), name) for name in ("pynq_ext", "pynq"))
    page = show(network_page(after, before))
    spans = [layers_of(model) for model in (after, before)]
    names = [f"{name} ({n})" for n, span in enumerate(spans, 1) for name, *_ in span]
    select = Select(page.driver.find_element(page.by.ID, "layers"))
    assert [option.text for option in select.options] == ["all layers", *names]
    ranges = [(first, end) for span in spans for _, first, end in span]
    select.select_by_index(3)
    assert page.range()[:2] == ranges[2]
    page.canvas.click()  # so that keys are for the page
    for key, index in ((Keys.PAGE_DOWN, 3), (Keys.PAGE_UP, 2), (Keys.PAGE_UP, 1)):
        page.actions().send_keys(key).perform()
        assert page.range()[:2] == ranges[index]
    page.driver.find_element(page.by.ID, "all").click()
    assert page.range()[0] == 0
    assert select.first_selected_option.text == "all layers"


def layers_of(model):
    """The layers of a model of one launch: name, first cycle of the first turn, end of the last."""
    (program,) = model.programs
    found = {}
    for number, first, end in program.timeline().layer_spans():
        found[number] = found.get(number, (first,))[0], max(end, first + 20)  # of a view
    return [(program.operators[number].name, *ends) for number, ends in found.items()]


def test_one_operator_has_no_choice_of_layers(show, timeline):
    page = show(interactive(timeline))
    assert not page.driver.find_element(page.by.ID, "layers").is_displayed()


def test_a_program_of_twenty_thousand_instructions(show):
    timeline = double_buffered(TINY, rounds=4000).timeline()
    assert len(timeline.program) == 20_002
    page = show(interactive(timeline))
    assert page.range() == (0, timeline.cycles, timeline.cycles)
    chosen = max(
        (s for s in timeline.segments["compute"] if s.kind == "gemm" and s.instruction > 15_000),
        key=lambda s: s.end - s.start,
    )
    y = TITLE + COMPUTE
    while page.range()[1] - page.range()[0] > 60:
        page.scroll(page.at(middle(chosen)), y, -1500)
    page.move(page.at(middle(chosen)), y).perform()
    assert f"#{chosen.instruction} " in page.text("#tip")
    assert f"({chosen.start:,} to {chosen.end:,})" in page.text("#tip")


# ------------------------------------------------------------------------------- a sweep


def point(cycles, sram, block, limit, front):
    return {
        "config": "pynq", "LOG_BATCH": 0, "LOG_BLOCK": block, "LOG_UOP_BUFF_SIZE": 15,
        "LOG_INP_BUFF_SIZE": 15, "LOG_WGT_BUFF_SIZE": 18, "LOG_ACC_BUFF_SIZE": 17,
        "PORT_BYTES": 8, "DRAM_LATENCY": 32, "BANDWIDTH": 0, "CLOCK_MHZ": 100,
        "EXTENSIONS": "", "lut": 1000 * block, "cycles": cycles,
        "sram_nbytes": sram, "multipliers": 4**block, "limit": limit, "front": front,
        "complete": True,
    }  # fmt: skip


POINTS = [
    point(90_000, 400_000, 4, "array", True),
    point(40_000, 800_000, 5, "port", True),
    point(95_000, 820_000, 4, "array", False),
]


def layers(cycles):
    return [{"name": "net.C1", "occurrences": 2, "cycles": cycles // 2, "tiling": "h=1"}]


def points_on_screen(page):
    """Where the points are drawn, asked of the page; the axes go from least to most."""
    return page.driver.execute_script("return places")


def test_two_designs_are_compared(show):
    page = show(exploration_page(POINTS, "a sweep", [layers(row["cycles"]) for row in POINTS]))
    assert page.text("h2") == "a sweep"
    places = points_on_screen(page)
    assert places[0][0] == min(x for x, _ in places)  # least memory at the left
    assert places[1][1] == max(y for _, y in places)  # fewest cycles at the bottom
    page.move(*places[1]).perform()
    assert "40,000" in page.text("#tip")
    page.move(*places[0]).click().perform()
    assert "90,000" in page.text("#detail")
    page.move(*places[1]).click().perform()
    detail = page.text("#detail")
    assert re.search(r"cycles\D* 90,000 40,000 0\.444", detail)
    assert re.search(r"net\.C1 \(2\) 45,000 20,000 0\.444", detail)
    page.move(*places[0]).click().perform()  # once more: taken back
    assert "ratio" not in page.text("#detail")


def test_axes_are_chosen_and_points_filtered(show):
    page = show(exploration_page(POINTS, "a sweep"))
    before = points_on_screen(page)
    from selenium.webdriver.support.ui import Select

    select = Select(page.driver.find_element(page.by.ID, "x"))
    select.select_by_value("cycles")
    assert points_on_screen(page) != before
    select.select_by_value("sram_nbytes")
    assert points_on_screen(page) == before
    parallel = page.driver.find_element(page.by.ID, "parallel")
    axis = page.driver.execute_script("return axisX(D.axes.indexOf('cycles'))")
    drag = page.move(axis, 34 + 214, parallel).click_and_hold().move_by_offset(0, -60)
    drag.release().perform()  # the lowest cycles alone
    page.move(*before[0]).perform()
    assert page.text("#tip") == ""  # what is filtered is not explained
    page.move(*before[1]).perform()
    assert "40,000" in page.text("#tip")
    page.move(axis, 34 + 100, parallel).click().perform()  # released
    page.move(*before[0]).perform()
    assert "90,000" in page.text("#tip")
