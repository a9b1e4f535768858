"""Answers and news that come in another order than they were asked for; threads that change what others go through."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_processes import PATIENCE
from made_runs import made_run
from open_pages import OpenStudio, Page
from served_studio import ServedStudio

from dualtemp.errors import UserError
from dualtemp.studio.background import Background
from dualtemp.studio.events import News
from dualtemp.studio.live_probe import LiveProbe
from dualtemp.studio.space import make_space
from dualtemp.studio.training_runs import TrainingRuns

THREADS = 8


class Held:
    """The first answers from an address: given when they are asked for, they arrive when `release` is called."""

    def __init__(self, page: Page, path: str, most: int = 1) -> None:
        self.page, self.most, self.answers = page, most, []
        page.view.route(f"**/api/{path}", self._hold)

    def _hold(self, route: Any) -> None:
        if len(self.answers) < self.most:
            self.answers.append((route, route.fetch()))
        else:
            route.continue_()

    def release(self) -> None:
        """Let them arrive, and the page take them up."""
        assert self.answers, "nothing was asked"
        for route, answer in self.answers:
            route.fulfill(response=answer)
        self.page.view.wait_for_timeout(150)


def wait_for(page: Page, held: Held) -> None:
    while not held.answers:
        page.view.wait_for_timeout(10)


def test_the_newest_choice_stands_whichever_answer_comes_last(studio: ServedStudio, open_studio: OpenStudio) -> None:
    page = open_studio(studio)
    # A column, then another one.
    held = Held(page, "columns/class")
    page.view.select_option("#color", "class")
    wait_for(page, held)
    page.view.select_option("#color", "label")
    page.until("studio.store.column.id === 'label'")
    held.release()
    assert page.evaluate("[studio.store.column.id, document.querySelector('#color').value]") == ["label", "label"]
    # News of another column's values, while the column that was chosen is on its way.
    held = Held(page, "columns/uncertainty")
    page.view.select_option("#color", "uncertainty")
    wait_for(page, held)
    studio.ask("/api/label", {"ids": [1], "label": "first"})
    page.until("studio.store.column.id === 'uncertainty'")
    held.release()
    assert page.evaluate("studio.store.column.id") == "uncertainty"
    # The same column, of before and after a label.
    page.view.select_option("#color", "label")
    page.until("studio.store.column.id === 'label'")
    held = Held(page, "columns/label")
    studio.ask("/api/label", {"ids": [1], "label": "second"})
    wait_for(page, held)
    studio.ask("/api/label", {"ids": [2], "label": "third"})
    page.until("studio.store.column.categories.includes('third')")
    held.release()
    assert page.evaluate("studio.store.column.categories.includes('third')")
    # A map, then another one.
    held = Held(page, "points?space=0&layout=components")
    page.view.select_option("#layout", "components")
    wait_for(page, held)
    with page.view.expect_response("**/api/points?space=0&layout=neighbors"):
        page.view.select_option("#layout", "neighbors")
    held.release()
    assert page.evaluate("studio.store.placed") == "0 neighbors"
    assert "t-SNE" in page.view.inner_text("#map-note")
    places = page.evaluate("Array.from(studio.map.after.slice(0, 6))")
    np.testing.assert_array_equal(places, studio.workspace.space.places["neighbors"].reshape(-1)[:6])
    # A search, then a selection by hand.
    held = Held(page, "search?q=png")
    page.view.fill("#search", "png")
    wait_for(page, held)
    page.evaluate("studio.store.select([4, 5], 'chosen')")
    held.release()
    assert page.selected() == [4, 5]


def test_an_answer_older_than_the_news_changes_nothing_back(studio: ServedStudio, open_studio: OpenStudio) -> None:
    page = open_studio(studio)
    studio.until(lambda: studio.workspace.probe.predictions is not None)
    page.until("document.querySelector('.cell').title !== ''")
    # What is known of an image, asked for before it is labeled.
    page.evaluate("studio.items.stale()")
    held = Held(page, "items")
    page.evaluate("void studio.items.need(7)")
    wait_for(page, held)
    studio.ask("/api/label", {"ids": [7], "label": "late"})
    page.until("studio.store.entries.get(7)?.[0] === 'late'")
    held.release()
    page.until("studio.items.get(7)?.label === 'late'")
    # A label of this tab, confirmed after another tab's next one was heard of.
    held = Held(page, "label")
    page.evaluate("studio.store.select([8], 'chosen')")
    page.view.fill("#label-word", "here")
    page.view.press("#label-word", "Enter")
    wait_for(page, held)
    studio.ask("/api/label", {"ids": [9], "label": "there"})
    page.until("studio.store.words.includes('there')")
    held.release()
    assert page.evaluate("['here', 'there'].every(word => studio.store.words.includes(word))")
    # What others undo is undone: nothing is left to undo here.
    for _ in range(3):
        assert studio.ask("/api/undo", {}).code == 200
    page.until("studio.store.entries.size === 0 && document.querySelector('#undo').disabled")


@pytest.mark.slow
def test_thumbnails_beside_the_grid_come_although_the_grid_has_moved_on(
    studio: ServedStudio, open_studio: OpenStudio
) -> None:
    z = studio.workspace.space.features
    z[57] = z[58]  # almost equal now, and out of the grid's sight
    waiting: list[Any] = []
    flowing = False

    def hold(route: Any) -> None:
        if flowing:
            route.continue_()
        else:
            waiting.append(route)

    page = open_studio(studio, thumbs=hold)
    page.view.set_viewport_size({"width": 1400, "height": 400})
    page.view.click("#tab-settle")
    page.view.click("#find-duplicates")
    page.view.wait_for_selector("#groups canvas")
    page.evaluate("document.querySelector('#grid').scrollTo(0, 40)")
    page.view.wait_for_timeout(100)
    flowing = True
    for route in waiting:
        route.continue_()
    page.until("[...document.querySelectorAll('#groups canvas')].every(canvas => canvas.dataset.drawn === '1')")


def at_once(act: Callable[[int], Any]) -> list[Any]:
    """What `act` returns, or raises, in THREADS threads that begin together."""
    together = threading.Barrier(THREADS)

    def run(number: int) -> Any:
        together.wait()
        try:
            return act(number)
        except UserError as error:
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_what_threads_go_through_is_replaced_not_changed() -> None:
    space, background = make_space("x", None, np.eye(4, dtype=np.float32)), Background(News())
    background.start("one", "one", lambda progress: None)
    going = [iter(space.places.items()), iter(space.notes), iter(background.jobs.values())]
    space.add_layout("neighbors", space.places["components"], "a note")
    background.start("two", "two", lambda progress: None)
    assert [len(list(each)) for each in going] == [1, 1, 1]
    assert (set(space.places), len(background.jobs)) == ({"components", "neighbors"}, 2)
    background.close()


def test_of_jobs_that_are_asked_for_together_one_is_started() -> None:
    background, end = Background(News()), threading.Event()
    found = at_once(lambda _: background.start("kind", "title", lambda progress: str(end.wait()), alone="already"))
    end.set()
    assert sum(isinstance(each, UserError) for each in found) == THREADS - 1
    assert len(background.jobs) == 1
    background.close()


def test_nothing_computes_any_more_once_the_studio_is_closed() -> None:
    before, began = set(threading.enumerate()), threading.Event()

    def work(progress: Callable[[int, int], None]) -> str:
        began.set()
        for done in range(1000):
            time.sleep(0.01)
            progress(done, 1000)
        return ""

    def fit() -> None:
        time.sleep(0.3)

    background, probe = Background(News()), LiveProbe(fit, lambda: None)
    probe.start()
    probe.ask()
    background.start("kind", "title", work)
    began.wait()
    probe.close()
    background.close()
    assert set(threading.enumerate()) <= before
    LiveProbe(fit, lambda: None).close()  # one that never began


def test_runs_that_are_started_together_have_names_of_their_own(tmp_path: Path) -> None:
    runs = TrainingRuns(tmp_path / "runs", News())
    assert sorted(at_once(lambda _: runs.new_name("photos"))) == [f"photos-{n + 1}" for n in range(THREADS)]


@pytest.fixture
def sleeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainingRuns]:
    """Runs, one of which is there; the command that would go on with it sleeps, and /proc does not tell whose it is."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr("dualtemp.studio.training_runs.sys.executable", str(program))
    made_run(tmp_path / "runs" / "mine", [{"loss": 3.0}])
    runs = TrainingRuns(tmp_path / "runs", News())
    yield runs
    for child in runs._children.values():
        child.kill()
        child.wait()


