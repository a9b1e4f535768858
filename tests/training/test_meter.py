"""Means over an epoch: against a brute force, of two processes, and from a checkpoint in the middle."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dualtemp import distributed
from dualtemp.training.meter import NAMES, EpochMeter, told_of_weights


def by_hand(W: list[float]) -> list[float]:
    """Entropy of r_+, mean, standard deviation and the share of the hardest tenth of one step, number by number."""
    total, mean = math.fsum(W), math.fsum(W) / len(W)
    hardest = sorted(W, reverse=True)[: math.ceil(len(W) / 10)]
    return [
        -math.fsum(w / total * math.log(w / total) for w in W),
        mean,
        math.sqrt(math.fsum((w - mean) ** 2 for w in W) / len(W)),
        math.fsum(hardest) / total,
    ]


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=70))
def test_what_is_told_of_the_weights_agrees_with_a_brute_force(W: list[float]) -> None:
    told = told_of_weights(torch.tensor([W, W[::-1]], dtype=torch.float64))
    for column in told.T:
        np.testing.assert_allclose(column, by_hand(W), rtol=1e-9, atol=1e-12)


def test_equal_weights_give_the_largest_entropy_and_a_tenth() -> None:
    entropy, mean, spread, tenth = told_of_weights(torch.full((1, 50), 0.25, dtype=torch.float64))[:, 0].tolist()
    assert (entropy, mean, spread, tenth) == pytest.approx((math.log(50), 0.25, 0.0, 0.1))


def steps() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand((), generator=generator), torch.rand(2, 24, generator=generator)) for _ in range(7)]


def test_the_mean_is_over_steps_of_the_first_direction_alone() -> None:
    meter = EpochMeter()
    for number, (loss, W) in enumerate(steps()):
        meter.add(loss, W)
        if number in (2, 3):  # however the steps are taken together
            meter.settle()
    meter.settle()
    expected = np.mean([[loss.item(), *by_hand(W[0].double().tolist())] for loss, W in steps()], axis=0)
    assert list(meter.means()) == list(NAMES)
    np.testing.assert_allclose(list(meter.means().values()), expected, rtol=1e-6)


def test_a_framework_without_weights_has_the_loss_alone() -> None:
    meter = EpochMeter()
    for loss, _ in steps():
        meter.add(loss, None)
    assert len(meter.settle()) == 7
    assert list(meter.means()) == ["loss"]


def metered_by_rank() -> dict[str, float]:
    meter, share = EpochMeter(), 24 // distributed.world_size()
    for loss, W in steps():
        meter.add(loss, W[:, distributed.rank() * share :][:, :share])
    meter.settle()
    return meter.means()


def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    import several_processes  # not above: the processes that read this file know nothing of the others

    alone = metered_by_rank()
    for shared in several_processes.run(__file__, "metered_by_rank", 2, tmp_path / "two"):
        assert shared == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("at", [0, 4])
def test_a_meter_goes_on_from_a_checkpoint_and_older_ones_leave_out_what_they_do_not_know(at: int, older: bool) -> None:
    whole, before = EpochMeter(), EpochMeter()
    for number, (loss, W) in enumerate(steps()):
        whole.add(loss, W)
        if number < at:
            before.add(loss, W)
    whole.settle()
    before.settle()
    saved = before.totals[[0, 1, -1]] if older else before.totals
    after = EpochMeter(saved)
    for loss, W in steps()[at:]:
        after.add(loss, W)
    after.settle()
    known = NAMES[:2] if older and at else NAMES
    assert after.means() == pytest.approx({name: whole.means()[name] for name in known}, rel=1e-12)
    assert before.means() == before.means() if at else True
    assert saved[-1] == at, "what was loaded is not added to"
