"""Several observers as one, and one that fails."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from dualtemp.config import Settings, settings
from dualtemp.training.observers.observer import Observer, Several, scalars

CHOSEN = settings({"data": "digits"})


class Recorder:
    """Remembers what it is told; fails where it is asked to."""

    def __init__(self, failing: str = "", error: BaseException | None = None) -> None:
        self.told: list[str] = []
        self.failing, self.error = failing, error or OSError(28, "No space left on device")

    def __str__(self) -> str:
        return "the recorder"

    def _take(self, what: str, said: Any = "") -> None:
        self.told.append(f"{what} {said}".strip())
        if what == self.failing:
            raise self.error

    def begin(self, path: Path, chosen: Settings) -> None:
        self._take("begin", chosen.data)

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        self._take("step", step)

    def epoch(self, metrics: dict[str, Any]) -> None:
        self._take("epoch", metrics["epoch"])

    def note(self, text: str) -> None:
        self._take("note", text)

    def close(self) -> None:
        self._take("close")


ALL = ["begin digits", "step 1", "epoch 1", "note hear", "epoch 2", "close"]


def go_through(watch: Several) -> None:
    watch.begin(Path("run"), CHOSEN)
    watch.step(0, 1, 4, 0.5)
    watch.epoch({"epoch": 1})
    watch.note("hear")
    watch.epoch({"epoch": 2})
    watch.close()


def test_all_are_told_all_in_order() -> None:
    watches = [Recorder() for _ in range(3)]
    go_through(Several(*watches))
    assert [watch.told for watch in watches] == [ALL] * 3


@pytest.mark.parametrize("failing", ["begin", "step", "epoch", "note", "close"])
def test_one_that_fails_is_left_out_with_one_note_and_the_others_go_on(failing: str) -> None:
    first, bad, good = Recorder(), Recorder(failing), Recorder()
    go_through(Several(first, bad, good))
    assert good.told == ALL
    assert [text for text in first.told if "recorder" not in text] == ALL
    assert [text for text in first.told if "recorder" in text] == [
        "note the recorder is not available (No space left on device); the run goes on without it"
    ]
    assert len(bad.told) == 1 + next(i for i, text in enumerate(ALL) if text.startswith(failing))


def test_what_the_first_raises_and_an_interrupt_of_any_end_the_run() -> None:
    with pytest.raises(OSError, match="No space"):
        go_through(Several(Recorder("epoch"), Recorder()))
    with pytest.raises(KeyboardInterrupt):
        go_through(Several(Recorder(), Recorder("step", KeyboardInterrupt())))


def test_all_are_closed_though_the_first_cannot_be() -> None:
    other = Recorder()
    with pytest.raises(OSError, match="No space"):
        Several(Recorder("close"), other).close()
    assert other.told == ["close"]


def test_scalars_are_the_numbers_of_a_line_without_its_epoch() -> None:
    line = {"epoch": 3, "loss": 1.5, "collapsed": True, "step": 8, "word": "x", "nothing": None}
    assert scalars(line) == {"loss": 1.5, "collapsed": 1.0, "step": 8.0}


def test_the_former_name_still_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"observer\.Observer"):
        former = importlib.import_module("dualtemp.training.watches").Watch
    assert former is Observer
