"""Who watches a run: what it is told, several watches as one, and what becomes of one that fails."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dualtemp.config import Settings

if TYPE_CHECKING:
    import torch

    from dualtemp.training.training_data import TrainingData


@dataclass(frozen=True)
class Snapshot:
    """A run as it stands after an epoch, to be looked into: nothing of it may be changed.

    path: the run's folder; weights: gives the framework's state dict, which training goes on to change; step: that they
    are of.
    """

    path: Path
    chosen: Settings
    weights: "Callable[[], dict[str, torch.Tensor]]"
    data: "TrainingData"
    device: "torch.device"
    step: int


class Watch(Protocol):
    """What a run tells while it goes on; rank 0 alone does. What a watch raises ends the run.

    Those that have them are also told `working(what, done, total)` of work between steps, such as "measuring", and
    shown `snapshot(Snapshot)` after every epoch but the last.
    """

    def begin(self, path: Path, chosen: Settings) -> None:
        """The run's folder is there and nobody else writes to it; steps follow."""
        ...

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """A step of an epoch has been made."""
        ...

    def epoch(self, metrics: dict[str, Any]) -> None:
        """An epoch is over: its line of metrics.jsonl, which is written already."""
        ...

    def note(self, text: str) -> None:
        """Something a person should know."""
        ...

    def close(self) -> None:
        """Nothing follows, however the run has ended."""
        ...


class Several:
    """Several watches as one. One of `others` that fails is left out from then on, with a note to `first`."""

    def __init__(self, first: Watch, *others: Watch) -> None:
        self.first, self.others = first, list(others)

    def begin(self, path: Path, chosen: Settings) -> None:
        """Tell all of the beginning."""
        self.first.begin(path, chosen)
        self._tell(lambda watch: watch.begin(path, chosen))

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Tell all of a step."""
        self.first.step(epoch, step, steps, loss)
        self._tell(lambda watch: watch.step(epoch, step, steps, loss))

    def epoch(self, metrics: dict[str, Any]) -> None:
        """Tell all of an epoch."""
        self.first.epoch(metrics)
        self._tell(lambda watch: watch.epoch(metrics))

    def note(self, text: str) -> None:
        """Tell all of a note."""
        self.first.note(text)
        self._tell(lambda watch: watch.note(text))

    def working(self, what: str, done: int, total: int) -> None:
        """Tell those that listen of work between steps."""
        tell_if_heard(self.first, "working", what, done, total)
        self._tell(lambda watch: tell_if_heard(watch, "working", what, done, total))

    def snapshot(self, found: Snapshot) -> None:
        """Show those that look the run as it stands."""
        tell_if_heard(self.first, "snapshot", found)
        self._tell(lambda watch: tell_if_heard(watch, "snapshot", found))

    def close(self) -> None:
        """Tell all of the end."""
        try:
            self.first.close()
        finally:
            self._tell(lambda watch: watch.close())

    def _tell(self, tell: Callable[[Watch], None]) -> None:
        for watch in list(self.others):
            if not attempted(watch, lambda watch=watch: tell(watch), self.first.note):
                self.others.remove(watch)


def tell_if_heard(watch: Watch, name: str, *told: Any) -> None:
    """Tell a watch what only some listen to."""
    listen = getattr(watch, name, None)
    if listen is not None:
        listen(*told)


def attempted(what: object, action: Callable[[], Any], note: Callable[[str], None]) -> bool:
    """Do something that a run can do without; that it fails is a note, and False."""
    try:
        action()
    except Exception as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        note(f"{what} cannot be had ({why}); the run does without")
        return False
    return True


def scalars(metrics: dict[str, Any]) -> dict[str, float]:
    """The numbers of an epoch's line by name, as logs take them; the epoch itself is the axis."""
    return {name: float(value) for name, value in metrics.items() if name != "epoch" and isinstance(value, int | float)}
