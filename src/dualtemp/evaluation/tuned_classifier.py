"""Calibrate a fine-tuned network's own classifier on images that it has not learned from."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dualtemp.data.subset import FOLDS, random_keys, rank_within
from dualtemp.evaluation.accuracy import predicted
from dualtemp.evaluation.calibration import cautious_temperature, expected_calibration_error
from dualtemp.evaluation.classifier import UNKNOWN_RATE, Classifier, neighbor_distance, novelty_spread
from dualtemp.losses.similarity import unit

HALVES = 2


@torch.no_grad()
def tuned_classifier(
    head: nn.Linear,
    bank: Tensor,
    features: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    *,
    unknown_rate: float = UNKNOWN_RATE,
    seed: int = 0,
) -> Classifier:
    """Make a `Classifier` of the linear layer that fine-tuning has learned.

    Temperature and the threshold of "none of these" come from all validation images. The calibration error in `facts`
    is honest all the same: each half of these images is predicted with the temperature of the other half.

    Args:
        head: the linear layer, F -> C.
        bank: features (M, F) of training images by the fine-tuned network.
        features: (N, F) of validation images, which the network has not learned from.
        labels: (N,), of the validation images.
        classes: C names.
        unknown_rate: share of known images that may be called "none of these"; 0 never says so.
        seed: of the halves.
    """
    x, y = features.float().cpu(), labels.cpu()
    (near,) = unit(bank.float().cpu())
    weight, bias = (part.detach().float().cpu() for part in (head.weight, head.bias))
    mean, scale = torch.zeros(weight.shape[1]), torch.ones(weight.shape[1])
    plain = Classifier(weight, bias, mean, scale, tuple(classes), 1.0, near, torch.ones(2, 2), torch.inf, {})
    logits, distance = plain.logits(x), neighbor_distance(x, near)
    spread = novelty_spread(torch.stack([-logits.logsumexp(1), distance]))
    facts = {
        "learned_by": "fine-tuning",
        "unknown_rate": unknown_rate,
        "tested": len(x),
        "accuracy": float((predicted(logits) == y).double().mean()),
        "ece_before": expected_calibration_error(logits.softmax(1), y),
        "ece": expected_calibration_error(_answered_by_other_half(logits, y, seed), y),
    }
    shared = (weight, bias, mean, scale, plain.classes, cautious_temperature(logits, y), near, spread)
    made = Classifier(*shared, torch.inf, facts)
    if unknown_rate == 0:
        return made
    threshold = float(made.answers(logits, distance).novelty.double().quantile(1 - unknown_rate))
    return Classifier(*shared, threshold, facts)


def _answered_by_other_half(logits: Tensor, labels: Tensor, seed: int) -> Tensor:
    """Probabilities (N, C), each half computed with the temperature of the other half."""
    half = torch.from_numpy(rank_within(labels.numpy(), random_keys(seed, FOLDS, len(labels))) % HALVES)
    found = logits.softmax(1)
    if len(half.unique()) < HALVES:
        return found
    for each in range(HALVES):
        mine = half == each
        found[mine] = (logits[mine] / cautious_temperature(logits[~mine], labels[~mine])).softmax(1)
    return found
