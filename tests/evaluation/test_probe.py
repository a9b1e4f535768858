from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch import nn

from dualtemp import distributed
from dualtemp.evaluation import OnlineProbe, linear_probe, logistic_regression
from dualtemp.evaluation.probe import _held_out, fit_probe


def labelled(n: int, features: int, classes: int, seed: int, noise: float = 1.5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, features, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(classes, (n,), generator=generator)
    return centres[labels] + noise * torch.randn(n, features, generator=generator), labels


def learned(probe: OnlineProbe, steps: range) -> list[float]:
    return [float(probe.learn(*labelled(32, 6, 4, step), lr=0.3 / (1 + step))) for step in steps]


def test_it_learns_as_torchs_sgd_would() -> None:
    probe, linear = OnlineProbe(6, 4), nn.Linear(6, 4)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    optimiser = torch.optim.SGD(linear.parameters(), lr=0.3, momentum=0.9)
    losses = []
    for step in range(20):
        x, labels = labelled(32, 6, 4, step)
        optimiser.param_groups[0]["lr"] = 0.3 / (1 + step)
        loss = F.cross_entropy(linear(x), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert learned(probe, range(20)) == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(probe.weight, linear.weight.detach(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(probe.bias, linear.bias.detach(), atol=1e-6, rtol=1e-5)


def test_a_probe_continued_from_its_state_dict_ends_with_the_same_bits() -> None:
    whole, part, again = (OnlineProbe(6, 4) for _ in range(3))
    learned(whole, range(10))
    learned(part, range(4))
    again.load_state_dict(part.state_dict(), strict=True)
    learned(again, range(4, 10))
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in again.state_dict().items())


def test_features_get_no_gradient_and_no_optimiser_finds_the_probe() -> None:
    probe = OnlineProbe(6, 4)
    x = torch.randn(8, 6, requires_grad=True)
    loss = probe.learn(x, torch.zeros(8, dtype=torch.int64))
    assert not loss.requires_grad
    assert not probe(x).requires_grad
    assert list(probe.parameters()) == []


def test_autocast_does_not_touch_it() -> None:
    plain, cast = OnlineProbe(6, 4), OnlineProbe(6, 4)
    losses = learned(plain, range(5))
    with torch.autocast("cpu", torch.bfloat16):
        assert learned(cast, range(5)) == losses
    assert torch.equal(plain.weight, cast.weight)


def test_its_accuracy_is_the_share_of_right_answers() -> None:
    probe = OnlineProbe(6, 8)
    for step in range(30):
        probe.learn(*labelled(64, 6, 8, step))
    x, labels = labelled(500, 6, 8, 1000)
    top1, top5 = probe.accuracy(x, labels)
    order = probe(x).argsort(1, descending=True)
    assert top1 == pytest.approx((order[:, 0] == labels).float().mean().item())
    assert top5 == pytest.approx((order[:, :5] == labels[:, None]).any(1).float().mean().item())
    assert 0.3 < top1 < top5 < 1
    assert OnlineProbe(6, 3).accuracy(x[:5], labels[:5] % 3).top5 == 1


def learn_a_share() -> dict[str, torch.Tensor]:
    """What each of the processes does: its part of every batch."""
    probe = OnlineProbe(6, 4)
    for step in range(5):
        x, labels = labelled(32, 6, 4, step)
        share = slice(distributed.rank() * 16, distributed.rank() * 16 + 16)
        probe.learn(x[share], labels[share], lr=0.3 / (1 + step))
    return probe.state_dict()


@pytest.mark.slow
def test_two_processes_learn_the_probe_of_one(tmp_path: Path) -> None:
    from several_processes import run  # here, because the processes read this file without pytest's path

    alone = OnlineProbe(6, 4)
    learned(alone, range(5))
    first, second = run(__file__, "learn_a_share", 2, tmp_path / "out")
    for name, value in alone.state_dict().items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], value, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("penalty", [0.3, 0.01, 1e-3])
def test_logistic_regression_agrees_with_scikit_learn(penalty: float) -> None:
    x, labels = labelled(400, 8, 5, 0)
    weight, bias = logistic_regression(x, labels, 5, penalty)
    peer = LogisticRegression(C=1 / (len(x) * penalty), tol=1e-8, max_iter=2000).fit(x.double().numpy(), labels.numpy())
    expected = torch.from_numpy(peer.predict_proba(x.double().numpy()))
    torch.testing.assert_close(F.linear(x, weight, bias).softmax(1).double(), expected, atol=2e-3, rtol=0)
    torch.testing.assert_close(weight.double(), torch.from_numpy(peer.coef_), atol=5e-3, rtol=5e-3)


def test_the_offline_probe_is_as_good_as_scikit_learns_on_standardised_features() -> None:
    scales = torch.tensor([1e-3, 1.0, 50.0, 1.0, 10.0, 1.0, 0.1, 1.0])
    x, labels = labelled(600, 8, 5, 0)
    test, truth = labelled(1000, 8, 5, 1)
    result = linear_probe(x * scales + 7, labels, test * scales + 7, truth)
    mean, deviation = x.mean(0), x.std(0, correction=0)
    standard = [((part - mean) / deviation).double().numpy() for part in (x, test)]
    peer = LogisticRegression(C=1 / (len(x) * result.penalty), max_iter=1000).fit(standard[0], labels.numpy())
    assert result.top1 == pytest.approx(peer.score(standard[1], truth.numpy()), abs=0.004)
    right = np.argsort(-peer.predict_proba(standard[1]), 1)[:, :5] == truth.numpy()[:, None]
    assert result.top5 == pytest.approx(right.any(1).mean(), abs=0.004)


def test_the_penalty_is_chosen_to_generalise() -> None:
    """Many useless features and few images want a strong penalty, many images of few features a weak one."""
    generator = torch.Generator().manual_seed(0)
    few, few_labels = labelled(60, 4, 3, 0)
    few = torch.cat([few, torch.randn(60, 200, generator=generator)], 1)
    many, many_labels = labelled(2000, 4, 3, 1, noise=0.5)
    strong = linear_probe(few, few_labels, few, few_labels).penalty
    weak = linear_probe(many, many_labels, many, many_labels).penalty
    assert strong > weak


def test_constant_features_and_labels_that_only_the_test_knows_do_no_harm() -> None:
    x, labels = labelled(100, 4, 3, 0, noise=0.5)
    test, truth = labelled(100, 4, 3, 1, noise=0.5)
    truth[:10] = 7  # can only be wrong
    plain = linear_probe(x, labels, test, truth)
    constant = torch.full((100, 1), 0.1)
    result = linear_probe(torch.cat([x, constant], 1), labels, torch.cat([test, constant * 50], 1), truth)
    assert result == plain
    assert 0.5 < result.top1 <= 0.9


def test_a_collapsed_encoder_gives_the_most_frequent_class() -> None:
    labels = torch.tensor([0, 1, 1, 2] * 20)
    assert linear_probe(torch.full((80, 3), 0.7), labels, torch.full((80, 3), 0.7), labels).top1 == 0.5


def test_it_works_on_detached_features_under_no_grad() -> None:
    x, labels = labelled(60, 4, 3, 0)
    with torch.no_grad():
        assert linear_probe(x, labels, x, labels, penalties=(0.01,)).top1 > 0.5


def test_the_penalty_is_chosen_on_a_tenth_of_every_class() -> None:
    labels = torch.arange(200) % 4
    assert labels[_held_out(labels, 0)].bincount().tolist() == [5] * 4


def test_the_final_fit_learns_from_the_images_that_chose_the_penalty_too() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    z = torch.randn(60, 4, generator=generator) + F.one_hot(labels, 4)
    weight, _, _ = fit_probe(z, labels, 3, penalties=(0.01,))
    peer = LogisticRegression(C=1 / (len(z) * 0.01), tol=1e-8, max_iter=2000).fit(z.double().numpy(), labels.numpy())
    torch.testing.assert_close(weight.double(), torch.from_numpy(peer.coef_), atol=5e-3, rtol=5e-3)
