"""The site that `make docs` builds: whole, from docstrings too, with a live explorer, nothing from elsewhere."""

import functools
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from command_processes import PATIENCE
from documented import ROOT

import dualtemp

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="needs the docs extra")
    pytest.importorskip("mkdocstrings", reason="needs the docs extra")
    folder = tmp_path_factory.mktemp("site")
    where = ["--out", folder / "site", "--explorer", folder / "explorer" / "explore.html", "--epochs", "1"]
    words = [sys.executable, ROOT / "docs" / "build_site.py", *where]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=3 * PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_reference_explains_every_public_name(site: Path) -> None:
    text = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    anchors = {anchor.rpartition(".")[2] for anchor in re.findall(r'<h3 id="([\w.]+)"', text)}
    assert {name for name in dualtemp.__all__ if name != "__version__"} <= anchors
    assert "doctest" not in text
    assert not re.search(r"<blockquote>\s*<blockquote>", text), "a prompt was taken for a quotation"


def test_pages_of_the_root_are_there_with_their_links(site: Path) -> None:
    assert 'href="studio.html"' in (site / "changelog.html").read_text()
    assert 'href="studio.html#safe"' in (site / "security.html").read_text()
    assert not list(site.rglob("cells"))


def test_no_page_refers_to_another_host_for_what_it_shows(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r'<(?:script|img|iframe|source)[^>]+src="(?:https?:)?//[^"]*"', text), page
        assert not re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect|icon)"[^>]+href="(?:https?:)?//', text), page


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_browser_shows_the_explorer_and_asks_nobody_else(address: str, browser: Any) -> None:
    page = browser.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/index.html")
    assert page.evaluate("document.querySelector('img[src=\"studio.png\"]').naturalWidth") > 1000
    page.goto(f"{address}/scalar-times-vector.html")
    page.locator("iframe").scroll_into_view_if_needed()
    frame = page.frame_locator("iframe")
    frame.locator("input[type=range]").first.wait_for()
    page.close()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert any(url.endswith("explore-digits.html") for url in asked)
