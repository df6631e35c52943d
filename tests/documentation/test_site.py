"""The pages as `make docs` builds them: strictly, complete, and quiet in a real browser."""

import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

import pytest

import querysmasher as qs
from tests.documentation.pages import DOCS, pages

pytestmark = [
    pytest.mark.slow,
]

READY = "document.readyState === 'complete'"
INK = "getComputedStyle(document.querySelector('svg.drawing text')).fill"


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors in it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors.add(found.get("id") or "")
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif tag != "a":
            self.loads += [found[key] for key in ("src", "href") if found.get(key)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    options = ["--fail-on-warning", "--keep-going", "--quiet", "-d", folder / "doctrees"]
    command = [sys.executable, "-m", "sphinx", *options, DOCS, folder / "site"]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603
    assert built.returncode == 0, built.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def read(site):
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_page_is_built(site):
    for page in pages():
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file()


def test_every_link_leads_somewhere(site, read):
    for path, page in read.items():
        for link in page.links:
            if not re.match(r"[a-z]+:", link):
                target, anchor = urldefrag(unquote(link))
                found = (path.parent / target).resolve() if target else path
                assert found.is_file(), f"{path.name}: {link}"
                assert found not in read or anchor in read[found].anchors, f"{path.name}: {link}"


def test_nothing_is_loaded_from_elsewhere(site, read):
    for path, page in read.items():
        for address in page.loads:
            assert not re.match(r"([a-z]+:)?//", address), f"{path.name}: {address}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", style.read_text()), style.name


def test_every_public_name_is_in_the_reference(site, read):
    anchors = read[site / "reference" / "api.html"].anchors
    assert {f"querysmasher.{name}" for name in qs.__all__} <= anchors


@pytest.mark.parametrize(
    "name", ["index", "start/tutorial", "concepts/parts", "howto/plan", "reference/api", "benchmarks"]
)
@pytest.mark.parametrize("width", [1200, 390])
def test_pages_open_quietly(browser, site, name, width):
    browser.open(site / f"{name}.html", width=width, ready=READY)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("[...document.images].every((image) => image.naturalWidth > 0)")
    assert browser.complaints() == []
    assert all(url.startswith("file:") for url in browser.requests())


@pytest.mark.parametrize("name", ["parts", "centres", "error"])
def test_drawings_follow_light_and_dark(browser, site, name):
    browser.open(site / "concepts" / f"{name}.html", ready=READY)
    inks = []
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        inks.append(browser.run(INK))
    browser.run("document.body.dataset.theme = 'light'")  # as the button does
    assert [*inks, browser.run(INK)] == ["rgb(31, 35, 40)", "rgb(230, 237, 243)", "rgb(31, 35, 40)"]


def test_search_works_from_a_folder(browser, site):
    browser.open(site / "search.html", ready=READY)
    browser.run("location.search = '?q=interval'")
    browser.until("document.querySelectorAll('#search-results li').length > 2")
    assert browser.complaints() == []
    assert all(url.startswith("file:") for url in browser.requests())


def test_drawings_are_as_the_script_draws_them(tmp_path):
    runpy.run_path(str(DOCS / "drawings.py"))["main"](tmp_path)
    drawn = sorted(tmp_path.iterdir())
    assert [path.name for path in drawn] == sorted(
        path.name for path in (DOCS / "images").glob("concept-*.svg")
    )
    for path in drawn:
        kept = (DOCS / "images" / path.name).read_text()
        assert re.sub(r"[\d.]+", "#", kept) == re.sub(r"[\d.]+", "#", path.read_text())
