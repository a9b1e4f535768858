"""Find images by words, by other images, or by a picture."""

from collections.abc import Sequence

import numpy as np

from dualtemp.studio.workspace import Workspace

FOUND = 500  # most images that a search by similarity returns


def find_text(workspace: Workspace, text: str) -> np.ndarray:
    """Numbers of the images whose name, label and tags together contain all words of a text."""
    wanted = text.casefold().split()
    if not wanted:
        return np.zeros(0, np.int64)
    shown, found = workspace.shown, []
    classes = [name.casefold() for name in shown.images.classes]
    labels, entries = shown.images.labels.tolist(), shown.labels.entries
    for i, name in enumerate(shown.images.folded_names):
        entry = entries.get(i)
        said = "" if entry is None else f"{entry.label or ''} {' '.join(entry.tags)}".casefold()
        if all(word in name or (labels[i] >= 0 and word in classes[labels[i]]) or word in said for word in wanted):
            found.append(i)
    return np.array(found, np.int64)


def find_similar(workspace: Workspace, numbers: Sequence[int], most: int = FOUND) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and cosines of the images nearest to the mean of the given ones, nearest first."""
    space = workspace.space
    return space.nearest(space.features[np.asarray(numbers, np.int64)].mean(0), most)


def find_like(workspace: Workspace, encoded: bytes, most: int = FOUND) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and cosines of the images nearest to a picture that was dropped onto the page.

    Raises UnreadableImage, or UserError if there is no encoder.
    """
    from dualtemp.studio.dropped import features_of_picture

    space = workspace.space
    return space.nearest(features_of_picture(space, workspace.shown.images, encoded, workspace.device), most)