def test_of_resumes_that_are_asked_for_together_one_is_started(sleeping: TrainingRuns) -> None:
    found = at_once(lambda _: sleeping.resume("mine", 9))
    assert [str(each) for each in found if each is not None] == ["mine is running already"] * (THREADS - 1)
    assert [row["status"] for row in sleeping.listed()] == ["running"]


def test_a_run_of_this_studio_is_stopped_and_resumed_without_proc(sleeping: TrainingRuns) -> None:
    for _ in range(2):
        sleeping.resume("mine", 9)
        sleeping.stop("mine")
        assert sleeping._children["mine"].wait(PATIENCE) == -signal.SIGTERM
        assert [row["status"] for row in sleeping.listed()] != ["running"]
    with pytest.raises(UserError, match="mine is not running"):
        sleeping.stop("mine")


def test_pages_hear_of_labels_in_the_order_of_the_file(studio: ServedStudio, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    publish = studio.workspace.news.publish

    def listen(kind: str, **content: Any) -> None:
        if kind == "labels":
            heard.append(content["version"])
        publish(kind, **content)

    monkeypatch.setattr(studio.workspace.news, "publish", listen)
    codes = at_once(lambda n: [studio.ask("/api/label", {"ids": [n], "label": f"{n} {m}"}).code for m in range(4)])
    assert codes == [[200] * 4] * THREADS
    assert heard == list(range(1, 4 * THREADS + 1))


def test_exports_that_are_asked_for_together_go_to_folders_of_their_own(studio: ServedStudio, tmp_path: Path) -> None:
    answers = [studio.ask("/api/export/folders", {"copy_files": False}) for _ in range(3)]
    assert [studio.finish_job(each)["state"] for each in answers] == ["done"] * 3
    assert sorted(each.name for each in (tmp_path / "export").iterdir()) == ["classes-1", "classes-2", "classes-3"]
