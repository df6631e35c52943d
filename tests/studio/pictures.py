"""Takes the pictures of Studio that the documentation shows: `python -m tests.studio.pictures`."""

import tempfile
from pathlib import Path

from querysmasher.spec import template
from tests.report.browser import Browser, find_browser
from tests.studio.conftest import Studio, make_folder
from tests.studio.page import Page

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PAGES = {"decide": "Decide", "choose": "Choose", "see": "See"}


def main():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        studio = Studio(make_folder(Path(folder) / "work", template()))
        browser = Browser(find_browser(), Path(folder) / "profile")
        try:
            studio.planned()
            page = Page(browser, studio, width=1280)
            for path, words in PAGES.items():
                page.go(words, f"/{path}")
                page.until("What is reached")
                browser.picture(IMAGES / f"studio-{path}.png", height=900)
        finally:
            browser.close()
            studio.close()


if __name__ == "__main__":
    main()
