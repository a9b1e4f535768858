"""The studio's page in a real browser, that must have nothing to complain about."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from command_processes import PATIENCE
from served_studio import ServedStudio
from started_studio import Started

WAIT = 1000 * PATIENCE
BEYOND = 3  # px around the points that are to be selected
NOISE = ("GL Driver Message",)  # of a browser that draws without a GPU
OpenStudio = Callable[..., Any]


class Page:
    """An open page, and what it has complained about."""

    def __init__(self, view: Any, studio: ServedStudio | Started) -> None:
        self.view, self.studio, self.complaints = view, studio, []
        view.set_default_timeout(WAIT)
        view.on("console", self._hear)
        view.on("pageerror", lambda error: self.complaints.append(str(error)))
        view.on("request", self._ask)
        view.goto(studio.address)
        view.wait_for_selector("body.ready")
        self.until("studio.store.column !== null && studio.store.placed === '0 neighbors' && studio.map.moved >= 1")

    def _hear(self, message: Any) -> None:
        if not message.text.startswith("[.WebGL") and not any(word in message.text for word in NOISE):
            self.complaints.append(message.text)

    def _ask(self, request: Any) -> None:
        if not request.url.startswith((f"http://127.0.0.1:{self.studio.port}/", "blob:")):
            self.complaints.append(request.url)

    def until(self, condition: str) -> Any:
        """Wait until something is true on the page; returns it.

        Playwright's own way evaluates text within the page, which its content policy forbids.
        """
        deadline = time.monotonic() + PATIENCE
        while not (found := self.evaluate(f"Boolean({condition})")):
            assert time.monotonic() < deadline, condition
            time.sleep(0.02)
        return found

    def evaluate(self, text: str) -> Any:
        return self.view.evaluate(text)

    def selected(self) -> list[int]:
        return sorted(self.evaluate("Array.from(studio.store.selection)"))

    def drag_around(self, tool: str, ids: list[int]) -> None:
        """Draw a box or a lasso around these points."""
        places = self.evaluate(f"{ids}.map(id => studio.map.pixel(id))")
        box = self.view.locator("#overlay").bounding_box()
        x0, x1 = (edge(place[0] for place in places) for edge in (min, max))
        y0, y1 = (edge(place[1] for place in places) for edge in (min, max))
        x0, y0, x1, y1 = x0 - BEYOND, y0 - BEYOND, x1 + BEYOND, y1 + BEYOND
        corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
        self.view.click(f"[data-tool={tool}]")
        path = [corners[0], corners[2]] if tool == "box" else [*corners, corners[0]]
        self.view.mouse.move(box["x"] + path[0][0], box["y"] + path[0][1])
        self.view.mouse.down()
        for x, y in path[1:]:
            self.view.mouse.move(box["x"] + x, box["y"] + y, steps=4)
        self.view.mouse.up()


@pytest.fixture
def open_studio(browser: Any) -> Iterator[OpenStudio]:
    """open_studio(studio, ...): a page; at the end it must have nothing to complain about."""
    opened: list[Page] = []

    def show(
        studio: ServedStudio | Started, width: int = 1400, scheme: str = "light", **routes: Callable[[Any], None]
    ) -> Page:
        view = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        for path, handle in routes.items():
            view.route(f"**/api/{path}*", handle)
        page = Page(view, studio)
        opened.append(page)
        return page

    yield show
    for page in opened:
        page.view.close()
        assert page.complaints == []
