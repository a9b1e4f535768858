"""What encoders answered, image by image: the trained one's beside the others', and class by class."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

TRAINED = "trained"
MOST_CONFUSED = 400  # pairs of classes that evaluation.json keeps: all that twenty classes can have


class Answers:
    """Keeps what the trained encoder answered, to set what the others answer beside it; classes: names by label."""

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = classes
        self._trained: dict[str, tuple[list[Tensor], Tensor]] = {}

    def details(self, name: str, encoder: str, predicted: Sequence[Tensor], labels: Tensor) -> dict[str, Any]:
        """What a row of evaluation.json says beyond its accuracy, of answers (M,) to labels (M,), a tensor a draw.

        Of the trained encoder, which comes first: how many images of each class are right, and which are taken for
        which. Of another: pairs [images that the trained one alone got right, images that this one alone did], a draw
        each, as McNemar's test takes them.
        """
        answers = [each.cpu() for each in predicted]
        labels = labels.cpu()
        if encoder == TRAINED:
            self._trained[name] = answers, labels
            return class_by_class(answers[0], labels, self.classes) if len(answers) == 1 else {}
        if name not in self._trained:
            return {}
        trained, asked = self._trained[name]
        if not torch.equal(asked, labels):  # a file has gone meanwhile
            return {}
        return {"pairs": [alone_right(one, other, labels) for one, other in zip(trained, answers, strict=True)]}


def alone_right(one: Tensor, other: Tensor, labels: Tensor) -> list[int]:
    """How many of the images `one` alone got right, and how many `other` alone did; all (M,)."""
    one, other = one == labels, other == labels
    return [int((one & ~other).sum()), int((other & ~one).sum())]


def class_by_class(predicted: Tensor, labels: Tensor, classes: Sequence[str]) -> dict[str, Any]:
    """by_class: images and right ones of each class that was asked about; confused: images taken for another class.

    Confused pairs come with the most frequent first; of many classes, only those.
    """
    count = max(len(classes), int(labels.max()) + 1, int(predicted.max()) + 1)
    names = [*classes, *(str(label) for label in range(len(classes), count))]
    answered = predicted >= 0  # a score that is not a number names no class
    table = torch.bincount(labels[answered] * count + predicted[answered], minlength=count**2).view(count, count)
    asked, right = labels.bincount(minlength=count).tolist(), table.diagonal().tolist()
    wrong = table.clone().fill_diagonal_(0)
    found = [(int(wrong[i, j]), i, j) for i, j in wrong.nonzero().tolist()]
    return {
        "by_class": [
            {"class": names[label], "images": asked[label], "right": right[label]}
            for label in range(count)
            if asked[label]
        ],
        "confused": [
            {"class": names[i], "as": names[j], "images": images}
            for images, i, j in sorted(found, key=lambda each: (-each[0], each[1:]))[:MOST_CONFUSED]
        ],
    }
