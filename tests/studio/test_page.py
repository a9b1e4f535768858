"""The page in a real browser: each verb as a person does it, and no complaint on the console."""

import time
from pathlib import Path
from typing import Any

import pytest
from open_pages import BEYOND, OpenStudio, Page
from served_studio import HTML, ServedStudio, serve


def within(page: Page, ids: list[int]) -> list[int]:
    """The images whose points lie in the rectangle that is drawn around these."""
    every = page.evaluate("Array.from({length: studio.store.count}, (_, id) => studio.map.pixel(id))")
    xs, ys = [every[i][0] for i in ids], [every[i][1] for i in ids]
    x0, x1, y0, y1 = min(xs) - BEYOND, max(xs) + BEYOND, min(ys) - BEYOND, max(ys) + BEYOND
    return [i for i, (x, y) in enumerate(every) if x0 <= x <= x1 and y0 <= y <= y1]


def test_box_lasso_search_and_more_like_these_select(studio: ServedStudio, open_studio: OpenStudio) -> None:
    page = open_studio(studio)
    for tool in ("box", "lasso"):
        wanted = within(page, [3, 9, 12])
        page.drag_around(tool, [3, 9, 12])
        page.until("studio.store.selection.length > 0")
        assert page.selected() == wanted
        assert page.view.inner_text("#grid-title").startswith(f"{len(wanted)} image")
        page.view.keyboard.press("Escape")
        page.until("studio.store.selection.length === 0")
    page.view.fill("#search", "onerror")
    page.until("studio.store.selection.length === 1")
    cell = page.view.locator(".cell").first
    page.until("document.querySelector('.cell').title.startsWith('<img')")
    assert HTML in cell.get_attribute("title")
    assert page.evaluate("document.querySelectorAll('img').length") == 0, "a name is text, never an element"
    page.view.click("#similar")
    page.until("studio.store.selection.length > 10")
    (alone,) = (i for i, name in enumerate(studio.workspace.shown.images.names) if name == HTML)
    assert page.evaluate("studio.store.selection[0]") == alone


def test_labels_persist_move_predictions_and_reach_the_other_tab(
    studio: ServedStudio, open_studio: OpenStudio, tmp_path: Path
) -> None:
    one, other = open_studio(studio), open_studio(studio, scheme="dark")
    one.evaluate("studio.store.select([0, 1], 'chosen')")
    one.view.fill("#label-word", "<b>new</b>")
    one.view.press("#label-word", "Enter")
    other.until("studio.store.entries.get(1)?.[0] === '<b>new</b>'")
    assert (tmp_path / "labels.csv").read_text().count("<b>new</b>") == 2
    assert other.view.locator(".caption.own b").count() == 0
    other.evaluate("studio.store.select([2], 'chosen')")
    other.view.locator("#label-chips button").nth(1).click()  # the second class, by name
    one.until("studio.store.entries.size === 3")
    one.view.select_option("#color", "prediction")
    one.until("studio.store.column.id === 'prediction' && studio.store.column.categories.includes('<b>new</b>')")
    one.until("document.querySelector('#probe').textContent.includes('refitted in')")
    one.view.fill("#tag-word", "odd")
    one.evaluate("studio.store.select([5], 'chosen')")
    one.view.press("#tag-word", "Enter")
    other.until("studio.store.entries.get(5)?.[1][0] === 'odd'")
    for left in (3, 2, 0):
        one.view.click("#undo")
        other.until(f"studio.store.entries.size === {left}")
    one.until("document.querySelector('#undo').disabled")
    assert studio.workspace.shown.labels.entries == {}


@pytest.mark.parametrize("held", ["state", "points"])
def test_news_that_come_while_the_page_loads_are_not_lost(
    studio: ServedStudio, open_studio: OpenStudio, held: str
) -> None:
    """An answer that was given before a label was set and the map was made, and arrives after the news of both."""
    workspace, happened = studio.workspace, []
    studio.until(lambda: workspace.ready and "neighbors" in workspace.shown.spaces[0].places)
    space = workspace.shown.spaces[0]
    del space.places["neighbors"]

    def deliver_late(route: Any) -> None:
        answer = route.fetch()
        if not happened:
            happened.append(studio.ask("/api/label", {"ids": [7], "label": "late"}).code)
            workspace.lay_out(0)
            studio.until(lambda: not workspace.background.busy("layout"))
            time.sleep(0.2)  # the news are there before the answer
        route.fulfill(response=answer)

    page = open_studio(studio, **{held: deliver_late})
    assert happened == [200]
    page.until("studio.store.entries.get(7)?.[0] === 'late'")


