"""The former place of `dualtemp.training.observers.observer`."""

from typing import TYPE_CHECKING

from dualtemp.lazy import lazily

if TYPE_CHECKING:
    from dualtemp.training.observers.observer import Observer as Watch

__all__ = ["Watch"]

__getattr__, __dir__ = lazily(__name__, {}, renamed={"Watch": "dualtemp.training.observers.observer.Observer"})
