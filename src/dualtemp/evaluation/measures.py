"""Measures from plugins: functions of features and labels that runs call at every evaluation. Needs no torch."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from dualtemp.errors import UserError
from dualtemp.runs.measure import GROUPS, Measure, Terminal
from dualtemp.runs.metrics import measures, register

F = TypeVar("F", bound=Callable[..., Any])


def measure(
    key: str,
    *,
    title: str = "",
    says: str = "",
    better: Literal["higher", "lower", ""] = "",
    form: str = "{:.4g}",
    group: str = "features",
    terminal: str = "",
) -> Callable[[F], F]:
    """Register a function of (train features, train labels, test features, test labels) -> number as a measure.

    It is called at every evaluation of a run with labels, with features (N, F) of clean images and labels (N,); the
    number goes into metrics.jsonl under `key`, onto charts, pages, tables and logs.

    Args:
        key: letters, digits and underscores; not the key of another measure.
        title: on charts; default: the key.
        says: what it means and which way is good, in one sentence; default: the function's first docstring line.
        better: "higher", "lower", or "" if neither is.
        form: how a value is written.
        group: of charts: learning, hardness, features or other.
        terminal: its format in the terminal's line, such as "margin {:.2f}"; default: not shown there.

    Example:
        >>> @measure("margin", title="Margin", better="higher")  # doctest: +SKIP
        ... def margin(train, train_labels, test, test_labels): ...
    """
    if not key.isidentifier():
        raise UserError(f"a measure cannot be called {key!r}: give letters, digits and underscores")
    if group not in GROUPS:
        raise UserError(f"the measure {key!r} has no group {group!r}: choose among {', '.join(GROUPS)}")

    def add(compute: F) -> F:
        says_itself = (compute.__doc__ or "").strip().partition("\n")[0]
        line = Terminal(terminal, len(measures())) if terminal else None
        register(
            Measure(
                key,
                title or key,
                says or says_itself,
                better,
                compute.__module__,
                form,
                terminal=line,
                group=group,
                compared=True,
                compute=compute,
            )
        )
        return compute

    return add


def compute_declared(*tensors: Any, note: Callable[[str], None]) -> dict[str, float]:
    """Compute plugins' measures by key from train features, train labels, test features and test labels.

    A measure that fails is left out, with a note: the run does not depend on it.
    """
    values: dict[str, float] = {}
    for entry in [entry for entry in measures().values() if entry.compute is not None]:
        assert entry.compute is not None
        # Copies, because features come from inference mode: a measure may want gradients or change them.
        given = [tensor.clone() for tensor in tensors]
        try:
            values[entry.key] = float(entry.compute(*given))
        except Exception as error:
            note(f"the measure {entry.key!r} fails and is left out: {type(error).__name__}: {error}")
    return values
