"""Linear classifiers on frozen features: one trained along with the encoder, and one fitted afterwards."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualtemp import distributed
from dualtemp.evaluation.accuracy import Accuracy, top_accuracy

# Candidates for the L2 penalty of the offline probe.
PENALTIES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)
# The search goes from strong to weak, since weak penalties take longest to fit, and ends after this many in a row that
# did worse than the best.
PATIENCE = 2


class OnlineProbe(nn.Module):
    """A linear classifier that learns from the detached features of each training step; the paper reports its accuracy.

    It does its own SGD (momentum .9, no weight decay): velocities are buffers, so that a resumed run needs only the
    state dict. It starts at zero, where all classes are equally likely. With several processes, each learns from the
    features of all.

    Args:
        num_features: F.
        classes: C.
        momentum: of SGD, default .9.
    """

    weight: Tensor  # (C, F)
    bias: Tensor  # (C,)
    weight_velocity: Tensor
    bias_velocity: Tensor

    def __init__(self, num_features: int, classes: int, *, momentum: float = 0.9) -> None:
        super().__init__()
        self.momentum = momentum
        # Buffers, not parameters, so that the framework's optimizer, gradient clipping and DDP leave them alone.
        for name in ("weight", "weight_velocity"):
            self.register_buffer(name, torch.zeros(classes, num_features))
        for name in ("bias", "bias_velocity"):
            self.register_buffer(name, torch.zeros(classes))

    def forward(self, features: Tensor) -> Tensor:
        """Logits (N, C) of features (N, F), in float32 even under autocast."""
        with torch.autocast(features.device.type, enabled=False):
            return F.linear(features.detach().float(), self.weight, self.bias)

    @torch.no_grad()
    def learn(self, features: Tensor, labels: Tensor, lr: float = 0.3) -> Tensor:
        """Take one step on features (N, F) with labels (N,); returns the mean cross entropy before it, a scalar.

        The loss is of this process's features. Processes may have different numbers of them, even none.
        """
        logits = self(features)
        loss = F.cross_entropy(logits, labels)
        error = logits.softmax(1)  # d loss / d logits = (softmax - one-hot) / N
        error[torch.arange(len(labels), device=labels.device), labels] -= 1
        count = distributed.global_mean(error.new_full((), len(labels)))  # N of the mean over all processes
        error /= count.clamp_min(1 / distributed.world_size())
        with torch.autocast(features.device.type, enabled=False):
            gradient = torch.cat([error.T @ features.detach().float(), error.sum(0)[:, None]], 1)  # (C, F + 1)
        gradient = distributed.global_mean(gradient)
        self.weight_velocity.mul_(self.momentum).add_(gradient[:, :-1])
        self.bias_velocity.mul_(self.momentum).add_(gradient[:, -1])
        self.weight.sub_(self.weight_velocity, alpha=lr)
        self.bias.sub_(self.bias_velocity, alpha=lr)
        return loss

    @torch.no_grad()
    def accuracy(self, features: Tensor, labels: Tensor) -> Accuracy:
        """Top-1 and top-5 accuracy on features (N, F) with labels (N,)."""
        return top_accuracy(self(features), labels)

    def extra_repr(self) -> str:
        """Sizes and momentum."""
        return f"num_features={self.weight.shape[1]}, classes={self.weight.shape[0]}, momentum={self.momentum}"


class LinearProbe(NamedTuple):
    """Result of the offline probe: accuracies on the test features, and the L2 penalty that was chosen."""

    top1: float
    top5: float
    penalty: float


def linear_probe(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    penalties: Sequence[float] = PENALTIES,
    seed: int = 0,
) -> LinearProbe:
    """Fit a multinomial logistic regression to frozen features and test it on others.

    Features are standardized by the training part's mean and deviation. The penalty is the one with the best top-1
    accuracy (then the lower loss) on a balanced tenth of the training features, drawn by `seed`; the search goes from
    strong to weak and ends when two in a row did worse than the best. The final fit uses all training features.

    Args:
        train_features: (N, F).
        train_labels: (N,), from 0.
        test_features: (M, F).
        test_labels: (M,), from 0.
        penalties: candidates, as in `logistic_regression`.
        seed: of the held-out part.
    """
    scores, penalty = probe_scores(
        train_features, train_labels, test_features, test_labels, penalties=penalties, seed=seed
    )
    top1, top5 = top_accuracy(scores, test_labels.to(scores.device))
    return LinearProbe(top1, top5, penalty)


def probe_scores(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    penalties: Sequence[float] = PENALTIES,
    seed: int = 0,
) -> tuple[Tensor, float]:
    """Logits (M, C) of the test features, and the penalty that was chosen; arguments as in `linear_probe`.

    Of the test labels only the highest is used: it may be a class that the training part lacks.
    """
    if len(train_features) != len(train_labels) or len(test_features) != len(test_labels) or len(train_labels) < 2:
        raise ValueError("linear_probe: give one label per feature, and at least two training features")
    train, test = standardize(train_features.float(), test_features.float().to(train_features.device))
    classes = 1 + max(int(train_labels.max()), int(test_labels.max()))
    weight, bias, penalty = fit_probe(train, train_labels.to(train.device), classes, penalties=penalties, seed=seed)
    return F.linear(test, weight, bias), penalty


def fit_probe(
    features: Tensor, labels: Tensor, classes: int, *, penalties: Sequence[float] = PENALTIES, seed: int = 0
) -> tuple[Tensor, Tensor, float]:
    """Weight (C, F), bias (C,) and penalty of the probe of standardized features (N, F); see `linear_probe`."""
    held = _held_out(labels, seed)
    penalty, start = _best_fit(features[~held], labels[~held], features[held], labels[held], classes, penalties)
    return *logistic_regression(features, labels, classes, penalty, start=start), penalty


def logistic_regression(
    features: Tensor,
    labels: Tensor,
    classes: int,
    penalty: float,
    *,
    start: tuple[Tensor, Tensor] | None = None,
    iterations: int = 300,
) -> tuple[Tensor, Tensor]:
    """Weight (C, F) and bias (C,) that minimize mean cross entropy + penalty / 2 * |weight|^2, by full-batch L-BFGS.

    Args:
        features: (N, F), float32 or float64, roughly standardized.
        labels: (N,), from 0.
        classes: C.
        penalty: on the weight, not on the bias; scikit-learn's C is 1 / (N * penalty).
        start: weight and bias to start from; None starts at zero.
        iterations: at most.
    """
    if start is None:
        start = features.new_zeros(classes, features.shape[1]), features.new_zeros(classes)
    weight, bias = (part.detach().clone().requires_grad_() for part in start)
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=iterations,
        tolerance_grad=1e-6,
        tolerance_change=1e-9,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(F.linear(features, weight, bias), labels) + penalty / 2 * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad(), torch.autocast(features.device.type, enabled=False):
        optimizer.step(objective)  # pyright: ignore[reportArgumentType]: L-BFGS asks for the tensor, not for a float
    return weight.detach(), bias.detach()


def standardize(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Standardize both (., F) by the mean and std of the training features; those that are constant become 0."""
    mean, scale = standardization(train)
    return (train - mean) / scale, (test - mean) / scale


