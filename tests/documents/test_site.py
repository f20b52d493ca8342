"""The site as a reader has it: in headless Chromium, from a server on this machine.

Every page at three widths: nothing is wider than the screen, pictures load and say what they show,
links and anchors lead somewhere; the keyboard reaches the text, the pages and the search.
"""

import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]
DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (800, 400)
"""Beside 1,200, at which a page is loaded."""
PAGE = """
return {
  ids: [...document.querySelectorAll("[id], a[name]")].map(e => e.id || e.name),
  links: [...document.querySelectorAll("a[href]")].map(a => a.href),
  titles: document.querySelectorAll("article h1").length,
  pictures: [...document.querySelectorAll("article img")].filter(i => !i.alt || !i.naturalWidth)
    .map(i => i.src),
}"""
WIDE = """
const width = document.documentElement.clientWidth;
const scrolls = e => e && e !== document.body
  && (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
return [...document.querySelectorAll("article *")]
  .filter(e => e.getBoundingClientRect().right > width + 1 && !scrolls(e))
  .map(e => e.tagName + " " + e.textContent.slice(0, 60))"""
FOCUS = """
const e = document.activeElement, s = getComputedStyle(e);
return [(e.textContent || e.getAttribute("aria-label") || "").trim(), s.outlineStyle]"""


def behind_the_first_door():
    """Return the paths of the pages of Use."""
    use = (ROOT / "mkdocs.yml").read_text().partition("  - Use:")[2].partition("\n  - Learn:")[0]
    return [line.rpartition(": ")[2] for line in use.splitlines() if line.endswith(".md")]


def test_the_first_door_is_small():
    texts = [(ROOT / "docs" / path).read_text() for path in behind_the_first_door()]
    assert 5 < len(texts) <= 10
    assert sum(len(text.split()) for text in texts) < 25_000


class Silent(SimpleHTTPRequestHandler):
    """A server that does not tell each request."""

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """A server with room for all connections that a browser opens while the machine is busy."""

    request_queue_size = 128


def opened(chromium, address):
    """Open a page, again if the browser gave it up before it was served."""
    for _ in range(3):
        chromium.get(address)
        if chromium.execute_script('return document.querySelector("article") !== null'):
            return


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Serve the site, that of VTAOPS_SITE or a new one; return its folder and address."""
    if built := os.environ.get("VTAOPS_SITE"):
        folder = Path(built)
    else:
        pytest.importorskip("mkdocs", reason="the extra `docs`")
        folder = tmp_path_factory.mktemp("site")
        command = [sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    server = Server(("127.0.0.1", 0), partial(Silent, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def chromium():
    webdriver = pytest.importorskip("selenium.webdriver", reason="the extra `browser`")
    if DRIVER is None or CHROMIUM is None:
        pytest.skip("needs chromium and chromium-driver of the distribution")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    quick = "force-prefers-reduced-motion"
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", quick):
        options.add_argument(f"--{argument}")
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def without_search(chromium):
    """Keep pages from reading the index of the search, which takes half of the time of each."""
    urls = ["*search_index.json*", "*/workers/search*"]
    chromium.execute_cdp_cmd("Network.enable", {})
    chromium.execute_cdp_cmd("Network.setBlockedURLs", {"urls": urls})
    yield
    chromium.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})


@pytest.mark.usefixtures("without_search")
def test_every_page_at_every_width(site, chromium):
    folder, address = site
    paths = [path.parent.relative_to(folder).as_posix() for path in folder.rglob("index.html")]
    pages = {"" if path == "." else f"{path}/": {} for path in paths}
    problems = []
    chromium.set_window_size(1200, 900)
    for page in pages:
        opened(chromium, address + page)
        pages[page] = found = chromium.execute_script(PAGE)
        problems += [f"{page}: {picture}" for picture in found["pictures"]]
        problems += [f"{page}: {found['titles']} titles"] if found["titles"] != 1 else []
        problems += [f"{page} at 1200: {e}" for e in chromium.execute_script(WIDE)]
        for width in WIDTHS:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            problems += [f"{page} at {width}: {e}" for e in chromium.execute_script(WIDE)]
        chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    for page, found in pages.items():
        for link in found["links"]:
            target, anchor = urldefrag(link)
            if not target.startswith(address):
                continue
            path = target.removeprefix(address).removesuffix("index.html")
            if path not in pages and not (folder / path).is_file():
                problems.append(f"{page}: no page {link}")
            elif anchor and not {anchor, unquote(anchor)} & {*pages[path]["ids"]}:
                problems.append(f"{page}: no anchor {link}")
    assert problems == []
    assert len(pages) > 30


def test_the_keyboard_reaches_everything(site, chromium):
    from selenium.webdriver import ActionChains, Keys

    chromium.set_window_size(1200, 900)
    chromium.get(site[1])
    reached = {}
    for _ in range(16):
        ActionChains(chromium).send_keys(Keys.TAB).perform()
        name, outline = chromium.execute_script(FOCUS)
        reached[name] = outline
    for name in ("Skip to content", "The first hour", "Boards", "Reference"):
        assert reached[name] != "none", name
    ActionChains(chromium).send_keys("s").perform()
    assert "search" in chromium.execute_script("return document.activeElement.className")
