"""Checkpoints in the middle of an epoch come when it is time, for several processes as for one."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from dualtemp import distributed
from dualtemp.config import settings
from dualtemp.training.launch import ExecutionOptions
from dualtemp.training.start import start

EVERY = 1.0  # second: many quick steps


class SlowStep:
    """A watch that makes the second step last until it is time, and remembers the checkpoints that it has seen."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen, self.began = folder, set(), time.monotonic()

    def begin(self, *_: object) -> None: ...

    def step(self, epoch: int, step: int, *_: object) -> None:
        if step == 2:
            time.sleep(1.1 * EVERY)
        self.seen |= {path.name for path in self.folder.glob("checkpoints/step-*")}

    def epoch(self, *_: object) -> None:
        self.seconds = time.monotonic() - self.began

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


def checkpoints_before_the_epoch_is_over() -> tuple[int, float]:
    """How many checkpoints a run of one epoch has made at intervals of EVERY, and the seconds that it took."""
    words = {"data": "digits", "subset": 256, "batch": 8, "epochs": 1, "backbone": "resnet_mini", "knn_images": 100}
    path = Path(os.environ["RUN"])
    watch: Any = SlowStep(path)  # takes whatever it is told
    start(settings(words), path, ExecutionOptions("cpu", quiet=True, checkpoint_minutes=EVERY / 60), watch)
    return (len(watch.seen), watch.seconds) if distributed.rank() == 0 else (0, 0.0)


@pytest.mark.slow
def test_several_processes_save_when_it_is_time_and_not_after_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import several_processes  # not above: the processes that read this file know nothing of the others

    monkeypatch.setenv("RUN", str(tmp_path / "run"))
    (count, seconds), _ = several_processes.run(__file__, "checkpoints_before_the_epoch_is_over", 2, tmp_path / "two")
    assert 1 <= count <= seconds / EVERY
