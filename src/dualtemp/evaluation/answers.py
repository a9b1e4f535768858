"""Compare the trained encoder's predictions with the other encoders', image by image, and sum them up by class."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

TRAINED = "trained"
MOST_CONFUSED = 400  # most pairs of classes in evaluation.json: enough for every pair of twenty classes


class Answers:
    """Keeps the trained encoder's predictions to compare those of other encoders with; classes: names by label."""

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = classes
        self._trained: dict[str, tuple[list[Tensor], Tensor]] = {}

    def details(self, name: str, encoder: str, predicted: Sequence[Tensor], labels: Tensor) -> dict[str, Any]:
        """Return more entries of a row of evaluation.json, from predictions (M,), one tensor per draw, and labels (M,).

        For the trained encoder, which comes first: the correct images of each class, and the confusions. For another:
        pairs [images that only the trained one got right, images that only this one did], one pair per draw, as
        McNemar's test takes them.
        """
        answers = [each.cpu() for each in predicted]
        labels = labels.cpu()
        if encoder == TRAINED:
            self._trained[name] = answers, labels
            return class_by_class(answers[0], labels, self.classes) if len(answers) == 1 else {}
        if name not in self._trained:
            return {}
        trained, asked = self._trained[name]
        if not torch.equal(asked, labels):  # not the same images: a file has disappeared since
            return {}
        return {"pairs": [alone_right(one, other, labels) for one, other in zip(trained, answers, strict=True)]}


def alone_right(one: Tensor, other: Tensor, labels: Tensor) -> list[int]:
    """Number of images that only `one` got right, and that only `other` did; all (M,)."""
    one, other = one == labels, other == labels
    return [int((one & ~other).sum()), int((other & ~one).sum())]


def class_by_class(predicted: Tensor, labels: Tensor, classes: Sequence[str]) -> dict[str, Any]:
    """by_class: images of each tested class, and the correct ones; confused: images predicted as another class.

    The most frequent confusions come first, and only MOST_CONFUSED of them are kept.
    """
    count = max(len(classes), int(labels.max()) + 1, int(predicted.max()) + 1)
    names = [*classes, *(str(label) for label in range(len(classes), count))]
    asked = labels.bincount(minlength=count).tolist()
    right = labels[predicted == labels].bincount(minlength=count).tolist()
    wrong = (predicted >= 0) & (predicted != labels)  # -1: a NaN score predicts no class
    pairs, images = (labels[wrong] * count + predicted[wrong]).unique(return_counts=True)  # no table of all pairs
    most = images.argsort(descending=True, stable=True)[:MOST_CONFUSED]
    return {
        "by_class": [
            {"class": names[label], "images": asked[label], "right": right[label]}
            for label in range(count)
            if asked[label]
        ],
        "confused": [
            {"class": names[pair // count], "as": names[pair % count], "images": times}
            for pair, times in zip(pairs[most].tolist(), images[most].tolist(), strict=True)
        ],
    }
