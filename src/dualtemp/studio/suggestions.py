"""What to label next: the ways of `dualtemp select`, among the images without a label."""

from typing import NamedTuple

import numpy as np

from dualtemp.encoder.label_file import number_labels
from dualtemp.errors import UserError
from dualtemp.studio.workspace import Workspace

MOST = 20_000  # candidates; if there are more images, evenly spaced ones
# The ways of encoder/select.py, repeated here because that module needs torch.
ABOUT = {
    "diverse": "these represent all images: a good beginning",
    "typical": "the middle of each cluster",
    "hardest": "the largest anchor weights W",
    "uncertain": "a classifier on the labels so far is least sure of these",
    "random": "drawn at random",
}


class Suggestion(NamedTuple):
    """Images by number, the most wanted first, and a line on why these."""

    ids: np.ndarray
    about: str


def ways() -> dict[str, str]:
    """The ways to suggest images, with one line about each."""
    return ABOUT


def suggest(workspace: Workspace, way: str, count: int) -> Suggestion:
    """Images without a label, chosen in one of `ways`.

    If the source labels every image, only labels given in the studio count.
    """
    if way not in ABOUT:
        raise UserError(f"no way is called {way!r}: choose among {', '.join(ABOUT)}")
    words = workspace.words()
    if None not in words:
        given = workspace.shown.labels.labels()
        words = [given.get(i) for i in range(len(words))]
    labels, _ = number_labels(words)
    shown = _among(labels)
    free = int((labels[shown] < 0).sum())
    if not free:
        raise UserError("every image has a label")
    if way == "uncertain" and len(set(labels[labels >= 0].tolist())) < 2:
        raise UserError("uncertain needs labels of two classes first: begin with diverse images")
    import torch

    from dualtemp.encoder.select import choose

    weights = _weights(workspace)[shown] if way == "hardest" else None
    features = torch.from_numpy(workspace.space.features[shown])
    found = choose(way, features, labels[shown], min(count, free), weights=weights)
    return Suggestion(shown[np.asarray(found.index)], ABOUT[way])


def _among(labels: np.ndarray) -> np.ndarray:
    """All images; if there are too many, evenly spaced ones with and without labels, and the first of each class."""
    if len(labels) <= MOST:
        return np.arange(len(labels))
    first = np.unique(labels, return_index=True)[1]
    parts = (np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0))
    return np.unique(np.concatenate([first, *(part[:: max(1, -(-len(part) // MOST))] for part in parts)]))


def _weights(workspace: Workspace) -> np.ndarray:
    column = workspace.column("W")
    if column is None:
        raise UserError("hardest needs W of every image: color by anchor weight W first, which computes it")
    return np.nan_to_num(column.values)
