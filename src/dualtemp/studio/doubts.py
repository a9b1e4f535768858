"""Find labels that are likely wrong, and group images without labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualtemp.errors import UserError
from dualtemp.evaluation.clusters import find_clusters
from dualtemp.evaluation.wrong_labels import suspected_wrong_labels
from dualtemp.studio.background import Progress
from dualtemp.studio.columns import Column, coded_column
from dualtemp.studio.space import BLOCK, Space

MOST_LABELED = 10_000  # most images among which labels are compared
MOST_GROUPED = 20_000  # most images to which clusters are fitted; all are then assigned to the nearest
MOST_SHOWN = 500


def find_doubts(space: Space, words: Sequence[str | None], progress: Progress) -> tuple[list[dict[str, Any]], str]:
    """Images whose label is contradicted by a classifier that has not seen them, the worst first; and a summary."""
    labeled = np.array([i for i, word in enumerate(words) if word is not None], np.int64)
    looked_at = labeled[:: max(1, -(-len(labeled) // MOST_LABELED))]
    classes = sorted({str(words[i]) for i in looked_at})
    if len(classes) < 2:
        raise UserError("labels can be in doubt where there are labels of two classes: label some images")
    place = {word: code for code, word in enumerate(classes)}
    labels = np.array([place[str(words[i])] for i in looked_at], np.int64)
    progress(0, 1)
    try:
        found = suspected_wrong_labels(space.features[looked_at], labels)
    except ValueError as error:
        raise UserError(str(error)) from None
    doubts = [
        {
            "id": int(looked_at[i]),
            "label": str(words[int(looked_at[i])]),
            "prediction": classes[int(found.suggested[i])],
            "score": round(float(found.score[i]), 4),
        }
        for i in found.order[:MOST_SHOWN].tolist()
    ]
    among = "" if len(looked_at) == len(labeled) else f" of {len(labeled):,}"
    return doubts, f"{len(found.order):,} labels in doubt among {len(looked_at):,}{among}"


def cluster_column(space: Space, clusters: int | None, progress: Progress) -> Column:
    """Clusters of the features, the largest first."""
    step = max(1, -(-len(space.features) // MOST_GROUPED))
    sample = space.features[::step]
    if len(sample) < 3:
        raise UserError("there are too few images to group")
    progress(0, 1)
    found = find_clusters(sample, None if clusters is None else min(clusters, len(sample) - 1))
    codes = found.labels.numpy()
    count = int(codes.max()) + 1
    if step > 1:
        centers = np.stack([sample[codes == code].mean(0) for code in range(count)])
        codes = np.concatenate(
            [
                (space.features[start : start + BLOCK] @ centers.T).argmax(1)
                for start in range(0, len(space.features), BLOCK)
            ]
        )
    about = f"k-means of the features, {count} clusters, the largest first"
    return coded_column("cluster", codes.astype(np.int32), [str(code) for code in range(count)], about)
