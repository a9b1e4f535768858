"""Pictures while a run goes on: they are on its page, cost little, and change nothing of it."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from run_contents import different, everything

from dualtemp.api import train
from dualtemp.config import Settings, settings
from dualtemp.report import live_pictures
from dualtemp.report.live_pictures import SHARE, LivePictures
from dualtemp.training.observers.observer import Snapshot

SMALL: dict[str, Any] = {
    "data": "digits",
    "backbone": "resnet_mini",
    "batch": 32,
    "subset": 64,
    "knn_images": 64,
    "epochs": 3,
    "threads": 1,
    "device": "cpu",
    "quiet": True,
}


class Onlooker:
    """Keeps what the run's folder shows at the end of each epoch."""

    def __init__(self) -> None:
        self.path, self.steps, self.pages, self.notes = Path(), [], [], []

    def begin(self, path: Path, chosen: Settings) -> None:
        self.path = path

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        if step == 1 and epoch:
            self.steps.append(json.loads((self.path / "pictures.json").read_text())["step"])
            self.pages.append((self.path / "report.html").read_text())

    def epoch(self, metrics: dict[str, Any]) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("given", [{"method": "moco", "dictionary_size": 64}, {"chunk": 16}, {"method": "supervised"}])
@pytest.mark.slow
def test_a_run_is_looked_into_after_an_epoch_and_ends_with_the_same_bits(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pictures, "SHARE", 1e9)
    seen = Onlooker()
    train(out=tmp_path / "seen", observer=seen, **SMALL, **given)
    train(out=tmp_path / "unseen", page=False, **SMALL, **given)
    assert seen.steps == [2, 4]  # two steps an epoch
    assert all("as the encoder of step" in page and "pictures-map" in page for page in seen.pages)
    assert seen.notes == []
    assert different(everything(tmp_path / "seen"), everything(tmp_path / "unseen")) == []


def test_pictures_that_cannot_be_taken_cost_neither_the_page_nor_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(live_pictures, "write_pictures", fails)
    monkeypatch.setattr(live_pictures, "SHARE", 1e9)
    seen = Onlooker()
    monkeypatch.setattr(seen, "step", lambda *given: None)
    train(out=tmp_path / "run", observer=seen, **SMALL)
    assert len(seen.notes) == 1
    assert "No space left on device" in seen.notes[0]
    assert "epoch" in (tmp_path / "run" / "report.html").read_text()


def test_pictures_take_no_more_than_their_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of a run of five hours with epochs of 20 s, where pictures take twice what is expected of them.
    clock, sizes, most = [0.0], [], 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    now: Any = Snapshot(Path("run"), settings({"data": "digits", "batch": 64}), dict, None, None, 0)  # pyright: ignore
    monkeypatch.setattr(live_pictures, "open_snapshot", lambda found: found)
    monkeypatch.setattr(live_pictures, "write_pictures", lambda path, found: None)

    def take(found: Any, size: int) -> None:
        sizes.append((clock[0], size))
        clock[0] += 2 * LivePictures.estimate(size, now, 100.0)

    monkeypatch.setattr(live_pictures, "collect_pictures", take)
    live = LivePictures()
    while clock[0] < 5 * 3600:
        clock[0] += 20
        live.take(now, 100.0)
        most = max(most, live.spent / clock[0])
    assert most < 2 * SHARE  # the first are a guess; from then on it is known
    assert live.spent / clock[0] < 1.01 * SHARE
    assert [size for _, size in sizes[:5]] == [75, 150, 300, 600, 600]
    assert sizes[0][0] < 600
    assert len(sizes) > 5
