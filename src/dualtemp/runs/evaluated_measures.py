"""The measures of evaluation.json, by which `dualtemp evaluate` judges a finished encoder. Needs no torch."""

from typing import NamedTuple


class EvaluatedMeasure(NamedTuple):
    """A row of evaluation.json: an accuracy in %, higher is better.

    name: in the file, on pages, in tables and in the model card; asked_as: the word of `dualtemp evaluate --only`;
    says: what it means; frozen: whether the encoder is frozen, so that it can be compared with raw pixels.
    """

    name: str
    asked_as: str
    says: str
    frozen: bool = True


ONE_A_CLASS = "1 label a class"
_FEW = "A linear classifier that learns from this few labels; mean over several draws of the labels."
EVALUATED = (
    EvaluatedMeasure("kNN", "knn", "The nearest training images vote; nothing is trained."),
    EvaluatedMeasure("linear probe", "probe", "A linear classifier on the frozen features, fitted to convergence."),
    *(EvaluatedMeasure(name, "few-shot", _FEW) for name in (ONE_A_CLASS, *(f"{n} % of labels" for n in (1, 5, 10)))),
    EvaluatedMeasure("fine-tuning", "fine-tune", "Encoder and classifier trained together on all labels.", False),
)
MEANINGS = {each.name: each.says for each in EVALUATED}
WORDS = tuple(dict.fromkeys(each.asked_as for each in EVALUATED))
NAMES = tuple(each.name for each in EVALUATED)
FROZEN = tuple(each.name for each in EVALUATED if each.frozen)
BASELINES = ("raw pixels", "colour histogram", "untrained")  # for a trained encoder to beat; spelled as in old files
START = "start, frozen"  # a run's start, without any training
ENCODERS = (*BASELINES, START, "trained", "online")
# Names of encoders on pages and the terminal, where the name in the file, which never changes, does not read well.
TITLES = {"online": "while training", "colour histogram": "color histogram"}


def encoder_title(name: str) -> str:
    """Return the display name of an encoder in evaluation.json."""
    return TITLES.get(name, name)
