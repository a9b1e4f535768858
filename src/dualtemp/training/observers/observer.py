"""Observers of a run: the interface, several observers as one, and handling of those that fail."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dualtemp.config import Settings
from dualtemp.lazy import lazily
from dualtemp.runs.metrics import is_logged

if TYPE_CHECKING:
    import torch

    from dualtemp.data.training_data import TrainingData


@dataclass(frozen=True)
class Snapshot:
    """The state of a run after an epoch, for observers that inspect it; they must not change anything.

    path: the run's folder; weights: returns the framework's state dict, which training keeps updating; step: counted
    from the start of the run.
    """

    path: Path
    chosen: Settings
    weights: "Callable[[], dict[str, torch.Tensor]]"
    data: "TrainingData"
    device: "torch.device"
    step: int


class Observer(Protocol):
    """Follows a run as it trains; called on rank 0 only. An exception that it raises ends the run.

    Two methods are optional: `working(what, done, total)` is called during work between steps, such as "measuring",
    and `snapshot(Snapshot)` after every epoch but the last.
    """

    def begin(self, path: Path, settings: Settings, /) -> None:
        """The run's folder exists and is locked; steps follow."""
        ...

    def step(self, epoch: int, step: int, steps: int, loss: float, /) -> None:
        """Step `step` of `steps` of an epoch is done; epochs count from 0, steps from 1."""
        ...

    def epoch(self, metrics: dict[str, Any], /) -> None:
        """An epoch is done: its line of metrics.jsonl, already written."""
        ...

    def note(self, text: str, /) -> None:
        """A message for the user."""
        ...

    def close(self) -> None:
        """The last call, however the run has ended."""
        ...


class Several:
    """Several observers as one. If one of `others` fails, it is dropped, with a note to `first`."""

    def __init__(self, first: Observer, *others: Observer) -> None:
        self.first, self.others = first, list(others)

    def begin(self, path: Path, settings: Settings) -> None:
        """Tell all that the run begins."""
        self.first.begin(path, settings)
        self._tell_others(lambda observer: observer.begin(path, settings))

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Tell all about a step."""
        self.first.step(epoch, step, steps, loss)
        self._tell_others(lambda observer: observer.step(epoch, step, steps, loss))

    def epoch(self, metrics: dict[str, Any]) -> None:
        """Tell all about an epoch."""
        self.first.epoch(metrics)
        self._tell_others(lambda observer: observer.epoch(metrics))

    def note(self, text: str) -> None:
        """Pass a note on to all."""
        self.first.note(text)
        self._tell_others(lambda observer: observer.note(text))

    def working(self, what: str, done: int, total: int) -> None:
        """Tell observers that have `working` about work between steps."""
        notify(self.first, "working", what, done, total)
        self._tell_others(lambda observer: notify(observer, "working", what, done, total))

    def snapshot(self, snapshot: Snapshot) -> None:
        """Pass the snapshot to observers that have `snapshot`."""
        notify(self.first, "snapshot", snapshot)
        self._tell_others(lambda observer: notify(observer, "snapshot", snapshot))

    def close(self) -> None:
        """Close all."""
        try:
            self.first.close()
        finally:
            self._tell_others(lambda observer: observer.close())

    def _tell_others(self, tell: Callable[[Observer], None]) -> None:
        for observer in list(self.others):
            if not attempt(observer, lambda observer=observer: tell(observer), self.first.note):
                self.others.remove(observer)


def notify(observer: Observer, method: str, *arguments: Any) -> None:
    """Call an optional method of an observer if it exists."""
    call = getattr(observer, method, None)
    if call is not None:
        call(*arguments)


def attempt(what: object, action: Callable[[], Any], note: Callable[[str], None]) -> bool:
    """Do something that is not essential to a run; returns False, after a note, if it fails."""
    try:
        action()
    except Exception as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        note(f"{what} is not available ({why}); the run goes on without it")
        return False
    return True


def scalars(metrics: dict[str, Any]) -> dict[str, float]:
    """The numeric metrics of an epoch that go into logs, by key; the epoch itself is their axis."""
    return {key: float(value) for key, value in metrics.items() if is_logged(key) and isinstance(value, int | float)}


__getattr__, _ = lazily(__name__, {}, renamed={"Watch": "dualtemp.training.observers.observer.Observer"})
