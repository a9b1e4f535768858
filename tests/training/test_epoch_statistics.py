"""Means over an epoch: against a brute force, of two processes, and from a checkpoint in the middle."""

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dualtemp import distributed
from dualtemp.training.epoch_statistics import NAMES, EpochStatistics, weight_statistics


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
    told = weight_statistics(torch.tensor([W, W[::-1]], dtype=torch.float64))
    for column in told.T:
        np.testing.assert_allclose(column, by_hand(W), rtol=1e-9, atol=1e-12)


def test_equal_weights_give_the_largest_entropy_and_a_tenth() -> None:
    entropy, mean, spread, tenth = weight_statistics(torch.full((1, 50), 0.25, dtype=torch.float64))[:, 0].tolist()
    assert (entropy, mean, spread, tenth) == pytest.approx((math.log(50), 0.25, 0.0, 0.1))


def steps() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand((), generator=generator), torch.rand(2, 24, generator=generator)) for _ in range(7)]


def test_the_mean_is_over_steps_of_the_first_direction_alone() -> None:
    meter = EpochStatistics()
    for number, (loss, W) in enumerate(steps()):
        meter.add(loss, W)
        if number in (2, 3):  # however the steps are taken together
            meter.settle()
    meter.settle()
    expected = np.mean([[loss.item(), *by_hand(W[0].double().tolist())] for loss, W in steps()], axis=0)
    assert list(meter.means()) == list(NAMES)
    np.testing.assert_allclose(list(meter.means().values()), expected, rtol=1e-6)


def test_a_framework_without_weights_has_the_loss_alone() -> None:
    meter = EpochStatistics()
    for loss, _ in steps():
        meter.add(loss, None)
    assert len(meter.settle()) == 7
    assert list(meter.means()) == ["loss"]


def metered_by_rank() -> dict[str, float]:
    meter, share = EpochStatistics(), 24 // distributed.world_size()
    for loss, W in steps():
        meter.add(loss, W[:, distributed.rank() * share :][:, :share])
    meter.settle()
    return meter.means()


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    import several_processes  # not above: the processes that read this file know nothing of the others

    alone = metered_by_rank()
    for shared in several_processes.run(__file__, "metered_by_rank", 2, tmp_path / "two"):
        assert shared == pytest.approx(alone, rel=1e-12)


def by_position(totals: dict[str, float], count: int) -> torch.Tensor:
    return torch.tensor([*list(totals.values())[:count], totals["steps"]], dtype=torch.float64)


FORMS = {  # what a checkpoint holds of the totals: today's, those of other versions
    "by name": lambda totals: dict(totals),
    "of a later version": lambda totals: {"another": 3.0, **totals},
    "five by position": lambda totals: by_position(totals, 5),
    "two by position": lambda totals: by_position(totals, 2),
    "without a figure": lambda totals: {name: total for name, total in totals.items() if name != "W_mean"},
}
UNKNOWN = {"two by position": {"W_mean", "W_spread", "hardest_tenth"}, "without a figure": {"W_mean"}}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at", [0, 4])
def test_a_meter_goes_on_from_a_checkpoint_and_leaves_out_what_that_does_not_know(at: int, form: str) -> None:
    whole, before = EpochStatistics(), EpochStatistics()
    for number, (loss, W) in enumerate(steps()):
        whole.add(loss, W)
        if number < at:
            before.add(loss, W)
    whole.settle()
    before.settle()
    saved = FORMS[form](before.totals)
    kept = copy.deepcopy(saved)
    after = EpochStatistics(saved)
    for loss, W in steps()[at:]:
        after.add(loss, W)
    after.settle()
    known = [name for name in NAMES if not at or name not in UNKNOWN.get(form, ())]
    assert after.means() == pytest.approx({name: whole.means()[name] for name in known}, rel=1e-12)
    assert torch.equal(kept, saved) if isinstance(saved, torch.Tensor) else kept == saved, "it is not added to"
