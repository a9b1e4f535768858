"""Keyboard and pointer on the page, where one click changes what the next one meets."""

from made_runs import FULL, made_run
from open_pages import OpenStudio
from served_studio import ServedStudio


def test_the_grid_is_sorted_by_the_column_that_its_order_names(studio: ServedStudio, open_studio: OpenStudio) -> None:
    page = open_studio(studio)
    order = page.view.locator("#order")
    for column in ("class", "uncertainty"):
        page.until(f"studio.store.columns.some(each => each.id === '{column}')")
        page.view.select_option("#color", column)
        page.until(f"studio.store.column?.id === '{column}'")
        if column == "class":
            order.select_option("up")
        assert order.locator("option:checked").inner_text() == f"{column}, rising"
        values = page.evaluate("Array.from(studio.grid.ids, id => studio.store.column.values[id])")
        assert values == sorted(values)
    page.view.select_option("#color", "")
    page.until("studio.store.column === null")
    assert order.input_value() == "found"
    assert page.evaluate("Array.from(studio.grid.ids)") == list(range(60))


def test_a_double_click_in_the_grid_opens_that_image(studio: ServedStudio, open_studio: OpenStudio) -> None:
    page = open_studio(studio)
    page.view.dblclick("#cell-5")  # the first of its two clicks selects the image, and leaves it alone in the grid
    page.until("document.querySelector('#viewer').open && document.querySelector('#viewer figcaption')")
    assert page.view.inner_text("#viewer figcaption") == studio.workspace.shown.images.names[5]


def test_the_viewer_keeps_the_keyboard(studio: ServedStudio, open_studio: OpenStudio) -> None:
    page = open_studio(studio)
    names = studio.workspace.shown.images.names
    page.view.focus("#grid")
    page.view.keyboard.press("ArrowRight")
    page.view.keyboard.press("Enter")

    def shown(number: int) -> None:
        page.until(f"document.querySelector('#viewer figcaption')?.textContent === {names[number]!r}")

    shown(1)
    page.view.keyboard.press("ArrowRight")
    shown(2)
    page.view.click("#viewer [aria-label='Next image']")
    shown(3)
    page.view.keyboard.press("Enter")  # the button is still the one that has the focus
    shown(4)
    page.view.keyboard.press("ArrowLeft")
    shown(3)
    page.view.keyboard.press("Escape")
    page.until("!document.querySelector('#viewer').open")
    page.view.focus("#grid")
    page.view.keyboard.press("Enter")  # the second time the viewer has buttons already
    shown(1)
    page.view.keyboard.press("ArrowRight")
    shown(2)
    assert page.evaluate("document.querySelector('#viewer').open")


def test_images_marked_among_all_can_be_searched_from_and_cleared(
    studio: ServedStudio, open_studio: OpenStudio
) -> None:
    page = open_studio(studio)
    page.view.focus("#grid")
    page.view.keyboard.press("Shift+ArrowRight")
    page.until("studio.store.marks.size === 2")
    assert page.view.is_enabled("#clear")
    page.view.click("#clear")
    page.until("studio.store.marks.size === 0")
    assert page.view.is_disabled("#similar")
    page.view.focus("#grid")
    page.view.keyboard.press("Shift+ArrowRight")
    page.view.click("#similar")
    page.until("studio.store.why === 'like these 2'")


def test_only_the_first_button_of_a_mouse_selects(studio: ServedStudio, open_studio: OpenStudio) -> None:
    page = open_studio(studio)
    x, y = page.evaluate("studio.map.pixel(7)")
    box = page.view.locator("#overlay").bounding_box()
    for button in ("right", "middle"):
        page.view.mouse.click(box["x"] + x, box["y"] + y, button=button)
    assert page.selected() == []
    page.view.mouse.click(box["x"] + x, box["y"] + y)
    assert len(page.selected()) == 1


def test_the_page_of_a_run_stays_when_it_is_read_anew(studio: ServedStudio, open_studio: OpenStudio) -> None:
    """A page in a sandbox that loads itself again is another site's to the guard; so it does not."""
    run = made_run(studio.workspace.places.runs / "mine", FULL)
    (run / "report.html").write_text('<!doctype html><meta http-equiv="refresh" content="1"><h1>mine</h1>')
    page = open_studio(studio)
    page.view.goto(f"http://127.0.0.1:{studio.port}/api/runs/page?run=mine")
    page.view.wait_for_timeout(3000)
    assert page.view.inner_text("h1") == "mine"
