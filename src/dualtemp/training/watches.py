"""The former place of `dualtemp.training.observers.observer`."""

from dualtemp.lazy import lazily

__getattr__, __dir__ = lazily(__name__, {}, renamed={"Watch": "dualtemp.training.observers.observer.Observer"})