def standardization(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and std (F,) of features (N, F); the std of a constant feature is infinite."""
    mean, deviation = features.mean(0), features.std(0, correction=0)
    # A smaller deviation is rounding of the mean; dividing by it would blow up other features.
    return mean, torch.where(deviation > 1e-5 * mean.abs(), deviation, torch.inf)


def _best_fit(
    features: Tensor, labels: Tensor, held: Tensor, held_labels: Tensor, classes: int, penalties: Sequence[float]
) -> tuple[float, tuple[Tensor, Tensor] | None]:
    """The penalty whose fit does best on the held-out part, and that fit; see PATIENCE."""
    fit: tuple[Tensor, Tensor] | None = None
    found: list[tuple[float, float, float, tuple[Tensor, Tensor]]] = []
    for penalty in sorted(penalties, reverse=True):  # each fit starts where the one with more penalty ended
        fit = logistic_regression(features, labels, classes, penalty, start=fit)
        logits = F.linear(held, *fit)
        found.append(
            (top_accuracy(logits, held_labels).top1, -float(F.cross_entropy(logits, held_labels)), penalty, fit)
        )
        best = max(range(len(found)), key=lambda place: found[place][:3])
        if len(found) - 1 - best >= PATIENCE:
            break
    _, _, penalty, fit = max(found, key=lambda one: one[:3])
    return penalty, fit


def _held_out(labels: Tensor, seed: int) -> Tensor:
    """Mask (N,) of a tenth of the labels, at least one, spread evenly over the classes."""
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(labels.device)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    held = torch.zeros_like(labels, dtype=torch.bool)
    held[by_class[::10]] = True
    return held
