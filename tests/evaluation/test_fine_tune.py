from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dualtemp.data import open_source
from dualtemp.evaluation import fine_tuned, top_accuracy
from dualtemp.evaluation.fine_tune import default_batch, default_epochs
from dualtemp.models import build_backbone

Batches = Callable[[int], Iterator[tuple[Tensor, Tensor]]]


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """400 digits to learn from and the test digits, normalised; with labels."""
    torch.set_num_threads(1)
    splits = open_source("digits")
    parts: list[Tensor] = []
    for images in (splits.train.subset(400), splits.test):
        assert images is not None
        assert isinstance(images.pixels, Tensor)
        assert images.labels is not None
        parts += [(images.pixels / 255 - 0.3) / 0.37, images.labels]
    return parts[0], parts[1], parts[2], parts[3]


def shuffled(images: Tensor, labels: Tensor, batch: int = 50) -> Batches:
    def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for index in order.split(batch):
            yield images[index], labels[index]

    return batches


def same(first: nn.Module, second: nn.Module) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    return top_accuracy(model(images), labels).top1


def test_it_learns_digits_from_scratch_and_from_an_encoder_that_has_learned(
    digits: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    images, labels, test, truth = digits
    encoder = build_backbone("resnet_mini", 8, 1, seed=0)
    fresh = fine_tuned(encoder, 128, 10, shuffled(images, labels), 6)
    assert accuracy(fresh, test, truth) > 0.8
    assert isinstance(fresh, nn.Sequential)
    again = fine_tuned(fresh[0], 128, 10, shuffled(images, labels), 2)
    short = fine_tuned(encoder, 128, 10, shuffled(images, labels), 2)
    assert accuracy(again, test, truth) > accuracy(short, test, truth) + 0.05


def test_it_learns_nothing_from_labels_that_mean_nothing(digits: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    images, labels, test, truth = digits
    wrong = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    model = fine_tuned(build_backbone("resnet_mini", 8, 1, seed=0), 128, 10, shuffled(images, wrong), 4)
    assert accuracy(model, test, truth) < 0.25


def test_all_weights_move_though_the_encoder_was_frozen_and_that_one_stays_as_it_is(
    digits: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    images, labels, *_ = digits
    encoder = build_backbone("resnet_mini", 8, 1, seed=0).eval().requires_grad_(False)
    untouched = build_backbone("resnet_mini", 8, 1, seed=0)
    model = fine_tuned(encoder, 128, 10, shuffled(images, labels), 1)
    assert same(encoder, untouched)
    assert not encoder.training
    assert not any(p.requires_grad for p in encoder.parameters())
    assert isinstance(model, nn.Sequential)
    assert not model.training
    before, after = untouched.state_dict(), model[0].state_dict()
    assert all(not torch.equal(before[name], after[name]) for name in before)  # batch-norm statistics too


def test_the_seed_decides_every_bit_and_the_callers_generator_goes_on_undisturbed(
    digits: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    images, labels, *_ = digits
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5))
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = fine_tuned(encoder, 32, 10, shuffled(images, labels), 1, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    second = fine_tuned(encoder, 32, 10, shuffled(images, labels), 1, seed=3)
    other = fine_tuned(encoder, 32, 10, shuffled(images, labels), 1, seed=4)
    assert same(first, second)
    assert not same(first, other)


def test_it_steps_as_adamw_written_out_does(digits: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Against Loshchilov and Hutter's algorithm 2 in float64, on a network of one matrix and the classifier."""
    images, labels, *_ = digits
    images, labels, lr, decay = images[:40].double(), labels[:40], 0.01, 0.1
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 5, bias=False)).double()
    lr_factor = [0.5, 1.0, 0.25, 0.1].__getitem__
    model = fine_tuned(
        encoder, 5, 10, lambda epoch: iter([(images, labels)]), 3, lr_factor=lr_factor, lr=lr, weight_decay=decay
    )
    weights = [next(encoder.parameters()).detach(), torch.zeros(10, 5).double(), torch.zeros(10).double()]
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    x, y = images.flatten(1), F.one_hot(labels, 10).double()
    for step in range(3):
        matrix, head, bias = weights
        hidden = x @ matrix.T
        error = ((hidden @ head.T + bias).softmax(1) - y) / len(x)
        gradients = [(error @ head).T @ x, error.T @ hidden, error.sum(0)]
        for place, gradient in enumerate(gradients):
            m, v = moments[place]
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient.square()
            moments[place] = m, v
            m_hat, v_hat = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.999 ** (step + 1))
            rate = lr * lr_factor(step)
            weights[place] = weights[place] * (1 - rate * decay) - rate * m_hat / (v_hat.sqrt() + 1e-8)
    for parameter, expected in zip(model.parameters(), weights, strict=True):
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-9, rtol=1e-7)


def test_epochs_are_told_with_their_mean_loss(digits: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    images, labels, *_ = digits
    told: list[tuple[int, float]] = []
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 16))
    fine_tuned(
        encoder,
        16,
        10,
        shuffled(images, labels),
        2,
        lr_factor=lambda step: 0.0,
        after_epoch=lambda epoch, loss: told.append((epoch, loss)),
    )
    # The classifier starts at zero, and at rate 0 it stays there: all ten classes are equally likely.
    assert [epoch for epoch, _ in told] == [1, 2]
    assert [loss for _, loss in told] == pytest.approx([2.302585] * 2, rel=1e-5)


@given(st.integers(2, 10_000_000))
def test_small_sets_are_seen_often_and_large_ones_at_least_three_times(images: int) -> None:
    epochs, batch = default_epochs(images), default_batch(images)
    assert 3 <= epochs <= 30
    assert epochs in (3, 30) or 75_000 < epochs * images < 125_000
    assert 2 <= batch <= min(64, images)
    assert images < 16 or images // batch >= 8
