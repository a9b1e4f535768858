"""What to label next."""

from typing import NamedTuple

import numpy as np

from dualtemp.errors import UserError
from dualtemp.studio.workspace import Workspace


class Suggestion(NamedTuple):
    """Images by number, the most wanted first, and one line about why these."""

    ids: np.ndarray
    about: str


def ways() -> dict[str, str]:
    """The ways to suggest images, with one line about each."""
    return {name: about for name, (_, about) in _WAYS.items()}


def suggest(workspace: Workspace, way: str, count: int) -> Suggestion:
    """Images without a label, chosen in one of `ways`."""
    if way not in _WAYS:
        raise UserError(f"no way is called {way!r}: choose among {', '.join(_WAYS)}")
    open_ones = np.array([i for i, word in enumerate(workspace.words()) if word is None], np.int64)
    if not len(open_ones):
        raise UserError("every image has a label")
    make, about = _WAYS[way]
    return Suggestion(make(workspace, open_ones, min(count, len(open_ones))), about)


def _uncertain(workspace: Workspace, open_ones: np.ndarray, count: int) -> np.ndarray:
    found = workspace.predictions
    if found is None:
        raise UserError("the probe needs labels of two classes first: begin with diverse images")
    return open_ones[np.argsort(-found.uncertainty[open_ones], kind="stable")[:count]]


_WAYS = {"uncertain": (_uncertain, "the probe is least sure of these")}