def test_keys_and_grid_work_without_a_mouse(studio: ServedStudio, open_studio: OpenStudio) -> None:
    page = open_studio(studio)
    page.evaluate("studio.store.select([10, 11, 12, 13], 'chosen')")
    page.view.focus("#grid")
    page.view.keyboard.press("ArrowRight")
    page.view.keyboard.press("Space")
    assert page.evaluate("[...studio.store.marks]") == [11]
    page.view.keyboard.press("1")
    page.until("studio.store.entries.get(11)?.[0] === studio.store.words[0]")
    assert page.evaluate("studio.store.entries.size") == 1, "the marked one alone"
    page.view.keyboard.press("u")
    page.until("studio.store.entries.size === 0")
    page.view.keyboard.press("Enter")
    page.view.wait_for_selector("#viewer[open] img")
    page.until("document.querySelector('#viewer img').naturalWidth > 0")
    page.view.keyboard.press("Escape")
    page.view.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.view.focus("#overlay")
    before = page.evaluate("studio.map.pixel(0)")
    page.view.keyboard.press("ArrowLeft")
    page.view.keyboard.press("+")
    assert page.evaluate("studio.map.pixel(0)") != before
    page.view.keyboard.press("l")
    assert page.view.get_attribute("[data-tool=lasso]", "aria-pressed") == "true"
    page.view.keyboard.press("?")
    page.view.wait_for_selector("#help[open]")


def test_duplicates_are_found_and_settled_and_labels_doubted(studio: ServedStudio, open_studio: OpenStudio) -> None:
    z = studio.workspace.space.features
    z[7] = z[20]  # almost equal now
    page = open_studio(studio)
    page.view.click("#tab-settle")
    page.view.click("#find-duplicates")
    page.view.click("#settle-duplicate")
    page.until("studio.store.entries.get(20)?.[1][0] === 'duplicate'")
    page.view.click("#find-doubts")
    page.until("[...studio.store.jobs.values()].some(job => job.kind === 'doubts' && job.state === 'done')")
    with page.view.expect_download() as waiting:
        page.view.click("text=CSV")
    assert "duplicate" in waiting.value.path().read_text()


def test_clusters_and_columns_color_the_map(studio: ServedStudio, open_studio: OpenStudio) -> None:
    page = open_studio(studio)
    page.view.select_option("#color", "cluster")
    page.until("studio.store.column.id === 'cluster'")
    assert page.view.locator("#legend .key").count() == page.evaluate("studio.store.column.categories.length")
    page.view.locator("#legend .key").first.click()
    page.until("studio.store.selection.length > 0")
    code = page.evaluate("studio.store.column.values[studio.store.selection[0]]")
    values = page.evaluate("Array.from(studio.store.selection).map(id => studio.store.column.values[id])")
    assert set(values) == {code}
    page.view.select_option("#order", "down")
    page.until("studio.store.selection.length > 0")


def test_the_page_fits_a_phone_and_shows_thumbnails_when_close(studio: ServedStudio, open_studio: OpenStudio) -> None:
    page = open_studio(studio, width=390)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    page.until("document.querySelector('.cell')?.dataset.drawn === '1'")
    # Sixty points are few: their pictures are on the map. Opaque pixels of the overlay are those.
    page.until(
        "(() => { const c = document.querySelector('#overlay');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 250; return n > 5000; })()"
    )


@pytest.mark.slow
def test_the_temperatures_act_on_selected_anchors_and_a_picture_can_be_dropped(
    photos_run: Path, photos: Path, tmp_path: Path, open_studio: OpenStudio
) -> None:
    with serve(photos_run, tmp_path) as studio:
        page = open_studio(studio)
        page.evaluate("studio.store.select([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 'chosen')")
        page.view.click("#tab-temperatures")
        page.view.click("#use-anchors")
        page.view.wait_for_selector("#hardest")
        shares = []
        for step in (2, 18):  # tau_beta .04, then 100
            with page.view.expect_response("**/api/temperatures") as waiting:
                page.view.fill("#beta", str(step))
            shares.append(waiting.value.json()["hardest_tenth"])
        assert shares[0] > shares[1]
        page.until(f"document.querySelector('#hardest').textContent === '{100 * shares[1]:.0f} %'")
        content = list((photos / "train/cat/003.png").read_bytes())
        page.evaluate(
            "(() => { const data = new DataTransfer();"
            f"data.items.add(new File([new Uint8Array({content})], 'x.png'));"
            "document.dispatchEvent(new DragEvent('drop', {dataTransfer: data, cancelable: true})); })()"
        )
        page.until("studio.store.why === 'like the dropped picture'")
        names = studio.workspace.shown.images.names
        assert names[page.evaluate("studio.store.selection[0]")] == "train/cat/003.png"
        page.view.close()  # before its studio ends


def test_a_page_whose_studio_has_ended_says_so_and_stays_quiet(
    embeddings: Path, tmp_path: Path, open_studio: OpenStudio
) -> None:
    with serve(embeddings, tmp_path) as studio:
        page = open_studio(studio)
    asked: list[str] = []
    page.view.on("request", lambda request: asked.append(request.url))
    page.until("document.body.classList.contains('lost')")
    for number in range(5):  # new thumbnails and names are wanted, and cannot be had
        page.evaluate(f"studio.store.select([{number}, {number + 30}], 'chosen')")
        page.view.wait_for_timeout(100)
    page.view.wait_for_timeout(500)
    assert len(asked) < 20
    page.complaints.clear()  # that the studio refuses is what this is about
