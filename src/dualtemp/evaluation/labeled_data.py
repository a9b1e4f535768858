"""Labeled images to measure an encoder with: the run's own, or any others."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dualtemp.config import Settings
from dualtemp.data import open_source
from dualtemp.data.images import ImageSet, Splits
from dualtemp.data.sources.label_file import AUTO
from dualtemp.data.sources.opening import absolute_source, short_name
from dualtemp.errors import UserError
from dualtemp.evaluation.evaluation_file import LABELS_OF, VALIDATION
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_data import describe_part, open_data


@dataclass(frozen=True)
class LabeledData:
    """Training and test images with labels.

    source: what was opened, for messages; names: for tables and evaluation.json, from the shortest to a unique one;
    classes: number of classes; untested: names of classes without a test image; unreadable: files that were left out,
    name -> reason; changed: a warning if these are not the images that the run began to measure with, else "".
    """

    source: str
    names: tuple[str, ...]
    train: ImageSet
    test: ImageSet
    classes: int
    untested: tuple[str, ...]
    unreadable: dict[str, str] = field(default_factory=dict)
    changed: str = ""

    @property
    def name(self) -> str:
        """The shortest name."""
        return self.names[0]

    def check_readable(self, learned: Tensor, asked: Tensor) -> None:
        """Check the classes again, by the labels of the training and test images that could be read."""
        check_classes(self.source, learned, asked, self.train.classes, only_readable=True)


def labeled_data(
    run: Path, settings: Settings, data: str | Path | None, labels_from: Path | str | None = None
) -> LabeledData:
    """Open the run's training and validation images with their labels, or those of another source.

    The run's `subset` is kept; its label noise is not. labels_from: a CSV file with the labels of a folder's images.
    """
    if data is None and labels_from is not None:
        data = settings.data
    changed = ""
    if data is None:
        environment = RunFolder(run).read_environment()
        splits, names = open_data(with_right_labels(settings), environment), (VALIDATION,)
        changed = _changed(settings, splits, environment)
        missing = (
            f"{run} was trained without labels: give labeled images, --data FOLDER|SET|FILE.npz, or --labels FILE.csv"
        )
    else:
        splits = open_source(data, labels_from=AUTO if labels_from is None else labels_from)
        names = _names(data, labels_from)
        expected = "class folders (FOLDER/CLASS/...), a labels.csv, or an .npz file with `labels`"
        missing = f"{data} has no labels: expected {expected}"
    return replace(_checked(splits, names, str(data or run), missing), changed=changed)


def _changed(settings: Settings, splits: Splits, environment: Mapping[str, Any]) -> str:
    """A warning if the images to measure with are not those that the run began with; "" if they are, or if unknown."""
    then, now = environment.get("test"), describe_part(splits.test) or {}
    about_labels = ("labels", "classes", "commonest")
    same = not isinstance(then, dict) or all(now.get(k) == value for k, value in then.items() if k not in about_labels)
    if same:
        return ""
    changed = "the images to measure with are no longer those that the run began with"
    return f"{settings.data}: {changed}; it may have learned from some of them"


def _names(data: str | Path, labels_from: str | Path | None) -> tuple[str, ...]:
    """Names for data other than the run's own: a short one, then longer parts of the path, and with the label file."""
    name, parts = short_name(data), absolute_source(data).split("/")
    short = f"{name}/" if name == VALIDATION else name  # a folder named "validation" is not the run's own data
    longer = ["/".join(parts[-n:]) for n in range(2, 1 + len(parts))] or [f"the set {name}"]
    if labels_from is not None:
        labels = Path(labels_from).resolve()
        longer = [f"{short}{LABELS_OF}{labels.name}", *(f"{each}{LABELS_OF}{labels}" for each in longer)]
    return short, *longer


def with_right_labels(settings: Settings) -> Settings:
    """Return the settings of a run without label noise."""
    return settings if settings.get("label_noise") is None else settings.model_copy(update={"label_noise": 0.0})


def _checked(splits: Splits, names: tuple[str, ...], source: str, missing: str) -> LabeledData:
    train, test = splits.train, splits.test
    if train.labels is None:
        raise UserError(missing)
    if test is None or test.labels is None:
        raise UserError(
            f"{source}: every class has one image, or copies of one, so none is left to test on; give two or more"
        )
    untested = check_classes(source, train.labels, test.labels, train.classes)
    unreadable = {each.name: each.reason for each in splits.unreadable}
    return LabeledData(source, names, train, test, 1 + int(train.labels.max()), untested, unreadable)


def check_classes(
    source: str, train: Tensor, test: Tensor, classes: tuple[str, ...], only_readable: bool = False
) -> tuple[str, ...]:
    """Return the classes without a test image; raise UserError if one has none to learn from, or if there is only one.

    train, test: labels of the images; classes: names by label, empty if there are none; only_readable: the labels are
    those of images that could be read, which the message says.
    """
    learned, asked = (set(part.unique().tolist()) for part in (train, test))
    named = classes or tuple(str(label) for label in range(1 + max(learned | asked)))
    if asked - learned:
        to_learn = "none to learn from" + " that can be read" * only_readable
        raise UserError(
            f"{source}: class {named[min(asked - learned)]!r} has test images but {to_learn}; add some, or remove it"
        )
    if len(learned) < 2:
        only = "images of one class only can be read" if only_readable else "one class only"
        raise UserError(f"{source}: {only}, {named[min(learned)]!r}; give two or more")
    return tuple(named[label] for label in sorted(learned - asked))


def labels_of(images: ImageSet, problems: Collection[str] = ()) -> Tensor:
    """Labels (N,), which sets of `LabeledData` have; without those of images whose names are among `problems`."""
    assert images.labels is not None
    if not problems or not images.source.names:
        return images.labels
    return images.labels[torch.tensor([name not in problems for name in images.source.names])]
